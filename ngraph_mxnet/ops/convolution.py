"""Convolution over one to three spatial axes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

import numpy as np

from ngraph_mxnet.ir.opdef import Attrs, Rates, Shapes, Work, register_op
from ngraph_mxnet.ir.sizes import cached, greatest, least
from ngraph_mxnet.ir.types import Attribute, Int, Ints, PerAxis, Shape, TensorType
from ngraph_mxnet.ops.common import (
    EXACT,
    FLOAT,
    NUMBER,
    Arrays,
    Types,
    common_element,
    in_f32,
    require,
    require_domain,
    require_per_axis,
    require_rank,
    require_shape,
)

_GEOMETRY: dict[str, Attribute] = {
    "strides": PerAxis(fill=1, skip=2),
    "dilations": PerAxis(fill=1, skip=2),
    "pads_begin": PerAxis(fill=0, skip=2),
    "pads_end": PerAxis(fill=0, skip=2),
    "groups": Int(1),
    "data_dilations": PerAxis(fill=1, skip=2),
}
CONVOLUTION_ATTRS: dict[str, Attribute] = {**_GEOMETRY, **EXACT}


def convolution_type(types: Types, attrs: Attrs) -> TensorType:
    """The type of the convolution of operands 0 and 1."""
    data, weights = types[:2]
    require_domain(types, NUMBER)
    common_element(types)
    require_rank(data, 3, 5)
    require_rank(weights, data.rank, data.rank, position=1)
    return data.with_shape(convolution_shape(data.shape, weights.shape, *(attrs[name] for name in _GEOMETRY)))


@cached(1024)  # passes make the same convolution with other operands over and over
def convolution_shape(data: Shape, weights: Shape, *values: Any) -> Shape:
    """The result's shape for operands of these shapes; `values` are in the order of `_GEOMETRY`."""
    attrs = dict(zip(_GEOMETRY, values, strict=True))
    spatial, groups = len(data) - 2, attrs["groups"]
    positive = ("strides", "dilations", "data_dilations")
    for name, lowest in (*((name, 1) for name in positive), ("pads_begin", 0), ("pads_end", 0)):
        require_per_axis(name, attrs[name], spatial, lowest)
    channels, outputs = data[1], weights[0]
    require(
        groups >= 1 and channels % groups == 0 and outputs % groups == 0,
        "groups",
        groups,
        f"a divisor of the channels {channels} and {outputs}",
    )
    require(weights[1] == channels // groups, "channels of operand 1", weights[1], channels // groups)
    result = []
    for axis in range(spatial):
        size = dilated_size(data[2 + axis], attrs["data_dilations"][axis])
        kernel = weights[2 + axis]
        reach = attrs["dilations"][axis] * (kernel - 1) + 1
        padded = size + attrs["pads_begin"][axis] + attrs["pads_end"][axis]
        require(
            kernel >= 1 and reach <= padded,
            f"kernel on spatial axis {axis}",
            f"{kernel}, dilated {reach}",
            f"1 to the padded size {padded}",
        )
        result.append((padded - reach) // attrs["strides"][axis] + 1)
    return (data[0], outputs, *result)


def dilated_size(size: int, dilation: int) -> int:
    """Places that `size` elements take with `dilation - 1` zeros between neighbours."""
    return size if dilation == 1 else greatest(size - 1, 0) * dilation + least(size, 1)


def _dilated(data: np.ndarray, dilations: Sequence[int]) -> np.ndarray:
    """`data` with zeros between neighbours on the spatial axes."""
    sizes = [dilated_size(size, step) for size, step in zip(data.shape[2:], dilations, strict=True)]
    wide = np.zeros((*data.shape[:2], *sizes), data.dtype)
    places: Any = (..., *(slice(None, None, step) for step in dilations))
    wide[places] = data
    return wide


def convolution_array(inputs: Arrays, attrs: Attrs) -> np.ndarray:
    """The reference of `convolution` on wide operands: a matrix product for each of the kernel's taps."""
    data, weights = inputs[:2]
    kernel, groups = weights.shape[2:], attrs["groups"]
    batch, outputs, channels = data.shape[0], weights.shape[0], data.shape[1] // groups
    sizes = convolution_shape(data.shape, weights.shape, *(attrs[name] for name in _GEOMETRY))[2:]
    grouped = weights.reshape(groups, outputs // groups, channels, *kernel)
    total = np.zeros((batch, groups, outputs // groups, prod(sizes)), data.dtype)
    for tap, met in _met(data, kernel, sizes, attrs):
        matrix: Any = (..., *tap)
        total += np.matmul(grouped[matrix], met.reshape(batch, groups, channels, total.shape[-1]))
    return total.reshape(batch, outputs, *sizes)


def _met(data: np.ndarray, kernel: Shape, sizes: Shape, attrs: Attrs) -> Iterator[tuple[Shape, np.ndarray]]:
    """Each tap of the kernel, and the data that it meets at the result's places: [N, C, *sizes]."""
    data = _dilated(data, attrs["data_dilations"])
    padded = np.pad(data, [(0, 0), (0, 0), *zip(attrs["pads_begin"], attrs["pads_end"], strict=True)])
    steps = list(zip(attrs["strides"], attrs["dilations"], sizes, strict=True))
    for tap in np.ndindex(*kernel):
        window: Any = (..., *(slice(t * d, t * d + (size - 1) * s + 1, s)
                              for t, (s, d, size) in zip(tap, steps, strict=True)))
        yield tap, padded[window]


def convolution_work(extra: int) -> Work:
    """A multiply-add counts once; `extra` operations follow for each element."""
    return lambda operands, results, attrs: {"simple": prod(results[0]) * (prod(operands[1][1:]) + extra)}


@register_op("convolution", operands=2, attrs=CONVOLUTION_ATTRS, kind="convolution", work=convolution_work(0))
def convolution(types, attrs):
    """T[N, C, *S], T[O, C/groups, *K] -> T[N, O, *R], one to three spatial axes.

    S' = data_dilations (S - 1) + 1 are the places of the data with zeros between its elements: with `data_dilations`
    a convolution is the transpose of one with such strides (a "deconvolution").
    R = floor((S' + pads_begin + pads_end - dilations (K - 1) - 1) / strides) + 1.
    out[n, o, r] = sum over c, k of data[n, c', r * strides + k * dilations - pads_begin] * weights[o, c, k],
    where data is 0 outside and c' is channel c of the group of o. This is the cross-correlation that MXNet
    and ONNX call convolution.
    """
    return convolution_type(types, attrs)


@convolution.reference
@in_f32
def _(inputs, attrs):
    return convolution_array(inputs, attrs)


def _weight_gradient_work(operands: Shapes, results: Shapes, attrs: Attrs) -> Rates:
    return {"simple": prod(operands[1]) * prod(results[0][1:])}


@register_op("convolution_weight_gradient", operands=2, attrs={**CONVOLUTION_ATTRS, "kernel": Ints()},
             work=_weight_gradient_work)
def convolution_weight_gradient(types, attrs):
    """data T[N, C, *S], head T[N, O, *R] -> T[O, C/groups, *K]: of a convolution's result, by its weights.

    K is `kernel`, the other attributes are the convolution's: out[o, c, k] is the sum over n, r of head[n, o, r] times
    the data that tap k meets at r.
    """
    data, head = types
    require_rank(data, 3, 5)
    require_per_axis("kernel", attrs["kernel"], data.rank - 2, 1)
    require_rank(head, data.rank, data.rank, position=1)
    groups = attrs["groups"]
    require(groups >= 1 and data.shape[1] % groups == 0, "groups", groups, f"a divisor of {data.shape[1]} channels")
    weights = data.with_shape((head.shape[1], data.shape[1] // groups, *attrs["kernel"]))
    require_shape(head, convolution_type([data, weights], attrs).shape, position=1)
    common_element(types)
    require_domain(types, FLOAT)
    return weights


@convolution_weight_gradient.reference
@in_f32
def _(inputs, attrs):
    data, head = inputs
    groups, kernel, (batch, outputs, *sizes) = attrs["groups"], attrs["kernel"], head.shape
    shape = batch, groups, -1, prod(sizes)
    result = np.zeros((groups, outputs // groups, data.shape[1] // groups, *kernel), data.dtype)
    if head.size and data.size:
        for tap, met in _met(data, kernel, tuple(sizes), attrs):
            matrix: Any = (..., *tap)
            result[matrix] = np.matmul(head.reshape(shape), met.reshape(shape).swapaxes(-1, -2)).sum(axis=0)
    return result.reshape(outputs, data.shape[1] // groups, *kernel)
