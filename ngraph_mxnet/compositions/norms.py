"""Roots of sums of powers, of numbers whose powers or whose sums leave the range of their element type.

A scale divides the numbers first and multiplies the root. Nothing goes back through it: a norm's derivative is that of
its numbers over any scale.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from ngraph_mxnet.compositions.tensors import reshaped, scalar
from ngraph_mxnet.ir import Builder, Value
from ngraph_mxnet.ir.types import f64

# Powers of 2, of f32 and of f64: below the first and above the second there is a scale, the third and the fourth. The
# squares of whatever is scaled so, and the sums of 2^24 of them, have all their digits.
_RANGES = {False: (2.0**-40, 2.0**48, 2.0**-90, 2.0**80), True: (2.0**-300, 2.0**480, 2.0**-700, 2.0**640)}


def square_scale(b: Builder, largest: Value) -> Value:
    """A power of 2 for numbers up to `largest`, which is not negative: their squares over it are within range. 1 for
    most, and for NaN."""
    low, high, tiny, huge = _RANGES[largest.type.element is f64]
    up = b.select(b.greater(largest, scalar(b, high, largest)), scalar(b, huge, largest), scalar(b, 1, largest))
    return b.stop_gradient(b.select(b.less(largest, scalar(b, low, largest)), scalar(b, tiny, largest), up))


def euclidean_norm(b: Builder, x: Value, axes: Sequence[int], *, keep: bool) -> Value:
    """The root of the sum of squares over `axes`."""
    if not x.type.size:
        return b.sqrt(b.reduce_sum(b.square(x), axes=axes, keep_dims=keep))
    scale = square_scale(b, b.reduce_max(b.abs(x), axes=axes, keep_dims=True))
    root = b.sqrt(b.reduce_sum(b.square(b.divide(x, scale)), axes=axes, keep_dims=keep))
    return b.multiply(root, reshaped(b, scale, root.shape))


def power_norm(b: Builder, x: Value, order: float, axes: Sequence[int], *, keep: bool) -> Value:
    """The sum of |x|^order over `axes`, to the power of 1 / order, which is neither 0 nor infinite.

    Of positive orders the scale is the largest number, of negative ones the least.
    """
    size = b.abs(x)
    most = b.apply("reduce_max" if order > 0 else "reduce_min", size, axes=axes, keep_dims=True)
    within = b.logical_and(b.greater(most, scalar(b, 0, x)), b.less(most, scalar(b, inf, x)))
    scale = b.stop_gradient(b.select(within, most, scalar(b, 1, x)))
    total = b.reduce_sum(b.power(b.divide(size, scale), scalar(b, order, x)), axes=axes, keep_dims=keep)
    root = b.power(total, scalar(b, 1 / order, x))
    return b.multiply(root, reshaped(b, scale, root.shape))


def hypotenuse(b: Builder, x: Value, y: Value) -> Value:
    """sqrt(x^2 + y^2); infinite where either is, whatever the other."""
    sizes = b.abs(x), b.abs(y)
    scale = square_scale(b, b.maximum(*sizes))
    root = b.sqrt(b.add(b.square(b.divide(x, scale)), b.square(b.divide(y, scale))))
    endless = b.logical_or(*(b.equal(size, scalar(b, inf, x)) for size in sizes))
    return b.select(endless, scalar(b, inf, x), b.multiply(root, scale))


def root_or_flat(b: Builder, op: str, x: Value) -> Value:
    """`sqrt` or `cbrt`, through which nothing goes back at 0, where it has no derivative."""
    flat = b.equal(x, scalar(b, 0, x))
    return b.select(flat, scalar(b, 0, x), b.apply(op, b.select(flat, scalar(b, 1, x), x)))
