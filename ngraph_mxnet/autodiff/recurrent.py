"""Adjoints of recurrent layers, by what goes forth in their place, and of cells, from the gates computed anew."""

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


def _parts(x: Expression, count: int) -> list[Expression]:
    """Equal ones of the columns."""
    units = x.shape[1] // count
    return [x.part(1, number * units, (number + 1) * units) for number in range(count)]


def _joined(parts: list[Expression]) -> Expression:
    return parts[0].apply("concat", *parts[1:], axis=1)


@adjoint("lstm_cell")
def _(at: Reverse) -> Gradients:
    x, product, before = at.operands
    (i, f, o), g = _sigmoids((x + product), (0, 1, 3)), _parts(x + product, 4)[2].tanh()
    after = at.results[1].tanh()
    of_h = at.head_of(0)
    of_c = at.head_of(1) + of_h * o * (1.0 - after * after)
    gates = _joined([of_c * g * i * (1.0 - i), of_c * before * f * (1.0 - f), of_c * i * (1.0 - g * g),
                     of_h * after * o * (1.0 - o)])
    return gates, gates, of_c * f


def _sigmoids(gates: Expression, numbers: tuple[int, ...]) -> list[Expression]:
    parts = _parts(gates, 4)
    return [parts[number].sigmoid() for number in numbers]


@adjoint("gru_cell")
def _(at: Reverse) -> Gradients:
    x, product, before = at.operands
    (xr, xz, xn), (pr, pz, pn) = _parts(x, 3), _parts(product, 3)
    r, z = (xr + pr).sigmoid(), (xz + pz).sigmoid()
    n = (xn + r * pn).tanh()
    of_n = at.head * (1.0 - z) * (1.0 - n * n)
    of_r, of_z = of_n * pn * r * (1.0 - r), at.head * (before - n) * z * (1.0 - z)
    return _joined([of_r, of_z, of_n]), _joined([of_r, of_z, of_n * r]), at.head * z
