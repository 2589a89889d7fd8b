"""Convolutions in three spatial dimensions: contractions over slices, whose taps on the depth axis are more steps.

The slices of the blocked layout are images. A slice of the result sums over the taps that meet a slice of the data; at
the front and back, where some lie in the padding, these are fewer, and such slices are contractions of their own. Of
data with zeros between its elements each phase of the result is one (see `planning/phases.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from ngraph_mxnet.ir.graph import Node
from ngraph_mxnet.ir.types import TensorType
from ngraph_mxnet.targets.cpu.lower import phased
from ngraph_mxnet.targets.cpu.lower.context import Lowering
from ngraph_mxnet.targets.cpu.lower.contraction import Epilogue, Geometry, Input, Packing, contract
from ngraph_mxnet.targets.cpu.planning.layout import phases_of
from ngraph_mxnet.targets.cpu.planning.phases import AxisPhase, axis_phases
from ngraph_mxnet.targets.cpu.planning.view import BlockedView, PlainView, View, contiguous_strides


def has_depth(node: Node) -> bool:
    """Whether the convolution is more than one of each slice by itself."""
    if node.outputs[0].type.rank < 5:
        return False
    attrs, step = node.attrs, node.attrs["data_dilations"]
    return any(one > 1 for one in step) or (
        node.inputs[1].shape[2], attrs["strides"][0], attrs["pads_begin"][0], attrs["pads_end"][0]) != (1, 1, 0, 0)


@dataclass(frozen=True)
class _Run:
    """Slices of the result, `count` of them from `first` on in steps, that the same taps meet: `taps` of them from
    `tap` on in steps, which lie `dilation` slices of the data apart, from slice `front` on. There may be none."""

    first: int
    step: int
    count: int
    tap: int
    tap_step: int
    taps: int
    dilation: int
    front: int


def padding(node: Node) -> tuple[int, int]:
    """Slices before and behind the data."""
    if node.inputs[0].type.rank < 5:
        return 0, 0
    return node.attrs["pads_begin"][0], node.attrs["pads_end"][0]


def _runs(node: Node, depth: int, pad: int) -> Iterator[_Run]:
    kernel, places = node.inputs[1].shape[2], node.outputs[0].shape[2]
    stride, dilation, step = (node.attrs[name][0] for name in ("strides", "dilations", "data_dilations"))
    for phase in axis_phases(places, kernel, dilation, step, pad):
        fronts = [place * stride - phase.pad for place in range(phase.count)]
        met = [_met(phase, front, depth) for front in fronts]
        done = 0
        for (first, stop), run in groupby(met):
            count = len(list(run))
            yield _Run(phase.first + done * step, step, count, phase.tap + first * phase.tap_step, phase.tap_step,
                       stop - first, phase.dilation, fronts[done] + first * phase.dilation)
            done += count


def _met(phase: AxisPhase, front: int, depth: int) -> tuple[int, int]:
    """First and one-past-last of the phase's taps that meet data."""
    first = max(0, -(front // phase.dilation))
    stop = min(phase.taps, -((front - depth) // phase.dilation))
    return (first, stop) if first < stop else (0, 0)


def convolution(ctx: Lowering, node: Node, source: Input, packing: Packing, geometry: Geometry,
                outputs: list[BlockedView], epilogue: Epilogue, residual: BlockedView | None, *,
                is_padded: bool = False) -> None:
    """Emit a contraction for each run of slices with the same taps, of each element of the batch.

    `is_padded`: the slices of the padding are there.
    """
    batch, _, depth, *_ = node.inputs[0].shape
    front, back = padding(node)
    if is_padded:
        depth, front = front + depth + back, 0
    stride, places = node.attrs["strides"][0], node.outputs[0].shape[2]
    phases, slice_bytes = phases_of(node), source.plane.image
    is_blocked = isinstance(source.view, BlockedView)
    batch_bytes = slice_bytes * depth if is_blocked else source.channel_stride * source.channels
    for run in _runs(node, depth, front):
        is_whole = run.front == 0 and stride == 1 and run.count == depth and run.count * run.step == places
        elements = batch if is_blocked and is_whole else 1  # whose slices follow each other
        run = replace(run, count=elements * run.count)
        for n in range(0, batch, elements):
            offset = source.view.offset + n * batch_bytes + run.front * slice_bytes
            data = replace(source, view=replace(source.view, offset=offset),
                           plane=source.plane._replace(image=stride * slice_bytes))
            outs = [_slices(out, n * places, run) for out in outputs]
            kept = _slices(residual, n * places, run) if residual is not None else None
            part = replace(geometry, slices=run.taps, slice_stride=run.dilation * slice_bytes)
            if not run.taps:  # all padding
                phased.nothing(ctx, source, packing, outs, epilogue, kept)
            elif phases:
                weights = _DepthTaps(packing.value, packing.shape, packing.strides, packing.groups, contiguous=False,
                                     run=run)
                phased.convolution(ctx, phases, data, weights, part, outs, epilogue, kept)
            else:
                contract(ctx, data, _rows(packing, run, geometry), part, outs, epilogue, kept)


def _rows(packing: Packing, run: _Run, geometry: Geometry) -> Packing:
    """Of consecutive taps on the depth axis, as rows of the kernel."""
    rows = geometry.kernel[0]
    return replace(packing, shape=(*packing.shape[:2], run.taps * rows, packing.shape[3]),
                   first=packing.first + run.tap * rows * packing.strides[2])


@dataclass(frozen=True)
class _DepthTaps(Packing):
    """Taps in steps on three axes, which are copied together."""

    run: _Run | None = None
    planes: tuple[AxisPhase, AxisPhase] | None = None

    def of_taps(self, rows: AxisPhase, columns: AxisPhase) -> Packing:
        assert self.run is not None
        shape = (*self.shape[:2], self.run.taps * rows.taps, columns.taps)
        strides: Any = contiguous_strides(shape)
        return replace(self, shape=shape, strides=strides, planes=(rows, columns), spec=(self.run, rows, columns))

    def pack(self, ctx: Lowering, source: Input, oc_tile: int, *, is_wide: bool = False) -> View:
        run, planes = self.run, self.planes
        assert run is not None and planes is not None
        axes = [(run.tap, run.tap_step, run.taps), *((axis.tap, axis.tap_step, axis.taps) for axis in planes)]

        def arrange(context: Lowering, view: PlainView) -> PlainView:
            shape = (*self.shape[:2], *(taps for _, _, taps in axes))
            made = context.new_plain(TensorType(view.type.element, shape))
            steps = [stride * step for stride, (_, step, _) in zip(view.strides[2:], axes, strict=True)]
            first = sum(stride * tap for stride, (tap, _, _) in zip(view.strides[2:], axes, strict=True))
            context.strided("copy_4", shape, [(view.moved(4 * first), (*view.strides[:2], *steps))],
                            (made, made.strides))
            return made

        return self.packed(ctx, source, oc_tile, is_wide, arrange)


def _slices(view: BlockedView, first: int, run: _Run) -> BlockedView:
    """The run's slices, behind the `first` ones; the view shares the writers."""
    _, channels, _, height, width = view.type.shape
    offset = view.offset + (first + run.first) * view.image * view.type.element.size
    return replace(view, type=view.type.with_shape((run.count, channels, height, width)), offset=offset,
                   image=run.step * view.image)
