"""Sorting and running sums along an axis."""

from __future__ import annotations

from ngraph_mxnet.ir.graph import Node
from ngraph_mxnet.ir.types import ElementType, TensorType, f32, i64
from ngraph_mxnet.targets.cpu.lower.context import Lowering, lowers
from ngraph_mxnet.targets.cpu.lower.wide import computing_element, converted, read
from ngraph_mxnet.targets.cpu.params.ordering import ARGSORT, ARGSORT_DIGITS, CUMSUM, DIGITS, FIRST
from ngraph_mxnet.targets.cpu.params.reduction import around
from ngraph_mxnet.targets.cpu.planning.view import PlainView, contiguous_strides

_FEW = {"argsort": 4, "argsort_digits": 32}
"""The first elements of a line are kept in a heap, instead of sorting all, if they are at most one in so many."""

_LONG = 256
"""Lines of float32 with so many elements are sorted by digits, whose passes take longer than short lines."""


@lowers("argsort")
def argsort(ctx: Lowering, node: Node) -> None:
    """All are sorted within a longer line of a buffer; a few are kept in a heap."""
    view, element = _operand(ctx, node)
    shape, axis = view.type.shape, node.attrs["axis"] % view.type.rank
    n = around(shape, axis)
    outer, size, inner = n["outer"], n["size"], n["inner"]
    descending, count = node.attrs["descending"], node.attrs["count"] or size
    kernel = "argsort_digits" if element == f32 and _LONG <= size < 1 << 32 else "argsort"
    if count <= size // _FEW[kernel]:
        kernel = "first"
    record, line = {"first": (FIRST, count), "argsort": (ARGSORT, 2 * size),
                    "argsort_digits": (ARGSORT_DIGITS, 2 * size + DIGITS)}[kernel]
    lines = ctx.new_plain(TensorType(i64, (outer, inner, line)))
    ctx.emit(f"{kernel}_{element}", record(**n, descending=descending, count=count), data=view, output=lines)
    strides = (*(line * inner * stride for stride in contiguous_strides(shape[:axis])), 1,
               *(line * stride for stride in contiguous_strides(shape[axis + 1:])))
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
