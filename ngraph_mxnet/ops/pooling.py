"""Pooling over one to three spatial axes.

On each spatial axis output i covers the places [i * stride - pads_begin, ... + kernel) of the data.
`rounding` says how many outputs there are when the strides do not come out even: `floor` (MXNet's `valid`)
drops the rest, `ceil` (MXNet's `full`) adds a window that may reach beyond the end padding. Every window
must hold an element of the data.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from math import prod
from typing import Any

import numpy as np

from ngraph_mxnet.ir.opdef import Attrs, Rates, Shapes, register_op
from ngraph_mxnet.ir.types import Attribute, Bool, Choice, Ints, PerAxis, Shape, TensorType
from ngraph_mxnet.ops.common import (
    FLOAT,
    NUMBER,
    Types,
    common_element,
    in_f32,
    require,
    require_domain,
    require_per_axis,
    require_rank,
    require_shape,
)

POOL_ATTRS: dict[str, Attribute] = {
    "kernel": Ints(),
    "strides": PerAxis(fill=1, skip=2),
    "pads_begin": PerAxis(fill=0, skip=2),
    "pads_end": PerAxis(fill=0, skip=2),
    "rounding": Choice("floor", ("floor", "ceil")),
}


def pooled_sizes(sizes: Shape, attrs: Attrs) -> Shape:
    """The spatial sizes of a pool's result."""
    result = []
    for axis, size in enumerate(sizes):
        span = size + attrs["pads_begin"][axis] + attrs["pads_end"][axis] - attrs["kernel"][axis]
        stride = attrs["strides"][axis]
        result.append((span // stride if attrs["rounding"] == "floor" else -(-span // stride)) + 1)
    return tuple(result)


def _pool_type(types: Types, attrs: Attrs) -> TensorType:
    (data,) = types
    require_rank(data, 3, 5)
    spatial = data.rank - 2
    for name, least in (("kernel", 1), ("strides", 1), ("pads_begin", 0), ("pads_end", 0)):
        require_per_axis(name, attrs[name], spatial, least)
    for axis, size in enumerate(data.shape[2:]):
        kernel, begin, end = attrs["kernel"][axis], attrs["pads_begin"][axis], attrs["pads_end"][axis]
        require(
            kernel <= size + begin + end,
            f"kernel on spatial axis {axis}",
            kernel,
            f"at most the padded size {size + begin + end}",
        )
    sizes = pooled_sizes(data.shape[2:], attrs)
    for axis, (size, count) in enumerate(zip(data.shape[2:], sizes, strict=True)):
        kernel, begin = attrs["kernel"][axis], attrs["pads_begin"][axis]
        last = (count - 1) * attrs["strides"][axis] - begin
        require(
            begin < kernel and last < size,
            f"windows of spatial axis {axis}",
            f"[{-begin}, {kernel - begin}) to [{last}, {last + kernel})",
            f"each to overlap [0, {size})",
        )
    return data.with_shape((*data.shape[:2], *sizes))


def _taps(data: np.ndarray, attrs: Attrs, outside: float) -> Iterator[np.ndarray]:
    """For each tap of the kernel the elements that it meets, in the result's shape; those of the padding are
    `outside`."""
    sizes = pooled_sizes(data.shape[2:], attrs)
    needed = [(n - 1) * s + k for n, s, k in zip(sizes, attrs["strides"], attrs["kernel"], strict=True)]
    width = [
        (b, max(n - b - size, 0))
        for b, n, size in zip(attrs["pads_begin"], needed, data.shape[2:], strict=True)
    ]
    padded = np.pad(data, [(0, 0), (0, 0), *width], constant_values=outside)
    for tap in np.ndindex(*attrs["kernel"]):
        steps = zip(tap, sizes, attrs["strides"], strict=True)
        window: Any = (..., *(slice(t, t + (n - 1) * s + 1, s) for t, n, s in steps))
        yield padded[window]


def divisors(sizes: Shape, attrs: Attrs) -> np.ndarray:
    """Return the divisor of `avg_pool` at each output place: shape [*sizes of the result].

    With `include_pad` a window counts up to the end of the padding, not beyond; else the data's places only.
    (pool_sum_*d in MXNet's src/operator/nn/pool.h.)
    """
    counts = []
    for axis, (size, count) in enumerate(zip(sizes, pooled_sizes(sizes, attrs), strict=True)):
        start = np.arange(count) * attrs["strides"][axis] - attrs["pads_begin"][axis]
        stop = np.minimum(start + attrs["kernel"][axis], size + attrs["pads_end"][axis])
        if not attrs["include_pad"]:
            start, stop = np.maximum(start, 0), np.minimum(stop, size)
        counts.append(stop - start)
    return reduce(np.multiply.outer, counts)


def _work(operands: Shapes, results: Shapes, attrs: Attrs) -> Rates:
    return {"simple": prod(results[0]) * prod(attrs["kernel"])}


def _gradient_work(operands: Shapes, results: Shapes, attrs: Attrs) -> Rates:
    return {"simple": prod(operands[1]) * (prod(attrs["kernel"]) + 1)}


@register_op("max_pool", operands=1, attrs=POOL_ATTRS, kind="pool", work=_work, selects=True, ordinal=True)
def max_pool(types, attrs):
    """T[N, C, *S] -> T[N, C, *R]: the greatest element of each window, padding aside; NaN if one is."""
    require_domain(types, NUMBER)
    return _pool_type(types, attrs)


@max_pool.reference
@in_f32
def _(inputs, attrs):
    (data,) = inputs
    lowest = -np.inf if data.dtype.kind == "f" else np.iinfo(data.dtype).min
    return reduce(np.maximum, _taps(data, attrs, lowest)).copy()


@register_op("avg_pool", operands=1, attrs={**POOL_ATTRS, "include_pad": Bool(True)}, kind="pool", work=_work,
             tolerant=True)
def avg_pool(types, attrs):
    """T[N, C, *S] -> T[N, C, *R]: the sum of each window's elements over its divisor (see `divisors`)."""
    require_domain(types, FLOAT)
    return _pool_type(types, attrs)


@avg_pool.reference
@in_f32
def _(inputs, attrs):
    (data,) = inputs
    total = reduce(np.add, _taps(data, attrs, 0))
    return total / divisors(data.shape[2:], attrs).astype(data.dtype)


@register_op("max_pool_gradient", operands=2, attrs=POOL_ATTRS, work=_gradient_work)
def max_pool_gradient(types, attrs):
    """data T[N, C, *S], head T[N, C, *R] -> T[N, C, *S]: of a max_pool's result, by its data.

    A window's share goes to the first of its greatest elements in row-major order, as in MXNet
    (unpool_max_*d in src/operator/nn/pool.h); that of a window with NaN is lost.
    """
    data, head = types
    require_domain(types, FLOAT)
    common_element(types)
    require_shape(head, _pool_type([data], attrs).shape, position=1)
    return data


@max_pool_gradient.reference
@in_f32
def _(inputs, attrs):
    data, head = inputs
    sizes = data.shape[2:]
    places = np.broadcast_to(np.arange(prod(sizes)).reshape(sizes), data.shape)
    greatest, winner = reduce(np.maximum, _taps(data, attrs, -np.inf)), np.full(head.shape, -1)
    for met, place in zip(_taps(data, attrs, 0), _taps(places, attrs, -1), strict=True):
        winner = np.where((winner < 0) & (place >= 0) & (met == greatest), place, winner)
    lines, spare = prod(data.shape[:2]), prod(sizes)
    result = np.zeros((lines, spare + 1), data.dtype)
    np.add.at(result, (np.arange(lines)[:, None], winner.reshape(lines, -1)), head.reshape(lines, -1))
    return result[:, :spare].reshape(data.shape)
