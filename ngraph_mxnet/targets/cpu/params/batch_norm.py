"""The records of batch norm in training (statistics, and the gradient in two passes over memory) and of gradients of
clamps."""

from __future__ import annotations

from typing import Any

from ngraph_mxnet.targets.cpu.params.record import BLOCK, Kernels, Span, blocked_span, whole

_SIZES = "n c16 h w channels"


def _strides(*names: str) -> str:
    return " ".join(f"{name}_n {name}_c16 {name}_row {name}_pixel" for name in names)


def _image(operand: str, p: Any) -> Span:
    return blocked_span(operand, 4, *((size, getattr(p, f"{operand}_{axis}"))
                                      for size, axis in zip(p[:4], "n c16 row pixel".split(), strict=True)))


def _vectors(p: Any, size: int, *names: str) -> list[Span]:
    return [whole(name, size, p.channels) for name in names]


BATCH_NORM_STATISTICS = Kernels(
    "batch_norm_statistics", tensors="x >mean >variance", ints=f"{_SIZES} {_strides('x')}", sizes=5,
    tasks=lambda p: p.c16, reach=lambda p, size: [_image("x", p), *_vectors(p, size, "mean", "variance")],
)
"""A task is a block of channels."""

BATCH_NORM_GRADIENT_SUMS = Kernels(
    "batch_norm_gradient_sums", tensors="x gamma mean variance y head >of_gamma >of_beta >factors",
    ints=f"{_SIZES} masked {_strides('x', 'y', 'head')}", sizes=5, floats="epsilon", tasks=lambda p: p.c16,
    reach=lambda p, size: [*(_image(name, p) for name in ("x", "y", "head")),
                           *_vectors(p, size, "gamma", "mean", "variance", "of_gamma", "of_beta"),
                           whole("factors", size, p.c16, 4, BLOCK)],
)
"""`masked`: the head gradient counts where y is above 0; else y is not read. Factors: `[c16][4][16]`."""

BATCH_NORM_GRADIENT_DATA = Kernels(
    "batch_norm_gradient_data", tensors="x factors y head >output",
    ints=f"n c16 h w masked {_strides('x', 'y', 'head', 'output')}", sizes=4, tasks=lambda p: p.n * p.c16 * p.h,
    reach=lambda p, size: [*(_image(name, p) for name in ("x", "y", "head", "output")),
                           whole("factors", size, p.c16, 4, BLOCK)],
)

CLAMP_GRADIENT = Kernels(
    "clamp_gradient_blocked", tensors="x head >output", ints=f"n c16 h w above {_strides('x', 'head', 'output')}",
    sizes=4, floats="lower upper", tasks=lambda p: p.n * p.c16 * p.h,
    reach=lambda p, size: [_image(name, p) for name in ("x", "head", "output")],
)
"""`above`: what is at `lower` is outside."""
