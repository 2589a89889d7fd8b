"""A kernel that does nothing but multiply-adds in registers: what the cores can do at best.

`ng_peak_multiply_add__<isa>`: operand 0 has three floats f, `ints[0]` is a number of rounds. Accumulator i of a task
begins as f[0] + i and becomes `accumulator * f[1] + f[2]` four times a round. At the end a task adds its accumulators
and stores the 16 equal floats of the sum at operand 1, task after task.
"""

from __future__ import annotations

from llvmlite import ir

from ngraph_mxnet.targets.cpu.microkernels.emit import F32, I64, PTR, VECTOR, Emitter
from ngraph_mxnet.targets.cpu.microkernels.params import PEAK_ACCUMULATORS, PEAK_TIMES, peak_symbol
from ngraph_mxnet.targets.cpu.microkernels.variants import Isa


def build_peak(module: ir.Module, isa: Isa, multiply_add: str) -> None:
    """Add the kernel to `module`; `multiply_add` names the intrinsic."""
    signature = ir.FunctionType(ir.VoidType(), [PTR, PTR, PTR, I64, I64])
    function = ir.Function(module, signature, name=peak_symbol(isa))
    function.attributes.add("nounwind")
    e = Emitter(function, multiply_add)
    count = PEAK_ACCUMULATORS[isa]
    b = e.builder
    tensors, ints, _, begin, end = function.args
    source, target = (e.load(e.at(tensors, 8 * i), PTR, 8) for i in range(2))
    start, factor, summand = (e.splat(e.load(e.at(source, 4 * i), F32)) for i in range(3))
    starts = [b.fadd(start, ir.Constant(VECTOR, [float(i)] * 16)) for i in range(count)]
    rounds = e.load(ints, I64, 8)
    entry, head, body, task_done, done = b.block, e.block("task"), e.block("round"), e.block("store"), e.block("done")
    b.branch(head)

    b.position_at_end(head)
    task = b.phi(I64)
    task.add_incoming(begin, entry)
    b.cbranch(b.icmp_signed("<", task, end), body, done)

    b.position_at_end(body)
    number = b.phi(I64)
    sums = [b.phi(VECTOR) for _ in range(count)]
    values: list[ir.Value] = list(sums)
    for _ in range(PEAK_TIMES):
        values = [e.multiply_add(value, factor, summand) for value in values]
    following = b.add(number, ir.Constant(I64, 1))
    for phi, first, later in zip([number, *sums], [ir.Constant(I64, 0), *starts], [following, *values], strict=True):
        phi.add_incoming(first, head)
        phi.add_incoming(later, body)
    b.cbranch(b.icmp_signed("<", following, rounds), body, task_done)

    b.position_at_end(task_done)
    total = values[0]
    for value in values[1:]:
        total = b.fadd(total, value)
    b.store(total, e.at(target, b.mul(task, ir.Constant(I64, 64))), align=4)
    task.add_incoming(b.add(task, ir.Constant(I64, 1)), task_done)
    b.branch(head)
    b.position_at_end(done)
    b.ret_void()
