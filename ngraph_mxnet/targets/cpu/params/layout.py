"""The records of layout conversions and of packing weights. All strides are in elements."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from ngraph_mxnet.ir.sizes import cached
from ngraph_mxnet.targets.cpu.params.record import BLOCK, Kernels, Params, Span, by_name, span, whole

_LAYOUT = "n c h w in_n in_c in_row in_column out_n out_c out_row out_column"


def _layout_reach(plain: str, p: Any, size: int) -> list[Span]:
    blocks = -(-p.c // BLOCK)
    return [span(name, size, (p.n, p[at]), (p.c if name == plain else blocks, p[at + 1]), (p.h, p[at + 2]),
                 (p.w, p[at + 3]), last=1 if name == plain else BLOCK) for name, at in (("input", 4), ("output", 8))]


def _layout_tasks(p: Any) -> int:
    return p.n * -(-p.c // BLOCK) * p.h


TO_BLOCKED = Kernels("to_blocked", tensors="input >output", ints=_LAYOUT, sizes=4, tasks=_layout_tasks,
                     reach=partial(_layout_reach, "input"), elements="input:f32 output:f32")
FROM_BLOCKED = Kernels("from_blocked", tensors="input >output", ints=_LAYOUT, sizes=4, tasks=_layout_tasks,
                       reach=partial(_layout_reach, "output"), elements="input:f32 output:f32")
"""The blocked side's `c` stride separates blocks."""


def _halo_reach(p: Any, size: int) -> list[Span]:
    if any(number < 0 for number in p[3:8]):
        raise ValueError(f"a halo of {p[3:8]}")
    return [whole("images", size, p.planes, p.height + p.top + p.bottom, p.width + p.left + p.right, p.words)]


ZERO_HALO = Kernels(
    "zero_halo", tensors=">images", ints="planes height width top bottom left right words", sizes=3,
    tasks=lambda p: p.planes, reach=_halo_reach,
)
"""A plane is one block of channels of an image; `words` are the 4-byte words of a pixel."""


FILL_HALO = Kernels(
    "fill_halo", tensors=">images", ints=f"{' '.join(ZERO_HALO.ints)} word", sizes=3, tasks=ZERO_HALO.tasks,
    reach=_halo_reach,
)
"""With a number in place of zeros: the 4-byte `word`, signed."""


def _packed_reach(p: Any, size: int) -> list[Span]:
    if size == 2 and (p.lanes != BLOCK or p.oc_tile % BLOCK):
        raise ValueError(f"bf16 in tiles of {p.lanes} by {p.oc_tile}")
    outputs, inputs, taps = p.merged * p.oc_per_group, p.merged * p.ic_per_group, p.kernel_h * p.kernel_w
    packed = p.supers * -(-outputs // p.oc_tile) * -(-inputs // p.lanes) * taps * p.lanes * p.oc_tile
    axes = ((p.supers, p.super_stride), (outputs, p.oc_stride), (p.ic_per_group, p.ic_stride),
            (p.kernel_h, p.kh_stride), (p.kernel_w, p.kw_stride))
    return [span("weights", 4, *axes), ("packed", 0, packed * size)]


PACK_CONTRACTION = Kernels(
    {"pack_contraction": 4, "pack_contraction_bf16": 2}, tensors="weights >packed",
    ints="supers merged oc_per_group ic_per_group kernel_h kernel_w oc_tile lanes oc_stride ic_stride kh_stride "
         "kw_stride super_stride",
    sizes=8, reach=_packed_reach,
    tasks=lambda p: p.supers * -(-p.merged * p.oc_per_group // p.oc_tile) * -(-p.merged * p.ic_per_group // p.lanes),
)
"""A convolution has `supers` * `merged` groups; `lanes` is 16 (for k16) or 1 (for k1)."""


def _fours_reach(p: Any, size: int) -> list[Span]:
    if p.lanes % 4:
        raise ValueError(f"fours of {p.lanes} channels")
    (_, first, last), (_, _, packed) = _packed_reach(p, 4)
    return [("weights", first // 4, last // 4), ("packed", 0, packed // 4 * size)]


PACK_FOURS = Kernels(
    {"pack_contraction_i8": 1, "pack_contraction_i16": 2}, tensors="weights >packed",
    ints=" ".join(PACK_CONTRACTION.ints), sizes=8, reach=_fours_reach, tasks=PACK_CONTRACTION.tasks,
)
"""i8, or i8 to i16, with the numbers of `PACK_CONTRACTION`; `lanes` is 16 (for k16)."""

PACK_DEPTHWISE = Kernels(
    "pack_depthwise", tensors="weights >packed", ints="channels kernel_h kernel_w channel_stride kh_stride kw_stride",
    sizes=3, tasks=lambda p: -(-p.channels // BLOCK),
    reach=lambda p, size: [span("weights", size, *zip(p[:3], p[3:], strict=True)),
                           ("packed", 0, -(-p.channels // BLOCK) * p.kernel_h * p.kernel_w * BLOCK * size)],
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
        supers=supers, merged=merged, oc_per_group=outputs, **by_name("ic_per_group kernel_h kernel_w", shape[1:]),
        oc_tile=oc_tile, lanes=lanes, **by_name("oc_stride ic_stride kh_stride kw_stride", strides),
        super_stride=merged * outputs * strides[0])


@cached(1024)
def packed_matrices(shape: tuple[int, ...], strides: tuple[int, ...], *, count: int, between: int, oc_tile: int,
                    fours: bool = False) -> Params:
    """`count` matrices of `shape` [N][K] at element `strides` and `between` each other, as weights of k16."""
    return (PACK_FOURS if fours else PACK_CONTRACTION)(
        supers=count, merged=1, oc_per_group=shape[0], ic_per_group=shape[1], kernel_h=1, kernel_w=1, oc_tile=oc_tile,
        lanes=BLOCK, oc_stride=strides[0], ic_stride=strides[1], kh_stride=0, kw_stride=0, super_stride=between)


def packed_depthwise(shape: Sequence[int], strides: Sequence[int]) -> Params:
    """Weights of `shape` [C][1][KH][KW] at element `strides`."""
    return PACK_DEPTHWISE(channels=shape[0], kernel_h=shape[2], kernel_w=shape[3], channel_stride=strides[0],
                          kh_stride=strides[2], kw_stride=strides[3])


@cached(1024)
def packed_channels(channels: int, *, groups: int, oc_tile: int) -> Params:
    """A contiguous vector of `channels` values."""
    return PACK_CHANNELS(groups=groups, per_group=channels // groups, oc_tile=oc_tile, stride=1)
