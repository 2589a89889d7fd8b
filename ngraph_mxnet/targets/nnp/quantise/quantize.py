"""Post-training quantisation to i8: which products, which values, and their scales.

It is symmetric: a real number is its i8 number times a scale, one for each activation and one for each output channel
of weights. Scales of activations come from histograms of a calibration run: that of the largest magnitude, or the one
of least squared error; both are tried on the quantised graph, and the one whose results are nearer to float32's is
kept.

* A product with known weights runs in i8, unless the caller keeps it out. Products of two activations run in the other
  element: what they multiply has not one range.
* A value is stored in i8 where all its readers take it so: i8 products (as data and residual), and what moves
  elements, takes their maximum or mean, adds or clamps, where its own result is i8 again. Softmax, normalisations and
  all other ops read the other element, and so does the caller.
* What only moves elements has one scale for operands and result, so that it needs no arithmetic.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from ngraph_mxnet import config
from ngraph_mxnet.errors import UnsupportedError
from ngraph_mxnet.ir.graph import Graph, Node, Value
from ngraph_mxnet.quantise.histogram import Histogram
from ngraph_mxnet.quantise.methods import choose
from ngraph_mxnet.quantise.scales import symmetric, weight_scales
from ngraph_mxnet.targets.nnp.quantise.calibration import observe
from ngraph_mxnet.targets.nnp.quantise.quantization import (
    Quantization,
    convert_operands,
    known_arrays,
    on_grid,
    plain_elements,
)
from ngraph_mxnet.targets.nnp.simulate.reference import quantized_reference

METHODS = ("minmax", "mse")
"""How the scale of an activation is chosen, of `quantise.methods.METHODS`; symmetric, so that -128 is spare."""
_LEVELS = 128
"""Number of magnitudes: 0 to 127."""


def quantize(
    graph: Graph,
    known: Mapping[Value, np.ndarray],
    samples: Sequence[Sequence[np.ndarray]],
    *,
    element: str = "f16",
    keep: Collection[Node] = (),
    methods: Sequence[str] = METHODS,
) -> Quantization:
    """Products in i8, calibrated on `samples`; all else in `element`.

    Args:
        graph: optimised; gets conversions in place, where there must be some.
        known: arrays of the parameters that are known before a call (weights). Constants are known anyway.
        samples: for each sample an array for each parameter of `graph`.
        keep: nodes that stay in `element`.
        methods: of METHODS; of several, the one with the least error of results on the first sample is taken.

    Raises:
        UnsupportedError: there are no samples.
    """
    if not samples:
        raise UnsupportedError(f"graph {graph.name}: found no samples to calibrate i8 with, expected at least one")
    known = known_arrays(graph, known)
    products = _products(graph, known, keep)
    narrow = _narrow(graph, known, products)
    histograms, results = observe(
        graph, samples, {v for v in graph.values() if v.type.element.is_float and v not in known}
    )
    silent = [p.name for p in graph.parameters if p in histograms and p.type.size and not histograms[p].largest]
    if silent:
        config.logger(__name__).warning(
            "graph %s: inputs %s were zeros when i8 was calibrated, so its scales fit no other data", graph.name, silent
        )
    quantization = Quantization(
        plain_elements(graph, known, element, {v: each.largest for v, each in histograms.items()}),
        products=products,
    )
    for node in products:
        quantization.weights[node.inputs[1]] = _weight_scales(node, known[node.inputs[1]])
    quantization.elements.update(dict.fromkeys((*narrow, *quantization.weights), "i8"))
    _share(graph, narrow, histograms)
    sources = convert_operands(graph, quantization, element)
    ranges = {v: histograms[v] for v in narrow} | {
        v: histograms[source] for v, source in sources.items() if quantization.elements[v] == "i8"
    }
    choices = [{v: _scale(each, method) for v, each in ranges.items()} for method in methods]
    quantization.scales = choices[0]
    if len(choices) > 1:
        errors = [
            _error(
                graph,
                Quantization(quantization.elements, scales, quantization.weights, products),
                samples[0],
                results[0],
            )
            for scales in choices
        ]
        quantization.scales = choices[int(np.argmin(errors))]
    return quantization


def _scale(histogram: Histogram, method: str) -> float:
    return float(symmetric(choose(histogram.magnitudes(), method, _LEVELS)[1]))


def _error(
    graph: Graph, quantization: Quantization, sample: Sequence[np.ndarray], exact: Sequence[np.ndarray]
) -> float:
    """The squared error of all results, relative to each one's square."""
    total = 0.0
    for found, expected in zip(quantized_reference(graph, quantization, sample), exact, strict=True):
        if expected.dtype.kind == "f" and expected.size:
            wide = expected.astype(np.float64)
            total += float(np.sum((found - wide) ** 2) / max(float(np.sum(wide**2)), 1e-30))
    return total if np.isfinite(total) else np.inf


# ---- what is i8 -----------------------------------------------------------------------------------------


def _products(graph: Graph, known: Mapping[Value, np.ndarray], keep: Collection[Node]) -> set[Node]:
    """The products that can be in i8: their weights are known and finite, and all who read these weights are such
    products with the same axis of output channels."""
    table, results = graph.readers(), set(graph.results)

    def fits(node: Node) -> bool:
        return (
            on_grid(node)
            and node not in keep
            and node.inputs[1] in known
            and node.inputs[0] not in known
            and bool(np.isfinite(known[node.inputs[1]]).all())
        )

    def alone(node: Node) -> bool:
        weights = node.inputs[1]
        return weights not in results and all(
            at == 1 and fits(other) and _channel_axis(other) == _channel_axis(node) for other, at in table[weights]
        )

    return {node for node in graph.nodes if fits(node) and alone(node)}


def _channel_axis(node: Node) -> int:
    """The axis of the weights that the output channels are along."""
    if node.op.kind == "convolution":
        return 0
    return node.inputs[1].type.rank - (2 if node.attrs["transpose_b"] else 1)


def _weight_scales(node: Node, weights: np.ndarray) -> np.ndarray:
    """A scale for each output channel, by which its largest magnitude becomes 127; 1 where it has zeros only."""
    axis = _channel_axis(node)
    shape = [size if place == axis else 1 for place, size in enumerate(weights.shape)]
    return weight_scales(weights, axis).reshape(shape)


def _narrow(graph: Graph, known: Mapping[Value, np.ndarray], products: set[Node]) -> set[Value]:
    """The values that are stored in i8, from the last to the first: a value's readers decide."""
    table, results, narrow = graph.readers(), set(graph.results), set[Value]()
    in_order = [*graph.parameters, *(value for node in graph.nodes for value in node.outputs)]
    for value in reversed(in_order):
        real = value.type.element.is_float and value not in known and value not in results
        if real and table[value] and all(_reads_i8(node, at, products, narrow) for node, at in table[value]):
            narrow.add(value)
    return narrow


def _reads_i8(node: Node, at: int, products: set[Node], narrow: set[Value]) -> bool:
    if node in products:
        return at in (0, 3)  # data and residual
    name = node.op.name
    if name == "reduce_mean" and any(axis % node.inputs[0].type.rank < 2 for axis in node.attrs["axes"]):
        return False
    if name == "scale_shift" and at > 0:
        return False
    return (node.op.selects or node.op.tolerant) and node.output in narrow


def _share(graph: Graph, narrow: set[Value], histograms: dict[Value, Histogram]) -> None:
    """One histogram, and so one scale, for operands and result of what only moves elements."""
    for node in graph.nodes:
        if not node.op.selects or node.output not in narrow:
            continue
        for value in node.inputs:
            mine, other = histograms[node.output], histograms.get(value)
            if value in narrow and other is not None and other is not mine:
                mine.merge(other)
                for each, histogram in histograms.items():
                    if histogram is other:
                        histograms[each] = mine
