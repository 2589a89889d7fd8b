"""A cluster as one call of the kernel `chain`, for which nothing is generated."""

from __future__ import annotations

from typing import Any

from ngraph_mxnet.ir.graph import Graph, Node, Value
from ngraph_mxnet.ir.sizes import are_same_shape, is_one
from ngraph_mxnet.ir.types import f32
from ngraph_mxnet.targets.cpu.lower.context import Lowering
from ngraph_mxnet.targets.cpu.params.chain import (
    CHAIN,
    CHAIN_INPUTS,
    CHAIN_MEMORY,
    CHAIN_OUTPUTS,
    CHAIN_REGISTERS,
    CHAIN_STEPS,
)
from ngraph_mxnet.targets.cpu.params.record import GRAIN
from ngraph_mxnet.targets.cpu.planning.view import BlockedView, PlainView, as_plain

Steps = list[int]


def chain(ctx: Lowering, node: Node) -> bool:
    """Emit the call for a `fused` node; False, and nothing is emitted, where it does not fit the kernel."""
    body, shape = node.attrs["body"], node.outputs[0].shape
    constants = [inner.output for inner in body.nodes if inner.op.name == "constant"]
    read = [*body.parameters, *constants]
    values = (*read, *node.outputs, *(value for inner in body.nodes for value in inner.outputs))
    if len(read) > CHAIN_INPUTS or len(node.outputs) > CHAIN_OUTPUTS or any(v.type.element is not f32 for v in values):
        return False
    if not all(is_one(v.type.size) or are_same_shape(v.shape, shape) for v in read) or not all(
            are_same_shape(v.shape, shape) for v in node.outputs):
        return False
    if not all(_is_dense(ctx, value) for value in node.inputs):
        return False
    steps = _steps(body, {value: CHAIN_MEMORY + number for number, value in enumerate(read)})
    if steps is None:
        return False
    views = [ctx.contiguous(value) for value in (*node.inputs, *constants)]
    counts = [view.type.size for view in views] + [1] * (CHAIN_INPUTS - len(views))
    outputs = [ctx.new_plain(value.type) for value in node.outputs]
    params = CHAIN(size=node.outputs[0].type.size, chunk=GRAIN, steps=len(steps), outputs=len(outputs),
                   **{f"count_{number}": count for number, count in enumerate(counts)})
    operands: dict[str, Any] = {f"{kind}{number}": view for kind, found in (("i", views), ("o", outputs))
                                for number, view in enumerate(found)}
    # All that is written is written behind the last step that reads: it may be an input's memory.
    ctx.emit("chain", params.followed_by(number for step in steps for number in step), exact=True,
             operations=float(len(body.nodes) * node.outputs[0].type.size), **operands)
    for value, view in zip(node.outputs, outputs, strict=True):
        ctx.set_plain(value, view)
    return True


def _is_dense(ctx: Lowering, value: Value) -> bool:
    """Whether the value is at hand without gaps, or is not made of blocks of channels, which would be turned first."""
    views = [as_plain(view) if isinstance(view, BlockedView) else view for view in ctx.views(value)]
    return not ctx.has_blocked(value) or any(isinstance(view, PlainView) and view.is_contiguous for view in views)


def _steps(body: Graph, place: dict[Value, int]) -> list[Steps] | None:
    """The ints of each step, in order, those that write the results last; None where an op is no step, or there are
    too few registers.

    Args:
        place: where a step reads each parameter and constant.
    """
    nodes = [node for node in body.nodes if node.op.name != "constant"]
    if any(node.op.name not in CHAIN_STEPS for node in nodes):
        return None
    last = {value: number for number, node in enumerate(nodes) for value in node.inputs}
    last.update(dict.fromkeys(body.results, len(nodes)))
    if any(value in place for value in body.results):
        return None  # a parameter returned as it is
    free, steps = list(range(CHAIN_REGISTERS)), []
    for number, node in enumerate(nodes):
        if not free:
            return None
        register = free.pop()  # not one of its operands', which are given back below
        operands = [place[value] for value in node.inputs]
        steps.append([CHAIN_STEPS[node.op.name], operands[0], operands[-1], register])
        place[node.output] = register
        for value in {*node.inputs, node.output}:
            if place[value] < CHAIN_MEMORY and last.get(value, number) == number:
                free.append(place[value])
    for number, value in enumerate(body.results):
        steps.append([CHAIN_STEPS["identity"], place[value], place[value], CHAIN_MEMORY + number])
    return steps
