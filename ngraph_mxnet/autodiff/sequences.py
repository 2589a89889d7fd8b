"""Adjoints of recurrent layers, attention, and of the ops of training."""

from __future__ import annotations

import math

from ngraph_mxnet.autodiff.adjoints import Gradients, Reverse, adjoint, no_derivative, refuse
from ngraph_mxnet.autodiff.expression import Expression
from ngraph_mxnet.ops.recurrent import SLOPES


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
    """The hidden state before each step."""
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
       "batch_norm_relu_gradient", "clamp_gradient", "layer_norm_gradient")
refuse("it is what the CPU makes of batch_norm_training", "batch_norm_statistics")


@adjoint("own_gradient")
def _(at: Reverse) -> Gradients:
    _, _, own = at.operands
    return None, own * at.head if at.attrs["scaled"] else own, None


@adjoint("gelu")
def _(at: Reverse) -> Gradients:
    (x,) = at.operands
    return [x.apply("gelu_gradient", at.head)]


@adjoint("gelu_gradient")
def _(at: Reverse) -> Gradients:
    x, head = at.operands
    density = (x.square() * -0.5).exp() * (1 / math.sqrt(2 * math.pi))
    return at.head * head * density * (2.0 - x.square()), x.apply("gelu_gradient", at.head)


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
