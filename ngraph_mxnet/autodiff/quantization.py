"""Adjoints of ops between numbers and integers that stand for them: straight through the rounding.

Bengio, Leonard and Courville, Estimating or Propagating Gradients Through Stochastic Neurons (2013), section 3.
"""

from __future__ import annotations

import numpy as np

from ngraph_mxnet.autodiff.adjoints import Gradients, Reverse, adjoint
from ngraph_mxnet.autodiff.expression import Expression


@adjoint("quantize", integers=True)
def _(at: Reverse) -> Gradients:
    """Of clamp(x / scale + zero point): 0 where it saturates."""
    x, scale, zero_point = at.operands
    bounds = np.iinfo(zero_point.element.numpy)
    wide, zero = _along(scale, at), _along(zero_point.to_element(x.element), at)
    ratio = x / wide
    whole = ratio + zero
    share = (at.head / wide).where((whole >= float(bounds.min)) & (whole <= float(bounds.max)))
    return share, _by_scale(-(share * ratio), at), None


@adjoint("dequantize", integers=True)
def _(at: Reverse) -> Gradients:
    q, scale, zero_point = at.operands
    number = q.to_element(scale.element) - _along(zero_point.to_element(scale.element), at)
    return at.head * _along(scale, at), _by_scale(at.head * number, at), None


def _axis(at: Reverse) -> int:
    return int(at.attrs["axis"]) % at.result.rank


def _along(vector: Expression, at: Reverse) -> Expression:
    """A number as it is; one for each index of the axis so that it broadcasts."""
    if not vector.rank:
        return vector
    return vector.reshape([vector.size if own == _axis(at) else 1 for own in range(at.result.rank)])


def _by_scale(gradient: Expression, at: Reverse) -> Expression:
    """Summed to the scales along the axis; to one scale by the driver."""
    if not at.operands[1].rank:
        return gradient
    return gradient.sum([own for own in range(at.result.rank) if own != _axis(at)])
