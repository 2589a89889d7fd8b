"""Which products' data is divided by which factors, so that its channels fit one scale: of convolutions that follow
each other (equalisation), and of matrix products behind a layer norm or matrix product (smoothing)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ngraph_mxnet.ir.graph import Graph, Node, Value, constant_of
from ngraph_mxnet.quantise.channels import Channels
from ngraph_mxnet.quantise.corrections import EQUALISATION, SMOOTHING, equalisation_scales, smoothing_factors
from ngraph_mxnet.quantise.division import Host, host_of, is_private
from ngraph_mxnet.quantise.operands import data_axis, input_ranges, is_depthwise
from ngraph_mxnet.quantise.products import products
from ngraph_mxnet.quantise.recipe import Numbers

_ALPHA = 0.5
"""The exponent of smoothing: with it data and weights are equally hard. In front of depthwise convolutions, this square
root leaves small channels of data room for more than was seen of them."""
_LEAST_PART = 1 / 1024
"""The least magnitude of a channel, as a part of the largest one. Samples are few: a channel that they hardly move may
move more elsewhere."""


def factors_of(graph: Graph, channels: Channels) -> dict[str, dict[str, Numbers]]:
    """For equalisation and for smoothing the factors of `Recipe.corrections`, by the products' names. Products that
    read one value have the same ones.

    Args:
        graph: optimised, with constant weights; products whose weights are none are left out.
        channels: what was seen of the data of its products; what was not finite, or not seen, is left out.
    """
    readers, results = graph.readers(), set(graph.results)
    alike: dict[Value, dict[Node, str]] = {}
    for name, node in products(graph).items():
        if constant_of(node.inputs[1]) is not None and channels.is_finite(name):
            alike.setdefault(node.inputs[0], {})[node] = name
    found: dict[str, dict[str, Numbers]] = {EQUALISATION: {}, SMOOTHING: {}}
    for value, nodes in alike.items():
        first, name = next(iter(nodes.items()))
        host = host_of(value, data_axis(first))
        if host is None or any(data_axis(node) != data_axis(first) for node in nodes):
            continue
        largest = channels.largest(name).astype(np.float64)
        largest = np.maximum(largest, largest.max() * _LEAST_PART)
        if not largest.any():
            continue
        if host.node.op.kind in ("product", "row"):
            numbers = smoothing_factors(largest, _ranges(nodes), _ALPHA)
            found[SMOOTHING].update(dict.fromkeys(nodes.values(), _as_numbers(numbers)))
        elif len(nodes) == 1 and is_private(value, host, set(nodes), readers, results) and _may_be_bounded(host):
            numbers = _bounded(_equalising(first, largest), largest, host.upper)
            found[EQUALISATION][name] = _as_numbers(numbers)
    return found


def _ranges(nodes: Mapping[Node, str]) -> np.ndarray:
    """The largest magnitude of all weights that meet each channel."""
    arrays = [(node, constant_of(node.inputs[1])) for node in nodes]
    return np.max([input_ranges(node, array) for node, array in arrays if array is not None], axis=0)


def _equalising(node: Node, largest: np.ndarray) -> np.ndarray:
    """A depthwise convolution has a scale of weights for each channel, which takes any factor up: only data counts.
    Elsewhere weights of many channels share a scale, and data and weights share the difference."""
    if is_depthwise(node):
        return smoothing_factors(largest, np.ones_like(largest), _ALPHA)
    return equalisation_scales(largest, _ranges({node: ""}))


def _may_be_bounded(host: Host) -> bool:
    return host.selects or host.upper == np.inf


def _bounded(factors: np.ndarray, largest: np.ndarray, upper: float) -> np.ndarray:
    """No larger than lets bytes saturate before the bound (`division.py`): the range stays, in which other channels are
    larger, and these fill it up to their bound."""
    return np.minimum(factors, upper / (largest / factors).max())


def _as_numbers(numbers: np.ndarray) -> Numbers:
    return tuple(numbers.astype(np.float32).tolist())
