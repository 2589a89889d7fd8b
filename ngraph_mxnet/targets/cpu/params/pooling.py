"""The records of the kernels on blocked tensors. Strides are in elements; a pixel is 16 contiguous ones."""

from __future__ import annotations

from functools import partial
from typing import Any

from ngraph_mxnet.targets.cpu.params.record import BLOCK, MOST, Kernels, Span, blocked_span, whole

_BYTES = {"f32": 4, "bf16": 2, "u8": 1}


def _pool_reach(out_size: int, p: Any, size: int) -> list[Span]:
    """The whole input and output: kernels clip windows to the image, so nothing outside is touched."""
    places, windows = zip(p[5:8], p[11:14], strict=True), zip(p[8:11], (1, p.dilation_h, p.dilation_w), strict=True)
    if any((count - 1) * step > MOST for count, step in (*places, *windows)):
        raise ValueError(f"windows of {p[8:11]} with strides {p[11:14]}")
    return [blocked_span("input", size, *zip(p[:5], p[23:28], strict=True)),
            blocked_span("output", out_size, *zip((p.n, p.c16, *p[5:8]), p[28:], strict=True))]


def _pools(kernels: str, element: str, stored: str, floats: str = "") -> Kernels:
    return Kernels(
        dict.fromkeys(kernels.split(), _BYTES[element]), tensors="input >output",
        ints="n c16 d h w out_d out_h out_w kernel_d kernel_h kernel_w stride_d stride_h stride_w dilation_h "
             "dilation_w pad_front pad_top pad_left pad_back pad_bottom pad_right include_pad "
             "in_n in_c16 in_slice in_row in_pixel out_n out_c16 out_slice out_row out_pixel",
        sizes=16, floats=floats, tasks=lambda p: p.n * p.out_d * p.c16 * p.out_h,
        reach=partial(_pool_reach, _BYTES[stored]), elements=f"input:{element} output:{stored}",
    )


POOLS = {
    "": _pools("max_pool_blocked avg_pool_blocked", "f32", "f32"),
    "_bf16": _pools("max_pool_blocked_bf16 avg_pool_blocked_bf16", "bf16", "bf16"),
    "_bf16_f32": _pools("avg_pool_blocked_bf16_f32", "bf16", "f32"),
    "_u8": _pools("max_pool_blocked_u8", "u8", "u8"),
}
"""The records by the end of their kernels' names, which tells how operands are stored. All take the same ints.

`out_d`, `out_h` and `out_w` are sizes, all other `in_*` and `out_*` are strides. Depth has no dilation; in two
dimensions the sizes of the depth are 1."""

_SCALES = "scale zero_point out_zero_point"
MEANS_OF_BYTES = {
    "_u8": _pools("avg_pool_blocked_u8", "u8", "u8", _SCALES),
    "_u8_f32": _pools("avg_pool_blocked_u8_f32", "u8", "f32", _SCALES),
    "_f32_u8": _pools("avg_pool_blocked_f32_u8", "f32", "u8", _SCALES),
}
"""Average pools that read u8 or store it: the mean of what is read, less `zero_point`, times `scale`; what is stored as
u8 is rounded, and `out_zero_point` added."""


def _reach(p: Any, size: int) -> list[Span]:
    return _scaled_reach(size, p, size)


def _scaled_reach(out_size: int, p: Any, size: int) -> list[Span]:
    sizes = p[:4]
    return [blocked_span("x", size, *zip(sizes, p[4:8], strict=True)), whole("scale", 4, p.c16, BLOCK),
            whole("shift", 4, p.c16, BLOCK), blocked_span("output", out_size, *zip(sizes, p[8:], strict=True))]


SCALE_SHIFT = Kernels(
    {"scale_shift_blocked": 4, "scale_shift_blocked_bf16": 2}, tensors="x scale shift >output",
    ints="n c16 h w in_n in_c16 in_row in_pixel out_n out_c16 out_row out_pixel", sizes=4, floats="lower upper",
    tasks=lambda p: p.n * p.c16 * p.h, reach=_reach,
    elements={"scale_shift_blocked": "x:f32 output:f32", "scale_shift_blocked_bf16": "x:bf16 output:bf16"},
)


SCALE_SHIFT_U8 = Kernels(
    "scale_shift_blocked_f32_u8", tensors="x scale shift >output", ints=" ".join(SCALE_SHIFT.ints), sizes=4,
    floats="lower upper zero_point", tasks=SCALE_SHIFT.tasks, reach=partial(_scaled_reach, 1),
    elements="x:f32 output:u8",
)
"""The result is stored as u8, rounded, with `zero_point` added."""


def _gradient_reach(p: Any, size: int) -> list[Span]:
    places = zip(p[5:8], p[11:14], strict=True)
    if any((count - 1) * step > MOST for count, step in (*places, *((taps, 1) for taps in p[8:11]))):
        raise ValueError(f"windows of {p[8:11]} with strides {p[11:14]}")
    return [blocked_span("data", size, *zip(p[:5], p[17:22], strict=True)),
            blocked_span("head", size, *zip((*p[:2], *p[5:8]), p[22:27], strict=True)),
            blocked_span("output", size, *zip(p[:5], p[27:], strict=True))]


MAX_POOL_GRADIENT = Kernels(
    "max_pool_gradient_blocked", tensors="data head >output",
    ints="n c16 d h w out_d out_h out_w kernel_d kernel_h kernel_w stride_d stride_h stride_w pad_front pad_top "
         "pad_left data_n data_c16 data_slice data_row data_pixel head_n head_c16 head_slice head_row head_pixel "
         "output_n output_c16 output_slice output_row output_pixel",
    sizes=14, tasks=lambda p: p.n * p.c16, reach=_gradient_reach, elements="data:f32 head:f32 output:f32",
)
"""`out_d`, `out_h` and `out_w` are the windows', the sizes of the head gradient."""
