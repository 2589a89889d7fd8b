"""The number formats of the simulated device, and how the device stores each value of a graph.

The device computes in float32 (and int32) and rounds where it stores. Everything here is NumPy; this text and the code
are the definition that the simulation is bit-exact to.

* `f16` and `f32` are IEEE 754's binary16 and binary32. `bf16` is the upper half of a binary32, kept as uint16.
* Rounding is to nearest, ties to even. What is beyond the largest finite number by half a unit or more becomes an
  infinity, denormals are kept, and NaN becomes the quiet NaN without sign.
* What overflows may raise NumPy's warning: what runs whole programs and graphs turns it off.
* `i8` and `i32` round to the nearest integer, ties to even, and saturate: i8 to [-128, 127]. NaN becomes 0.

The graph stays a graph of float32 ops; a `Quantization` is data beside it. `quantize.py` makes one for i8; `uniform`
makes one of a single element. What runs on the grid reads its first two operands in one element: where a value is
stored in another, an `identity` node in the graph converts it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ngraph_mxnet.ir.graph import Graph, Node, Value, make_node
from ngraph_mxnet.ir.types import ELEMENT_TYPES


@dataclass(frozen=True)
class Format:
    """`storage` is the NumPy dtype of a stored element, `size` its bytes."""

    name: str
    storage: np.dtype
    # Both on contiguous arrays of rank 1 or more.
    _widen: Callable[[np.ndarray], np.ndarray]
    _round: Callable[[np.ndarray], np.ndarray]

    @property
    def size(self) -> int:
        return self.storage.itemsize

    @property
    def is_float(self) -> bool:
        """True if an element stands for a real number by itself; an i8 does so only with a scale."""
        return self.name == "bf16" or self.storage.kind == "f"

    def to_float32(self, stored: np.ndarray) -> np.ndarray:
        """The stored elements as float32, exactly but for integers beyond 2**24 and f64. A copy, unless f32."""
        return self._widen(np.ascontiguousarray(stored)).reshape(stored.shape)

    def round_to(self, values: np.ndarray) -> np.ndarray:
        """float32 `values`, rounded, as stored elements. A copy, unless f32."""
        return self._round(np.ascontiguousarray(values, np.float32)).reshape(values.shape)


def _bf16_to_float32(stored: np.ndarray) -> np.ndarray:
    bits = stored.astype(np.uint32)
    bits <<= np.uint32(16)
    return bits.view(np.float32)


def _float32_to_bf16(values: np.ndarray) -> np.ndarray:
    """Half a unit of the last place kept, less one where that place is even, carries into it when it should."""
    result = _half_to_even(values.view(np.uint32), 16).astype(np.uint16)
    return _with_nan(result, values, np.uint16(0x7FC0))


_F16_VALUES = np.arange(1 << 16).astype(np.uint16).view(np.float16).astype(np.float32)
"""By bit pattern: looking numbers up is faster than NumPy's conversion."""


def _f16_to_float32(stored: np.ndarray) -> np.ndarray:
    return _F16_VALUES[stored.view(np.uint16)]


def _float32_to_f16(values: np.ndarray) -> np.ndarray:
    """Round float32 values to f16.

    Where f16 is normal, bits are dropped as for bf16. Smaller values are added to 0.5, and the addition rounds: the
    last place of 0.5 in float32 is f16's smallest number.
    """
    bits = values.view(np.uint32)
    sign = (bits >> np.uint32(16)) & np.uint32(0x8000)
    magnitude = bits & np.uint32(0x7FFFFFFF)
    result = _half_to_even(magnitude, 13)
    result -= np.uint32(112 << 10)
    small = magnitude < np.uint32(113 << 23)
    if small.any():
        summed = (magnitude.view(np.float32) + np.float32(0.5)).view(np.uint32)
        summed -= np.uint32(126 << 23)
        np.copyto(result, summed, where=small)
    np.minimum(result, np.uint32(0x7C00), out=result)
    result |= sign
    return _with_nan(result.astype(np.uint16), values, np.uint16(0x7E00)).view(np.float16)


def _half_to_even(bits: np.ndarray, dropped: int) -> np.ndarray:
    """uint32 `bits` without the last `dropped` ones, rounded to the nearest, ties to even."""
    result = bits >> np.uint32(dropped)
    result &= np.uint32(1)
    result += np.uint32((1 << (dropped - 1)) - 1)
    result += bits
    result >>= np.uint32(dropped)
    return result


def _with_nan(result: np.ndarray, values: np.ndarray, pattern: np.uint16) -> np.ndarray:
    """`result`, `pattern` where `values` are NaN."""
    if values.size and np.isnan(np.min(values)):
        result[np.isnan(values)] = pattern
    return result


def _to_integer(dtype: np.dtype) -> Callable[[np.ndarray], np.ndarray]:
    """To the nearest integer that `dtype` has; in float64, which has them all up to 32 bits, where float32 hasn't."""
    info = np.iinfo(dtype)
    wide = np.float32 if dtype.itemsize <= 2 else np.float64

    def rounded(values: np.ndarray) -> np.ndarray:
        whole = np.rint(values, dtype=wide)
        np.maximum(whole, wide(info.min), out=whole)
        np.minimum(whole, wide(info.max), out=whole)
        if np.isnan(np.min(whole, initial=0)):
            whole[np.isnan(whole)] = 0
        return whole.astype(dtype)

    return rounded


_WIDEN: dict[str, Callable[[np.ndarray], np.ndarray]] = {"f16": _f16_to_float32, "f32": lambda values: values}
_ROUND: dict[str, Callable[[np.ndarray], np.ndarray]] = {"f16": _float32_to_f16, "f32": lambda values: values}


def _format(name: str, dtype: np.dtype) -> Format:
    """f64, bool and 64-bit integers have NumPy's conversion; the device only moves them."""
    narrow = dtype.kind in "iu" and dtype.itemsize <= 4
    return Format(name, dtype, _WIDEN.get(name, lambda stored: stored.astype(np.float32)),
                  _ROUND.get(name) or (_to_integer(dtype) if narrow else lambda values: values.astype(dtype)))


FORMATS: dict[str, Format] = {"bf16": Format("bf16", np.dtype(np.uint16), _bf16_to_float32, _float32_to_bf16),
                              **{name: _format(name, element.numpy) for name, element in ELEMENT_TYPES.items()}}
"""By name: bf16 and the IR's element types."""


def quantized(values: np.ndarray, scale: float | np.ndarray) -> np.ndarray:
    """float32 `values` as i8 numbers q that stand for q * scale: values / scale in float32, rounded, saturated."""
    return FORMATS["i8"].round_to(np.asarray(values, np.float32) / np.asarray(scale, np.float32))


def dequantized(stored: np.ndarray, scale: float | np.ndarray) -> np.ndarray:
    """i8 numbers as float32: q * scale, rounded to float32."""
    return stored.astype(np.float32) * np.asarray(scale, np.float32)


_LEAST_F16, LARGEST_F16 = 2.0**-14, 65504.0


@dataclass
class Quantization:
    """How real numbers are stored.

    Attributes:
        elements: of every value of the graph, a name of `quantization.FORMATS`.
        scales: of the values in i8, but weights: a real number is its i8 number times the scale.
        weights: of known operands of i8 products the scales of the output channels, in a shape that broadcasts
            against the weights.
        products: the nodes that the grid multiplies in i8. Others it multiplies in their operands' element.
    """

    elements: dict[Value, str]
    scales: dict[Value, float] = field(default_factory=dict)
    weights: dict[Value, np.ndarray] = field(default_factory=dict)
    products: set[Node] = field(default_factory=set)

    def alike(self, value: Value, other: Value) -> bool:
        """True if both are stored in the same element with the same scale."""
        return (self.elements[value] == self.elements[other]
                and self.scales.get(value) == self.scales.get(other))

    def conversion(self, node: Node, value: Value, element: str) -> Node:
        """An `identity` by which `node` reads `value` in `element`."""
        made = make_node("identity", [value], {}, node.origin)
        self.elements[made.output] = element
        return made

    def grid_attrs(self, node: Node, attrs: Mapping[str, Any]) -> dict[str, Any]:
        """The attributes of the grid's instruction for a node, or for a part of it whose attributes are `attrs`. Its
        tiles are data, weights, and bias, scale of the sums and residual as far as there are such."""
        names = ("strides", "dilations", "pads_begin", "pads_end", "groups") if node.op.kind == "convolution" else (
            "transpose_a", "transpose_b")
        found = {key: attrs[key] for key in (*names, "lower", "upper")}
        if len(node.inputs) > 2:
            found["has_bias"] = True
        if node in self.products:
            found["has_scale"] = True
        if len(node.inputs) > 3:
            found.update(has_residual=True, residual_scale=self.scales.get(node.inputs[3], 1.0))
        return {**found, "out_scale": self.scales.get(node.output, 1.0)}

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


def plain_elements(graph: Graph, known: Mapping[Value, np.ndarray], element: str,
                   largest: Mapping[Value, float]) -> dict[Value, str]:
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
                    conversion = quantization.conversion(node, value, wanted)
                    made[value, wanted] = conversion.output
                    sources[conversion.output] = value
                    yield conversion
                node.inputs[position] = made[value, wanted]
        yield node

    graph.nodes = [each for node in graph.nodes for each in with_conversions(node)]
    return sources
