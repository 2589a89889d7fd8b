"""How the device stores each value of a graph, and what its grid multiplies in: i8 with scales, f16, bf16.

The graph stays a graph of float32 ops; a `Quantization` is data beside it. `quantize.py` makes one for i8; `uniform`
makes one of a single element. What runs on the grid reads its first two operands in one element: where a value is
stored in another, an `identity` node in the graph converts it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ngraph_mxnet.ir.builder import make_node
from ngraph_mxnet.ir.graph import Graph, Node, Value
from ngraph_mxnet.targets.nnp.isa.formats import FORMATS, dequantized, quantized

_LEAST_F16, LARGEST_F16 = 2.0**-14, 65504.0


@dataclass
class Quantization:
    """How real numbers are stored.

    Attributes:
        elements: of every value of the graph, a name of `formats.FORMATS`.
        scales: of the values in i8, but weights: a real number is its i8 number times the scale.
        weights: of known operands of i8 products the scales of the output channels, in a shape that broadcasts
            against the weights.
        products: the nodes that the grid multiplies in i8. Others it multiplies in their operands' element.
    """

    elements: dict[Value, str]
    scales: dict[Value, float] = field(default_factory=dict)
    weights: dict[Value, np.ndarray] = field(default_factory=dict)
    products: set[Node] = field(default_factory=set)

    def sum_scale(self, node: Node) -> np.ndarray:
        """f32[O], what the int32 sums of an i8 product are multiplied with."""
        return np.float32(self.scales[node.inputs[0]]) * self.weights[node.inputs[1]].reshape(-1)

    def store(self, value: Value, array: np.ndarray) -> np.ndarray:
        """`array`, of the type that `value` has in the graph, as the device stores it."""
        element = self.elements[value]
        scale = self.weights[value] if value in self.weights else self.scales.get(value)
        with np.errstate(all="ignore"):
            if scale is not None:
                return quantized(array.astype(np.float32, copy=False), scale)
            if array.dtype.kind == "f" and array.dtype != FORMATS[element].storage:
                return FORMATS[element].round_to(array.astype(np.float32, copy=False))
        return array

    def load(self, value: Value, stored: np.ndarray) -> np.ndarray:
        """The array of the type that `value` has in the graph, of its stored elements."""
        if value in self.scales:
            return dequantized(stored, self.scales[value])
        dtype = value.type.element.numpy
        return stored if stored.dtype == dtype else FORMATS[self.elements[value]].to_float32(stored).astype(dtype)


def on_grid(node: Node) -> bool:
    """True if the grid runs the node; the vector unit does the rest."""
    if not node.op.contraction or len(node.outputs) != 1 or not node.output.type.element.is_float:
        return False
    return all(step == 1 for step in node.attrs.get("data_dilations", ()))


def last_reads(graph: Graph) -> Mapping[Node, Sequence[Value]]:
    """The values that nothing reads after each node; results are always kept."""
    kept, table = set(graph.results), dict[Node, list[Value]]()
    last = {operand: node for node in graph.nodes for operand in node.inputs}
    for value, reader in last.items():
        if value not in kept:
            table.setdefault(reader, []).append(value)
    return table


def known_arrays(graph: Graph, known: Mapping[Value, np.ndarray]) -> dict[Value, np.ndarray]:
    """`known` and the graph's constants."""
    constants = {node.output: node.attrs["value"] for node in graph.nodes if node.op.name == "constant"}
    return {**known, **constants}


def uniform(graph: Graph, known: Mapping[Value, np.ndarray], element: str) -> Quantization:
    """All real numbers in `element`, f16 or bf16, but what is stored in f32 (see `plain_elements`).

    Args:
        graph: gets conversions in place, where there must be some.
        known: arrays of the parameters that are known before a call. Constants are known anyway.
    """
    quantization = Quantization(plain_elements(graph, known_arrays(graph, known), element, {}))
    convert_operands(graph, quantization, element)
    return quantization


def plain_elements(
    graph: Graph, known: Mapping[Value, np.ndarray], element: str, largest: Mapping[Value, float]
) -> dict[Value, str]:
    """The element of each value: `element` for reals, the IR's own for others.

    f32 for results of the graph, for known vectors that are no factors of a product, and for what is beyond f16's
    normal numbers: known arrays, and values whose largest magnitude is in `largest`.
    """
    table, results = graph.readers(), set(graph.results)

    def of(value: Value) -> str:
        if not value.type.element.is_float:
            return value.type.element.name
        magnitude = largest.get(value, 0.0)
        if value in results and value.type.element.name == "f32":
            return "f32"
        if value in known:
            if value.type.rank <= 1 and not any(on_grid(node) and at < 2 for node, at in table[value]):
                return "f32"
            magnitude = finite_magnitude(known[value])
        normal = magnitude == 0 or _LEAST_F16 <= magnitude <= LARGEST_F16
        return "f32" if element == "f16" and not normal else element

    return {value: of(value) for value in graph.values()}


def finite_magnitude(array: np.ndarray) -> float:
    """The largest absolute value of floats that is finite: masks and the like are infinite on purpose."""
    if array.dtype.kind != "f":
        return 0.0
    return float(np.abs(array[np.isfinite(array)], dtype=np.float64).max(initial=0.0))


def convert_operands(graph: Graph, quantization: Quantization, element: str) -> dict[Value, Value]:
    """Insert an `identity` wherever the grid needs an operand in another element than it is stored in.

    Returns:
        For each converted value the one that it was made of.
    """
    elements, made = quantization.elements, dict[tuple[Value, str], Value]()
    sources: dict[Value, Value] = {}

    def with_conversions(node: Node) -> Iterator[Node]:
        wanted = "i8" if node in quantization.products else element
        for position, value in enumerate(node.inputs[:2] if on_grid(node) else ()):
            if elements[value] != wanted:
                if (value, wanted) not in made:
                    conversion = make_node("identity", [value], {}, node.origin)
                    made[value, wanted] = conversion.output
                    elements[conversion.output] = wanted
                    sources[conversion.output] = value
                    yield conversion
                node.inputs[position] = made[value, wanted]
        yield node

    graph.nodes = [each for node in graph.nodes for each in with_conversions(node)]
    return sources
