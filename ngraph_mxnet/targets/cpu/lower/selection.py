"""Lowering of ops that pick elements or pixels: gathers, orders, random masks; resizing, sampling by a grid, regions of
interest, boxes."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

from ngraph_mxnet.ir.graph import Node, Value
from ngraph_mxnet.ir.sizes import least
from ngraph_mxnet.ir.types import ElementType, Shape, TensorType, f32, i64
from ngraph_mxnet.ops.pooling import gradient_taps
from ngraph_mxnet.ops.random import threshold
from ngraph_mxnet.targets.cpu.lower.context import Lowering, lowers
from ngraph_mxnet.targets.cpu.lower.contraction import check_rank
from ngraph_mxnet.targets.cpu.lower.elementwise import check_f32
from ngraph_mxnet.targets.cpu.lower.movement import computing_element, converted, read, written
from ngraph_mxnet.targets.cpu.microkernels.tables import AxisTaps, of_arrays, taps_of_means, taps_of_resize
from ngraph_mxnet.targets.cpu.params import KERNELS, Params
from ngraph_mxnet.targets.cpu.params import selection as records
from ngraph_mxnet.targets.cpu.params.layout import RESAMPLE, SAMPLE
from ngraph_mxnet.targets.cpu.params.record import GRAIN, by_name
from ngraph_mxnet.targets.cpu.params.reduction import around
from ngraph_mxnet.targets.cpu.params.selection import ARGSORT, ARGSORT_DIGITS, CUMSUM, DIGITS, FIRST
from ngraph_mxnet.targets.cpu.planning.view import BlockedView, PlainView, contiguous_strides


@lowers("gather")
def gather(ctx: Lowering, node: Node) -> None:
    """Along any axis."""
    data, indices = node.inputs
    params = records.gathering(data.shape, node.attrs["axis"], indices.type.size, node.attrs["mode"])
    _rows(ctx, node, _wide(ctx, indices), params)


@lowers("gather_elements")
def gather_elements(ctx: Lowering, node: Node) -> None:
    """The positions of the elements in the flat data, then these as rows of one element."""
    data, indices = node.inputs
    axis, outside = node.attrs["axis"] % data.type.rank, records.OUTSIDE_CODES[node.attrs["mode"]]
    positions = ctx.new_plain(TensorType(i64, indices.shape))
    params = records.ELEMENT_POSITIONS(**around(data.shape, axis), count=indices.shape[axis], outside=outside)
    ctx.emit("element_positions", params, indices=_wide(ctx, indices), output=positions)
    _rows(ctx, node, positions, records.gathering((data.type.size,), 0, indices.type.size))


@lowers("gather_nd")
def gather_nd(ctx: Lowering, node: Node) -> None:
    """The positions of the coordinates, then rows."""
    data, indices = node.inputs
    axes = indices.shape[0]
    rows = (prod(data.shape[:axes]), prod(data.shape[axes:]))
    _rows(ctx, node, _positions(ctx, indices, data.shape), records.gathering(rows, 0, prod(indices.shape[1:])))


@lowers("scatter_nd")
def scatter_nd(ctx: Lowering, node: Node) -> None:
    """A copy of the data unless nobody else reads it, then rows into it; what combines elements is computed in a wide
    type."""
    data, indices, updates = node.inputs
    own, reduction = data.type.element, node.attrs["reduction"]
    how, view = str(own.size), ctx.plain(data)
    rows, code = ctx.contiguous(updates), None
    if reduction != "none":
        element = computing_element(own)
        ordered = reduction in ("max", "min")
        view, rows = (read(ctx, value, element, ordered=ordered) for value in (data, updates))
        how, rows, code = element.name, ctx.dense(rows), float(records.SCATTER_CODES[reduction])
    in_place = view is ctx.plain(data) and ctx.is_last_reader(node, data)
    out = view if in_place else ctx.copy(view, ctx.new_plain(view.type))
    changed = out.unwritten()
    rows_of_data, inner = (prod(part) for part in (data.shape[:indices.shape[0]], data.shape[indices.shape[0]:]))
    numbers = records.scattered(rows_of_data, inner, prod(indices.shape[1:]))
    params = records.SCATTER(**numbers) if code is None else records.SCATTER_INTO(**numbers, code=code)
    ctx.emit(f"scatter_{how}", params, updates=rows, positions=_positions(ctx, indices, data.shape), output=changed,
             after=[out], bytes=2 * updates.type.bytes, exact=True)
    done = replace(out, writers=[*out.writers, *changed.writers])
    ctx.set_plain(node.output, written(ctx, done, own, ordered=reduction in ("max", "min")))


def _wide(ctx: Lowering, indices: Value) -> PlainView:
    """The indices as contiguous i64."""
    return converted(ctx, ctx.contiguous(indices), i64)


def _positions(ctx: Lowering, indices: Value, shape: Shape) -> PlainView:
    """The row of each coordinate in the leading axes of `shape`."""
    axes, count = indices.shape[0], prod(indices.shape[1:])
    out = ctx.new_plain(TensorType(i64, (count,)))
    params = records.COORDINATE_POSITIONS(axes=axes, count=count, points=GRAIN).followed_by(shape[:axes])
    ctx.emit("coordinate_positions", params, coordinates=_wide(ctx, indices), output=out)
    return out


def _rows(ctx: Lowering, node: Node, positions: PlainView, params: Params) -> None:
    data, out = ctx.contiguous(node.inputs[0]), node.output.type
    touched = least(data.type.bytes, out.bytes) + positions.type.bytes + out.bytes  # rows, not the table
    ctx.make_plain(node.output, f"gather_{out.element.size}", params, data=data, indices=positions, bytes=touched,
                   exact=True)


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
    ctx.set_plain(node.output, lines.seen(node.output.type, strides))


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


@lowers("random_mask", "random_uniform")
def random(ctx: Lowering, node: Node) -> None:
    """A task draws a part of the elements, whatever the number of threads."""
    out, name = ctx.new_plain(node.output.type), node.op.name
    if node.output.type.size:
        numbers = {"threshold": threshold(node.attrs)} if name == "random_mask" else {}
        params = KERNELS[name](count=node.output.type.size, chunk=GRAIN, stream=node.attrs["stream"], **numbers)
        ctx.emit(name, params, state=ctx.contiguous(node.inputs[0]), output=out, exact=True)
    ctx.set_plain(node.output, out)


@lowers("resize", "adaptive_avg_pool", "resize_gradient", "adaptive_avg_pool_gradient", check=check_rank)
def resample(ctx: Lowering, node: Node) -> None:
    """One kernel: what each output row and column reads stands in constant tables."""
    (data,) = node.inputs
    rows, columns = _taps(node)
    source, out = ctx.blocked(data), ctx.new_blocked(node.output)
    params = RESAMPLE(**_image(source, out), taps=(rows.taps, columns.taps))
    ctx.emit("resample_blocked", params, input=source, output=out, **by_name(
        "first_row row_weights first_column column_weights",
        (ctx.table(table) for axis in (rows, columns) for table in (axis.first, axis.weights))))
    ctx.set_blocked(node.output, out)


def _taps(node: Node) -> list[AxisTaps]:
    """Return the taps of rows and columns."""
    sizes, attrs = node.inputs[0].shape[2:], node.attrs
    pairs = zip(sizes, attrs["sizes"], strict=True)
    if node.op.name == "resize":
        return [taps_of_resize(size, out, attrs["mode"], attrs["corners"]) for size, out in pairs]
    if node.op.name == "adaptive_avg_pool":
        return [taps_of_means(size, out) for size, out in pairs]
    return [of_arrays(*taps) for taps in gradient_taps(node.op.name, tuple(map(int, sizes)), attrs)]


def _image(source: BlockedView, out: BlockedView) -> dict[str, Any]:
    """Sizes and strides of both."""
    return {"n": source.images, "c16": source.blocks, "h": source.height, "w": source.width,
            "out": (out.height, out.width), "input": source.strides[:3], "output": out.strides[:3]}


@lowers("bilinear_sample", check=check_f32)
def bilinear_sample(ctx: Lowering, node: Node) -> None:
    """On plain layout: the places that pixels read have no order."""
    images, grid = (ctx.contiguous(value) for value in node.inputs)
    params = SAMPLE(**by_name("n c h w", images.type.shape), places=prod(node.output.shape[2:]))
    ctx.make_plain(node.output, "bilinear_sample", params, images=images, grid=grid)


@lowers("roi_align", "roi_max_pool", check=check_rank)
def regions(ctx: Lowering, node: Node) -> None:
    """16 channels of a region at once; a region of the result is an image."""
    data, rois = node.inputs
    source, out = ctx.blocked(data), ctx.new_blocked(node.output)
    kernel = f"{node.op.name}_blocked"
    record = KERNELS[kernel]
    params = record(**_image(source, out), regions=out.images, samples=node.attrs.get("samples", 0),
                    **{name: node.attrs[name] for name in record.floats})
    ctx.emit(kernel, params, input=source, regions=ctx.contiguous(rois), output=out)
    ctx.set_blocked(node.output, out)


@lowers("box_nms", check=check_f32)
def box_nms(ctx: Lowering, node: Node) -> None:
    """One task for each element of the batch; the memory it works in is of the arena."""
    attrs, (batch, rows, columns) = node.attrs, node.output.shape
    topk = rows if attrs["topk"] < 0 else min(attrs["topk"], rows)
    source, out = ctx.contiguous(node.inputs[0]), ctx.new_plain(node.output.type)
    order = ctx.new_plain(TensorType(i64, (batch, topk)))
    numbers = ctx.new_plain(TensorType(f32, (batch, records.NUMBERS, topk)))
    params = records.BOX_NMS(
        n=batch, rows=rows, columns=columns, topk=topk, center=attrs["format"] == "center",
        **{name: attrs[name] for name in ("coordinates", "score", "id", "background", "across_ids", "in_place", "keep",
                                          "overlap", "valid")})
    ctx.emit("box_nms", params, rows=source, output=out, order=order, numbers=numbers,
             bytes=source.type.bytes + out.type.bytes)
    ctx.set_plain(node.output, out)
