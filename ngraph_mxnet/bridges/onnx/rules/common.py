"""What the rule families share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod

from ngraph_mxnet.bridges.onnx.budget import MOST_CONSTANT_BYTES
from ngraph_mxnet.bridges.onnx.rules.registry import Call
from ngraph_mxnet.errors import ModelError, UnsupportedError

Ints = tuple[int, ...]
MOST_ELEMENTS = 1 << 28
"""The most elements of a tensor that a few numbers in a file ask for."""


def require_size(count: int) -> None:
    """Refuse a tensor of more than `MOST_ELEMENTS` elements.

    Raises:
        UnsupportedError: there are too many elements.
    """
    if count > MOST_ELEMENTS:
        raise UnsupportedError(f"asks for a tensor of {count} elements; supported: {MOST_ELEMENTS}")


def require_table(shape: Iterable[int], bytes_each: int) -> None:
    """Refuse a constant of this shape before its array is made, which would take the memory first.

    Raises:
        UnsupportedError: it has too many bytes.
    """
    size = prod(shape) * bytes_each
    if size > MOST_CONSTANT_BYTES:
        raise UnsupportedError(f"asks for a constant of {size} bytes; supported: {MOST_CONSTANT_BYTES}")


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
