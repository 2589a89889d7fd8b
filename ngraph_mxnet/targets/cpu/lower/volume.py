"""Convolutions in three spatial dimensions: contractions over slices, whose taps on the depth axis are more steps.

The slices of the blocked layout are images. A slice of the result sums over the taps that meet a slice of the data; at
the front and back, where some lie in the padding, these are fewer, and such slices are contractions of their own.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby

import numpy as np

from ngraph_mxnet.ir.graph import Node
from ngraph_mxnet.targets.cpu.lower.context import Lowering
from ngraph_mxnet.targets.cpu.lower.contraction import Epilogue, Geometry, Input, Packing, contract
from ngraph_mxnet.targets.cpu.microkernels.tables import Plane
from ngraph_mxnet.targets.cpu.planning.view import BLOCK, BlockedView, View, sub_images


def has_depth(node: Node) -> bool:
    """Whether the convolution is more than one of each slice by itself."""
    if node.outputs[0].type.rank < 5:
        return False
    attrs = node.attrs
    return (node.inputs[1].shape[2], attrs["strides"][0], attrs["pads_begin"][0], attrs["pads_end"][0]) != (1, 1, 0, 0)


def _taps_of_slices(node: Node) -> list[tuple[int, int]]:
    """First and one-past-last tap on the depth axis that meet data, for each slice of the result."""
    depth, taps = node.inputs[0].shape[2], node.inputs[1].shape[2]
    stride, dilation, pad = (node.attrs[name][0] for name in ("strides", "dilations", "pads_begin"))
    fronts = [place * stride - pad for place in range(node.outputs[0].shape[2])]
    met = [(max(0, -(front // dilation)), min(taps, -((front - depth) // dilation))) for front in fronts]
    return [(first, stop) if first < stop else (0, 0) for first, stop in met]


def _nothing(ctx: Lowering, source: Input) -> Input:
    """Zeros in place of the data."""
    view = View(source.view.type, ctx.builder.constant(np.zeros(BLOCK, np.float32)), 0)
    return replace(source, view=view, plane=Plane(0, 0), channel_stride=0, group_stride=0)


def convolution(ctx: Lowering, node: Node, source: Input, packing: Packing, geometry: Geometry,
                outputs: list[BlockedView], epilogue: Epilogue, residual: BlockedView | None) -> None:
    """Emit a contraction for each run of slices with the same taps, of each element of the batch."""
    batch, _, depth, *_ = node.inputs[0].shape
    stride, dilation, pad = (node.attrs[name][0] for name in ("strides", "dilations", "pads_begin"))
    kernel_h = geometry.kernel[0]
    slice_bytes = source.plane.image
    is_blocked = isinstance(source.view, BlockedView)
    batch_bytes = slice_bytes * depth if is_blocked else source.channel_stride * source.channels
    places = node.outputs[0].shape[2]
    runs = [(taps, len(list(run))) for taps, run in groupby(_taps_of_slices(node))]
    for n in range(batch):
        place = 0
        for (first, stop), count in runs:
            front = place * stride - pad + first * dilation
            if first < stop:
                view = replace(source.view, offset=source.view.offset + n * batch_bytes + front * slice_bytes)
                data = replace(source, view=view, plane=source.plane._replace(image=stride * slice_bytes))
            else:  # all padding
                stop, data = 1, _nothing(ctx, source)
            weights = replace(
                packing, shape=(*packing.shape[:2], (stop - first) * kernel_h, packing.shape[3]),
                first=packing.first + first * kernel_h * packing.strides[2],
            )
            part = replace(geometry, slices=stop - first, slice_stride=dilation * slice_bytes)
            outs = [_slices(out, n * places + place, count) for out in outputs]
            kept = _slices(residual, n * places + place, count) if residual is not None else None
            contract(ctx, data, weights, part, outs, epilogue, kept)
            place += count


def _slices(view: BlockedView, first: int, count: int) -> BlockedView:
    _, channels, _, height, width = view.type.shape
    return sub_images(view, (count, channels, height, width), first)
