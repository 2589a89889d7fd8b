"""The contract of the contraction kernels: operands, parameters and task numbering.

One frame serves convolution, matrix multiply and depthwise convolution. A kernel computes, for every image,
channel group, output channel `c` of the group and output pixel `p` (byte offsets throughout):

    acc[c, p] = bias[c] + sum over step s, lane k:  input[pixel_in[p] + step[s] + 4 k] * weights[s, k, c]
    y         = activation(clamp(acc + residual, lower, upper))               -> output[pixel_out[p]]
    y2        = clamp(y * scale2[c] + shift2[c], lower2, upper2)              -> output2[pixel_out2[p]]

`residual` and the second output are optional (`FLAG_*`), and so is the activation, one of `ACTIVATIONS`: a hard swish,
the gate x * clamp(x * slope + offset, 0, 1) * scale + shift; x where x > 0, else x * slopes[c]; those from
`FIRST_CALLED` on, of float32 outputs only and without a second one, are of what is stored (`activations.py`). A clamp
keeps NaN. Geometry lives in two constant
tables (`tables.py`): where a pixel starts, and where a kernel tap and an input channel (block) lie relative
to it. So stride, dilation, padding (through the input's zero halo) and layouts never reach the kernel.

Kinds, by what one entry of the step table stands for:
    k16        16 consecutive input floats: blocked inputs, or matrix rows with K a multiple of 16
    k1         one input float: plain NCHW inputs of few channels (the stem), blocked inputs whose blocks are not
               full, matrix rows of any K
    depthwise  16 consecutive floats multiplied lane by lane; a "group" is one 16-channel block

Variants ending in `_bf16` read inputs of k16 and depthwise as bf16: a block's pixel has 32 bytes, and channel k of a
step lies at 2 k. The weights of k16 are bf16 too, in pairs of input channels. Outputs and residuals are bf16 where
the flags say so; all else is float32. A store rounds to nearest, ties to even. Sums are float32; in which order
and with which intermediate roundings is up to the dot instruction, which also takes denormals for zeros.

Variants ending in `_u8` multiply u8 by i8, in fours of input channels: a block's pixel has 16 bytes, and k1 reads fours
of channels too. Weights are packed `[groups][oc_groups][steps * 4][oc_tile][4]`, those of `_u8_wide` as i16; the
sums of `_u8_short` must be such as `ops.quantization` says. The bias is int32, and

    acc[c, p] = bias[c] + sum of products, in int32, exact
    sum       = acc * factor[c] + addend[c], in float32, which goes on as above

There the activation is none, a hard swish or that of slopes. Of depthwise the weights and the bias are float32. All
residuals are multiplied by `residual_scale`. Outputs and residuals are u8 where the flags say so; all is in units of
the first output then: a stored number is round(clamp(y, least, most)) + zero_point, ties to even, with bounds that make
it 0 to 255 (and are those of the clamp, too, where there is no activation); y is not clamped before, unless an
activation or the second output reads it. Of a second output in u8 `lower2` and `upper2` are such bounds.

Output, second output and residual are blocked: whole 16-channel blocks of 64 bytes a pixel (32 in bf16) are read
and written, at `block * output.block + pixel_out[p]` and alike. With an `oc_tile` of 8 weight tiles are half blocks;
where a group ends with the lower half, the upper one is written zeros. `residual` may be `output` itself unless the
steps are split into blocks, which a bf16 output and variants of u8 do not allow: it can't hold the sums so far. Nor do
variants ending in `_amx`, which have no need of it.

Symbols are `ng_contraction_<variant>__<isa>`; `tiles.choose_tiles` picks the variant. `oc_tile`, 8, 16 or
32, is the variant's number of output channels per weight tile. Weights are packed
`[groups][oc_groups][steps * lanes][oc_tile]`, or in bf16 `[groups][oc_groups][steps * 8][oc_tile][2]`
(`tests/targets/cpu/packing_references.py`), and, as `bias`, `scale2` and `shift2`
(`[groups][oc_groups][oc_tile]`), 64-byte aligned and padded with zeros. Matrices of a batch are groups too;
they may share weights or channel vectors.

Tasks are numbered flat over `TASK_LOOPS`, last fastest. A chunk is `chunk_tiles` consecutive
tiles of at most M pixels; a row of `row_pixels` pixels is cut into `row_tiles` tiles whose sizes differ by
at most one, the larger first; for variants ending in `_amx` their numbers of 16 pixels do, and the last of these may be
fewer pixels. Variants ending in `_rows` ask that the pixels of one row lie `pixel_stride`
bytes apart in the input; for the others a row may be the whole image.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from functools import cache, partial
from typing import Any

import numpy as np

from ngraph_mxnet.ir.sizes import MOST, cached, is_symbolic, where
from ngraph_mxnet.targets.cpu.microkernels.variants import (
    ACTIVATIONS,
    AMX,
    FIRST_CALLED,
    ISAS,
    PAIRS,
    TILE_PIXELS,
    Isa,
    Variant,
    variants,
)
from ngraph_mxnet.targets.cpu.params.record import BLOCK, PIXEL, Kernels, Params, Span, axes, span, whole

__all__ = [
    "BF16_WEIGHT_GRADIENTS", "DATA_ROOM", "DEPTHWISE", "DEPTHWISE_GRADIENTS", "HEAD_ROOM", "STRIDES", "TILED_HEAD_ROOM",
    "WEIGHT_GRADIENT", "depthwise_symbol", "gradient_symbol", "paired_rooms", "super_groups",
]


ORDER_CHANNELS = 0
"""Weights stay in cache: output channels outermost."""
ORDER_PIXELS = 1
"""A chunk of the input stays in cache: pixels outermost."""
TASK_LOOPS = {ORDER_CHANNELS: ("group", "oc_group", "image", "chunk"),
              ORDER_PIXELS: ("image", "group", "chunk", "oc_group")}
"""The loops over tasks, outermost first."""

FLAG_RESIDUAL = 1
FLAG_OUTPUT2 = 2
FLAG_OUTPUT_NARROW = 4
FLAG_RESIDUAL_NARROW = 8
FLAG_OUTPUT2_NARROW = 16


class Operand(IntEnum):
    """Index of each pointer in `tensors`. A pointer whose flag is not set is never read; the last two are of u8."""

    INPUT = 0
    WEIGHTS = 1
    BIAS = 2
    OUTPUT = 3
    RESIDUAL = 4
    PIXELS = 5
    STEPS = 6
    OUTPUT2 = 7
    SCALE2 = 8
    SHIFT2 = 9
    SLOPES = 10
    FACTOR = 11
    ADDEND = 12


CONTRACTIONS: Mapping[str, Variant] = {
    f"contraction_{variant.name}": variant for isa in reversed(ISAS) for variant in variants(isa)}
"""By kernel; the largest tile is the instruction set's own."""


class Offsets:
    """A table of a call, which is a constant."""

    def __init__(self, entries: np.ndarray) -> None:
        """int32, at least one."""
        self._entries = entries

    def extremes(self, first: int, count: int) -> tuple[int, int]:
        """The least and the greatest of some entries."""
        found = self._entries[first:first + count]
        return int(found.min()), int(found.max())

    def of_tiles(self, rows: int, row_pixels: int, row_tiles: int, pixel_stride: int) -> tuple[int, int]:
        """The least and the greatest offset of a tile's pixels, of which the table is asked for the first."""
        tile, larger = divmod(row_pixels, row_tiles)
        numbers = np.arange(row_tiles)
        starts = self._entries[numbers * tile + np.minimum(numbers, larger) + np.arange(rows)[:, None] * row_pixels]
        ends = (tile + (numbers < larger) - 1) * pixel_stride + starts.astype(np.int64)
        return int(min(starts.min(), ends.min())), int(max(starts.max(), ends.max()))


Table = Callable[[str, int], Offsets]
"""The table of so many entries at an operand. Raises ValueError if the operand is no constant that holds them."""


def _tasks(p: Any) -> int:
    if not is_symbolic(p.step_block) and (p.steps < 1 or p.step_block < 1):
        raise ValueError(f"{p.steps} steps in blocks of {p.step_block}")
    return p.images * p.groups * p.oc_groups * -(-p.rows * p.row_tiles // p.chunk_tiles)


def _aligned(p: Any) -> tuple[str, ...]:
    return ("weights", "bias", "scale2", "shift2") if p.flags & FLAG_OUTPUT2 else ("weights", "bias")


def _quantized_aligned(p: Any) -> tuple[str, ...]:
    return (*_aligned(p), "factor", "addend")


def contraction_reach(n: Any, call: tuple[Variant, Table]) -> list[Span]:
    """The bytes that a call touches. Raises ValueError for tiles that the variant has not."""
    variant, table = call
    grain = TILE_PIXELS if variant.amx else 1
    pixels, pieces = n.rows * n.row_pixels, -(-n.row_pixels // grain)
    tile = pieces // n.row_tiles
    first_block = (n.oc_groups - 1) // 2 if variant.half else (n.oc_groups - 1) * variant.blocks
    if is_symbolic(tile):
        pass  # as `choose_tiles` makes them
    elif tile < 1 or grain * -(-pieces // n.row_tiles) > variant.tile or first_block >= n.out_blocks:
        raise ValueError(f"no tiles of {variant.name} for {n.row_pixels} pixels in {n.row_tiles} tiles, "
                         f"{n.oc_groups} groups of outputs for {n.out_blocks} blocks")
    if variant.bf16 and (n.flags & FLAG_OUTPUT_NARROW > 0) & (n.step_block < n.steps):
        raise ValueError(f"sums of {n.step_block} of {n.steps} steps are kept in a bf16 output")
    if n.activation >= FIRST_CALLED and (variant.u8 or n.flags & (FLAG_OUTPUT_NARROW | FLAG_OUTPUT2)):
        raise ValueError(f"activation {n.activation} of an output that is no float32, or of two")
    if (variant.u8 or variant.amx) and n.step_block < n.steps:
        raise ValueError(f"sums of {n.step_block} of {n.steps} steps of {variant.name}, which are not split")
    if n.weight_group_stride % min(4 * BLOCK, 4 * variant.oc_tile):
        raise ValueError(f"weights of groups {n.weight_group_stride} bytes apart are not aligned")
    offsets, steps = table("pixels", 4 * pixels), table("steps", n.steps)

    def around(operand: str, low: int, high: int, *axes: tuple[int, int]) -> Span:
        name, first, last = span(operand, 1, *axes, last=0)
        return name, first + low, last + high

    if variant.rows:
        inputs = offsets.of_tiles(n.rows, n.row_pixels, n.row_tiles, n.pixel_stride)
    else:
        inputs = offsets.extremes(0, pixels)
    low, high = (pixel + step for pixel, step in zip(inputs, steps.extremes(0, n.steps), strict=True))
    lane_bytes = 4 if variant.kind == "k1" else 32 if variant.bf16 else 16 if variant.u8 else 64
    narrower = 2 * variant.bf16 + 4 * variant.u8  # times as narrow as float32
    spans = [around("input", low, high + lane_bytes, *axes((n.images, n.groups), n.input))]
    panel = 4 * variant.oc_tile * n.steps * variant.lanes
    channels = (n.groups, n.channel_group_stride)
    vector = 4 * variant.oc_tile * n.oc_groups
    spans += [around("weights", 0, panel * n.oc_groups, (n.groups, n.weight_group_stride)),
              around("bias", 0, vector, channels)]
    results = [("output", 1, 0, FLAG_OUTPUT_NARROW), ("residual", 2, FLAG_RESIDUAL, FLAG_RESIDUAL_NARROW),
               ("output2", 3, FLAG_OUTPUT2, FLAG_OUTPUT2_NARROW)]
    for operand, row, flag, narrow in results:
        if n.flags & flag == flag:
            pixel = PIXEL // (1 + (narrower - 1) * (n.flags & narrow > 0)) if narrower else PIXEL
            low, high = offsets.extremes(row * pixels, pixels)
            spans.append(around(operand, low, high + pixel,
                                *axes((n.images, n.groups, n.out_blocks), getattr(n, operand))))
    if n.flags & FLAG_OUTPUT2:
        spans += [around(operand, 0, vector, channels) for operand in ("scale2", "shift2")]
    if n.activation == ACTIVATIONS["prelu"]:
        spans.append(around("slopes", 0, vector, channels))
    if variant.u8:
        spans += [around(operand, 0, vector, channels) for operand in ("factor", "addend")]
    return spans


def _elements(kernel: str, ints: Sequence[int]) -> str:
    """Return the element types of the operands that may be bf16 or u8."""
    variant, flags = CONTRACTIONS[kernel], ints[_FLAGS]
    return _elements_of(variant.u8, variant.bf16, variant.kind == "k1", flags)


@cache
def _elements_of(u8: bool, bf16: bool, k1: bool, flags: int) -> str:
    narrow = "u8" if u8 else "bf16" if bf16 else "f32"
    read = "f32" if k1 else narrow
    found = {"output": FLAG_OUTPUT_NARROW, "residual": FLAG_RESIDUAL_NARROW, "output2": FLAG_OUTPUT2_NARROW}
    return " ".join((f"input:{read}", *(f"{name}:{narrow if flags & flag else 'f32'}" for name, flag in found.items())))


_TENSORS = "input weights bias >output residual? pixels steps >output2? scale2? shift2? slopes?"
_INTS = ("images groups oc_groups out_blocks rows row_pixels row_tiles chunk_tiles order steps step_block flags "
         "pixel_stride weight_group_stride channel_group_stride input(image group) output(image group block) "
         "residual(image group block) output2(image group block) activation")
_FLOATS = "lower upper lower2 upper2 slope offset scale shift"
CONTRACTION = Kernels(
    " ".join(name for name, variant in CONTRACTIONS.items() if not variant.u8),
    tensors=_TENSORS, ints=_INTS, sizes=8, floats=_FLOATS, tasks=_tasks, reach=contraction_reach, aligned=_aligned,
    elements=_elements,
)
"""Strides are in bytes. A number that the flags leave unused may be anything.

images: images that differ by their operands' `image` strides only.
groups: channel groups (after merging into super-groups); for depthwise the number of 16-channel blocks.
oc_groups: weight tiles of `oc_tile` output channels in a group, ceil(channels / oc_tile).
out_blocks: 16-channel output blocks in a group.
rows: rows of pixels in an image; rows * row_pixels is the width of the pixel table.
row_tiles: tiles per row; ceil(row_pixels / row_tiles) must not exceed the variant's largest tile.
chunk_tiles: tiles in a task, counted through the rows of an image.
steps: entries of the step table, at least 1.
step_block: steps that a task sums for all its tiles before it takes the next ones, so that their weights stay in
    L1; the output holds the sums so far.
flags: sum of `FLAG_*`.
pixel_stride: input bytes between neighbouring output pixels of a row; `_rows` variants only.
weight_group_stride: between the packed weights of two groups; 0 if they share them.
channel_group_stride: the same for `bias`, `scale2` and `shift2`, and in u8 for `factor` and `addend`.
"""

QUANTIZED_CONTRACTION = Kernels(
    " ".join(name for name, variant in CONTRACTIONS.items() if variant.u8),
    tensors=f"{_TENSORS} factor addend", ints=_INTS, sizes=8,
    floats=f"{_FLOATS} residual_scale least most zero_point zero_point2", tasks=_tasks,
    reach=contraction_reach, aligned=_quantized_aligned, elements=_elements,
)
"""The record of contractions of u8. Parameters that it shares with `CONTRACTION` have the same places."""
_FLAGS = CONTRACTION.ints.index("flags")

_DEFAULTS = {"images": 1, "groups": 1, "input": (0, 0), "residual": (0, 0), "output2": (0, 0), **dict.fromkeys(
    "order step_block flags pixel_stride weight_group_stride channel_group_stride activation".split(), 0)}
_NUMBERS = {"lower": float("-inf"), "upper": float("inf"), "lower2": float("-inf"), "upper2": float("inf"),
            "slope": 1 / 6, "offset": 0.5, "scale": 1.0, "shift": 0.0}


def contraction_params(**numbers: Any) -> Params:
    """By default one image and group, channels outermost, all steps at once, no flags, and nothing is clamped. Strides
    of results may be those of image and block alone, if the groups' blocks follow each other. With `least` among the
    numbers it is for a variant of u8."""
    floats = {name: numbers.pop(name) for name in QUANTIZED_CONTRACTION.floats if name in numbers}
    params = _unclamped(**numbers)
    if "least" not in floats:
        return params.with_floats(floats)
    return QUANTIZED_CONTRACTION(**CONTRACTION.read(params.ints())._asdict(), **{**_NUMBERS, **floats})


@cached(1024)
def _unclamped(**numbers: Any) -> Params:
    given = {**_DEFAULTS, **numbers}
    given["step_block"] = where(given["step_block"] > 0, given["step_block"], given["steps"])
    for name in ("output", "residual", "output2"):
        image, *group, block = given[name]
        given[name] = image, *(group or [given["out_blocks"] * block]), block
    return CONTRACTION(**given, **_NUMBERS)


STRIDES = (1, 2)


def _depthwise_reach(stride: int, p: Any, _: int) -> list[Span]:
    height, width = (p.height - 1) * stride + 3, (p.width - 1) * stride + 3
    operand, low, high = span("input", 1, *axes((p.images, p.blocks, height, width), (*p.input, PIXEL)), last=PIXEL)
    return [(operand, low + p.first, high + p.first), ("weights", 0, p.blocks * 9 * PIXEL),
            ("bias", 0, p.blocks * PIXEL),
            span("output", 1, *axes((p.images, p.blocks, p.height, p.width), (*p.output, PIXEL)), last=PIXEL),
            *([("slopes", 0, p.blocks * PIXEL)] if p.activation == ACTIVATIONS["prelu"] else [])]


DEPTHWISE = {
    stride: Kernels(
        f"depthwise3x3_s{stride}", tensors="input weights bias >output slopes?",
        ints="images blocks height width chunk_rows first input(image block row) output(image block row) channels "
             "activation",
        sizes=5, floats="lower upper slope offset scale shift",
        tasks=lambda p: p.images * p.blocks * -(-p.height // p.chunk_rows), reach=partial(_depthwise_reach, stride),
        elements="input:f32 output:f32",
    ) for stride in STRIDES
}
"""By the stride. Strides and `first` are in bytes.

chunk_rows: output rows of a task.
first: from the input's first element to the first tap of the first output: into the halo, so never positive.
channels: registers of the last block that hold none of them are not computed: they become zero.
activation: what follows the clamp, see `variants.ACTIVATIONS`.
"""


def depthwise_symbol(stride: int, isa: Isa) -> str:
    """Name of the kernel in the object file."""
    return f"ng_depthwise3x3_s{stride}__{isa}"


_SIDES = 3, 5, 7
"""Rows and columns of taps of the depthwise kernels."""
Axis = tuple[int, int]
"""How many places, and how far apart."""


def _checked(p: Any) -> None:
    """The kernel multiplies these."""
    if p.copies * p.copy_chunks > MOST:
        raise ValueError(f"{p.copies} copies of {p.copy_chunks} chunks")


def _head(p: Any, blocks: int, *more: Axis) -> Span:
    return span("head", 1, *axes((p.images, blocks, p.height, p.width), (*p.head, PIXEL)), *more, last=PIXEL)


def _data_span(p: Any, blocks: int, more: Sequence[Axis], lanes: int) -> Span:
    operand, low, high = span("data", 1, *axes((p.images, blocks, p.height, p.width), p.data), *more, last=4 * lanes)
    return operand, low + p.first, high + p.first


def _weight_gradient_reach(p: Any, _: int) -> list[Span]:
    _checked(p)
    if p.last_lanes > p.lanes:
        raise ValueError(f"{p.last_lanes} of {p.lanes} lanes")
    if p.copies * p.copy_chunks * p.batches > MOST:
        raise ValueError(f"{p.batches} batches of images")
    return [_data_span(p, p.blocks.data, (*axes(p.taps, p.tap), (p.batches, p.batch.data)), p.lanes),
            _head(p, p.blocks.head, (p.batches, p.batch.head)),
            whole("sums", PIXEL, p.copies, *p.blocks, *p.taps, p.lanes)]


def _depthwise_weight_gradient_reach(side: int, p: Any, _: int) -> list[Span]:
    _checked(p)
    taps = (side, p.tap.row), (side, PIXEL)
    return [_data_span(p, p.blocks, taps, BLOCK), _head(p, p.blocks),
            whole("sums", PIXEL, p.copies, p.blocks, side**2)]


_CHUNKS = "copies copy_chunks images height width image_chunk row_chunk"
_STRIDES = "first data(image block row pixel) head(image block row)"

WEIGHT_GRADIENT = Kernels(
    "weight_gradient", tensors="data head >sums",
    ints=f"{_CHUNKS} blocks(data head) group(data head) taps(h w) lanes last_lanes {_STRIDES} tap(row column) adds "
         "batches batch(data head)",
    sizes=15, reach=_weight_gradient_reach,
    tasks=lambda p: p.copies * -(-p.blocks.head // p.group.head) * -(-p.blocks.data // p.group.data),
)
"""`sums` is `[copies][blocks.head][blocks.data][taps.h][taps.w][lanes][16]`. Strides and `first` are in bytes. Tasks
are numbered over (copy, group of head blocks, group of data blocks), last fastest.

copies, copy_chunks: how many copies there are, and chunks of a copy; the last copy may have fewer.
height, width: those of the head gradient.
batches, batch: how many times as many images there are, and what lies between.
image_chunk, row_chunk: images and rows of a chunk. Chunks are numbered over (batch, images, rows), last fastest.
group: blocks of a task.
lanes: input channels of a block, which are neighbours in memory; 16 of a blocked tensor.
last_lanes: those of the last block that count. The sums of the others are not touched.
first: from the data's first element to what the first tap of the first output meets.
data: its rows and pixels are those that belong to neighbours in the head gradient.
tap: what the data moves by with a row and a column of taps.
adds: whether all is added to what is there.
"""

DEPTHWISE_GRADIENTS = {
    side: Kernels(
        f"weight_gradient_depthwise_{side}", tensors="data head >sums",
        ints=f"{_CHUNKS} blocks {_STRIDES} tap(row)", sizes=8,
        reach=partial(_depthwise_weight_gradient_reach, side), tasks=lambda p: p.copies * p.blocks,
    ) for side in _SIDES
}
"""By rows and columns of taps, whose columns are neighbours; `sums` is `[copies][blocks][side][side][16]`, the other
numbers are as those above. Tasks are numbered over (copy, block), last fastest."""

HEAD_ROOM, TILED_HEAD_ROOM, DATA_ROOM = 64 * 1024, 256 * 1024, 64 * 1024
"""Bytes on a thread's stack for the pairs of a chunk: of a group of head blocks, and of a data block."""


def _bf16_weight_gradient_reach(tiled: bool, p: Any, _: int) -> list[Span]:
    _checked(p)
    if p.last_lanes > BLOCK or p.lanes != BLOCK:
        raise ValueError(f"{p.lanes} and {p.last_lanes} lanes of {BLOCK}")
    if p.copies * p.copy_chunks * p.batches > MOST:
        raise ValueError(f"{p.batches} batches of images")
    if p.narrow.data & 1 != p.narrow.data or p.narrow.head & 1 != p.narrow.head:
        raise ValueError(f"flags {p.narrow.data} and {p.narrow.head}")
    if (p.row_chunk > 1 and p.data.row != p.lines.row * p.lines.step) or (
            p.taps.h > 1 and p.tap.row != p.lines.tap * p.lines.step) or p.lines.row < 0 or p.lines.tap < 0:
        raise ValueError(f"lines {p.lines.step} bytes apart, of rows {p.data.row} and taps {p.tap.row}")
    if p.phases > p.taps.w or p.data.pixel < 0 or p.tap.column < 0 or p.shift < 0:
        raise ValueError(f"{p.phases} phases of {p.taps.w} columns {p.tap.column} bytes apart, {p.shift} pairs")
    if p.taps.w > p.phases and p.phases * p.tap.column != 2 * p.shift * p.data.pixel:
        raise ValueError(f"{p.phases} columns of taps, {p.tap.column} bytes apart, are not {p.shift} pairs")
    if tiled and p.row_chunk > 1 and p.lines.row != 1:
        raise ValueError(f"{p.lines.row} lines from a row to the next")
    heads, data = paired_rooms(tiled, (p.image_chunk, p.row_chunk), p.width, p.taps, p.lines, p.phases, p.shift)
    if p.group.head * heads > (TILED_HEAD_ROOM if tiled else HEAD_ROOM):
        raise ValueError(f"{p.group.head} blocks of {heads} bytes")
    if data > DATA_ROOM:
        raise ValueError(f"{data} bytes of data")
    size, head_size = 4 - 2 * p.narrow.data, 4 - 2 * p.narrow.head
    operand, low, high = span(
        "data", 1, *axes((p.images, p.blocks.data, p.height, p.width), p.data), *axes(p.taps, p.tap),
        (p.batches, p.batch.data), last=BLOCK * size)
    return [(operand, low + p.first, high + p.first),
            span("head", 1, *axes((p.images, p.blocks.head, p.height, p.width), (*p.head, BLOCK * head_size)),
                 (p.batches, p.batch.head), last=BLOCK * head_size),
            whole("sums", PIXEL, p.copies, *p.blocks, *p.taps, p.lanes)]


def paired_rooms(tiled: bool, chunk: Sequence[int], width: int, taps: Sequence[int], lines: Sequence[int], phases: int,
                 shift: int) -> tuple[int, int]:
    """Return the bytes of the pairs of a `chunk` of so many images and rows: of a head block, and of a data block.

    In tiles the pairs of a chunk's rows follow each other, with gaps of zeros as wide as the data's lines need, up to
    whole tiles.
    """
    (images, rows), pairs, more = chunk, -(-width // 2), (taps[0] - 1) * lines[1]
    line = pairs + (-(-taps[1] // phases) - 1) * shift
    if not tiled:
        return images * rows * pairs * PIXEL, phases * images * ((rows - 1) * lines[0] + more + 1) * line * PIXEL
    together, behind = (-(-count // BLOCK) * BLOCK for count in (rows * line, more * line + line - pairs))
    return images * together * PIXEL, phases * images * (together + behind) * PIXEL


def _bf16_weight_gradient_elements(_: str, ints: Sequence[int]) -> str:
    data, head = ("bf16" if flag else "f32" for flag in BF16_WEIGHT_GRADIENTS[False].read(ints).narrow)
    return f"data:{data} head:{head} sums:f32"


BF16_WEIGHT_GRADIENTS = {tiled: Kernels(
    "weight_gradient_bf16" + "_amx" * tiled, tensors="data head >sums",
    ints=f"{_CHUNKS} blocks(data head) group(data head) taps(h w) phases lanes last_lanes {_STRIDES} tap(row column) "
         "adds batches batch(data head) shift lines(row tap step) narrow(data head)",
    sizes=16, reach=partial(_bf16_weight_gradient_reach, tiled), elements=_bf16_weight_gradient_elements,
    needs=AMX if tiled else PAIRS,
    tasks=lambda p: p.copies * -(-p.blocks.head // p.group.head) * -(-p.blocks.data // p.group.data),
) for tiled in (False, True)}
"""By whether they are AMX's tiles. The operands are rounded to bf16, and the products of neighbouring pixels of a row
are added in pairs; else the kernels are as those above. They arrange the pairs of a chunk on their stack (`HEAD_ROOM`,
`DATA_ROOM`). That of tiles also writes the sums of lanes that do not count.

phases: copies of the data, whose pairs begin at the first, second ... column of taps.
shift: pairs from a column of taps to that which is `phases` columns on.
lines: rows of data that are arranged lie `step` bytes apart; so many from a row of the head gradient, and of taps, to
    the next. In tiles a chunk of several rows has one line for each.
narrow: 1 for an operand that is bf16 in memory, else 0.
"""


def gradient_symbol(kernel: str, isa: Isa) -> str:
    """Name of the kernel in the object file."""
    return f"ng_{kernel}__{isa}"


def super_groups(groups: int, in_channels: int, out_channels: int, lanes: int = BLOCK) -> int:
    """Number of super-groups for a convolution of `groups` groups.

    With more than one, each has whole 16-channel output blocks and, for k16 (`lanes` 16), whole input blocks.
    1 when no divisor of `groups` gives that: the convolution is then dense with zeros.
    """
    for merged in range(1, groups):
        count, rest = divmod(groups, merged)
        if rest == 0 and (out_channels // count) % BLOCK == 0 and (in_channels // count) % lanes == 0:
            return count
    return 1


# ---- the peak ------------------------------------------------------------------------------------------------

# Registers of accumulators: at least latency (4 or 5 cycles) times pipes (2), and the two factors fit beside them.
PEAK_ACCUMULATORS: dict[Isa, int] = {"avx512": 12, "avx2": 6, "baseline": 3}
PEAK_TIMES = 4


def peak_symbol(isa: Isa) -> str:
    """Name of the kernel in the object file."""
    return f"ng_peak_multiply_add__{isa}"


def multiply_adds(isa: Isa) -> int:
    """How many multiply-adds of single floats a round does."""
    return 16 * PEAK_ACCUMULATORS[isa] * PEAK_TIMES
