"""A model as points, values that a reference knows too, and how parts of it are cut out and run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ngraph_mxnet.ir.graph import Extract, Graph, Node, Value, extract
from ngraph_mxnet.ir.printer import format_node, value_names
from ngraph_mxnet.ir.types import f16, f32
from ngraph_mxnet.runtime.compile import compile


@dataclass(frozen=True)
class Point:
    """A value that can be compared.

    Attributes:
        name: the framework's, or that of the graph's text.
        origin: the framework's name of the node that computes it, and its operator.
        value: what it is in the model.
    """

    name: str
    origin: str
    value: Hashable


Arrays = Mapping[Point, np.ndarray]


class Traced(ABC):
    """A model's points, in topological order, and those of its outputs: None for an output that is none."""

    def __init__(self, points: Sequence[Point], outputs: Sequence[Point | None]) -> None:
        self.points, self.outputs = points, outputs
        self._places = {point.value: place for place, point in enumerate(points)}

    @abstractmethod
    def reads(self, value: Hashable) -> Iterable[Hashable]:
        """The values that the node reads which computes this one; none if it is no node's."""

    @abstractmethod
    def run(self, results: Sequence[Point], given: Arrays) -> list[Any]:
        """Return the values of the points `results`, from a part of the model that is compiled alone. The part ends
        behind these points, and begins behind the points of `given`.

        Raises:
            NGraphError: such a part can't be compiled.
        """

    @abstractmethod
    def text(self, point: Point, given: Arrays) -> str:
        """Return the nodes that compute the point of those given, as text for people. These nodes are marked with `>`;
        the nodes that compute the given points have no mark."""

    @abstractmethod
    def parameters(self, point: Point, given: Collection[Point]) -> list[str]:
        """The names of the model's inputs and weights that are read on the way to the point from those given."""

    def before(self, point: Point) -> list[Point]:
        """All points that this one is computed of."""
        return self._behind(point, lambda place: False)

    def operands(self, point: Point, known: Collection[Point]) -> list[Point]:
        """The last ones before this one, among those known."""
        return [one for one in self._behind(point, lambda place: self.points[place] in known) if one in known]

    def _behind(self, point: Point, stops: Callable[[int], bool]) -> list[Point]:
        found, seen, stack = set[int](), {point.value}, list(self.reads(point.value))
        while stack:
            value = stack.pop()
            if value in seen:
                continue
            seen.add(value)
            place = self._places.get(value)
            if place is not None:
                found.add(place)
            if place is None or not stops(place):
                stack.extend(self.reads(value))
        return [self.points[place] for place in sorted(found)]


_MOST_LINES = 24


@dataclass(frozen=True)
class Runner:
    """A runner of graphs: a backend, the backend's options, and arrays for the graphs' parameters by name.

    `constant`: the parameters whose content the compiler is given.
    """

    backend: str
    options: Mapping[str, Any]
    arrays: Mapping[str, np.ndarray]
    constant: frozenset[str] = frozenset()

    def with_arrays(self, arrays: Mapping[str, np.ndarray]) -> Runner:
        """With these in place of those of their names."""
        return replace(self, arrays={**self.arrays, **arrays})

    def run(self, part: Extract, given: Mapping[Value, np.ndarray]) -> list[np.ndarray]:
        """The results of a part; `given` are arrays for those of its inputs that are no parameters of the whole.

        Raises:
            NGraphError: it can't be compiled.
        """
        names = [parameter.name for parameter in part.graph.parameters]
        weights = {name: self.arrays[name] for name in names if name in self.constant}
        compiled = compile(part.graph, self.backend, weights, **self.options)
        arrays = [given[value].astype(parameter.type.element.numpy) if value in given else self.arrays[parameter.name]
                  for value, parameter in zip(part.inputs, part.graph.parameters, strict=True)
                  if parameter.name not in weights]
        return compiled(*arrays)

    def run_whole(self, graph: Graph) -> list[np.ndarray]:
        """The results of the graph. Raises NGraphError as `run`."""
        return self.run(Extract(graph, tuple(graph.parameters)), {})


class TracedGraph(Traced):
    """The points of a graph; each point is a value of the graph."""

    def __init__(self, graph: Graph, named: Iterable[tuple[str, Value]], outputs: Sequence[Value | None],
                 runner: Runner) -> None:
        """`named`: values to be points; one that has several names keeps the first. `outputs`: the model's; None for
        one that is no value of the graph."""
        order = {value: place for place, value in enumerate(value for node in graph.nodes for value in node.outputs)}
        by_value: dict[Value, Point] = {}
        for name, named_value in named:
            value = _as_read(named_value)
            if value in order and value.node is not None:
                by_value.setdefault(value, Point(name, value.node.origin, value))
        super().__init__(sorted(by_value.values(), key=lambda point: order[_value(point)]),
                         [by_value.get(_as_read(value)) if value is not None else None for value in outputs])
        self.graph, self._runner = graph, runner

    @staticmethod
    def everywhere(graph: Graph, runner: Runner) -> TracedGraph:
        """With all values as points that nodes compute, but for constants, called as in the graph's text."""
        names = value_names(graph)
        return TracedGraph(graph, [(names[value], value) for node in graph.nodes if node.inputs
                                   for value in node.outputs], graph.results, runner)

    def reads(self, value: Any) -> Iterable[Value]:
        return value.node.inputs if value.node is not None else ()

    def run(self, results: Sequence[Point], given: Arrays) -> list[np.ndarray]:
        return self.run_on(self._runner, results, given)

    def run_on(self, runner: Runner, results: Sequence[Point], given: Arrays) -> list[np.ndarray]:
        """Run a part as `run` does, on another runner."""
        return runner.run(self._part(results, given), {_value(point): array for point, array in given.items()})

    def parameters(self, point: Point, given: Collection[Point]) -> list[str]:
        return [value.name for value in self._part([point], given).inputs if value.is_parameter]

    def text(self, point: Point, given: Arrays) -> str:
        own = _needed(_value(point), {_value(one) for one in given})
        producers = {operand.node for node in own for operand in node.inputs if operand.node is not None}
        return marked_lines(self.graph, own, producers - own)

    def _part(self, results: Sequence[Point], given: Iterable[Point]) -> Extract:
        return extract(self.graph, list(map(_value, results)), [*map(_value, given), *self.graph.parameters],
                       name=self.graph.name, label=lambda value, number: f"given{number}")


def marked_lines(graph: Graph, marked: Collection[Node], others: Collection[Node] = ()) -> str:
    """The lines of these nodes, some marked with `>`; the last ones of many."""
    names = value_names(graph)
    lines = [("> " if node in marked else "  ") + format_node(node, names, elide=True).strip()
             for node in graph.nodes if node in marked or node in others]
    return "\n".join(lines if len(lines) <= _MOST_LINES else ["  ...", *lines[-_MOST_LINES:]])


def _value(point: Point) -> Value:
    assert isinstance(point.value, Value)
    return point.value


def _needed(value: Value, given: Collection[Value]) -> set[Node]:
    """The nodes that compute the value, back to those given."""
    found, stack = set[Node](), [value]
    while stack:
        top = stack.pop()
        if top.node is not None and top not in given and top.node not in found:
            found.add(top.node)
            stack.extend(top.node.inputs)
    return found


def _as_read(value: Value) -> Value:
    """The value itself, of which an importer made this one: a copy, since it is a result twice; or its rounding to
    float16, which no node of the graph reads that computes in float32."""
    while value.node is not None:
        (made,) = value.node.inputs if len(value.node.inputs) == 1 else (None,)
        is_copy = value.node.op.name == "identity" and not value.node.origin
        is_rounded = (value.node.op.name == "convert" and value.type.element is f16 and made is not None
                      and made.type.element is f32 and made.node is not None and made.node.origin == value.node.origin)
        if made is None or not (is_copy or is_rounded):
            break
        value = made
    return value
