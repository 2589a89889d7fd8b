"""Depthwise 3x3 convolutions of stride 1 and 2, on their row kernels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from math import prod
from typing import Any

import numpy as np

from ngraph_mxnet.ir.graph import Node, Value
from ngraph_mxnet.ir.sizes import greatest, least
from ngraph_mxnet.ir.types import TensorType, f32
from ngraph_mxnet.targets.cpu.lower import winograd
from ngraph_mxnet.targets.cpu.lower.context import Lowering, keep_zeros, lowers, require_border
from ngraph_mxnet.targets.cpu.lower.contraction import (
    NO_ACTIVATION,
    Activation,
    Epilogue,
    Geometry,
    Input,
    Packing,
    Vectors,
    block_bytes,
    byte_plane,
    check_rank,
    contract,
    with_activation,
)
from ngraph_mxnet.targets.cpu.microkernels.params import DEPTHWISE, STRIDES, super_groups
from ngraph_mxnet.targets.cpu.microkernels.tables import Plane
from ngraph_mxnet.targets.cpu.microkernels.variants import ACTIVATIONS, Kind, variants
from ngraph_mxnet.targets.cpu.params.record import by_name
from ngraph_mxnet.targets.cpu.planning.layout import AxisPhase, Phases, axis_phases, phases_of
from ngraph_mxnet.targets.cpu.planning.view import (
    BLOCK,
    BlockedView,
    Halo,
    PlainView,
    View,
    contiguous_strides,
    plain_view,
    spatial,
)

_TASKS_PER_THREAD = 8


def has_row_kernel(kernel: tuple[int, int], strides: tuple[int, int], dilations: tuple[int, int]) -> bool:
    return kernel == (3, 3) and dilations == (1, 1) and strides[0] == strides[1] and strides[0] in STRIDES


def depthwise_convolution(ctx: Lowering, source: BlockedView, weights: View, bias: View, out: BlockedView, *,
                          stride: int, padding: Halo, bounds: tuple[float, float], activation: Activation,
                          slopes: View | None) -> None:
    """Emit the convolution; `weights` are packed `[blocks][9][16]`, `bias` and slopes `[blocks][16]`."""
    chunks = least(out.height, greatest(1, _TASKS_PER_THREAD * ctx.settings.threads // out.images))
    params = DEPTHWISE[stride](
        images=out.images, channels=out.type.shape[1], blocks=out.blocks, height=out.height, width=out.width,
        chunk_rows=-(-out.height // chunks),
        first=-4 * (padding.top * source.row + padding.left * BLOCK),
        input=(4 * source.image, 4 * source.block, 4 * source.row), output=(4 * out.image, 4 * out.block, 4 * out.row),
        activation=ACTIVATIONS[activation.op],
        **by_name("lower upper slope offset scale shift", (*bounds, *activation.gate)),
    )
    ctx.emit(f"depthwise3x3_s{stride}", params, input=source, weights=weights, bias=bias, output=out, slopes=slopes,
             around=("input",) if padding else (),
             operations=18 * out.type.size, bytes=4 * (source.type.size + out.type.size + 9 * out.type.shape[1]))


def phased_convolution(ctx: Lowering, phases: Phases, source: Input, packing: Packing, geometry: Geometry,
                outputs: list[BlockedView], epilogue: Epilogue, residual: BlockedView | None) -> None:
    """Emit the phases, which may run at once: each writes pixels of its own."""
    for rows, columns in phases.pairs:
        outs = [_places(view, rows, columns, phases.steps) for view in outputs]
        kept = _places(residual, rows, columns, phases.steps) if residual is not None else None
        if not rows.taps * columns.taps:
            nothing(ctx, source, packing, outs, epilogue, kept)
            continue
        part = geometry._replace(kernel=(rows.taps, columns.taps), strides=(1, 1),
                                 dilations=(rows.dilation, columns.dilation), halo=Halo(rows.pad, 0, columns.pad, 0))
        contract(ctx, source, packing.of_taps(rows, columns), part, outs, epilogue, kept)


def nothing(ctx: Lowering, source: Input, packing: Packing, outputs: list[BlockedView], epilogue: Epilogue,
            residual: BlockedView | None) -> None:
    """Emit the places that meet no data: the epilogue of zeros."""
    none = _NoWeights(packing.value, (packing.shape[0], 0, 1, 1), packing.strides, packing.groups)
    contract(ctx, _zeros(ctx, source), none, Geometry(groups=packing.groups), outputs, epilogue, residual)


class _NoWeights(Packing):
    """Zeros, for places that meet no data: with one step of zeros as their sum, the epilogue is everyone's."""

    def pack(self, ctx: Lowering, source: Input, oc_tile: int, *, is_wide: bool = False) -> View:
        tiles = source.groups * -(-self.shape[0] // source.groups // oc_tile)
        return ctx.table(np.zeros(tiles * BLOCK * oc_tile, np.float32))


def _zeros(ctx: Lowering, source: Input) -> Input:
    """A block of channels that is zero at every pixel."""
    view = ctx.table(np.zeros(BLOCK, np.float32))
    kind: Kind = "depthwise" if source.kind == "depthwise" else "k16"
    return Input(kind, view, Plane(0, 0, 0), 1, 0, 0, source.groups)


def _places(view: BlockedView, rows: AxisPhase, columns: AxisPhase, steps: tuple[int, int]) -> BlockedView:
    """The pixels of the phase; the view shares the writers."""
    shape = (*view.type.shape[:2], rows.count, columns.count)
    offset = view.offset + (rows.first * view.row + columns.first * view.pixel) * view.type.element.size
    return replace(view, type=view.type.with_shape(shape), offset=offset, row=view.row * steps[0],
                   pixel=view.pixel * steps[1])


def has_depth(node: Node) -> bool:
    """True if the convolution is more than a separate convolution of each slice."""
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


def depth_padding(node: Node) -> tuple[int, int]:
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


def volume_convolution(ctx: Lowering, node: Node, source: Input, packing: Packing, geometry: Geometry,
                outputs: list[BlockedView], epilogue: Epilogue, residual: BlockedView | None, *,
                is_padded: bool = False) -> None:
    """Emit a contraction for each run of slices with the same taps, of each element of the batch.

    `is_padded`: the slices of the padding are there.
    """
    batch, _, depth, *_ = node.inputs[0].shape
    front, back = depth_padding(node)
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
            data = source._replace(view=replace(source.view, offset=offset),
                                   plane=source.plane._replace(image=stride * slice_bytes))
            outs = [_slices(out, n * places, run) for out in outputs]
            kept = _slices(residual, n * places, run) if residual is not None else None
            part = geometry._replace(slices=run.taps, slice_stride=run.dilation * slice_bytes)
            if not run.taps:  # all padding
                nothing(ctx, source, packing, outs, epilogue, kept)
            elif phases:
                weights = _DepthTaps(packing.value, packing.shape, packing.strides, packing.groups, contiguous=False,
                                     run=run)
                phased_convolution(ctx, phases, data, weights, part, outs, epilogue, kept)
            else:
                contract(ctx, data, _rows(packing, run, geometry), part, outs, epilogue, kept)


def _rows(packing: Packing, run: _Run, geometry: Geometry) -> Packing:
    """Return the packing of consecutive taps on the depth axis, as rows of the kernel."""
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
            shape = (*self.value.shape[:2], *(taps for _, _, taps in axes))
            made = context.new_plain(TensorType(view.type.element, shape))
            steps = [stride * step for stride, (_, step, _) in zip(view.strides[2:], axes, strict=True)]
            first = sum(stride * tap for stride, (tap, _, _) in zip(view.strides[2:], axes, strict=True))
            context.strided("copy_4", shape, [(view.moved(4 * first), (*view.strides[:2], *steps))], made)
            return made

        return self.packed(ctx, source, oc_tile, is_wide, arrange)


def _slices(view: BlockedView, first: int, run: _Run) -> BlockedView:
    """The run's slices, behind the `first` ones; the view shares the writers."""
    _, channels, _, height, width = view.type.shape
    offset = view.offset + (first + run.first) * view.image * view.type.element.size
    return replace(view, type=view.type.with_shape((run.count, channels, height, width)), offset=offset,
                   image=run.step * view.image)


_DENSE = 0.75
"""Share of multiply-adds that are not with padding, at or below which a contraction takes single channels: these
kernels reach about three quarters of the others' rate."""
_MOST_SINGLE = 1024
"""Single channels times taps: 64 KB of weights of one tile of output channels."""


def _check(node: Node) -> str | None:
    reason = check_rank(node)
    if reason is None and any(step > 1 for step in node.attrs["data_dilations"]) and phases_of(node) is None:
        reason = (f"{node.op.name} with data_dilations={list(node.attrs['data_dilations'])} has no CPU kernel but for "
                  "strides of 1")
    return reason


@lowers("convolution", check=_check)
def convolution(ctx: Lowering, node: Node) -> None:
    """1-D to 3-D, any stride, dilation, padding and groups."""
    geometry = Geometry.of(node)
    data, weights = node.inputs[:2]
    tiles = {0: True} if phases_of(node) or has_depth(node) else winograd.tiles(ctx, node, geometry)
    results, activation = node.outputs, NO_ACTIVATION
    if node in ctx.activations and tiles.keys() == {0}:
        results, activation = with_activation(ctx, node)
    epilogue = Epilogue.of(node, activation=activation)
    outputs = [ctx.new_blocked(value, narrow=True) for value in results]
    for value in (data, epilogue.residual) if len(tiles) > 1 else ():
        if value is not None:
            ctx.blocked(value)  # which both read, whichever runs
    for tile, holds in tiles.items():
        with ctx.builder.only_if(holds):
            if tile:
                winograd.convolution(ctx, tile, data, weights, geometry, outputs, epilogue)
            else:
                _direct(ctx, node, geometry, outputs, epilogue)
    ctx.set_views(results, outputs)


def _direct(ctx: Lowering, node: Node, geometry: Geometry, outputs: list[BlockedView], epilogue: Epilogue) -> None:
    """Emit a convolution as a contraction, or as several."""
    data, weights = node.inputs[:2]
    phases = phases_of(node)
    source = _input(ctx, data, weights, geometry)
    packing = Packing.of_convolution(ctx, weights, geometry.groups)
    require_border(ctx, source.view, geometry.halo)
    kept = ctx.stored(epilogue.residual) if epilogue.residual is not None else None
    if has_depth(node) or (node.outputs[0].type.rank == 5 and source.kind == "k1"):
        volume_convolution(ctx, node, source, packing, geometry, outputs, epilogue, kept)
    elif phases:
        phased_convolution(ctx, phases, source, packing, geometry, outputs, epilogue, kept)
    elif source.kind != "depthwise" or not _by_rows(ctx, source, packing, geometry, outputs, epilogue):
        contract(ctx, source, packing, geometry, outputs, epilogue, kept)


def _input(ctx: Lowering, data: Value, weights: Value, geometry: Geometry) -> Input:
    channels, outputs = data.shape[1], weights.shape[0]
    if geometry.groups == channels == outputs and channels > 1:
        view = ctx.narrow(data) if ctx.bf16 else ctx.blocked(data)
        return Input("depthwise", view, byte_plane(view), 1, 0, block_bytes(view), view.blocks)
    if channels < BLOCK and not ctx.has_blocked(data):
        return _plain_input(ctx, data, geometry)
    view = ctx.narrow(data) if ctx.bf16 else ctx.blocked(data)
    groups = super_groups(geometry.groups, channels, outputs)
    blocks = -(-channels // groups // BLOCK)
    if geometry.groups == 1 and not ctx.bf16 and _is_narrow(ctx, channels, outputs, prod(weights.shape[2:])):
        return Input("k1", view, byte_plane(view), channels, block_bytes(view), 0, 1)
    return Input("k16", view, byte_plane(view), blocks, block_bytes(view), blocks * block_bytes(view), groups)


def _is_narrow(ctx: Lowering, channels: int, outputs: int, taps: int) -> bool:
    """So much of the last blocks is padding that k1, which skips it, is faster than k16.

    Its sums are not split, so that the weights of one tile must be few.
    """
    finest = min(variant.oc_tile for variant in variants(ctx.settings.isa) if variant.kind == "k1")
    needed = channels * -(-outputs // finest) * finest
    whole = -(-channels // BLOCK) * BLOCK * -(-outputs // BLOCK) * BLOCK
    return needed <= _DENSE * whole and channels * taps <= _MOST_SINGLE


def _plain_input(ctx: Lowering, data: Value, geometry: Geometry) -> Input:
    """Few channels (the stem): the plain image, copied into a zero border if the convolution pads.

    The border is zero as the arena was at first, and shares memory only with others of its kind. In three dimensions an
    image of the input is a slice.
    """
    source, halo = ctx.contiguous(data), geometry.halo
    images, channels = data.shape[:2]
    depth = data.shape[2] if data.type.rank == 5 else 1
    height, width = spatial(data.shape)
    pitch = width + halo.left + halo.right
    plane_size = (height + halo.top + halo.bottom) * pitch
    if halo:
        shape = (images * channels * depth, height, width)
        type_ = TensorType(f32, (shape[0] * plane_size,))
        border = plain_view(type_, ctx.builder.arena(type_.bytes, ("border", shape, halo)))
        keep_zeros(ctx.settings.symbol("zero_halo"), border, halo, planes=shape[0], height=height, width=width,
                   words=1)
        strides = (plane_size, pitch, 1)
        inside = border.seen(TensorType(f32, shape), strides, halo.top * pitch + halo.left)
        ctx.strided("copy_4", shape, [(source, contiguous_strides(shape))], inside)
        source = inside
    image = plane_size * (channels if data.type.rank < 5 else 1)
    return Input("k1", source, Plane(pitch * 4, 4, image * 4), channels, depth * plane_size * 4, 0, 1)


def _by_rows(ctx: Lowering, source: Input, packing: Packing, geometry: Geometry, outputs: list[BlockedView],
             epilogue: Epilogue) -> bool:
    """Emit a depthwise convolution on its row kernel, if that has what it needs."""
    plain = epilogue.residual is None and len(outputs) == 1 and outputs[0].type.size
    floats = source.view.type.element is f32 and outputs[0].type.element is f32
    if not (plain and floats) or not has_row_kernel(geometry.kernel, geometry.strides, geometry.dilations):
        return False
    out = outputs[0]
    assert isinstance(source.view, BlockedView)
    vectors = Vectors(ctx, out.type.shape[1], BLOCK, source)
    bias = vectors.bias(epilogue.bias)
    packed = packing.pack(ctx, source, BLOCK)
    depthwise_convolution(ctx, source.view, packed, bias, out, stride=geometry.strides[0], padding=geometry.halo,
                          bounds=(epilogue.lower, epilogue.upper), activation=epilogue.activation,
                          slopes=vectors.slopes(epilogue.activation))
    return True
