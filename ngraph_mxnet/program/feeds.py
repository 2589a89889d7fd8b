"""Arrays for a model's inputs: those given, and random ones for the others.

Random ones are drawn from the numbers that a graph is made for, so that they reach what the model's own inputs would.
These numbers follow from how the graph uses its inputs: positions in a table, lengths, masks, bytes of images. Each
input is followed through what moves, converts, scales and shifts it to where it counts: to an index, to a
comparison with positions 0, 1, 2 ..., to a factor that only a mask takes. A value that meets another input on the way
is followed no further.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from ngraph_mxnet.base.errors import ModelError, listed
from ngraph_mxnet.ir.graph import Graph, Node, Value, constant_of
from ngraph_mxnet.ir.types import RANDOM_STATE
from ngraph_mxnet.program.compile import bind_weights
from ngraph_mxnet.program.executable import Port

_MASKING = 1000.0
"""The least factor that multiplies a mask's complement before it is added to scores."""
_BYTES = 255
_MOST_HELD = 1 << 14
"""Elements of a weight whose content is looked at."""


@dataclass(frozen=True)
class Draw:
    """Whole numbers from `low` to `high`, all of which are as likely. `is_mask`: 0 and 1, mostly 1, and at the first
    place along the last axis always."""

    low: int
    high: int
    is_mask: bool = False

    def __str__(self) -> str:
        return "a mask" if self.is_mask else f"whole numbers from {self.low} to {self.high}"

    def array(self, random: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        if not self.is_mask:
            return np.asarray(random.integers(self.low, self.high + 1, shape), dtype)
        kept = np.asarray(random.random(shape) < 0.75)
        if shape:
            kept[..., :1] = True
        return kept.astype(dtype)


MASK = Draw(0, 1, is_mask=True)


@dataclass(frozen=True)
class _Origin:
    """A value is an element of the input, times `factor`, plus something from `least` to `most`."""

    parameter: Value
    factor: float = 1.0
    least: float = 0.0
    most: float = 0.0

    def shifted(self, array: np.ndarray) -> _Origin:
        return replace(self, least=self.least + float(array.min()), most=self.most + float(array.max()))

    def scaled(self, factor: float) -> _Origin:
        ends = sorted((self.least * factor, self.most * factor))
        return replace(self, factor=self.factor * factor, least=ends[0], most=ends[1])

    def draw(self, low: float, high: float) -> Draw | None:
        """By which the value is from `low` to `high`; None where no input would be, or only one."""
        ends = sorted(((low - self.least) / self.factor, (high - self.most) / self.factor))
        first, last = math.ceil(ends[0] - 1e-6), math.floor(ends[1] + 1e-6)
        return Draw(first, last) if first < last or (first == last and low == high) else None


def draws_of(graph: Graph, weights: Mapping[str, Any] | None = None) -> dict[str, Draw]:
    """Find the draws of a graph's inputs, by name, for each input of which the graph says something. The graph may be
    one before or after passes. Small weights may hold the numbers that inputs are compared or computed with, where
    these weights are known."""
    held = {value.name for value in graph.parameters if value.type.size <= _MOST_HELD}
    graph = bind_weights(graph, {name: array for name, array in (weights or {}).items() if name in held})
    found: dict[str, list[tuple[int, Draw]]] = {}
    origins: dict[Value, list[_Origin]] = {value: [_Origin(value)] for value in graph.parameters
                                           if not value.is_weight}
    for node in graph.nodes:
        if not any(origins.get(value) for value in node.inputs):
            continue
        for use in _USES[node.op.name](node) if node.op.name in _USES else ():
            for origin in origins.get(use.value, ()):
                if use.only is None or (origin.factor, origin.least, origin.most) in use.only:
                    draw = MASK if use.rank == _MASKED else origin.draw(use.low, use.high)
                    if draw is not None:
                        found.setdefault(origin.parameter.name, []).append((use.rank, draw))
        moved = _followed(node, origins)
        if moved:
            origins.update(dict.fromkeys(node.outputs, moved))
    draws = {name: _tightest(wanted) for name, wanted in found.items()}
    for value in graph.parameters:
        kind = value.type.element.numpy
        if not value.is_weight and value.name not in draws and kind.itemsize == 1:
            info = None if kind.kind == "b" else np.iinfo(kind)
            draws[value.name] = MASK if info is None else Draw(int(info.min), int(info.max))
    return draws


_INDEX, _COMPARED, _MASKED, _PICTURE = range(4)
"""How much a use says; the first one counts most."""


def _tightest(wanted: list[tuple[int, Draw]]) -> Draw:
    rank = min(rank for rank, _ in wanted)
    draws = [draw for found, draw in wanted if found == rank]
    low, high = max(draw.low for draw in draws), min(draw.high for draw in draws)
    return draws[0] if draws[0].is_mask or low > high else Draw(low, high)


# ---- where an input counts -------------------------------------------------------------------------------------


class _Use(NamedTuple):
    """The range that an operand should have. `only`: the origins alone for which this holds, by factor and what is
    added."""

    value: Value
    rank: int
    low: float
    high: float
    only: tuple[tuple[float, float, float], ...] | None = None


_AS_IT_IS = ((1.0, 0.0, 0.0),)
_OR_COMPLEMENT = (*_AS_IT_IS, (-1.0, 1.0, 1.0), (1.0, -1.0, -1.0))


def _indexed(node: Node) -> Iterator[_Use]:
    """Positions along an axis of operand 0, by default the last."""
    size = node.inputs[0].shape[node.attrs.get("axis", -1)]
    if isinstance(size, int):
        yield _Use(node.inputs[1], _INDEX, 0, size - 1)


def _coordinates(node: Node) -> Iterator[_Use]:
    """Rows of positions along the first axes of operand 0, each its own where they are joined of such."""
    indices, row = node.inputs[1], 0
    made = indices.node
    for part in made.inputs if made is not None and made.op.name == "concat" and made.attrs["axis"] == 0 else [indices]:
        sizes = node.inputs[0].shape[row:row + part.shape[0]]
        row += part.shape[0]
        if sizes and all(isinstance(size, int) for size in sizes):
            yield _Use(part, _INDEX, 0, min(sizes) - 1)


def _compared(node: Node) -> Iterator[_Use]:
    """With positions: lengths, or positions again. With a single 0 or 1: a mask."""
    is_same = node.op.name in ("equal", "not_equal")
    for value, array in _beside_constants(node):
        steps = np.unique(array)
        if len(steps) > 1 and np.array_equal(np.diff(steps), np.ones(len(steps) - 1)):
            yield _Use(value, _COMPARED, float(steps[0]) + (not is_same), float(steps[-1]) + (not is_same))
        elif is_same and len(steps) == 1 and steps[0] in (0, 1):
            yield _Use(value, _MASKED, 0, 1, _AS_IT_IS)


def _multiplied(node: Node) -> Iterator[_Use]:
    """By a number that only a mask is multiplied by, or only bytes of an image, which it makes 1 of."""
    for value, array in _beside_constants(node):
        factor = _single(array)
        if node.op.name == "divide":
            factor = 1 / factor if factor and value is node.inputs[0] else 0.0
        if abs(factor) >= _MASKING:
            yield _Use(value, _MASKED, 0, 1, _OR_COMPLEMENT)
        elif 1 / 300 < abs(factor) < 1 / 200:
            yield _Use(value, _PICTURE, 0, _BYTES, _AS_IT_IS)


def _subtracted(node: Node) -> Iterator[_Use]:
    """Yield a use as bytes of an image where the constant that is subtracted looks like their mean."""
    for value, array in _beside_constants(node):
        magnitudes = np.abs(array.astype(np.float64))
        if value is node.inputs[0] and magnitudes.min() > 50 and magnitudes.max() < 200:
            yield _Use(value, _PICTURE, 0, _BYTES, _AS_IT_IS)


def _beside_constants(node: Node) -> Iterator[tuple[Value, np.ndarray]]:
    """The operand of two beside which there is a constant of numbers."""
    for value, other in (node.inputs, node.inputs[::-1]):
        array = _numbers(other)
        if array is not None:
            yield value, array


_USES: dict[str, Callable[[Node], Iterator[_Use]]] = {
    **dict.fromkeys(("gather", "gather_elements", "log_softmax_pick"), _indexed),
    **dict.fromkeys(("gather_nd", "scatter_nd"), _coordinates),
    **dict.fromkeys(("less", "less_equal", "greater", "greater_equal", "equal", "not_equal"), _compared),
    **dict.fromkeys(("multiply", "divide"), _multiplied),
    "subtract": _subtracted,
}


# ---- how far it is followed ------------------------------------------------------------------------------------


def _followed(node: Node, origins: dict[Value, list[_Origin]]) -> list[_Origin]:
    """Return the origins whose elements the node's results are, unchanged or nearly so."""
    given = [origins.get(value, []) for value in node.inputs]
    if node.op.kind in ("movement", "copy", "choice") or node.op.rounds or node.op.name == "clamp":
        first = 1 if node.op.name == "select" else 0
        return list(dict.fromkeys(origin for found in given[first:] for origin in found))
    if len(node.inputs) != 2 or node.op.name not in _COMPUTED:
        return []
    place = 0 if given[0] else 1
    array = _numbers(node.inputs[1 - place])
    if array is None:
        return []
    return [moved for origin in given[place]
            if (moved := _COMPUTED[node.op.name](place, origin, array)) is not None]


def _multiple(place: int, origin: _Origin, array: np.ndarray) -> _Origin | None:
    factor = _single(array)
    return origin.scaled(factor) if factor else None


def _quotient(place: int, origin: _Origin, array: np.ndarray) -> _Origin | None:
    factor = _single(array)
    return origin.scaled(1 / factor) if factor and not place else None


def _difference(place: int, origin: _Origin, array: np.ndarray) -> _Origin | None:
    return origin.scaled(-1).shifted(array) if place else origin.shifted(-array)


_COMPUTED: dict[str, Callable[[int, _Origin, np.ndarray], _Origin | None]] = {
    "add": lambda place, origin, array: origin.shifted(array),
    "subtract": _difference,
    "multiply": _multiple,
    "divide": _quotient,
}
"""Functions by op: the origin of the result, from one operand's place and origin and the constant beside it."""


def _numbers(value: Value) -> np.ndarray | None:
    """A constant's, where all are finite."""
    array = constant_of(value)
    if array is None or not array.size or array.dtype.kind not in "iuf":
        return None
    found = array.astype(np.float64)
    return found if np.isfinite(found).all() else None


def _single(array: np.ndarray) -> float:
    """The one number that all are; 0 where they differ."""
    return float(array.flat[0]) if (array == array.flat[0]).all() else 0.0


SEED = 7
"""The seed of random inputs, if no other is asked for."""


def random_array(random: np.random.Generator, shape: Sequence[int], dtype: np.dtype | str,
                 draw: Draw | None = None) -> np.ndarray:
    """Draw an array as `draw` says. Else draw normal numbers for floats, and integers 0 and 1 for other types, because
    few models take all values of these."""
    if draw is not None:
        return draw.array(random, tuple(shape), np.dtype(dtype))
    if np.dtype(dtype).kind == "f":
        return np.asarray(random.standard_normal(shape), dtype)
    return np.asarray(random.integers(0, 2, shape), dtype)


def named_shapes(arrays: Mapping[str, np.ndarray]) -> dict[str, tuple[int, ...]]:
    """The shapes of arrays that are given by name; the others are called `#0`, `#1`, ..., by place."""
    return {name: array.shape for name, array in arrays.items() if not name.startswith("#")}


def named_dtypes(arrays: Mapping[str, np.ndarray]) -> dict[str, str]:
    """The dtypes of arrays that are given by name and are not float32."""
    return {name: str(array.dtype) for name, array in arrays.items()
            if not name.startswith("#") and array.dtype != np.float32}


def named_arrays(inputs: Mapping[str, str], arrays: Mapping[str, np.ndarray],
                 shapes: Mapping[str, Sequence[int]]) -> dict[str, np.ndarray]:
    """The arrays by name, also those that are given by place.

    Args:
        inputs: the text of each input for messages, by name, in order.
        shapes: those that are given, too.

    Raises:
        ModelError: there are fewer inputs, or an array has another shape than the given one.
    """
    names, found = list(inputs), {}
    for name, array in arrays.items():
        place = int(name[1:]) if name.startswith("#") else None
        if place is not None and place >= len(names):
            raise ModelError(f"found {len(arrays)} inputs, expected {len(names)}: {listed(inputs.values())}")
        found[name if place is None else names[place]] = array
    for name, array in found.items():
        if tuple(shapes.get(name, array.shape)) != array.shape:
            raise ModelError(f"input {name!r}: found an array of shape {array.shape} and the shape "
                             f"{tuple(shapes[name])}, expected one of the two")
    return found


def fitting_inputs(ports: Sequence[Any], arrays: Mapping[str, np.ndarray],
                   shapes: Mapping[str, Sequence[int]] | None, seed: int = SEED,
                   draws: Mapping[str, Draw] | None = None) -> dict[str, np.ndarray]:
    """An array for each input: the given one, else random ones of its shape, or of that in `shapes`.

    Args:
        ports: the inputs of an executable, of a graph or of an ONNX model.
        arrays: by name, or as `#0`, `#1`, ... by place.
        shapes: None: all arrays must be given.
        draws: what the model is made for (`draws_of`), by name.

    Raises:
        ModelError: an array or a shape is missing, or belongs to no input.
    """
    given, names = named_arrays({port.name: str(port) for port in ports}, arrays, shapes or {}), {p.name for p in ports}
    unknown = sorted({*given, *(shapes or {})} - names)
    if unknown:
        near = listed(map(str, ports), unknown[0])
        raise ModelError(f"no input is called {listed(unknown)}; the inputs: {near}")
    missing = [str(port) for port in ports if port.name not in given]
    if missing and shapes is None:
        raise ModelError(f"no array for {listed(missing)}: give each with --input NAME=FILE.npy")
    random = np.random.default_rng(seed)
    return {port.name: given[port.name] if port.name in given else
            _random(random, port, shapes or {}, (draws or {}).get(port.name)) for port in ports}


def random_inputs(random: np.random.Generator, graph: Graph, names: Collection[str] = ()) -> dict[str, np.ndarray]:
    """For all of the graph's parameters but those of these names, as the graph uses them. The state of random numbers
    is no input (`Seeded`)."""
    draws = draws_of(graph)
    return {one.name: random_array(random, one.type.shape, one.type.element.numpy, draws.get(one.name))
            for one in graph.parameters if one.name not in names and one.name != RANDOM_STATE}


def _random(random: np.random.Generator, port: Any, shapes: Mapping[str, Sequence[int]],
            draw: Draw | None) -> np.ndarray:
    shape, dtype = (port.type.shape, port.type.element.numpy) if isinstance(port, Port) else (port.shape, port.dtype)
    shape = shapes.get(port.name, shape)
    if getattr(port, "kind", "tensor") != "tensor":
        raise ModelError(f"input {port} is no tensor, and none such is made at random: give it")
    if shape is None or not all(isinstance(dim, int) for dim in shape):
        raise ModelError(f"the model leaves a dimension open: {port}; give the shape, shapes={{{port.name!r}: (D, D, "
                         f"...)}} as an argument, --shape {port.name}=D,D,... on the command line, or the input, there "
                         f"with --input {port.name}=FILE.npy")
    try:
        return random_array(random, shape, dtype, draw)
    except (MemoryError, ValueError) as error:  # numbers of elements that no memory, or no integer, holds
        raise ModelError(f"input {port.name!r}: no random array of shape {tuple(shape)} can be made: {error}") from None
