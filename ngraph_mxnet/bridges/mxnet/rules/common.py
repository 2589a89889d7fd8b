"""What the rule families share."""

from __future__ import annotations

from collections.abc import Iterable

from ngraph_mxnet.compositions.tensors import iota, scalar
from ngraph_mxnet.errors import UnsupportedError
from ngraph_mxnet.ir import Builder, Value
from ngraph_mxnet.ir.types import ElementType, element_type


def normal_axis(axis: int, rank: int) -> int:
    """`axis` in [0, rank)."""
    if not -rank <= axis < rank:
        raise UnsupportedError(f"axis {axis} is outside rank {rank}")
    return axis % rank


def normal_axes(axes: Iterable[int], rank: int) -> tuple[int, ...]:
    """Sorted, distinct, in [0, rank)."""
    result = tuple(sorted({normal_axis(axis, rank) for axis in axes}))
    return result


def positive(value: int, name: str) -> int:
    """`value`, if it is at least 1: MXNet's own checks, made when it loads a model, may not have seen it.

    Raises:
        UnsupportedError: it is less.
    """
    if value < 1:
        raise UnsupportedError(f"{name}={value}, expected at least 1")
    return value


def image_shape(x: Value) -> tuple[int, ...]:
    """The shape (N, C, H, W) of images.

    Raises:
        UnsupportedError: the rank is not 4.
    """
    if len(x.shape) != 4:
        raise UnsupportedError(f"found {x.type}, expected rank 4")
    return x.shape


def bias_of(inputs: list[Value], no_bias: bool) -> Value | None:
    """The third input unless `no_bias`."""
    if no_bias:
        return None
    if len(inputs) < 3:
        raise UnsupportedError("no_bias=False, but there is no bias input")
    return inputs[2]


def per_axis(values: tuple[int, ...], count: int, fill: int, name: str) -> tuple[int, ...]:
    """`values`, or `count` times `fill` where MXNet leaves them empty."""
    if len(values) not in (0, count):
        raise UnsupportedError(f"{name}={values} has {len(values)} entries for {count} spatial axes")
    return values or (fill,) * count


def at_least_1d(b: Builder, value: Value) -> Value:
    """MXNet (outside mx.np) has no rank 0: a full reduction gives shape (1,)."""
    return value if value.shape else b.reshape(value, shape=(1,))


def as_indices(b: Builder, value: Value) -> Value:
    """Indices of any number type as i64; MXNet cuts fractions off."""
    return b.convert(value, element="i64")


def truth(b: Builder, x: Value) -> Value:
    """bool: x != 0, which holds for NaN."""
    if x.type.element.numpy.kind == "b":
        return x
    return b.not_equal(x, scalar(b, 0, x))


def as_number(b: Builder, condition: Value, like: Value) -> Value:
    """`condition`, or any numbers, in the element type of `like`: MXNet's comparisons keep their operands' type."""
    return b.convert(condition, element=like.type.element)


def as_type(b: Builder, x: Value, element: ElementType) -> Value:
    """`x` in `element`, which it may have already."""
    return x if x.type.element is element else b.convert(x, element=element)


def within_length(b: Builder, x: Value, lengths: Value, axis: int) -> Value:
    """bool, broadcastable to x: whether a position along `axis` is below its length.

    `lengths`: whole numbers in the shape of x without `axis`, of any number type, below 2**24.
    """
    shape = list(x.shape)
    if lengths.shape != (*shape[:axis], *shape[axis + 1:]):
        raise UnsupportedError(f"lengths {lengths.type} for axis {axis} of {x.type}")
    column = b.reshape(lengths, shape=(*shape[:axis], 1, *shape[axis + 1:]))
    return b.less(iota(b, shape[axis], axis, len(shape), "f32"), b.convert(column, element=element_type("f32")))
