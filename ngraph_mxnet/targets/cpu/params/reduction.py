"""The records of reductions, norms and pools."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import prod
from typing import Any

from ngraph_mxnet.ir.sizes import MOST, are_same, is_one
from ngraph_mxnet.targets.cpu.params.record import (
    BLOCK,
    Kernels,
    Params,
    Span,
    axes,
    by_name,
    image_span,
    numbered,
    operand_span,
    span,
    whole,
)

REDUCE_CODES = numbered("reduce_sum reduce_mean reduce_prod reduce_max reduce_min")
"""The ops of `reduce_f64` and `reduce_i64`, and their numbers."""


def _reach(p: Any, size: int) -> list[Span]:
    if any(size < 0 for size in p.reduced):
        raise ValueError(f"reduced sizes {p.reduced}")
    return [span("input", size, *axes(p.kept, p.in_kept), *axes(p.reduced, p.in_reduced)),
            span("output", size, *axes(p.kept, p.out_kept))]


def _record(kernels: dict[str, int], floats: str) -> Kernels:
    return Kernels(
        kernels, tensors="input >output", sizes=5, floats=floats, reach=_reach,
        ints=" ".join(f"{name}(i0 i1 i2 i3 i4)" for name in "kept reduced in_kept out_kept in_reduced".split()),
        tasks=lambda p: prod(p.kept[:4]) * -(-p.kept.i4 // BLOCK))


REDUCE = _record(dict.fromkeys(REDUCE_CODES, 4), "")
REDUCE_WIDE = _record({"reduce_f64": 8, "reduce_i64": 8}, "code")
"""Kept sizes, reduced sizes, input strides of the kept dimensions, output strides of the kept ones, input strides of
the reduced ones. `code` is one of `REDUCE_CODES`."""

ARG = Kernels(
    {f"{op}{suffix}": size for op in ("argmax", "argmin") for suffix, size in (("", 4), ("_f64", 8), ("_i64", 8))},
    tensors="input >output", ints="outer size inner input(outer axis inner) output(outer inner)", sizes=3,
    tasks=lambda p: p.outer * p.inner,
    reach=lambda p, size: [operand_span(p, "input", size, *p[:3]), operand_span(p, "output", 8, p.outer, p.inner)],
)


def around(shape: Sequence[int], axis: int) -> dict[str, int]:
    """Return the product of the sizes before an axis, the size of the axis, and the product of the sizes behind it."""
    axis %= len(shape)
    return {"outer": prod(shape[:axis]), "size": shape[axis], "inner": prod(shape[axis + 1:])}


def reduced(record: Kernels, shape: Sequence[int], axes: Sequence[int], in_strides: Sequence[int],
            out_strides: Sequence[int], **floats: float) -> Params:
    """`out_strides` are those of the kept dimensions, in order.

    Raises:
        ValueError: more than five kept or five reduced dimensions remain after dropping those of size 1.
    """
    kept = [i for i in range(len(shape)) if i not in axes]
    rows = [(shape[i], in_strides[i], out) for i, out in zip(kept, out_strides, strict=True) if not is_one(shape[i])]
    columns = [(shape[i], in_strides[i]) for i in axes if not is_one(shape[i])]
    for index in range(len(columns) - 1, 0, -1):
        (outer, outer_stride), (inner, stride) = columns[index - 1 : index + 1]
        if are_same(outer_stride, inner * stride):
            columns[index - 1 : index + 1] = [(outer * inner, stride)]
    if len(rows) > 5 or len(columns) > 5:
        raise ValueError(f"reduction of {tuple(shape)} over {tuple(axes)} has too many dimensions")
    rows = [(1, 0, 0)] * (5 - len(rows)) + rows
    columns = [(1, 0)] * (5 - len(columns)) + columns
    return record(**by_name("kept in_kept out_kept", zip(*rows, strict=True)),
                  **by_name("reduced in_reduced", zip(*columns, strict=True)), **floats)


def position(shape: Sequence[int], axis: int) -> Params:
    """The parameters of argmax or argmin of a contiguous tensor."""
    n = around(shape, axis)
    return ARG(**n, input=(n["size"] * n["inner"], n["inner"], 1), output=(n["inner"], 1))


_SIZES = "n c16 h w channels"


def _strides(names: str) -> str:
    """The groups of blocked images."""
    return " ".join(f"{name}(n c16 row pixel)" for name in names.split())


def _images(p: Any, size: int, *names: str) -> list[Span]:
    return [image_span(p, name, size, *p[:4]) for name in names]


def _vectors(p: Any, size: int, *names: str) -> list[Span]:
    return [whole(name, size, p.channels) for name in names]


BATCH_NORM_STATISTICS = Kernels(
    "batch_norm_statistics", tensors="x >mean >variance", ints=f"{_SIZES} {_strides('x')}", sizes=5,
    tasks=lambda p: p.c16, reach=lambda p, size: [*_images(p, size, "x"), *_vectors(p, size, "mean", "variance")],
)
"""A task is a block of channels."""

BATCH_NORM_GRADIENT_SUMS = Kernels(
    "batch_norm_gradient_sums", tensors="x gamma mean variance y head >of_gamma >of_beta >factors",
    ints=f"{_SIZES} masked {_strides('x y head')}", sizes=5, floats="epsilon", tasks=lambda p: p.c16,
    reach=lambda p, size: [*_images(p, size, "x", "y", "head"),
                           *_vectors(p, size, "gamma", "mean", "variance", "of_gamma", "of_beta"),
                           whole("factors", size, p.c16, 4, BLOCK)],
)
"""`masked`: the head gradient counts where y is above 0; else y is not read. Factors: `[c16][4][16]`."""

_BYTES = {"f32": 4, "bf16": 2, "u8": 1}
_VECTORS = {"factors": (4, BLOCK), "scale": (BLOCK,), "shift": (BLOCK,)}
"""What a block of channels has of operands that are no images."""


def _by_image(kernel: str, ints: str, operands: str, floats: str, *ends: str) -> dict[str, Kernels]:
    """The records of kernels that store an image, by the ends of their names, which tell how they read images and how
    they store them. `operands` are images but for `_VECTORS`; the tasks are rows of blocks."""
    vectors = [name for name in operands.split() if name in _VECTORS]
    images = [name for name in operands.split() if name not in _VECTORS]

    def reach(stored: str, p: Any, size: int) -> list[Span]:
        return [*_images(p, size, *images), image_span(p, "output", _BYTES[stored], *p[:4]),
                *(whole(name, 4, p.c16, *_VECTORS[name]) for name in vectors)]

    def record(end: str) -> Kernels:
        kinds = end.split("_")[1:] or ["f32"]
        element, stored = kinds[0], kinds[-1]
        return Kernels(
            {kernel + end: _BYTES[element]}, tensors=f"{operands} >output", reach=partial(reach, stored), sizes=4,
            ints=f"n c16 h w {ints} {_strides(' '.join((*images, 'output')))}", tasks=lambda p: p.n * p.c16 * p.h,
            floats=f"{floats} {'zero_point' * (stored == 'u8')}",
            elements=" ".join((*(f"{name}:{element}" for name in images), f"output:{stored}")))

    return {end: record(end) for end in ends}


BATCH_NORM_GRADIENT_DATA = _by_image("batch_norm_gradient_data", "masked", "x factors y head", "", "", "_f32_bf16")
CLAMP_GRADIENT = _by_image("clamp_gradient_blocked", "above", "x head", "lower upper", "", "_f32_bf16")
"""`above`: what is at `lower` is outside."""
SCALE_SHIFTS = _by_image(
    "scale_shift_blocked", "", "x scale shift", "lower upper", "", "_bf16", "_f32_bf16", "_f32_u8")
"""What is stored as u8 is rounded, and `zero_point` added."""


SOFTMAX = Kernels(
    "softmax log_softmax", tensors="input >output",
    ints="outer size inner input(outer axis inner) output(outer axis inner)", sizes=3,
    tasks=lambda p: p.outer * -(-p.inner // BLOCK),
    reach=lambda p, size: [operand_span(p, name, size, *p[:3]) for name in ("input", "output")],
)

PICK_BLOCK = 1024
"""Elements of a row that `log_softmax_pick` reads at a time, a multiple of 64."""


def _pick(kernel: str, tensors: str) -> Kernels:
    names = tensors.replace(">", "").split()
    return Kernels(
        kernel, tensors=tensors, ints="rows size outside", sizes=2, tasks=lambda p: p.rows,
        reach=lambda p, size: [whole(name, 8 if name == "indices" else size, p.rows,
                                     p.size if name in ("x", "output") else 1) for name in names])


LOG_SOFTMAX_PICK = _pick("log_softmax_pick", "x indices >picked >greatest >logarithm")
LOG_SOFTMAX_PICK_GRADIENT = _pick("log_softmax_pick_gradient", "x indices greatest logarithm head >output")
"""Rows are contiguous. `outside`: as that of `ELEMENT_POSITIONS`."""

LAYER_NORM = Kernels(
    "layer_norm", tensors="x gamma beta >output", ints="rows columns in_row out_row", sizes=2, floats="epsilon",
    tasks=lambda p: p.rows,
    reach=lambda p, size: [span("x", size, (p.rows, p.in_row), last=p.columns), ("gamma", 0, size * p.columns),
                           ("beta", 0, size * p.columns),
                           span("output", size, (p.rows, p.out_row), last=p.columns)],
)
"""A row is contiguous."""


def _layer_norm_gradient_reach(p: Any, size: int) -> list[Span]:
    return [*(span(name, size, (p.rows, getattr(p, f"{name}_row")), last=p.columns) for name in ("x", "head", "by_x")),
            whole("gamma", size, p.columns), whole("sums", size, -(-p.rows // p.chunk), 2, p.columns)]


LAYER_NORM_GRADIENT = Kernels(
    "layer_norm_gradient", tensors="x gamma head >by_x >sums", ints="rows columns chunk x_row head_row by_x_row",
    sizes=3, floats="epsilon", tasks=lambda p: -(-p.rows // p.chunk), reach=_layer_norm_gradient_reach,
)
"""A row is contiguous; a task has `chunk` of them. Sums: `[tasks][2][columns]`, of the rows of each task."""

BATCH_NORM_FACTORS = Kernels(
    "batch_norm_factors", tensors="gamma beta mean variance >scale >shift", ints="channels", sizes=1, floats="epsilon",
    tasks=lambda p: 1,
    reach=lambda p, size: [(name, 0, size * p.channels) for name in "gamma beta mean variance scale shift".split()],
)


LRN = Kernels(
    "lrn", tensors="input >output", ints="n c inner size input(n c) output(n c)", sizes=4, floats="alpha beta bias",
    tasks=lambda p: p.n * p.c,
    reach=lambda p, size: [operand_span(p, name, size, p.n, p.c, last=p.inner) for name in ("input", "output")])
"""The inner dimension (height times width) is contiguous."""


def softmax(shape: Sequence[int], axis: int) -> Params:
    """The parameters of a softmax of contiguous tensors."""
    n = around(shape, axis)
    strides = n["size"] * n["inner"], n["inner"], 1
    return SOFTMAX(**n, input=strides, output=strides)


def _pool_reach(out_size: int, p: Any, size: int) -> list[Span]:
    """The whole input and output: kernels clip windows to the image, so nothing outside is touched."""
    _check_windows(p, (1, *p.dilation))
    return [image_span(p, "input", size, *p[:5]), image_span(p, "output", out_size, p.n, p.c16, *p.windows)]


def _check_windows(p: Any, dilation: Sequence[int]) -> None:
    """Refuse windows whose places the kernel can't count."""
    if any((count - 1) * step > MOST for count, step in (*axes(p.windows, p.stride), *axes(p.kernel, dilation))):
        raise ValueError(f"windows of {p.kernel} with strides {p.stride}")


_WINDOWS = "n c16 d h w windows(d h w) kernel(d h w) stride(d h w)"


def _slices(names: str) -> str:
    """The groups of blocked images of slices."""
    return " ".join(f"{name}(n c16 slice row pixel)" for name in names.split())


def _pools(kernels: str, element: str, stored: str, floats: str = "") -> Kernels:
    return Kernels(
        dict.fromkeys(kernels.split(), _BYTES[element]), tensors="input >output",
        ints=f"{_WINDOWS} dilation(h w) pad(front top left back bottom right) include_pad {_slices('input output')}",
        sizes=16, floats=floats, tasks=lambda p: p.n * p.windows.d * p.c16 * p.windows.h,
        reach=partial(_pool_reach, _BYTES[stored]), elements=f"input:{element} output:{stored}",
    )


POOLS = {
    "": _pools("max_pool_blocked avg_pool_blocked", "f32", "f32"),
    "_bf16": _pools("max_pool_blocked_bf16 avg_pool_blocked_bf16", "bf16", "bf16"),
    "_bf16_f32": _pools("avg_pool_blocked_bf16_f32", "bf16", "f32"),
    "_u8": _pools("max_pool_blocked_u8", "u8", "u8"),
}
"""The records by the end of their kernels' names, which tells how operands are stored. All take the same ints.

`windows` says how many there are, which is the size of the result. Depth has no dilation; in two dimensions the sizes
of the depth are 1."""

_SCALES = "scale zero_point out_zero_point"
MEANS_OF_BYTES = {
    "_u8": _pools("avg_pool_blocked_u8", "u8", "u8", _SCALES),
    "_u8_f32": _pools("avg_pool_blocked_u8_f32", "u8", "f32", _SCALES),
    "_f32_u8": _pools("avg_pool_blocked_f32_u8", "f32", "u8", _SCALES),
}
"""Average pools that read u8 or store it: the mean of what is read, less `zero_point`, times `scale`; what is stored as
u8 is rounded, and `out_zero_point` added."""


STORE_BF16 = {
    "avg_pool": POOLS,
    "batch_norm_gradient": BATCH_NORM_GRADIENT_DATA,
    "batch_norm_relu_gradient": BATCH_NORM_GRADIENT_DATA,
    "clamp_gradient": CLAMP_GRADIENT,
    "scale_shift": SCALE_SHIFTS,
}
"""By op the records of its kernels, where some of them store bf16."""


def _gradient_reach(p: Any, size: int) -> list[Span]:
    _check_windows(p, (1, 1, 1))
    return [image_span(p, "data", size, *p[:5]), image_span(p, "head", size, p.n, p.c16, *p.windows),
            image_span(p, "output", size, *p[:5])]


MAX_POOL_GRADIENT = Kernels(
    "max_pool_gradient_blocked", tensors="data head >output",
    ints=f"{_WINDOWS} pad(front top left) {_slices('data head output')}",
    sizes=14, tasks=lambda p: p.n * p.c16, reach=_gradient_reach, elements="data:f32 head:f32 output:f32",
)
"""There are as many windows as elements of the head gradient."""
