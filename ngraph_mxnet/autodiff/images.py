"""Adjoints of convolutions, pools, norms and quantisation."""

from __future__ import annotations

import numpy as np

from ngraph_mxnet.autodiff.adjoints import Gradients, Reverse, adjoint
from ngraph_mxnet.autodiff.expression import Expression
from ngraph_mxnet.compositions.tensors import iota
from ngraph_mxnet.ir.sizes import greatest, is_symbolic
from ngraph_mxnet.ops.convolution import dilated_size
from ngraph_mxnet.ops.pooling import divisors


@adjoint("convolution")
def _(at: Reverse) -> Gradients:
    data, weights = at.operands
    attrs = at.attrs
    by_weights = data.apply("convolution_weight_gradient", at.head, **attrs, kernel=weights.shape[2:])
    return _by_data(data, weights, at), by_weights


def _by_data(data: Expression, weights: Expression, at: Reverse) -> Expression:
    """The convolution of the head gradient, spread by the strides, with the weights turned about.

    Data place i meets tap k of result r where i * data_dilation = r * stride + k * dilation - pad. So the result is
    read at i with strides of data_dilation, and padded by what the kernel reaches beyond `pad`.
    """
    attrs, groups, kernel = at.attrs, at.attrs["groups"], weights.shape[2:]
    outputs, channels = weights.shape[0] // groups, weights.shape[1]
    spatial = range(len(kernel))
    turned = weights.reshape((groups, outputs, channels, *kernel))
    turned = turned.transpose((0, 2, 1, *(3 + axis for axis in spatial)))
    turned = turned.reshape((groups * channels, outputs, *kernel)).reversed([2 + axis for axis in spatial])
    before, after, head = [], [], at.head
    for axis in spatial:
        reach, pad = attrs["dilations"][axis] * (kernel[axis] - 1), attrs["pads_begin"][axis]
        places = dilated_size(data.shape[2 + axis], attrs["data_dilations"][axis])
        spread = dilated_size(head.shape[2 + axis], attrs["strides"][axis])
        before.append(reach - pad)
        after.append(places + pad - spread)
    plain = all(step == 1 for step in (*attrs["dilations"], *attrs["data_dilations"]))
    # A negative pad cuts away results that no data meets: of the spread head, which may end between its elements.
    if min(before + after) < 0 or not plain:
        for axis in spatial:
            head = head.spread(2 + axis, attrs["strides"][axis])
            head = head.part(2 + axis, max(-before[axis], 0), head.shape[2 + axis] - max(-after[axis], 0))
        strides = (1,) * len(kernel)
    else:
        strides = attrs["strides"]
    return head.apply(
        "convolution", turned, strides=attrs["data_dilations"], dilations=attrs["dilations"], groups=groups,
        pads_begin=[max(pad, 0) for pad in before], pads_end=[max(pad, 0) for pad in after], data_dilations=strides)


@adjoint("max_pool")
def _(at: Reverse) -> Gradients:
    (data,) = at.operands
    return [data.to_element(at.head.element).apply("max_pool_gradient", at.head, **at.attrs)]


@adjoint("avg_pool")
def _(at: Reverse) -> Gradients:
    """The head's shares, each spread over its window: a convolution of every channel by itself with ones."""
    (data,), kernel = at.operands, at.attrs["kernel"]
    share = at.head * _shares(at)
    channels, end = data.shape[1], []
    for axis, taps in enumerate(kernel):
        spread = dilated_size(share.shape[2 + axis], at.attrs["strides"][axis])
        # Places of the data, less what the windows reach from its first on; they may reach beyond its last.
        end.append(data.shape[2 + axis] + at.attrs["pads_begin"][axis] - spread)
        assert taps > at.attrs["pads_begin"][axis]
    ones = data.constant(np.ones((channels, 1, *kernel)))
    whole = share.apply("convolution", ones, groups=channels, data_dilations=at.attrs["strides"],
                        pads_begin=[taps - 1 - pad for taps, pad in zip(kernel, at.attrs["pads_begin"], strict=True)],
                        pads_end=[greatest(size, 0) for size in end])
    for axis, size in enumerate(data.shape[2:], 2):
        whole = whole.part(axis, 0, size)
    return [whole]


def _shares(at: Reverse) -> Expression:
    """1 over the `divisors`, which are computed where sizes are symbols."""
    sizes, attrs, head = at.operands[0].shape[2:], at.attrs, at.head
    if not any(map(is_symbolic, sizes)):
        return head.constant(1 / divisors(sizes, attrs))
    found = head.constant(1.0)
    for axis, size in enumerate(sizes):
        number = Expression(at.builder, iota(at.builder, head.shape[2 + axis], axis, len(sizes), head.element.name))
        start = number * attrs["strides"][axis] - attrs["pads_begin"][axis]
        stop = (start + attrs["kernel"][axis]).minimum(head.count(size + attrs["pads_end"][axis]))
        if not attrs["include_pad"]:
            start, stop = start.maximum(0.0), stop.minimum(head.count(size))
        found = found * (stop - start)
    return 1.0 / found


@adjoint("softmax")
def _(at: Reverse) -> Gradients:
    axis, weighted = at.attrs["axis"], at.head * at.result
    return [weighted - at.result * weighted.sum([axis], keep=True)]


@adjoint("log_softmax")
def _(at: Reverse) -> Gradients:
    return [at.head - at.result.exp() * at.head.sum([at.attrs["axis"]], keep=True)]


def _along(vector: Expression, axis: int, rank: int) -> Expression:
    return vector.reshape([vector.size if own == axis else 1 for own in range(rank)])


@adjoint("batch_norm")
def _(at: Reverse) -> Gradients:
    x, gamma, _, mean, variance = at.operands
    wide, others = x.rank, [axis for axis in range(x.rank) if axis != 1]
    spread = (variance + at.attrs["epsilon"]).rsqrt()
    centred = x - _along(mean, 1, wide)
    total, weighted = at.head.sum(others), (at.head * centred).sum(others)
    of_gamma = weighted * spread
    of_variance = of_gamma * gamma * (variance + at.attrs["epsilon"]).reciprocal() * -0.5
    return at.head * _along(gamma * spread, 1, wide), of_gamma, total, -(total * gamma * spread), of_variance


@adjoint("batch_norm_factors")
def _(at: Reverse) -> Gradients:
    gamma, _, mean, variance = at.operands
    spread = (variance + at.attrs["epsilon"]).rsqrt()
    of_shift = at.head_of(1)
    of_scale = at.head_of(0) - of_shift * mean
    of_variance = of_scale * gamma * spread / (variance + at.attrs["epsilon"]) * -0.5
    return of_scale * spread, of_shift, -(of_shift * at.results[0]), of_variance


@adjoint("layer_norm")
def _(at: Reverse) -> Gradients:
    x, gamma, _ = at.operands
    return list(x.nodes("layer_norm_gradient", gamma, at.head, **at.attrs))


@adjoint("lrn")
def _(at: Reverse) -> Gradients:
    (x,), size = at.operands, at.attrs["size"]
    alpha, beta = at.attrs["alpha"] / size, at.attrs["beta"]
    scale = _window_sums(x.square(), size) * alpha + at.attrs["bias"]
    inner = at.head * x * scale.power(-beta - 1.0)
    return [at.head * scale.power(-beta) - x * _window_sums(inner, size) * (2 * alpha * beta)]


def _window_sums(x: Expression, size: int) -> Expression:
    """Return the sums over the `size` channels around each channel; channels outside count as 0."""
    channels, wide = x.shape[1], x.padded(1, size // 2, size // 2)
    total = wide.part(1, 0, channels)
    for offset in range(1, size):
        total = total + wide.part(1, offset, offset + channels)
    return total


@adjoint("quantize", integers=True)
def _(at: Reverse) -> Gradients:
    """Return the gradients of clamp(x / scale + zero point): 0 where it saturates."""
    x, scale, zero_point = at.operands
    bounds = np.iinfo(zero_point.element.numpy)
    wide, zero = _along_channels(scale, at), _along_channels(zero_point.to_element(x.element), at)
    ratio = x / wide
    whole = ratio + zero
    share = (at.head / wide).where((whole >= float(bounds.min)) & (whole <= float(bounds.max)))
    return share, _by_scale(-(share * ratio), at), None


@adjoint("dequantize", integers=True)
def _(at: Reverse) -> Gradients:
    q, scale, zero_point = at.operands
    number = q.to_element(scale.element) - _along_channels(zero_point.to_element(scale.element), at)
    return at.head * _along_channels(scale, at), _by_scale(at.head * number, at), None


def _axis(at: Reverse) -> int:
    return int(at.attrs["axis"]) % at.result.rank


def _along_channels(vector: Expression, at: Reverse) -> Expression:
    """A number as it is; one for each index of the axis so that it broadcasts."""
    if not vector.rank:
        return vector
    return vector.reshape([vector.size if own == _axis(at) else 1 for own in range(at.result.rank)])


def _by_scale(gradient: Expression, at: Reverse) -> Expression:
    """Summed to the scales along the axis; to one scale by the driver."""
    if not at.operands[1].rank:
        return gradient
    return gradient.sum([own for own in range(at.result.rank) if own != _axis(at)])
