"""Resizing, sampling by a grid, and regions of interest."""

from __future__ import annotations

from math import prod

import numpy as np

from ngraph_mxnet.cpu import abi
from ngraph_mxnet.cpu.lower.context import Lowering, lowers
from ngraph_mxnet.cpu.lower.contraction import check_rank
from ngraph_mxnet.cpu.lower.elementwise import check_f32
from ngraph_mxnet.cpu.view import View
from ngraph_mxnet.ir.graph import Node
from ngraph_mxnet.ops.resize import adaptive_taps, resize_taps


@lowers("resize", "adaptive_avg_pool", check=check_rank)
def resample(ctx: Lowering, node: Node) -> None:
    """One kernel: what each output row and column reads stands in constant tables."""
    (data,), attrs = node.inputs, node.attrs
    pairs = list(zip(data.shape[2:], attrs["sizes"], strict=True))
    if node.op.name == "resize":
        rows, columns = (resize_taps(size, out, attrs["mode"], attrs["corners"]) for size, out in pairs)
    else:
        rows, columns = (adaptive_taps(size, out) for size, out in pairs)
    source, out = ctx.blocked(data), ctx.new_blocked(node.output)
    tables = [_constant(ctx, out, table) for taps in (rows, columns) for table in taps]
    ctx.emit("resample_blocked", [source, *tables], out,
             abi.resample_ints(source, out, (rows[1].shape[1], columns[1].shape[1])))
    ctx.set_blocked(node.output, out)


def _constant(ctx: Lowering, out: View, table: np.ndarray) -> View:
    return View(out.type, ctx.builder.constant(table), 0)


@lowers("bilinear_sample", check=check_f32)
def bilinear_sample(ctx: Lowering, node: Node) -> None:
    """On plain layout: the places that pixels read have no order."""
    views = [ctx.contiguous(value) for value in node.inputs]
    out = ctx.new_plain(node.output.type)
    ctx.emit("bilinear_sample", views, out, [*node.inputs[0].shape, prod(node.output.shape[2:])])
    ctx.set_plain(node.output, out)


@lowers("roi_align", "roi_max_pool", check=check_rank)
def regions(ctx: Lowering, node: Node) -> None:
    """16 channels of a region at once; a region of the result is an image."""
    data, rois = node.inputs
    source, out = ctx.blocked(data), ctx.new_blocked(node.output)
    ints = abi.region_ints(source, out, node.attrs.get("samples", 0))
    floats = [node.attrs[name] for name in ("scale", "offset") if name in node.attrs]
    ctx.emit(f"{node.op.name}_blocked", [source, ctx.contiguous(rois)], out, ints, floats)
    ctx.set_blocked(node.output, out)
