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

`quantized_reference` computes such a graph node by node on whole tensors: no tiles, no memories. What a Program of the
graph gives on the functional simulator must be equal bit for bit, however it is tiled: the grid's arithmetic does not
depend on tiles, and the vector unit's but for the order in which NumPy adds up a reduction.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np

from ngraph_mxnet.base import config
from ngraph_mxnet.base.errors import UnsupportedError
from ngraph_mxnet.ir.graph import Graph, Node, Value, last_reads
from ngraph_mxnet.quantisation.calibration import Histogram, choose_symmetric, symmetric, weight_scales
from ngraph_mxnet.quantisation.layers import weight_axes
from ngraph_mxnet.targets.nnp import functional
from ngraph_mxnet.targets.nnp.functional import evaluate, narrowed, widened
from ngraph_mxnet.targets.nnp.quantization import (
    FORMATS,
    LARGEST_F16,
    Quantization,
    convert_operands,
    finite_magnitude,
    known_arrays,
    on_grid,
    plain_elements,
    uniform,
)


def observe(graph: Graph, samples: Sequence[Sequence[np.ndarray]],
            wanted: Collection[Value]) -> tuple[dict[Value, Histogram], list[list[np.ndarray]]]:
    """Run `graph` in float32 for each sample, an array for each parameter.

    Returns:
        The histograms of the values in `wanted`, and each sample's results.
    """
    histograms = {value: Histogram() for value in wanted}
    plain = uniform(graph, {}, "f32")

    def visit(value: Value, stored: np.ndarray) -> None:
        if value in histograms:
            histograms[value].add(stored)

    return histograms, [quantized_reference(graph, plain, sample, visit) for sample in samples]


_LARGEST = {"f16": LARGEST_F16}
"""The largest number, in the formats that are too small for numbers of real models."""


def overflowing(graph: Graph, samples: Sequence[Sequence[np.ndarray]], element: str) -> dict[Node, str]:
    """Why nodes of `graph` should not run where real numbers are stored as `element`, by what they read and make when
    it runs on `samples` in float32, each an array for each parameter."""
    largest = _LARGEST.get(element)
    found: dict[Node, str] = {}
    for sample in samples if largest is not None else ():
        values: dict[Value, np.ndarray] = dict(zip(graph.parameters, sample, strict=True))
        for node in graph.nodes:
            results = node.op.evaluate([values[operand] for operand in node.inputs], node.attrs)
            values.update(zip(node.outputs, results, strict=True))
            top = max(map(finite_magnitude, (*(values[operand] for operand in node.inputs), *results)), default=0.0)
            if largest is not None and top > largest:
                found[node] = f"its numbers reach {top:.3g} on the samples, {element} holds up to {largest:g}"
    return found


METHODS = ("minmax", "mse")
"""How the scale of an activation is chosen, of `quantisation.choose.METHODS`; symmetric, so that -128 is spare."""
_LEVELS = 256
"""Integers of i8, half of which are magnitudes: 0 to 127."""


def quantize(graph: Graph, known: Mapping[Value, np.ndarray], samples: Sequence[Sequence[np.ndarray]], *,
             element: str = "f16", keep: Collection[Node] = (), methods: Sequence[str] = METHODS) -> Quantization:
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
    histograms, results = observe(graph, samples,
                                  {v for v in graph.values() if v.type.element.is_float and v not in known})
    silent = [p.name for p in graph.parameters if p in histograms and p.type.size and not histograms[p].largest]
    if silent:
        config.logger(__name__).warning("graph %s: inputs %s were zeros when i8 was calibrated, so its scales fit no "
                                        "other data", graph.name, silent)
    quantization = Quantization(
        plain_elements(graph, known, element, {v: each.largest for v, each in histograms.items()}), products=products)
    for node in products:
        quantization.weights[node.inputs[1]] = _weight_scales(node, known[node.inputs[1]])
    quantization.elements.update(dict.fromkeys((*narrow, *quantization.weights), "i8"))
    _share(graph, narrow, histograms)
    sources = convert_operands(graph, quantization, element)
    ranges = {v: histograms[v] for v in narrow}
    ranges |= {v: histograms[source] for v, source in sources.items() if quantization.elements[v] == "i8"}
    choices = [{v: float(symmetric(choose_symmetric(each, method, _LEVELS))) for v, each in ranges.items()}
               for method in methods]
    quantization.scales = choices[0]
    if len(choices) > 1:
        errors = [_error(graph, Quantization(quantization.elements, scales, quantization.weights, products), samples[0],
                         results[0]) for scales in choices]
        quantization.scales = choices[int(np.argmin(errors))]
    return quantization


def _error(graph: Graph, quantization: Quantization, sample: Sequence[np.ndarray],
           exact: Sequence[np.ndarray]) -> float:
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
        return (on_grid(node) and node not in keep and node.inputs[1] in known and node.inputs[0] not in known
                and bool(np.isfinite(known[node.inputs[1]]).all()))

    def alone(node: Node) -> bool:
        weights = node.inputs[1]
        return weights not in results and all(at == 1 and fits(other) and weight_axes(other)[0] == weight_axes(node)[0]
                                              for other, at in table[weights])

    return {node for node in graph.nodes if fits(node) and alone(node)}


def _weight_scales(node: Node, weights: np.ndarray) -> np.ndarray:
    """A scale for each output channel, by which its largest magnitude becomes 127; 1 where it has zeros only."""
    axis = weight_axes(node)[0]
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
        return node.op.is_data(at)
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


def quantized_reference(graph: Graph, quantization: Quantization, inputs: Sequence[np.ndarray],
                        visit: Callable[[Value, np.ndarray], None] | None = None) -> list[np.ndarray]:
    """The results, of the types that they have in the graph, of `inputs`, an array for each parameter.

    `visit` is called with each value and its stored elements. Factors in f32, which no grid has, are multiplied as
    NumPy does it.
    """
    stored = {p: quantization.store(p, array) for p, array in zip(graph.parameters, inputs, strict=True)}
    dying = last_reads(graph)
    if visit is not None:
        for parameter, array in stored.items():
            visit(parameter, array)
    with np.errstate(all="ignore"):
        for node in graph.nodes:
            if node.op.name == "constant":
                stored[node.output] = quantization.store(node.output, node.attrs["value"])
            elif on_grid(node):
                stored[node.output] = _on_grid(node, quantization, stored)
            else:
                stored.update(_on_vector(node, quantization, stored))
            if visit is not None:
                for value in node.outputs:
                    visit(value, stored[value])
            for value in dying.get(node, ()):
                del stored[value]
    return [np.array(quantization.load(result, stored[result]), order="C") for result in graph.results]


def _on_vector(node: Node, q: Quantization, stored: Mapping[Value, np.ndarray]) -> dict[Value, np.ndarray]:
    operands = [widened(stored[v], q.elements[v], q.scales.get(v)) for v in node.inputs]
    results = evaluate(node.op.name, operands, node.attrs)
    return {value: np.array(narrowed(result, q.elements[value], q.scales.get(value)), order="C")
            for value, result in zip(node.outputs, results, strict=True)}


def _on_grid(node: Node, q: Quantization, stored: Mapping[Value, np.ndarray]) -> np.ndarray:
    element = q.elements[node.output]
    result = np.empty(node.output.shape, FORMATS[element].storage)
    held = [(stored[value], q.elements[value]) for value in node.inputs]
    biases = [(FORMATS[name].to_float32(array), "f32") for array, name in held[2:3]]
    scales = [(q.sum_scale(node), "f32")] if node in q.products else []
    reads = [*held[:2], *biases, *scales, *held[3:]]
    op = "convolution" if node.op.kind == "convolution" else "matmul"
    functional.compute(op, q.grid_attrs(node, node.attrs), (result, element), reads)
    return result
