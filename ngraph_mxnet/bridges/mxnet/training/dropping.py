"""Dropout in training, of random numbers that follow from a state that each step gets."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from ngraph_mxnet.compositions.tensors import scalar
from ngraph_mxnet.errors import UnsupportedError
from ngraph_mxnet.ir import Builder, Value

STATE = "random.state"
"""The parameter i32[4] of a graph that draws random numbers: a key and a step (`random_mask`)."""


def dropped(b: Builder, x: Value, rate: float, axes: Collection[int] = ()) -> Value:
    """Each element is 0 with the probability `rate`, else x / (1 - rate); along `axes` all share their lot.

    Each call draws from a stream of its own. The mask is bool and what the gradient takes, too: saved from forward to
    backward it has a quarter of the bytes of x, and reading it costs less than drawing it again.

    Raises:
        UnsupportedError: all is dropped.
    """
    if rate <= 0:
        return x
    if rate >= 1:
        raise UnsupportedError(f"p={rate} drops everything")
    shape = [1 if axis in axes else size for axis, size in enumerate(x.shape)]
    streams = sum(node.op.name == "random_mask" for node in b.graph.nodes)
    mask = b.random_mask(_state(b), shape=shape, keep=1 - rate, stream=streams)
    share = np.float32(1) / (np.float32(1) - np.float32(rate))  # as MXNet rounds it
    return b.select(mask, b.multiply(x, scalar(b, float(share), x)), scalar(b, 0, x))


def _state(b: Builder) -> Value:
    known = [parameter for parameter in b.graph.parameters if parameter.name == STATE]
    return known[0] if known else b.parameter(STATE, (4,), "i32")
