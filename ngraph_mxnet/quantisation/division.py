"""The division of products' data by a factor for each input channel, by which their weights are multiplied: results
stay, but for rounding, and channels that differ much come to fit one scale. It is a pass, and the choice of factors: of
convolutions that follow each other (equalisation), and of matrix products behind a layer norm or matrix product
(smoothing).

The division goes into what makes the data, where that is linear by channel and nothing but the products reads it: a
convolution or matrix product with its bias, a scale_shift or a layer_norm, also from behind pooling, ReLU and movement.
Else it is a node of its own.

A bound from above, as ReLU6 has it, would be another one for each channel then. It is left out where the bytes that
data become saturate before it, for every channel; elsewhere the division is a node of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ngraph_mxnet.base.errors import CalibrationError
from ngraph_mxnet.ir.graph import Graph, Node, Value, constant_of
from ngraph_mxnet.ir.module import Changes, Derivation
from ngraph_mxnet.ir.sizes import are_same_shape
from ngraph_mxnet.quantisation.apply import Numbers, Scale, products
from ngraph_mxnet.quantisation.calibration import BOUNDS, Channels
from ngraph_mxnet.quantisation.layers import (
    EQUALISATION,
    SMOOTHING,
    Maker,
    bound_names,
    by_input,
    data_axis,
    equalisation_scales,
    input_ranges,
    is_depthwise,
    result_axis,
    smoothing_factors,
    weight_axes,
)

Readers = Mapping[Value, list[tuple[Node, int]]]


class Host(NamedTuple):
    """The output of a node that makes a value, and whether what stands between only selects elements of it."""

    output: Value
    selects: bool

    @property
    def node(self) -> Node:
        assert self.output.node is not None
        return self.output.node

    @property
    def upper(self) -> float:
        """The bound from above of its numbers."""
        bound: float = self.node.attrs.get(bound_names(self.output)[1], math.inf)
        return bound


def host_of(value: Value, axis: int) -> Host | None:
    """Return the host that a division of `value`, by factors along `axis`, can go into, or None. Other readers of the
    values between do not count."""
    selects = True
    while value.node is not None:
        node = value.node
        if node.op.name in _HOSTS:
            is_linear = _HOSTS[node.op.name](node) == axis and _linear_in(value)
            lower = node.attrs.get(bound_names(value)[0], -math.inf)
            return Host(value, selects) if is_linear and lower in (-math.inf, 0) else None
        before = _THROUGH[node.op.name](node, axis) if node.op.name in _THROUGH else None
        if before is None:
            return None
        selects &= node.op.selects or node.op.name == "relu"
        value, axis = node.inputs[0], before
    return None


def is_private(value: Value, host: Host, data_of: set[Node], readers: Readers, results: set[Value]) -> bool:
    """True if only these products read `value`, as data, and nothing else reads the values between it and the host."""
    if value in results or any(reader not in data_of or at for reader, at in readers[value]):
        return False
    while value is not host.output:
        assert value.node is not None
        value = value.node.inputs[0]
        if value in results or len(readers[value]) > 1:
            return False
    return True


class _Division(NamedTuple):
    """A division of a value that products read, along an axis. `host`: what it goes into, or None for a node of its
    own."""

    value: Value
    axis: int
    factors: Numbers
    host: Host | None

    @property
    def array(self) -> np.ndarray:
        return np.asarray(self.factors, np.float32)


class DivideData:
    """The pass.

    Args:
        factors: of each product whose data is divided, one for each input channel.
        scales: of products' data, divided, if they become bytes: with them bounds may be left out.
    """

    name = "divide_data"

    def __init__(self, factors: Mapping[str, Numbers], scales: Mapping[str, Scale]) -> None:
        self.factors = factors
        self.scales = scales

    def run(self, graph: Graph) -> bool:
        divided = {node: name for name, node in products(graph).items() if name in self.factors}
        if not divided:
            return False
        divisions = self._divisions(graph, divided)
        hosts = {division.host.node: division for division in divisions.values() if division.host is not None}
        quotients: dict[_Division, Value] = {}
        nodes: list[Node] = []
        for node in graph.nodes:
            made = Maker(node, nodes)
            if node in divisions:
                division = divisions[node]
                if division.host is None and division not in quotients:
                    quotients[division] = _quotient(made, node, division)
                factors = made.constant(by_input(node, division.array))
                node.inputs = [quotients.get(division, node.inputs[0]), made("multiply", node.inputs[1], factors),
                               *node.inputs[2:]]
            if node in hosts:
                _divide_host(made, hosts[node])
            nodes.append(node)
        graph.nodes = nodes
        return True

    def _divisions(self, graph: Graph, divided: Mapping[Node, str]) -> dict[Node, _Division]:
        readers, results, derivation = graph.readers(), set(graph.results), Derivation()
        alike: dict[tuple[Value, int, Numbers], set[Node]] = {}
        for node, name in divided.items():
            value, axis, factors = node.inputs[0], data_axis(node), self.factors[name]
            if len(factors) != value.shape[axis]:
                raise CalibrationError(f"recipe: found {len(factors)} factors of the data of {name}, expected "
                                       f"{value.shape[axis]}: it is of another model")
            alike.setdefault((value, axis, factors), set()).add(node)
        found = {}
        for (value, axis, factors), nodes in alike.items():
            host = host_of(value, axis)
            scales = {self.scales.get(divided[node]) for node in nodes}
            fits = (host is not None and is_private(value, host, nodes, readers, results)
                    and all(derivation.of(host.node.inputs[at]) is not Changes.WITH_CALLS
                            for at in _linear_in(host.output))
                    and _saturates_first(host, factors, scales))
            found.update(dict.fromkeys(nodes, _Division(value, axis, factors, host if fits else None)))
        return found


def _saturates_first(host: Host, factors: Numbers, scales: set[Scale | None]) -> bool:
    """True if all of the divided data that a bound would change becomes the greatest byte anyway."""
    if host.upper == math.inf:
        return True
    scale = scales.pop() if len(scales) == 1 else None
    if scale is None or not host.selects or host.upper < 0:
        return False
    return bool(host.upper / max(factors) >= (BOUNDS["u8"][1] - scale.zero_point - 0.5) * scale.scale)


def _quotient(made: Maker, node: Node, division: _Division) -> Value:
    """The value divided, which only the products with these factors read. Of images by an op that can store bytes."""
    value, inverse = division.value, 1 / division.array
    if node.op.kind == "convolution":
        return made("scale_shift", value, made.constant(inverse), made.constant(np.zeros_like(inverse)))
    return made("multiply", value, made.constant(inverse))


# ---- hosts -------------------------------------------------------------------------------------------------


def _normal_axis(node: Node) -> int:
    axis: int = node.attrs["axis"] % node.output.type.rank
    return axis


_HOSTS: dict[str, Callable[[Node], int]] = {
    "convolution": result_axis,
    "matmul": result_axis,
    "scale_shift": lambda node: 1,
    "layer_norm": _normal_axis,
}
"""The axis of channels in a host's result."""


def _linear_in(output: Value) -> Sequence[int]:
    """The operands of its host that an output is linear in; none where it is not. A residual counts as none."""
    node = output.node
    assert node is not None
    if output.index:
        return 4, 5  # scale and shift
    return () if "residual" in node.epilogue else range(1, len(node.inputs))


def _divide_host(made: Maker, division: _Division) -> None:
    host = division.host
    assert host is not None
    inverse, node = 1 / division.array, host.node
    inputs = list(node.inputs)
    for at in _linear_in(host.output):
        shape = [1] * inputs[at].type.rank
        shape[weight_axes(node)[0] if at == 1 and node.op.contraction else 0] = len(inverse)
        inputs[at] = made("multiply", inputs[at], made.constant(inverse.reshape(shape)))
    node.inputs = inputs
    upper = bound_names(host.output)[1]
    if upper in node.attrs:
        node.attrs = {**node.attrs, upper: math.inf}


# ---- what a factor of a channel goes through ------------------------------------------------------------------


def _reshaped(node: Node, axis: int) -> int | None:
    """The axis that is the same one before, with as many elements in front of it."""
    before, after = node.inputs[0].shape, node.output.shape
    return next((at for at, size in enumerate(before)
                 if are_same_shape((math.prod(before[:at]), size), (math.prod(after[:axis]), after[axis]))), None)


def _reduced(node: Node, axis: int) -> int | None:
    gone = {at % node.inputs[0].type.rank for at in node.attrs["axes"]}
    kept = [at for at in range(node.inputs[0].type.rank) if node.attrs["keep_dims"] or at not in gone]
    return None if kept[axis] in gone else kept[axis]


_THROUGH: dict[str, Callable[[Node, int], int | None]] = {
    "relu": lambda node, axis: axis,
    "max_pool": lambda node, axis: axis,
    "avg_pool": lambda node, axis: axis,
    "reshape": _reshaped,
    "transpose": lambda node, axis: int(node.attrs["order"][axis]),
    "reduce_mean": _reduced,
}


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
        elif (len(nodes) == 1 and is_private(value, host, set(nodes), readers, results)
              and (host.selects or host.upper == np.inf)):
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


def _bounded(factors: np.ndarray, largest: np.ndarray, upper: float) -> np.ndarray:
    """No larger than lets bytes saturate before the bound: the range stays, in which other channels are
    larger, and these fill it up to their bound."""
    return np.minimum(factors, upper / (largest / factors).max())


def _as_numbers(numbers: np.ndarray) -> Numbers:
    return tuple(numbers.astype(np.float32).tolist())
