"""Sorting and running sums along an axis."""

from __future__ import annotations

from math import prod

from ngraph_mxnet.ir.graph import Node
from ngraph_mxnet.ir.types import ElementType, TensorType, i64
from ngraph_mxnet.targets.cpu.lower.context import Lowering, lowers
from ngraph_mxnet.targets.cpu.lower.wide import computing_element, converted, read
from ngraph_mxnet.targets.cpu.params.ordering import ARGSORT, CUMSUM, FIRST
from ngraph_mxnet.targets.cpu.params.reduction import around
from ngraph_mxnet.targets.cpu.planning.view import PlainView, contiguous_strides

_FEW = 4
"""The first elements of a line are kept in a heap, instead of sorting all, if they are at most one in so many."""


@lowers("argsort")
def argsort(ctx: Lowering, node: Node) -> None:
    """All are sorted in every other line of a buffer that is twice as large; a few are kept in a heap."""
    view, element = _operand(ctx, node)
    shape, axis = view.type.shape, node.attrs["axis"] % view.type.rank
    n = around(shape, axis)
    outer, size, inner = n["outer"], n["size"], n["inner"]
    descending, count = node.attrs["descending"], node.attrs["count"] or size
    few = count <= size // _FEW
    line = (count,) if few else (2, size)
    lines = ctx.new_plain(TensorType(i64, (outer, inner, *line)))
    params = (FIRST if few else ARGSORT)(**n, descending=descending, count=count)
    ctx.emit(f"{'first' if few else 'argsort'}_{element}", params, data=view, output=lines)
    step = prod(line)
    strides = (*(step * inner * stride for stride in contiguous_strides(shape[:axis])), 1,
               *(step * stride for stride in contiguous_strides(shape[axis + 1:])))
    ctx.set_plain(node.output, PlainView(node.output.type, lines.buffer, lines.offset, lines.writers, strides))


@lowers("cumsum")
def cumsum(ctx: Lowering, node: Node) -> None:
    """Integers are added as i64 and narrowed."""
    view, element = _operand(ctx, node)
    out = ctx.new_plain(view.type)
    params = CUMSUM(**around(view.type.shape, node.attrs["axis"]), descending=False, count=0)
    ctx.emit(f"cumsum_{element}", params, data=view, output=out)
    ctx.set_plain(node.output, converted(ctx, out, node.output.type.element))


def _operand(ctx: Lowering, node: Node) -> tuple[PlainView, ElementType]:
    element = computing_element(node.inputs[0].type.element)
    return ctx.dense(read(ctx, node.inputs[0], element, ordered=node.op.ordinal)), element
