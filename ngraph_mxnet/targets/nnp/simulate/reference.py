"""The numbers that the device computes for a quantised graph, node by node on whole tensors: no tiles, no memories.

What a Program of the graph gives on the functional simulator must be equal bit for bit, however it is tiled: the grid's
arithmetic does not depend on tiles, and the vector unit's but for the order in which NumPy adds up a reduction.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from ngraph_mxnet.ir.graph import Graph, Node, Value
from ngraph_mxnet.targets.nnp.isa.formats import FORMATS
from ngraph_mxnet.targets.nnp.quantization import Quantization, last_reads, on_grid
from ngraph_mxnet.targets.nnp.simulate import arithmetic, products
from ngraph_mxnet.targets.nnp.simulate.functional import evaluate, narrowed, widened

__all__ = ["quantized_reference"]


def quantized_reference(
    graph: Graph,
    quantization: Quantization,
    inputs: Sequence[np.ndarray],
    visit: Callable[[Value, np.ndarray], None] | None = None,
) -> list[np.ndarray]:
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
                stored[node.output] = _grid(node, quantization, stored)
            else:
                stored.update(_vector(node, quantization, stored))
            if visit is not None:
                for value in node.outputs:
                    visit(value, stored[value])
            for value in dying.get(node, ()):
                del stored[value]
    return [np.array(quantization.load(result, stored[result]), order="C") for result in graph.results]


def _vector(node: Node, q: Quantization, stored: Mapping[Value, np.ndarray]) -> dict[Value, np.ndarray]:
    operands = [widened(stored[v], q.elements[v], q.scales.get(v)) for v in node.inputs]
    results = evaluate(node.op.name, operands, node.attrs)
    return {
        value: np.array(narrowed(result, q.elements[value], q.scales.get(value)), order="C")
        for value, result in zip(node.outputs, results, strict=True)
    }


def _real_product(a: np.ndarray, b: np.ndarray, start: np.ndarray | None = None) -> np.ndarray:
    return np.matmul(a, b) if start is None else start + np.matmul(a, b)


_PRODUCTS: dict[str, arithmetic.Product] = {
    "i8": products.integer_product,
    "f16": products.float_product,
    "bf16": products.float_product,
    "f32": _real_product,
}


def _grid(node: Node, q: Quantization, stored: Mapping[Value, np.ndarray]) -> np.ndarray:
    integer, convolution = node in q.products, node.op.kind == "convolution"
    along = (-1, *(1,) * (node.output.type.rank - 2)) if convolution else (-1,)
    reals = [FORMATS[q.elements[v]].to_float32(stored[v]) for v in node.inputs]
    data, weights, *rest = reals
    options = {
        "scale": q.sum_scale(node).reshape(along) if integer else None,
        "bias": rest[0].reshape(along) if rest else None,
        "residual_scale": q.scales.get(node.inputs[3], 1.0) if len(rest) > 1 else 1.0,
        "lower": node.attrs.get("lower", -math.inf),
        "upper": node.attrs.get("upper", math.inf),
        "out_scale": q.scales.get(node.output, 1.0),
    }
    element, product = q.elements[node.output], _PRODUCTS[q.elements[node.inputs[0]]]
    if not convolution:
        a = data.swapaxes(-1, -2) if node.attrs["transpose_a"] else data
        b = weights.swapaxes(-1, -2) if node.attrs["transpose_b"] else weights
        return arithmetic.finish(product(a, b, None), element, **options)
    result = np.empty(node.output.shape, FORMATS[element].storage)
    for index, sums in enumerate(arithmetic.convolution(data, weights, node.attrs, product)):
        residual = rest[1][index] if len(rest) > 1 else None
        result[index] = arithmetic.finish(sums, element, residual=residual, **options)
    return result
