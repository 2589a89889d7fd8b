"""The records of the kernels on blocked tensors. Strides are in elements; a pixel is 16 contiguous ones."""

from __future__ import annotations

from typing import Any

from ngraph_mxnet.cpu.params.record import BLOCK, Kernels, Span, span

POOL = Kernels(
    "max_pool_blocked max_pool_blocked_bf16 avg_pool_blocked avg_pool_blocked_bf16 avg_pool_blocked_bf16_f32",
    tensors="input >output",
    ints="n c16 h w out_h out_w kernel_h kernel_w stride_h stride_w dilation_h dilation_w pad_top pad_left "
         "pad_bottom pad_right include_pad in_n in_c16 in_row in_pixel out_n out_c16 out_row out_pixel "
         "d out_d kernel_d stride_d pad_front pad_back in_slice out_slice",
    sizes=12, tasks=lambda p: p.n * p.out_d * p.c16 * p.out_h,
)
"""`in_*` and `out_*` are strides, but `out_d`, `out_h` and `out_w` sizes; the depth, which has no dilation, is 1 in two
dimensions."""


def _reach(p: Any, size: int) -> list[Span]:
    sizes, channels = p[:4], 4 * BLOCK * p.c16
    return [span("x", size, *zip(sizes, p[4:8], strict=True), last=BLOCK), ("scale", 0, channels),
            ("shift", 0, channels), span("output", size, *zip(sizes, p[8:], strict=True), last=BLOCK)]


SCALE_SHIFT = Kernels(
    {"scale_shift_blocked": 4, "scale_shift_blocked_bf16": 2}, tensors="x scale shift >output",
    ints="n c16 h w in_n in_c16 in_row in_pixel out_n out_c16 out_row out_pixel", sizes=4, floats="lower upper",
    tasks=lambda p: p.n * p.c16 * p.h, reach=_reach,
)
