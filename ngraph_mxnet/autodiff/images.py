"""Adjoints of convolutions, pools, norms, quantisation, recurrent layers, attention, and of the ops of training."""

from __future__ import annotations

import numpy as np

from ngraph_mxnet.autodiff.reverse import Expression, Gradients, Reverse, adjoint, no_derivative, refuse
from ngraph_mxnet.ir.sizes import greatest, is_symbolic
from ngraph_mxnet.ops.compositions import iota
from ngraph_mxnet.ops.contractions import CONVOLUTION_ATTRS, dilated_size
from ngraph_mxnet.ops.pooling import divisors
from ngraph_mxnet.ops.recurrent import SLOPES


@adjoint("convolution")
def _(at: Reverse) -> Gradients:
    data, weights = at.operands
    attrs = at.attrs
    geometry = {name: attrs[name] for name in CONVOLUTION_ATTRS}
    by_weights = data.apply("convolution_weight_gradient", at.head, **geometry, kernel=weights.shape[2:])
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


@adjoint("log_softmax_pick")
def _(at: Reverse) -> Gradients:
    """The head of `picked` in one op; those of the other results by the greatest elements and softmax."""
    x, indices = at.operands
    _, greatest, logarithm = at.results
    (by_x,) = x.nodes("log_softmax_pick_gradient", indices, greatest, logarithm, at.head, **at.attrs)
    if at.heads[1] is not None or at.heads[2] is not None:
        of_logarithm = at.head_of(2)
        by_x = by_x + (at.head_of(1) - of_logarithm).to_shape(x.shape).where(x.equals(greatest))
        by_x = by_x + (x - greatest - logarithm).exp() * of_logarithm
    return by_x, None


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


@adjoint("rnn", forward="rnn_training")
def _(at: Reverse) -> Gradients:
    """From step to step goes `rnn_gradient`; the gradients of weights are products over all steps at once."""
    _, weights, _, h, *rest = at.operands
    *results, slopes = at.results
    if not at.operands[0].size:  # an empty batch, over which no product has a kernel
        return [operand.full(0.0) for operand in at.operands]
    heads = [at.head_of(number) for number in range(len(results))]
    of_x, of_h, *others = weights.nodes("rnn_gradient", slopes, *heads, *rest[1:], **at.attrs)
    of_sums = others.pop() if at.attrs["cell"] == "gru" else of_x
    of_projection = _of_projection(others.pop(), slopes) if len(rest) > 1 else []
    of_weights = _rows(of_sums).matmul(_rows(_before(results[0], h, at.attrs["reverse"])), transpose_a=True)
    return [of_x, of_weights, of_sums.sum((0, 1)), of_h, *others, *of_projection]


def _rows(x: Expression) -> Expression:
    """[S, N, columns] as [S N, columns]."""
    return x.reshape((x.shape[0] * x.shape[1], x.shape[2]))


def _before(states: Expression, h: Expression, reverse: bool) -> Expression:
    steps, first = states.shape[0], h.reshape((1, *h.shape))
    if steps == 1:
        return first
    rest = states.part(0, 1, steps) if reverse else states.part(0, 0, steps - 1)
    return rest.apply("concat", first, axis=0) if reverse else first.apply("concat", rest, axis=0)


def _of_projection(of_states: Expression, slopes: Expression) -> list[Expression]:
    """The last of the slopes are the hidden states before it."""
    units = slopes.shape[2] // (SLOPES["lstm"] + 1)
    hidden = slopes.part(2, SLOPES["lstm"] * units, slopes.shape[2])
    return [_rows(of_states).matmul(_rows(hidden), transpose_a=True)]


@adjoint("lstm_cell", forward="lstm_cell_training")
def _(at: Reverse) -> Gradients:
    of_gates, of_c = at.results[-1].nodes("lstm_cell_gradient", at.head_of(0), at.head_of(1))
    return of_gates, of_gates, of_c


@adjoint("gru_cell", forward="gru_cell_training")
def _(at: Reverse) -> Gradients:
    return at.results[-1].nodes("gru_cell_gradient", at.head)


refuse("it is a gradient itself: there are none of second order yet", "attention_gradient")


@adjoint("attention")
def _(at: Reverse) -> Gradients:
    queries, keys, values, *masks = at.operands
    if masks and masks[0].element.is_float:
        return _with_added_mask(at)
    found = queries.nodes("attention_gradient", keys, values, at.head, *masks, **at.attrs)
    return [*found, *(None for _ in masks)]


def _with_added_mask(at: Reverse) -> Gradients:
    """Return the gradients of attention with an added mask, through its scores, softmax and weighted mean. The mask's
    gradient is the scores' gradient."""
    queries, keys, values, mask = at.operands
    weights = (queries.matmul(keys, transpose_b=True) * at.attrs["scale"] + mask).softmax(axis=-1)
    weighted = at.head.matmul(values, transpose_b=True) * weights
    of_scores = weighted - weights * weighted.sum([-1], keep=True)
    of_products = of_scores * at.attrs["scale"]
    return [of_products.matmul(keys), of_products.matmul(queries, transpose_a=True),
            weights.matmul(at.head, transpose_a=True), of_scores]


no_derivative("it is there to stop it", "stop_gradient")
refuse("it is a gradient itself: there are none of second order yet", "batch_norm_gradient",
       "batch_norm_relu_gradient", "clamp_gradient", "layer_norm_gradient", "log_softmax_pick_gradient")
refuse("it is what the CPU makes of batch_norm_training", "batch_norm_statistics")


@adjoint("own_gradient")
def _(at: Reverse) -> Gradients:
    _, _, own = at.operands
    return None, own * at.head if at.attrs["scaled"] else own, None


@adjoint("batch_norm_training")
def _(at: Reverse) -> Gradients:
    x, gamma, _ = at.operands
    _, mean, variance = at.results
    by_x, by_gamma, by_beta = x.nodes("batch_norm_gradient", gamma, mean, variance, at.head, **at.attrs)
    count, rank = x.size // x.shape[1], x.rank

    def wide(vector: Expression) -> Expression:
        return vector.reshape([vector.size if axis == 1 else 1 for axis in range(rank)])

    if at.heads[1] is not None:
        by_x = by_x + wide(at.heads[1] / x.count(count))
    if at.heads[2] is not None:
        by_x = by_x + (x - wide(mean)) * wide(at.heads[2] * (x.count(2) / x.count(count)))
    return by_x, by_gamma, by_beta
