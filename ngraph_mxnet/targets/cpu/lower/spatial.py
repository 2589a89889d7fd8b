"""Resizing, sampling by a grid, and regions of interest."""

from __future__ import annotations

from math import prod
from typing import Any

from ngraph_mxnet.ir.graph import Node
from ngraph_mxnet.ir.types import TensorType, f32, i64
from ngraph_mxnet.ops.pooling import gradient_taps
from ngraph_mxnet.targets.cpu.lower.context import Lowering, lowers
from ngraph_mxnet.targets.cpu.lower.contraction import check_rank
from ngraph_mxnet.targets.cpu.lower.elementwise import check_f32
from ngraph_mxnet.targets.cpu.microkernels.tables import AxisTaps, of_arrays, taps_of_means, taps_of_resize
from ngraph_mxnet.targets.cpu.params import KERNELS
from ngraph_mxnet.targets.cpu.params.layout import RESAMPLE, SAMPLE
from ngraph_mxnet.targets.cpu.params.record import by_name
from ngraph_mxnet.targets.cpu.params.selection import BOX_NMS, NUMBERS
from ngraph_mxnet.targets.cpu.planning.view import BlockedView


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
    numbers = ctx.new_plain(TensorType(f32, (batch, NUMBERS, topk)))
    params = BOX_NMS(
        n=batch, rows=rows, columns=columns, topk=topk, center=attrs["format"] == "center",
        **{name: attrs[name] for name in ("coordinates", "score", "id", "background", "across_ids", "in_place", "keep",
                                          "overlap", "valid")})
    ctx.emit("box_nms", params, rows=source, output=out, order=order, numbers=numbers,
             bytes=source.type.bytes + out.type.bytes)
    ctx.set_plain(node.output, out)
