"""Definition of the matrix grid's arithmetic in NumPy. `products.py` computes the same bit for bit, faster.

* int8: products are added in int32, which wraps; so no order matters, and no tiling.
* f16 and bf16: each product is rounded to float32 (it is exact, but for what float32 can't represent), and the
  products of an output element are added to its float32 accumulator one after the other, in the order of k. A
  contraction cut along k into instructions that go on from each other's accumulators, in order, gives the same bits;
  no tiling of the other axes matters.
* The contraction axis of a convolution is (input channel of the group, *place in the kernel), row-major: the order of
  the weights' elements. So its input channels can be cut anywhere, its kernel can't. Places in the padding are zeros
  and are multiplied.
* `finish` makes a result of the accumulators.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ngraph_mxnet.targets.nnp.isa.formats import FORMATS, quantized

Product = Callable[[np.ndarray, np.ndarray, "np.ndarray | None"], np.ndarray]
"""(a [..., M, K], b [..., K, N], start [..., M, N] or None for zeros) to sums like start: see the two below."""


def integer_product(a: np.ndarray, b: np.ndarray, start: np.ndarray | None = None) -> np.ndarray:
    """start + a b in int32, which wraps, of i8 numbers."""
    sums = np.matmul(a.astype(np.int32), b.astype(np.int32))
    return sums if start is None else start + sums


def float_product(a: np.ndarray, b: np.ndarray, start: np.ndarray | None = None) -> np.ndarray:
    """start + a b in float32, of float32 numbers, added in the order of k."""
    shape = (*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1])
    total = np.zeros(shape, np.float32) if start is None else start
    with np.errstate(all="ignore"):
        for k in range(a.shape[-1]):
            total = total + a[..., :, k, None] * b[..., k, None, :]
    return total


def convolution(
    data: np.ndarray,
    weights: np.ndarray,
    attrs: Mapping[str, Any],
    product: Product,
    start: np.ndarray | None = None,
) -> Iterator[np.ndarray]:
    """Sums [O, *R] for each image of data [N, C, *S], with weights [O, C/groups, *K], as a matrix `product`."""
    groups, outputs, kernel = attrs["groups"], weights.shape[0], weights.shape[2:]
    sizes = convolved_sizes(data.shape[2:], kernel, attrs)
    matrix = weights.reshape(groups, outputs // groups, -1)
    for index, image in enumerate(data):
        begin = None if start is None else start[index].reshape(groups, outputs // groups, -1)
        yield product(matrix, columns(image, kernel, attrs), begin).reshape(outputs, *sizes)


def columns(image: np.ndarray, kernel: Sequence[int], attrs: Mapping[str, Any]) -> np.ndarray:
    """image [C, *S] as [groups, C/groups * kernel places, places of the result], zeros outside the image."""
    begins, ends, strides = attrs["pads_begin"], attrs["pads_end"], attrs["strides"]
    dilations, groups = attrs["dilations"], attrs["groups"]
    sizes, image = convolved_sizes(image.shape[1:], kernel, attrs), np.ascontiguousarray(image)
    if any(begins) or any(ends):
        image = _padded(image, begins, ends)
    elif math.prod(kernel) == 1 and all(step == 1 for step in strides):
        return image.reshape(groups, -1, math.prod(sizes))
    steps = image.strides[1:]
    windows: np.ndarray = np.ndarray(
        (image.shape[0], *kernel, *sizes),
        image.dtype,
        image,
        strides=(
            image.strides[0],
            *(step * dilation for step, dilation in zip(steps, dilations, strict=True)),
            *(step * stride for step, stride in zip(steps, strides, strict=True)),
        ),
    )
    return np.ascontiguousarray(windows).reshape(groups, -1, math.prod(sizes))


def _padded(image: np.ndarray, begins: Sequence[int], ends: Sequence[int]) -> np.ndarray:
    around = [size + begin + end for size, begin, end in zip(image.shape[1:], begins, ends, strict=True)]
    padded = np.zeros((image.shape[0], *around), image.dtype)
    inner: Any = (..., *(slice(b, b + n) for b, n in zip(begins, image.shape[1:], strict=True)))
    padded[inner] = image
    return padded


def convolved_sizes(sizes: Sequence[int], kernel: Sequence[int], attrs: Mapping[str, Any]) -> tuple[int, ...]:
    """The spatial sizes of a convolution's result."""
    rows = zip(
        sizes,
        kernel,
        attrs["strides"],
        attrs["dilations"],
        attrs["pads_begin"],
        attrs["pads_end"],
        strict=True,
    )
    return tuple(
        (size + begin + end - dilation * (taps - 1) - 1) // stride + 1
        for size, taps, stride, dilation, begin, end in rows
    )


def finish(
    sums: np.ndarray,
    element: str,
    *,
    scale: np.ndarray | None = None,
    bias: np.ndarray | None = None,
    residual: np.ndarray | None = None,
    residual_scale: float = 1.0,
    lower: float = -math.inf,
    upper: float = math.inf,
    out_scale: float = 1.0,
) -> np.ndarray:
    """Accumulators as stored elements, each operation rounded to float32, in this order.

    clamp(sums * scale + bias + residual * residual_scale, lower, upper); what is missing is left out, and so is
    residual_scale where it is 1. A bound of 0 gives +0. An i8 result is divided by `out_scale` first.

    Args:
        sums: int32 or float32, or float32 that hold what int32 would; may be overwritten if float32.
        element: a name of FORMATS; `scale` and `bias` broadcast with `sums`, `residual` is float32.
    """
    values = sums.astype(np.float32, copy=False)
    if scale is not None:
        values *= scale
    if bias is not None:
        values += bias
    if residual is not None:
        values += residual if residual_scale == 1.0 else residual * np.float32(residual_scale)
    if lower != -math.inf:
        np.maximum(values, np.float32(lower), out=values)
    if upper != math.inf:
        np.minimum(values, np.float32(upper), out=values)
    if 0.0 in (lower, upper):
        values += np.float32(0)  # of -0 and +0 the maximum may be either
    if element == "i8":
        return quantized(values, out_scale)
    return FORMATS[element].round_to(values)
