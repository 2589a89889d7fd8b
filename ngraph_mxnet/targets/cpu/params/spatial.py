"""The records of resizing, sampling by a grid and regions of interest.

The last six ints of the kernels on blocked tensors are strides."""

from __future__ import annotations

from typing import Any

from ngraph_mxnet.targets.cpu.params.record import BLOCK, Kernels, Span, blocked_span, whole

_MOST_SAMPLES = 1 << 12
"""The most samples along an axis of a bin: more would take minutes."""


def _images(p: Any, size: int, images: int) -> list[Span]:
    """What is touched of the blocked input and output; the latter has `images` images."""
    return [blocked_span("input", size, (p.n, p.in_n), (p.c16, p.in_c16), (p.h, p.in_row), (p.w, BLOCK)),
            blocked_span("output", size, (images, p.out_n), (p.c16, p.out_c16), (p.out_h, p.out_row), (p.out_w, BLOCK))]


def _resample_reach(p: Any, size: int) -> list[Span]:
    return [*_images(p, size, p.n), whole("first_row", 8, p.out_h), whole("row_weights", size, p.out_h, p.taps_h),
            whole("first_column", 8, p.out_w), whole("column_weights", size, p.out_w, p.taps_w)]


RESAMPLE = Kernels(
    "resample_blocked", tensors="input first_row row_weights first_column column_weights >output",
    ints="n c16 h w out_h out_w taps_h taps_w in_n in_c16 in_row out_n out_c16 out_row", sizes=8,
    tasks=lambda p: p.n * p.c16 * p.out_h, reach=_resample_reach, elements="input:f32 output:f32",
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


_REGION = "n c16 h w regions out_h out_w samples in_n in_c16 in_row out_n out_c16 out_row"
ROI_ALIGN = Kernels("roi_align_blocked", tensors="input regions >output", ints=_REGION, sizes=7, floats="scale offset",
                    tasks=lambda p: p.regions * p.c16 * p.out_h, reach=_region_reach)
ROI_MAX_POOL = Kernels("roi_max_pool_blocked", tensors="input regions >output", ints=_REGION, sizes=7, floats="scale",
                       tasks=lambda p: p.regions * p.c16 * p.out_h, reach=_region_reach)
