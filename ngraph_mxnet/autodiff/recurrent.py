"""Adjoints of recurrent layers and cells, by the slopes that go forth in their place."""

from __future__ import annotations

from ngraph_mxnet.autodiff.adjoints import Gradients, Reverse, adjoint
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
