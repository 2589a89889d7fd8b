"""Reading and writing at positions that are data."""

from __future__ import annotations

from math import prod

from ngraph_mxnet.cpu import abi
from ngraph_mxnet.cpu.lower.context import Lowering, lowers
from ngraph_mxnet.cpu.lower.wide import converted
from ngraph_mxnet.cpu.view import PlainView
from ngraph_mxnet.ir.graph import Node, Value
from ngraph_mxnet.ir.types import Shape, TensorType, i64

_INDICES = {"i64", "i32", "i8", "u8"}


def _check_indices(node: Node) -> str | None:
    found, kinds = node.inputs[1].type.element.name, ", ".join(sorted(_INDICES))
    return None if found in _INDICES else f"{node.op.name} by {found} has no CPU kernel, only by {kinds}"


@lowers("gather", check=_check_indices)
def gather(ctx: Lowering, node: Node) -> None:
    """Along any axis."""
    data, indices = node.inputs
    ints = abi.gather_ints(data.shape, node.attrs["axis"], indices.type.size, wrap=node.attrs["mode"] == "wrap")
    _rows(ctx, node, _wide(ctx, indices), ints)


@lowers("gather_elements", check=_check_indices)
def gather_elements(ctx: Lowering, node: Node) -> None:
    """The positions of the elements in the flat data, then these as rows of one element."""
    data, indices = node.inputs
    axis, wrap = node.attrs["axis"] % data.type.rank, node.attrs["mode"] == "wrap"
    positions = ctx.new_plain(TensorType(i64, indices.shape))
    ctx.emit("element_positions", [_wide(ctx, indices)], positions,
             abi.element_positions_ints(data.shape, axis, indices.shape[axis], wrap=wrap))
    _rows(ctx, node, positions, abi.gather_ints((data.type.size,), 0, indices.type.size))


@lowers("gather_nd", check=_check_indices)
def gather_nd(ctx: Lowering, node: Node) -> None:
    """The positions of the coordinates, then rows."""
    data, indices = node.inputs
    axes = indices.shape[0]
    rows = (prod(data.shape[:axes]), prod(data.shape[axes:]))
    _rows(ctx, node, _positions(ctx, indices, data.shape), abi.gather_ints(rows, 0, prod(indices.shape[1:])))


@lowers("scatter_nd", check=_check_indices)
def scatter_nd(ctx: Lowering, node: Node) -> None:
    """A copy of the data, then rows into it."""
    data, indices, updates = node.inputs
    out = ctx.copy(ctx.plain(data), ctx.new_plain(node.output.type))
    changed = PlainView(out.type, out.buffer, out.offset, strides=out.strides)
    ints = abi.scatter_ints(prod(data.shape[indices.shape[0]:]), prod(indices.shape[1:]))
    reads = [ctx.contiguous(updates), _positions(ctx, indices, data.shape)]
    ctx.emit(f"scatter_{data.type.element.size}", reads, changed, ints, after=[out], bytes=2 * updates.type.bytes)
    ctx.set_plain(node.output, PlainView(out.type, out.buffer, out.offset, [*out.writers, *changed.writers],
                                         out.strides))


def _wide(ctx: Lowering, indices: Value) -> PlainView:
    """The indices as contiguous i64."""
    return converted(ctx, ctx.contiguous(indices), i64)


def _positions(ctx: Lowering, indices: Value, shape: Shape) -> PlainView:
    """The row of each coordinate in the leading axes of `shape`."""
    axes, count = indices.shape[0], prod(indices.shape[1:])
    out = ctx.new_plain(TensorType(i64, (count,)))
    ctx.emit("coordinate_positions", [_wide(ctx, indices)], out,
             abi.coordinate_positions_ints(shape[:axes], count))
    return out


def _rows(ctx: Lowering, node: Node, positions: PlainView, ints: list[int]) -> None:
    out = ctx.new_plain(node.output.type)
    ctx.emit(f"gather_{node.output.type.element.size}", [ctx.contiguous(node.inputs[0]), positions], out, ints)
    ctx.set_plain(node.output, out)
