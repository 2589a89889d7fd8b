"""Adjoints of softmax and of the normalizations with given statistics."""

from __future__ import annotations

from ngraph_mxnet.autodiff.adjoints import Gradients, Reverse, adjoint
from ngraph_mxnet.autodiff.expression import Expression


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
    """Of the `size` channels around each; those outside are 0."""
    channels, wide = x.shape[1], x.padded(1, size // 2, size // 2)
    total = wide.part(1, 0, channels)
    for offset in range(1, size):
        total = total + wide.part(1, offset, offset + channels)
    return total
