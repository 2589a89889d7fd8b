"""What the rule families share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from ngraph_mxnet.errors import ModelError, UnsupportedError
from ngraph_mxnet.ir import Builder, Value
from ngraph_mxnet.onnx_bridge.rules.registry import Call

Ints = tuple[int, ...]


def normal_axis(axis: int, rank: int) -> int:
    """`axis` in [0, rank).

    Raises:
        ModelError: it is outside [-rank, rank).
    """
    if not -rank <= axis < rank:
        raise ModelError(f"axis {axis} is outside [-{rank}, {rank})")
    return axis % rank


def normal_axes(axes: Iterable[int], rank: int) -> Ints:
    """Sorted, distinct, in [0, rank)."""
    return tuple(sorted({normal_axis(axis, rank) for axis in axes}))


def scalar(b: Builder, value: float, like: Value) -> Value:
    """A rank-0 constant of the element type of `like`."""
    return b.constant(value, like.type.element)


def reshaped(b: Builder, x: Value, shape: Sequence[int]) -> Value:
    return x if x.shape == tuple(shape) else b.reshape(x, shape=tuple(shape))


def broadcast_to(b: Builder, x: Value, shape: Sequence[int]) -> Value:
    return x if x.shape == tuple(shape) else b.broadcast(x, shape=tuple(shape))


def along_axis(b: Builder, vector: Value, axis: int, rank: int) -> Value:
    """A vector ready to broadcast along `axis` of a tensor of `rank`."""
    return b.reshape(vector, shape=[vector.type.size if i == axis else 1 for i in range(rank)])


def slice_axis(b: Builder, x: Value, axis: int, begin: int, end: int) -> Value:
    """x[..., begin:end, ...] with bounds in range."""
    rank = len(x.shape)
    return b.slice(x, begin=[begin if i == axis else 0 for i in range(rank)],
                   end=[end if i == axis else x.shape[i] for i in range(rank)])


def flipped(b: Builder, x: Value, axis: int) -> Value:
    """x with the order of its elements along `axis` reversed."""
    rank = len(x.shape)
    if not x.shape[axis]:
        return x
    return b.slice(x, begin=[x.shape[i] - 1 if i == axis else 0 for i in range(rank)],
                   end=[-1 if i == axis else x.shape[i] for i in range(rank)],
                   strides=[-1 if i == axis else 1 for i in range(rank)])


def converted(b: Builder, x: Value, like: Value) -> Value:
    return x if x.type.element == like.type.element else b.convert(x, element=like.type.element)


def iota(b: Builder, size: int, axis: int, rank: int, dtype: str = "i64") -> Value:
    """0, 1, ... ready to broadcast along `axis` of a tensor of `rank`."""
    return b.constant(np.arange(size).reshape([size if i == axis else 1 for i in range(rank)]), dtype)


def window(call: Call, sizes: Sequence[int], kernel: Ints, *, strides: Ints, dilations: Ints) -> tuple[Ints, Ints]:
    """Padding before and after each spatial axis, from `auto_pad` or `pads`."""
    count = len(sizes)
    mode = call.attrs.choice("auto_pad", "NOTSET", ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"))
    pads = call.attrs.ints("pads", (0,) * (2 * count))
    for name, values, wanted in (("kernel_shape", kernel, count), ("strides", strides, count),
                                 ("dilations", dilations, count), ("pads", pads, 2 * count)):
        if len(values) != wanted:
            raise ModelError(f"{name}={values}: expected {wanted} numbers for {count} spatial axes")
    if min((*strides, *dilations, *kernel), default=1) < 1:
        raise ModelError(f"kernel_shape={kernel}, strides={strides}, dilations={dilations}: expected 1 or more")
    if mode == "NOTSET":
        if min(pads, default=0) < 0:
            raise UnsupportedError(f"negative pads={pads}")
        return pads[:count], pads[count:]
    if mode == "VALID":
        return (0,) * count, (0,) * count
    begins, ends = [], []
    for size, width, stride, dilation in zip(sizes, kernel, strides, dilations, strict=True):
        total = max(0, (-(-size // stride) - 1) * stride + dilation * (width - 1) + 1 - size)
        less, more = total // 2, total - total // 2
        begins.append(less if mode == "SAME_UPPER" else more)
        ends.append(more if mode == "SAME_UPPER" else less)
    return tuple(begins), tuple(ends)
