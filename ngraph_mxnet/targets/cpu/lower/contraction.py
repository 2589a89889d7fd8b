"""How a contraction of u8 computes so that what it stores needs no more scaling: in units of its first output."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import inf, prod
from typing import Any, NamedTuple

import numpy as np

from ngraph_mxnet.ir.graph import Node, Value
from ngraph_mxnet.ir.sizes import are_same, is_one
from ngraph_mxnet.ir.types import TensorType, f32, u8
from ngraph_mxnet.targets.cpu.lower import movement
from ngraph_mxnet.targets.cpu.lower.context import Lowering
from ngraph_mxnet.targets.cpu.lower.movement import moved_strides
from ngraph_mxnet.targets.cpu.microkernels.params import (
    FLAG_OUTPUT2,
    FLAG_OUTPUT2_NARROW,
    FLAG_OUTPUT_NARROW,
    FLAG_RESIDUAL,
    FLAG_RESIDUAL_NARROW,
    contraction_params,
)
from ngraph_mxnet.targets.cpu.microkernels.tables import Plane, pixel_table, step_table, zero_table
from ngraph_mxnet.targets.cpu.microkernels.tiles import ContractionSize, choose_tiles, output_parts
from ngraph_mxnet.targets.cpu.microkernels.variants import ACTIVATIONS, Kind
from ngraph_mxnet.targets.cpu.params.layout import packed_channels, packed_contraction, packed_depthwise
from ngraph_mxnet.targets.cpu.params.record import by_name
from ngraph_mxnet.targets.cpu.planning.layout import AxisPhase, convolution_halo
from ngraph_mxnet.targets.cpu.planning.precision import Affine
from ngraph_mxnet.targets.cpu.planning.view import (
    BF16,
    BLOCK,
    NO_HALO,
    BlockedView,
    Halo,
    PlainView,
    View,
    contiguous_strides,
    pair,
)

Gate = tuple[float, float, float, float]
"""Slope, offset, scale and shift of a hard swish (`microkernels/params.py`)."""


class Activation(NamedTuple):
    """The activation that follows the clamp. `op` is one of `microkernels.variants.ACTIVATIONS`."""

    op: str = "none"
    gate: Gate = (0.0, 0.0, 1.0, 0.0)
    """The slope, offset, scale and shift of a hard swish."""
    slopes: Value | float = 1.0
    """The slopes of a prelu: one for each channel, or one for all."""


NO_ACTIVATION = Activation()


class Linear(NamedTuple):
    """The linear map of a vector of the graph: times a number, plus a number."""

    times: float = 1.0
    plus: float = 0.0


AS_IT_IS = Linear()


@dataclass(frozen=True)
class Storing:
    """The kernel's numbers by name, and what becomes of the vectors."""

    numbers: dict[str, Any] = field(default_factory=dict)
    factor: Linear = AS_IT_IS
    addend: Linear = AS_IT_IS
    scale: Linear = AS_IT_IS
    shift: Linear = AS_IT_IS

    @staticmethod
    def of(stored: tuple[Affine | None, ...], residual: Affine | None, activation: Activation,
           bounds: dict[str, float]) -> Storing:
        """`stored`: how the outputs are stored as u8; `residual`: of one that is u8; `bounds`: lower, upper, lower2 and
        upper2 of real numbers."""
        first, second = (*stored, None, None)[:2]
        gate = activation.gate if activation.op == "hard_swish" else None
        # Units are positive, so that what slopes do is the same in all.
        unit = first.scale if first is not None and gate is None else 1.0
        lower, upper = bounds["lower"] / unit, bounds["upper"] / unit
        numbers: dict[str, Any] = {"lower": lower, "upper": upper, "residual_scale": 1 / unit, "zero_point": 0.0,
                                   "zero_point2": 0.0, "lower2": bounds["lower2"], "upper2": bounds["upper2"]}
        plus = 0.0
        if residual is not None:
            numbers["residual_scale"] = residual.scale / unit
            plus = -residual.scale * residual.zero_point / unit
        least, most = (lower, upper) if activation.op == "none" else (-inf, inf)
        if first is not None:
            numbers["zero_point"] = float(first.zero_point)
            if gate is not None:
                slope, offset, scale, shift = gate
                gate = slope, offset, scale / first.scale, shift / first.scale
        numbers["least"], numbers["most"] = _within(least, most, first)
        if gate is not None:
            numbers |= dict(zip(("slope", "offset", "scale", "shift"), gate, strict=True))
        step = second.scale if second is not None else 1.0
        if second is not None:
            numbers["zero_point2"] = float(second.zero_point)
            numbers["lower2"], numbers["upper2"] = _within(bounds["lower2"] / step, bounds["upper2"] / step, second)
        return Storing(numbers, Linear(1 / unit), Linear(1 / unit, plus), Linear(unit / step), Linear(1 / step))


def _within(lower: float, upper: float, affine: Affine | None) -> tuple[float, float]:
    """The bounds, such that the zero point added to what is within is a byte."""
    if affine is None:
        return lower, upper
    least, most = -float(affine.zero_point), 255.0 - affine.zero_point
    return min(max(lower, least), most), max(min(upper, most), least)


class Geometry(NamedTuple):
    """A convolution's shape parameters in two spatial dimensions."""

    kernel: tuple[int, int] = (1, 1)
    strides: tuple[int, int] = (1, 1)
    dilations: tuple[int, int] = (1, 1)
    groups: int = 1
    halo: Halo = NO_HALO
    slices: int = 1
    """Taps on the depth axis of three spatial dimensions."""
    slice_stride: int = 0
    """Bytes between them."""

    @staticmethod
    def of(node: Node) -> Geometry:
        """The last two spatial axes of a convolution; in one dimension the height is 1."""
        attrs, weights = node.attrs, node.inputs[1]
        return Geometry(pair(weights.shape[2:], 1), pair(attrs["strides"], 1), pair(attrs["dilations"], 1),
                        attrs["groups"], convolution_halo(node))

    @property
    def padding(self) -> tuple[int, int]:
        return self.halo.top, self.halo.left

    @property
    def taps(self) -> int:
        return self.slices * prod(self.kernel)


class Input(NamedTuple):
    """The input of a contraction: a view, its geometry in bytes, and how its channels are walked."""

    kind: Kind
    view: View
    plane: Plane
    channels: int
    """Steps per kernel tap: channel blocks of a group (k16), channels (k1), or 1 (depthwise)."""
    channel_stride: int
    """Between channel blocks; of a plain input, between channels."""
    group_stride: int
    groups: int
    short: bool = False
    """Sums may be in 16 bits."""

    @property
    def pixel_bytes(self) -> int:
        """Bytes of all channels that are read together, with the padding that lies between them."""
        if not isinstance(self.view, BlockedView):
            return self.channels * 4
        channels = self.channels if self.kind == "k1" else self.channels * BLOCK
        return -(-channels // BLOCK) * BLOCK * self.view.type.element.size

    @property
    def in_pairs(self) -> bool:
        """The weights are bf16, in pairs of input channels."""
        return self.kind == "k16" and self.view.type.element is BF16

    @property
    def is_u8(self) -> bool:
        """The weights are i8, in fours of input channels."""
        return self.view.type.element is u8


def byte_plane(view: BlockedView) -> Plane:
    size = view.type.element.size
    return Plane(view.row * size, view.pixel * size, view.image * size)


def block_bytes(view: BlockedView) -> int:
    """Between channel blocks."""
    return view.block * view.type.element.size


class Epilogue(NamedTuple):
    """The operations on the sums before they are stored."""

    bias: Value | None = None
    residual: Value | None = None
    scale: Value | None = None
    shift: Value | None = None
    lower: float = -inf
    upper: float = inf
    lower2: float = -inf
    upper2: float = inf
    activation: Activation = NO_ACTIVATION
    factor: Value | None = None
    addend: Value | None = None
    residual_affine: Affine | None = None
    """The affine map of a residual that is u8."""
    stored: tuple[Affine | None, ...] = ()
    """How results are stored as u8."""
    first: int = 0
    """The output channel at which the vectors are read first."""

    @staticmethod
    def of(node: Node, **more: Any) -> Epilogue:
        """The node's epilogue as the graph has it, with what else planning found out."""
        found: dict[str, Any] = {**node.epilogue, **clamps(node), **more}
        return Epilogue(**found)

    @property
    def bounds(self) -> dict[str, float]:
        """The clamps', by name."""
        return {"lower": self.lower, "upper": self.upper, "lower2": self.lower2, "upper2": self.upper2}


def with_activation(ctx: Lowering, node: Node) -> tuple[list[Value], Activation]:
    """Merge the only reader of a convolution into it. Return the reader's outputs, and the activation that makes
    them."""
    reader = ctx.activations[node]
    ctx.merged.add(reader)
    name, attrs = reader.op.name, reader.attrs
    if name == "hard_swish":
        return reader.outputs, Activation(name, (attrs["slope"], attrs["offset"], attrs["scale"], attrs["shift"]))
    if name == "leaky_relu":
        return reader.outputs, Activation("prelu", slopes=attrs["slope"])
    return reader.outputs, Activation(name, slopes=reader.inputs[1]) if name == "prelu" else Activation(name)


def clamps(node: Node) -> dict[str, Any]:
    return {key: node.attrs[key] for key in ("lower", "upper", "lower2", "upper2") if key in node.attrs}


def check_rank(node: Node) -> str | None:
    """The blocked layout has at most three spatial axes, and is float32."""
    if node.inputs[0].type.rank > 5:
        return f"{node.op.name} over more than three spatial axes has no CPU kernel"
    found = {v.type.element.name for v in node.inputs}
    if found != {"f32"}:
        return f"{node.op.name} of {', '.join(sorted(found))} has no CPU kernel, only f32"
    return check_depth(node)


def check_depth(node: Node) -> str | None:
    """A sum over nothing has no kernel; plain products of two operands are 0 before they are lowered
    (`passes/simplify.py`)."""
    if len(node.inputs) != 2 and node.outputs[0].type.size and any(v.type.size == 0 for v in node.inputs):
        return f"{node.op.name} over no elements has no CPU kernel"
    return None


def contract(ctx: Lowering, source: Input, weights: Packing, geometry: Geometry, outputs: list[BlockedView],
             epilogue: Epilogue, residual: BlockedView | None) -> None:
    """Emit one contraction: `outputs` is the result and, with scale and shift, the second one.

    `residual` is what there is of the epilogue's residual at the places of `outputs`.
    """
    out, second = outputs[0], outputs[1] if len(outputs) > 1 else None
    if out.type.size == 0:
        return
    group_blocks = out.blocks // source.groups if source.groups > 1 else out.blocks
    size = ContractionSize(
        out.images, out.height, out.width, group_blocks, steps=source.channels * geometry.taps, groups=source.groups,
        stride=prod(geometry.strides), flat_input=_is_flat(source, out, geometry),
        channels=out.type.shape[1] if source.groups == 1 else None, pixel_bytes=source.pixel_bytes,
        joined=geometry.taps == 1 and are_same(source.channel_stride, BLOCK * source.view.type.element.size),
    )
    settings = ctx.settings
    wanted = settings.wanted(bf16=source.view.type.element is BF16 or (ctx.bf16 and not source.is_u8),
                             u8=source.is_u8, short=source.short)
    bands = _bands(source, weights) or _whole_bands(source, weights, output_parts(wanted, source.kind, size))
    if bands:
        for band in bands:
            parts = [band.of(view) for view in outputs]
            contract(ctx, band.input(source), band.weights(weights), geometry, parts,
                     epilogue._replace(first=epilogue.first + band.first * BLOCK),
                     None if residual is None else band.of(residual))
        return
    storing = Storing()
    if source.is_u8:
        storing = Storing.of(epilogue.stored, epilogue.residual_affine, epilogue.activation, epilogue.bounds)
    choice = choose_tiles(wanted, source.kind, size, threads=settings.threads,
                          splits=out.type.element is not BF16 and not source.is_u8)
    planes = {name: byte_plane(view) for name, view in (("residual", residual), ("output2", second)) if view}
    pixels = pixel_table(
        out.height, out.width, inputs=source.plane, output=byte_plane(out), stride=geometry.strides,
        padding=geometry.padding, images=choice.table_images, **planes,
    )
    single = source.kind == "k1" and isinstance(source.view, BlockedView)
    steps = step_table(source.plane, channels=source.channels, channel_stride=source.channel_stride,
                       lanes=BLOCK if single else 1, kernel=geometry.kernel, dilation=geometry.dilations,
                       slices=geometry.slices, slice_stride=geometry.slice_stride)
    params = contraction_params(
        **choice.fields(), steps=steps.size,
        flags=_flags(out, residual, second), activation=ACTIVATIONS[epilogue.activation.op],
        pixel_stride=geometry.strides[1] * source.plane.pixel,
        input=(source.plane.image, source.group_stride),
        **{name: (byte_plane(view).image, block_bytes(view))
           for name, view in (("output", out), ("residual", residual), ("output2", second)) if view},
        **{**epilogue.bounds, **by_name("slope offset scale shift", epilogue.activation.gate), **storing.numbers},
    )
    packed = weights.pack(ctx, source, choice.oc_tile, is_wide=choice.variant.wide)
    vectors = Vectors(ctx, out.type.shape[1], choice.oc_tile, source, epilogue.first)
    bias = vectors.bias(epilogue.bias)
    scale, shift, factor, addend = (
        None if value is None else vectors.of(value, becomes)
        for value, becomes in ((epilogue.scale, storing.scale), (epilogue.shift, storing.shift),
                               (epilogue.factor, storing.factor), (epilogue.addend, storing.addend)))
    more: dict[str, Any] = {"factor": factor, "addend": addend} if source.is_u8 else {}
    touched = prod(weights.shape) * (1 if source.is_u8 else 2 if source.in_pairs else 4)
    touched += sum(view.type.bytes for view in (source.view, out, residual, second) if view)
    ctx.emit(choice.kernel, params, input=source.view, weights=packed, output=out, residual=residual,
             bias=bias, pixels=ctx.table(pixels), steps=ctx.table(steps), output2=second, scale2=scale, shift2=shift,
             **more, slopes=vectors.slopes(epilogue.activation), around=("input",) if geometry.halo else (),
             operations=2 * out.type.size * prod(weights.shape[1:]), bytes=touched)


def _flags(out: View, residual: View | None, second: View | None) -> int:
    """Which operands there are, and which are bf16 or u8."""
    flags = FLAG_OUTPUT_NARROW * (out.type.element is not f32)
    if residual is not None:
        flags |= FLAG_RESIDUAL | FLAG_RESIDUAL_NARROW * (residual.type.element is not f32)
    if second is not None:
        flags |= FLAG_OUTPUT2 | FLAG_OUTPUT2_NARROW * (second.type.element is not f32)
    return flags


def _is_flat(source: Input, out: BlockedView, geometry: Geometry) -> bool:
    """All output pixels of an image lie at one input stride."""
    if geometry.kernel != (1, 1) or is_one(out.height):
        return is_one(out.height)
    return geometry.strides == (1, 1) and are_same(source.plane.row, out.width * source.plane.pixel)


class Vectors:
    """Numbers of `channels` output channels, from channel `first` of a vector on, in the order of packed weights."""

    def __init__(self, ctx: Lowering, channels: int, oc_tile: int, source: Input | None = None, first: int = 0) -> None:
        """`source`: the input of the contraction, if that has groups."""
        self._ctx, self._channels, self._first = ctx, channels, first
        self._real = source is not None and source.kind == "depthwise"
        groups = 1 if source is None or self._real else source.groups
        self._packing = packed_channels(channels, groups=groups, oc_tile=oc_tile)
        self._size = groups * -(-(channels // groups) // oc_tile) * oc_tile

    def of(self, value: Value, becomes: Linear = AS_IT_IS) -> View:
        """A vector of the graph. One element stands for all channels; depthwise kernels take integers as float32."""

        def emit(context: Lowering, vector: PlainView, destination: View) -> None:
            numbers = movement.converted(context, vector, f32) if self._real else vector
            whole = numbers.type.with_shape((self._channels,))
            if is_one(value.type.size) and not is_one(self._channels):
                copies = context.new_plain(whole)
                context.strided("copy_4", whole.shape, [(numbers, (0,))], copies)
                numbers = copies
            elif self._first:
                numbers = numbers.seen(whole, (1,), self._first)
            for kernel, number, neutral in (("multiply", becomes.times, 1.0), ("add", becomes.plus, 0.0)):
                if number != neutral:
                    scalar, out = context.table(np.full(1, number, np.float32)), context.new_plain(numbers.type)
                    context.strided(kernel, out.type.shape, [numbers, (scalar, (0,))], out)
                    numbers = out
            context.emit("pack_channels", self._packing, values=numbers, packed=destination)

        spec = ("channels", self._real, becomes, self._first, *self._packing.ints())
        return self._ctx.packed(value, spec, self._size * 4, emit)

    def bias(self, value: Value | None) -> View:
        """A vector of the graph, or zeros."""
        return self._ctx.table(zero_table(self._size)) if value is None else self.of(value)

    def slopes(self, activation: Activation) -> View | None:
        """The slopes of a prelu."""
        if activation.op != "prelu":
            return None
        if isinstance(activation.slopes, Value):
            return self.of(activation.slopes)
        return self._ctx.table(np.full(self._size, activation.slopes, np.float32))


def channel_blocks(ctx: Lowering, value: Value, becomes: Linear = AS_IT_IS) -> View:
    """Return the vector `value`, one element per channel, padded with zeros to whole blocks."""
    return Vectors(ctx, value.type.size, BLOCK).of(value, becomes)


@dataclass(frozen=True)
class Packing:
    """Weights `value`, seen as [out channels][in channels / groups][KH][KW] at element `strides` from element `first`
    on, of a contiguous copy or of the value where it lies."""

    value: Value
    shape: tuple[int, int, int, int]
    strides: tuple[int, int, int, int]
    groups: int
    first: int = 0
    contiguous: bool = True
    spec: tuple[Any, ...] = ()
    """Extra numbers that set the arrangement apart from others of the same value with the same parameters."""

    @staticmethod
    def of_convolution(ctx: Lowering, weights: Value, groups: int) -> Packing:
        """A convolution's weights with all taps. In three dimensions the taps along the depth count as rows of the
        kernel. Weights that each call packs anew (turned about for a gradient) are read where they lie."""
        outputs, inputs, *kernel = weights.shape
        shape = (outputs, inputs, prod(kernel[:-1]), kernel[-1])
        strides: tuple[int, ...] | None = None
        if not ctx.is_prepared(weights):
            view = ctx.plain(weights)
            strides = moved_strides(weights.shape, view.strides, shape)
        return Packing(weights, shape, strides or contiguous_strides(shape), groups,  # type: ignore[arg-type]
                       contiguous=strides is None)

    def of_taps(self, rows: AxisPhase, columns: AxisPhase) -> Packing:
        """The weights of a phase's taps."""
        outputs, inputs, row, column = self.strides
        return replace(
            self, shape=(*self.shape[:2], rows.taps, columns.taps),
            strides=(outputs, inputs, row * rows.tap_step, column * columns.tap_step),
            first=self.first + rows.tap * row + columns.tap * column,
        )

    def pack(self, ctx: Lowering, source: Input, oc_tile: int, *, is_wide: bool = False) -> View:
        """The packed weights: made at prepare time if they depend on weights only."""
        return self.packed(ctx, source, oc_tile, is_wide, lambda context, view: view)

    def packed(self, ctx: Lowering, source: Input, oc_tile: int, is_wide: bool,
               arrange: Callable[[Lowering, PlainView], PlainView]) -> View:
        """The same, of what `arrange` makes of the value first."""
        lanes = 1 if source.kind == "k1" else BLOCK
        if source.kind == "depthwise":
            kernel, params = "pack_depthwise", packed_depthwise(self.shape, self.strides)
            size = source.groups * prod(self.shape[2:]) * BLOCK * 4
        else:
            suffix, element = ("", 4)
            if source.is_u8:
                suffix, element = ("_i16", 2) if is_wide else ("_i8", 1)
            elif source.in_pairs:
                suffix, element = "_bf16", 2
            kernel = f"pack_contraction{suffix}"
            params = packed_contraction(self.shape, self.strides, groups=self.groups, supers=source.groups,
                                        oc_tile=oc_tile, lanes=lanes, fours=source.is_u8)
            tiles = source.groups * -(-self.shape[0] // source.groups // oc_tile)
            size = tiles * source.channels * prod(self.shape[2:]) * lanes * oc_tile * element

        def emit(context: Lowering, view: PlainView, destination: View) -> None:
            view = arrange(context, view)
            if source.kind == "depthwise":
                view = movement.converted(context, view, f32)
            context.emit(kernel, params, weights=view.moved(view.type.element.size * self.first), packed=destination)

        spec = (kernel, self.first, *self.spec, *params.ints())
        return ctx.packed(self.value, spec, size, emit, contiguous=self.contiguous)


_BAND = 2
"""Blocks of the widest tile of output channels."""
_SPARSE = 0.75
"""Share of the products of blocks at or below which bands pay for calls of their own."""


class _Band(NamedTuple):
    """Blocks [first, stop) of output channels whose groups lie within blocks [low, high) of input channels."""

    first: int
    stop: int
    low: int
    high: int

    @property
    def products(self) -> int:
        return (self.stop - self.first) * (self.high - self.low)

    def of(self, view: BlockedView) -> BlockedView:
        """The output channels of `view`; it shares the writers."""
        images, channels, *sizes = view.type.shape
        shape = (images, min(channels, self.stop * BLOCK) - self.first * BLOCK, *sizes)
        return replace(view, type=view.type.with_shape(shape)).moved(self.first * block_bytes(view))

    def input(self, source: Input) -> Input:
        return source._replace(view=source.view.moved(self.low * source.channel_stride), channels=self.high - self.low)

    def weights(self, whole: Packing) -> Packing:
        if whole.groups > 1:
            return _BandPacking.of(whole, self)
        begin, end = self.first * BLOCK, min(whole.shape[0], self.stop * BLOCK)
        return replace(whole, shape=(end - begin, *whole.shape[1:]), first=whole.first + begin * whole.strides[0])


def _bands(source: Input, weights: Packing) -> list[_Band]:
    """The bands of a convolution of groups that share blocks, which would be dense with zeros; none where few are
    zeros."""
    if source.kind != "k16" or source.groups > 1 or weights.groups == 1 or type(weights) is not Packing:
        return []
    outputs, of_group = weights.shape[:2]
    group = outputs // weights.groups
    blocks = -(-outputs // BLOCK)
    bands: list[_Band] = []
    for first in range(0, blocks, _BAND):
        stop = min(first + _BAND, blocks)
        low = first * BLOCK // group * of_group // BLOCK
        high = -(-((min(stop * BLOCK, outputs) - 1) // group + 1) * of_group // BLOCK)
        if bands and (bands[-1].low, bands[-1].high) == (low, high):
            bands[-1] = bands[-1]._replace(stop=stop)
        else:
            bands.append(_Band(first, stop, low, high))
    return bands if sum(band.products for band in bands) <= _SPARSE * blocks * source.channels else []


def _whole_bands(source: Input, weights: Packing, parts: tuple[int, ...]) -> list[_Band]:
    """The bands of these numbers of output blocks, each of all input channels; none where there is one, or groups."""
    if source.groups > 1 or weights.groups > 1 or len(parts) == 1:
        return []
    first, rest = parts
    return [_Band(0, first, 0, source.channels), _Band(first, first + rest, 0, source.channels)]


@dataclass(frozen=True)
class _BandPacking(Packing):
    """The weights of a band, between zeros. `shape` and `strides` are those of the whole."""

    band: _Band | None = None

    @staticmethod
    def of(weights: Packing, band: _Band) -> _BandPacking:
        return _BandPacking(weights.value, weights.shape, weights.strides, weights.groups, weights.first,
                            weights.contiguous, weights.spec, band)

    def pack(self, ctx: Lowering, source: Input, oc_tile: int, *, is_wide: bool = False) -> View:
        band, (outputs, of_group, *taps) = self.band, self.shape
        assert band is not None
        group, begin, low = outputs // self.groups, band.first * BLOCK, band.low * BLOCK
        end = min(outputs, band.stop * BLOCK)
        shape = (end - begin, min(self.groups * of_group, band.high * BLOCK) - low, *taps)

        def arrange(context: Lowering, view: PlainView) -> PlainView:
            size, made = view.type.element.size, context.new_plain(TensorType(view.type.element, shape))
            kernel, zero = f"copy_{size}", context.table(np.zeros(1, view.type.element.numpy))
            context.strided(kernel, shape, [(zero, (0,) * 4)], made)
            parts = []
            for first in range(begin // group * group, end, group):
                start, stop = max(begin, first), min(end, first + group)
                type_ = view.type.with_shape((stop - start, of_group, *taps))
                at = (start - begin) * made.strides[0] + (first // group * of_group - low) * made.strides[1]
                read = view.seen(type_, self.strides, self.first + start * self.strides[0])
                part = made.seen(type_, made.strides, at).unwritten()
                context.strided(kernel, type_.shape, [read], part, after=[made])
                parts.append(part)
            return replace(made, writers=[*made.writers, *(writer for part in parts for writer in part.writers)])

        whole: Any = shape
        dense: Any = contiguous_strides(shape)
        packing = Packing(self.value, whole, dense, 1, contiguous=self.contiguous, spec=(*self.spec, band, self.first))
        return packing.packed(ctx, source, oc_tile, is_wide, arrange)
