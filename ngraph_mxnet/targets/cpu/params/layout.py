"""The records of what packs, turns and transforms images, and of products."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import prod
from typing import Any

from ngraph_mxnet.ir.sizes import MOST, cached
from ngraph_mxnet.targets.cpu.params.record import (
    BLOCK,
    Kernels,
    Params,
    Span,
    image_span,
    operand_span,
    span,
    whole,
)

_LAYOUT = "n c h w input(n c row column) output(n c row column)"


def _layout_reach(plain: str, stored: int, p: Any, size: int) -> list[Span]:
    """`stored`: the bytes of an element of the blocked operand."""
    blocked = "output" if plain == "input" else "input"
    return [operand_span(p, plain, size, *p[:4]), image_span(p, blocked, stored, p.n, -(-p.c // BLOCK), p.h, p.w)]


def _layout_tasks(p: Any) -> int:
    return p.n * -(-p.c // BLOCK) * p.h


def _moves(kernel: str, plain: str, stored: str = "f32") -> Kernels:
    return Kernels(kernel, tensors="input >output", ints=_LAYOUT, sizes=4, tasks=_layout_tasks,
                   reach=partial(_layout_reach, plain, 4 if stored == "f32" else 2),
                   elements=f"input:f32 output:{stored}")


TO_BLOCKED = {"": _moves("to_blocked", "input"), "_f32_bf16": _moves("to_blocked_f32_bf16", "input", "bf16")}
"""By the end of the kernel's name."""
FROM_BLOCKED = _moves("from_blocked", "output")
"""The blocked side's `c` stride separates blocks."""

SHUFFLE = Kernels(
    "shuffle_blocked", tensors="input places >output",
    ints="n c h w input(n block row) output(n block row)", sizes=4, tasks=_layout_tasks,
    elements="input:f32 output:f32",
    reach=lambda p, size: [whole("places", 4, p.c), *(image_span(p, name, size, p.n, -(-p.c // BLOCK), p.h, p.w)
                                                      for name in ("input", "output"))],
)


def _halo_reach(p: Any, size: int) -> list[Span]:
    halo = p.halo
    if any(number < 0 for number in (*halo, p.words)):
        raise ValueError(f"a halo of {halo}")
    return [whole("images", size, p.planes, p.height + halo.top + halo.bottom, p.width + halo.left + halo.right,
                  p.words)]


_HALO = "planes height width halo(top bottom left right) words"
ZERO_HALO = Kernels("zero_halo", tensors=">images", ints=_HALO, sizes=3, tasks=lambda p: p.planes, reach=_halo_reach)
"""A plane is one block of channels of an image; `words` are the 4-byte words of a pixel."""


FILL_HALO = Kernels(
    "fill_halo", tensors=">images", ints=f"{_HALO} word", sizes=3, tasks=ZERO_HALO.tasks, reach=_halo_reach,
)
"""With a number in place of zeros: the 4-byte `word`, signed."""


def _packed_reach(p: Any, size: int) -> list[Span]:
    if size == 2 and (p.lanes != BLOCK or p.oc_tile % BLOCK):
        raise ValueError(f"bf16 in tiles of {p.lanes} by {p.oc_tile}")
    outputs, inputs = p.merged * p.oc_per_group, p.merged * p.ic_per_group
    packed = p.supers * -(-outputs // p.oc_tile) * -(-inputs // p.lanes) * prod(p.kernel) * p.lanes * p.oc_tile
    return [operand_span(p, "weights", 4, outputs, p.ic_per_group, *p.kernel, p.supers),
            ("packed", 0, packed * size)]


_PACKED = "supers merged oc_per_group ic_per_group kernel(h w) oc_tile lanes weights(oc ic kh kw super)"
PACK_CONTRACTION = Kernels(
    {"pack_contraction": 4, "pack_contraction_bf16": 2}, tensors="weights >packed", ints=_PACKED, sizes=8,
    reach=_packed_reach,
    tasks=lambda p: p.supers * -(-p.merged * p.oc_per_group // p.oc_tile) * -(-p.merged * p.ic_per_group // p.lanes),
)
"""A convolution has `supers` * `merged` groups; `lanes` is 16 (for k16) or 1 (for k1)."""


def _fours_reach(p: Any, size: int) -> list[Span]:
    if p.lanes % 4:
        raise ValueError(f"fours of {p.lanes} channels")
    (_, first, last), (_, _, packed) = _packed_reach(p, 4)
    return [("weights", first // 4, last // 4), ("packed", 0, packed // 4 * size)]


PACK_FOURS = Kernels(
    {"pack_contraction_i8": 1, "pack_contraction_i16": 2}, tensors="weights >packed", ints=_PACKED, sizes=8,
    reach=_fours_reach, tasks=PACK_CONTRACTION.tasks,
)
"""i8, or i8 to i16, with the numbers of `PACK_CONTRACTION`; `lanes` is 16 (for k16)."""

PACK_DEPTHWISE = Kernels(
    "pack_depthwise", tensors="weights >packed", ints="channels kernel(h w) weights(channel kh kw)",
    sizes=3, tasks=lambda p: -(-p.channels // BLOCK),
    reach=lambda p, size: [operand_span(p, "weights", size, p.channels, *p.kernel),
                           whole("packed", size, -(-p.channels // BLOCK), *p.kernel, BLOCK)],
)

PACK_CHANNELS = Kernels(
    "pack_channels", tensors="values >packed", ints="groups per_group oc_tile stride", sizes=3,
    tasks=lambda p: p.groups * -(-p.per_group // p.oc_tile),
    reach=lambda p, size: [span("values", size, (p.groups * p.per_group, p.stride)),
                           ("packed", 0, size * p.groups * -(-p.per_group // p.oc_tile) * p.oc_tile)],
)


@cached(1024)
def packed_contraction(shape: tuple[int, ...], strides: tuple[int, ...], *, groups: int, supers: int, oc_tile: int,
                       lanes: int, fours: bool = False) -> Params:
    """Weights of `shape` [OC][IC / groups][KH][KW] at element `strides`, merged into `supers` groups.

    fours: those of `PACK_FOURS`, which are i8.
    """
    merged, outputs = groups // supers, shape[0] // groups
    return (PACK_FOURS if fours else PACK_CONTRACTION)(
        supers=supers, merged=merged, oc_per_group=outputs, ic_per_group=shape[1], kernel=shape[2:], oc_tile=oc_tile,
        lanes=lanes, weights=(*strides, merged * outputs * strides[0]))


@cached(1024)
def packed_matrices(shape: tuple[int, ...], strides: tuple[int, ...], *, count: int, between: int,
                    oc_tile: int) -> Params:
    """`count` matrices of `shape` [N][K] at element `strides` and `between` each other, as weights of k16."""
    return PACK_CONTRACTION(
        supers=count, merged=1, oc_per_group=shape[0], ic_per_group=shape[1], kernel=(1, 1), oc_tile=oc_tile,
        lanes=BLOCK, weights=(*strides, 0, 0, between))


def packed_depthwise(shape: Sequence[int], strides: Sequence[int]) -> Params:
    """Weights of `shape` [C][1][KH][KW] at element `strides`."""
    return PACK_DEPTHWISE(channels=shape[0], kernel=shape[2:], weights=(strides[0], *strides[2:]))


@cached(1024)
def packed_channels(channels: int, *, groups: int, oc_tile: int) -> Params:
    """A contiguous vector of `channels` values."""
    return PACK_CHANNELS(groups=groups, per_group=channels // groups, oc_tile=oc_tile, stride=1)


_MOST_SAMPLES = 1 << 12
"""The most samples along an axis of a bin: more would take minutes."""


def _images(p: Any, size: int, images: int) -> list[Span]:
    """Return the spans that are touched of the blocked input and output. The output has `images` images."""
    return [image_span(p, "input", size, *p[:4]),
            image_span(p, "output", size, images, p.c16, *p.out)]


def _resample_reach(p: Any, size: int) -> list[Span]:
    return [*_images(p, size, p.n), whole("first_row", 8, p.out.h), whole("row_weights", size, p.out.h, p.taps.h),
            whole("first_column", 8, p.out.w), whole("column_weights", size, p.out.w, p.taps.w)]


_PLACES = "input(n c16 row) output(n c16 row)"
RESAMPLE = Kernels(
    "resample_blocked", tensors="input first_row row_weights first_column column_weights >output",
    ints=f"n c16 h w out(h w) taps(h w) {_PLACES}", sizes=8,
    tasks=lambda p: p.n * p.c16 * p.out.h, reach=_resample_reach, elements="input:f32 output:f32",
)

SAMPLE = Kernels(
    "bilinear_sample", tensors="images grid >output", ints="n c h w places", sizes=5, tasks=lambda p: p.n * p.c,
    reach=lambda p, size: [whole("images", size, *p[:4]), whole("grid", size, p.n, 2, p.places),
                           whole("output", size, p.n, p.c, p.places)],
)


def _region_reach(p: Any, size: int) -> list[Span]:
    if p.samples > _MOST_SAMPLES:
        raise ValueError(f"{p.samples} samples along each axis of a bin")
    return [*_images(p, size, p.regions), whole("regions", size, p.regions, 5)]


_REGION = f"n c16 h w regions out(h w) samples {_PLACES}"
ROI_ALIGN = Kernels("roi_align_blocked", tensors="input regions >output", ints=_REGION, sizes=7, floats="scale offset",
                    tasks=lambda p: p.regions * p.c16 * p.out.h, reach=_region_reach)
ROI_MAX_POOL = Kernels("roi_max_pool_blocked", tensors="input regions >output", ints=_REGION, sizes=7, floats="scale",
                       tasks=lambda p: p.regions * p.c16 * p.out.h, reach=_region_reach)


PRODUCT = Kernels(
    {"product_f64": 8, "product_i64": 8}, tensors="a b >output",
    ints="batch rows inner columns a(batch row inner) b(batch column inner)", sizes=2,
    tasks=lambda p: p.batch * p.rows,
    reach=lambda p, size: [
        operand_span(p, "a", size, p.batch, p.rows, p.inner), operand_span(p, "b", size, p.batch, p.columns, p.inner),
        whole("output", size, p.batch, p.rows, p.columns)],
)
"""Sizes, then the strides of both operands in elements."""


GATHER_WEIGHT_GRADIENT = Kernels(
    "gather_weight_gradient", tensors="sums >output",
    ints="copies head_blocks data_blocks taps lanes inner outputs channels row", sizes=8,
    tasks=lambda p: p.head_blocks * p.data_blocks,
    reach=lambda p, size: [
        whole("sums", size, p.copies, p.head_blocks, p.data_blocks, p.taps, p.lanes, BLOCK),
        span("output", size, (p.outputs, p.channels * p.row), (p.channels, p.row),
             last=p.taps * (p.lanes // p.inner))],
)
"""`[copies][head_blocks][data_blocks][taps][lanes][16]` to `[outputs][channels][taps * lanes / inner]`, the sum over
the copies; a channel's taps begin `row` elements behind those of the one before. Lane `a * inner + i` of a block is its
channel i, at the tap that comes a after; `inner` divides `lanes`."""


OUTPUT_FLAGS = {"residual": 1, "output2": 2}
_SIDES = {2: 4, 4: 6}
"""The side of the input tile, by that of the output tile."""


def _image(p: Any, operand: str, first: int = 0) -> Span:
    """All rows and columns of the images that a strip meets; pixel 0 of image 0 is `first` from the pointer."""
    steps = p.step.row * p.step.column
    if p.first_row < 0 or p.step.row < 1 or p.step.column < 1 or steps > MOST:
        raise ValueError(f"every {p.step.row} by {p.step.column} pixels from row {p.first_row} of tiles")
    begin, end = (row // p.tile_rows // steps for row in (p.first_row, p.first_row + p.strip_rows - 1))
    _, low, high = image_span(p, operand, 4, end - begin + 1, p.blocks, p.rows, p.columns)
    at = 4 * (first + begin * getattr(p, operand).n)
    return operand, low + at, high + at


def _matrices(p: Any, operand: str, tile: int) -> Span:
    return image_span(p, operand, 4, _SIDES[tile] ** 2, p.blocks, p.strip_rows * p.tile_columns)


def _input_reach(p: Any, tile: int) -> list[Span]:
    return [_image(p, "image", p.origin), _matrices(p, "matrices", tile)]


def _output_reach(p: Any, tile: int) -> list[Span]:
    spans = [_matrices(p, "products", tile), whole("bias", 4, p.blocks, BLOCK), _image(p, "output")]
    if p.flags & OUTPUT_FLAGS["residual"]:
        spans.append(_image(p, "residual"))
    if p.flags & OUTPUT_FLAGS["output2"]:
        spans += [_image(p, "output2"), *(whole(name, 4, p.blocks, BLOCK) for name in ("scale2", "shift2"))]
    return spans


def _packed_winograd_reach(p: Any, size: int) -> list[Span]:
    if p.oc_tile % BLOCK:
        raise ValueError(f"tiles of {p.oc_tile} channels")
    outputs, inputs = -(-p.out_channels // p.oc_tile) * p.oc_tile, -(-p.in_channels // BLOCK) * BLOCK
    return [operand_span(p, "weights", size, p.out_channels, p.in_channels, 3, 3),
            whole("packed", size, p.side, p.side, outputs, inputs)]


_STRIP = "strip_rows blocks tile_rows tile_columns first_row rows columns"
_STEP = "step(row column)"
INPUT = Kernels(
    {f"winograd_{kind}_{tile}": tile for tile in _SIDES for kind in ("input", "head")}, tensors="image >matrices",
    ints=f"{_STRIP} origin image(n c row) matrices(matrix c) {_STEP}",
    sizes=4, tasks=lambda p: p.strip_rows * p.blocks, reach=_input_reach,
    elements="image:f32 matrices:f32",
)
"""`rows` and `columns` of the image with its padding, whose first pixel is `origin` from the input's pointer (0 or
negative); the steps are the dilation. `winograd_head` takes squares that do not overlap, of a head gradient without
padding."""

OUTPUT = Kernels(
    {f"winograd_output_{tile}": tile for tile in _SIDES},
    tensors="products bias residual? >output2? scale2? shift2? >output",
    ints=f"{_STRIP} flags products(matrix c) output(n c row) residual(n c row) output2(n c row) {_STEP}",
    sizes=4, floats="lower upper lower2 upper2", tasks=lambda p: p.strip_rows * p.blocks, reach=_output_reach,
    elements="products:f32 residual:f32 output2:f32 output:f32",
)
"""`flags` is a sum of `OUTPUT_FLAGS`."""

PACK = Kernels(
    "pack_winograd", tensors="weights >packed",
    ints="out_channels in_channels side oc_tile weights(oc ic kh kw)", sizes=4,
    tasks=lambda p: -(-p.out_channels // p.oc_tile) * -(-p.in_channels // BLOCK), more=lambda p: (0, 3 * p.side),
    reach=_packed_winograd_reach,
)
"""The floats are `winograd.weight_matrix`, row by row. Strides are in elements."""

GATHER = Kernels(
    "gather_winograd", tensors="sums >output", ints="outputs channels side", sizes=3,
    tasks=lambda p: -(-p.outputs // BLOCK) * -(-p.channels // BLOCK), more=lambda p: (0, 3 * p.side),
    reach=lambda p, size: [
        whole("sums", size, p.side, p.side, -(-p.outputs // BLOCK), -(-p.channels // BLOCK), BLOCK, BLOCK),
        whole("output", size, p.outputs, p.channels, 9)],
)
"""The floats are `winograd.weight_matrix`, row by row."""
