"""Adjoints of recurrent layers, an op of their own, and of cells, from the gates computed anew."""

from __future__ import annotations

from ngraph_mxnet.autodiff.adjoints import Gradients, Reverse, adjoint
from ngraph_mxnet.autodiff.expression import Expression


@adjoint("rnn")
def _(at: Reverse) -> Gradients:
    first, *others = at.operands
    heads = [at.head_of(number) for number in range(len(at.results))]
    return first.nodes("rnn_gradient", *others, at.result, *heads, **at.attrs)


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
