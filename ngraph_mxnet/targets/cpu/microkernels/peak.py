"""A kernel that does nothing but multiply-adds in registers: what the cores can do at best.

`ng_peak_multiply_add__<isa>`: operand 0 has three floats f, `ints[0]` is a number of rounds. Accumulator i of a task
begins as f[0] + i and becomes `accumulator * f[1] + f[2]` four times a round. At the end a task adds its accumulators
and stores the 16 equal floats of the sum at operand 1, task after task.
"""

from __future__ import annotations

from functools import reduce

from llvmlite import ir

from ngraph_mxnet.targets.cpu.microkernels.emit import F32, I64, VECTOR, Emitter, integer, kernel_function
from ngraph_mxnet.targets.cpu.microkernels.params import PEAK_ACCUMULATORS, PEAK_TIMES, peak_symbol
from ngraph_mxnet.targets.cpu.microkernels.variants import Isa


def build_peak(module: ir.Module, isa: Isa, multiply_add: str) -> None:
    """Add the kernel to `module`; `multiply_add` names the intrinsic."""
    e = Emitter(kernel_function(module, peak_symbol(isa)), multiply_add)
    count = PEAK_ACCUMULATORS[isa]
    b = e.builder
    ints, _, begin, end = e.function.args[1:]
    source, target = e.operands(2)
    start, factor, summand = (e.splat(e.load(e.at(source, 4 * i), F32)) for i in range(3))
    starts = [b.fadd(start, ir.Constant(VECTOR, [float(i)] * 16)) for i in range(count)]
    rounds = e.load(ints, I64, 8)

    def turn(carried: list[ir.Value]) -> tuple[ir.Value, list[ir.Value]]:
        number, *values = carried
        for _ in range(PEAK_TIMES):
            values = [e.multiply_add(value, factor, summand) for value in values]
        following = b.add(number, integer(1))
        return b.icmp_signed("<", following, rounds), [following, *values]

    def task(number: ir.Value) -> None:
        total = reduce(b.fadd, e.repeat("round", [integer(0), *starts], turn)[1:])
        b.store(total, e.at(target, b.mul(number, integer(64))), align=4)

    e.loop(begin, end, task)
    b.ret_void()
