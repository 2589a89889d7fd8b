"""Weights of graphs that are built for several sizes, and for ranges of them."""

from __future__ import annotations

from math import prod

import numpy as np

from ngraph_mxnet.ir import Builder, Value

_rng = np.random.default_rng(0)
_arrays: dict[tuple[int, ...], np.ndarray] = {}


def weights(b: Builder, *shape: int) -> Value:
    """A float32 constant of normal numbers scaled by their fan-in; the same one for the same shape."""
    if shape not in _arrays:
        _arrays[shape] = _rng.standard_normal(shape, np.float32) / prod(shape[1:]) ** 0.5
    return b.constant(_arrays[shape])
