"""A toy microkernel: LLVM IR, by hand, for an op of its own."""

from __future__ import annotations

import numpy as np
from llvmlite import ir

from ngraph_mxnet.ir.graph import Node
from ngraph_mxnet.ir.opdef import by_result, register_op
from ngraph_mxnet.ir.types import Float, f32
from ngraph_mxnet.ops.common import require
from ngraph_mxnet.targets.cpu.lower.context import Lowering, lowers
from ngraph_mxnet.targets.cpu.microkernels.emit import F32, F64, I64, PTR, Emitter
from ngraph_mxnet.targets.cpu.microkernels.variants import Isa, microkernel
from ngraph_mxnet.targets.cpu.params.record import Kernels, whole

LANES = 16


@register_op("parabola", operands=1, attrs={"a": Float(), "b": Float(), "c": Float()}, work=by_result(simple=4))
def parabola(types, attrs):
    """(a x + b) x + c of f32."""
    require(types[0].element is f32, "operand 0", types[0], "f32")
    return types[0]


@parabola.reference
def _(inputs, attrs):
    a, b, c = (np.float32(attrs[name]) for name in "abc")
    return (a * inputs[0] + b) * inputs[0] + c


PARABOLA = Kernels("parabola", tensors="input >output", ints="vectors", sizes=1, floats="a b c",
                   tasks=lambda p: p.vectors,
                   reach=lambda p, size: [whole(name, size, p.vectors, LANES) for name in ("input", "output")])


@microkernel("parabola")
def build_parabola(module: ir.Module, symbol: str, isa: Isa) -> None:
    """A task is 16 elements."""
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [PTR, PTR, PTR, I64, I64]), name=symbol)
    e = Emitter(function, "llvm.fmuladd")
    builder = e.builder
    tensors, _, floats, begin, end = function.args
    source, target = (e.load(e.at(tensors, 8 * i), PTR, 8) for i in range(2))
    a, b, c = (e.splat(builder.fptrunc(e.load(e.at(floats, 8 * i), F64, 8), F32)) for i in range(3))
    entry, head, body, done = builder.block, e.block("task"), e.block("vector"), e.block("done")
    builder.branch(head)
    builder.position_at_end(head)
    task = builder.phi(I64)
    task.add_incoming(begin, entry)
    builder.cbranch(builder.icmp_signed("<", task, end), body, done)
    builder.position_at_end(body)
    offset = builder.mul(task, ir.Constant(I64, 4 * LANES))
    x = e.load(e.at(source, offset), e.vector)
    builder.store(e.multiply_add(e.multiply_add(a, x, b), x, c), e.at(target, offset), align=4)
    task.add_incoming(builder.add(task, ir.Constant(I64, 1)), body)
    builder.branch(head)
    builder.position_at_end(done)
    builder.ret_void()


def whole_vectors(node: Node) -> str | None:
    size = node.output.type.size
    return f"its {size} elements are no whole vectors of {LANES}" if size % LANES else None


@lowers("parabola", check=whole_vectors)
def lower_parabola(ctx: Lowering, node: Node) -> None:
    source, out = ctx.contiguous(node.inputs[0]), ctx.new_plain(node.output.type)
    ctx.emit("parabola", PARABOLA(vectors=out.type.size // LANES, **node.attrs), input=source, output=out)
    ctx.set_plain(node.output, out)
