"""A model's graph, the values of it that a reference knows too, and runs of parts of it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ngraph_mxnet.ir.extract import Extract, extract
from ngraph_mxnet.ir.graph import Graph, Value
from ngraph_mxnet.ir.printer import value_names
from ngraph_mxnet.ir.types import f16, f32
from ngraph_mxnet.runtime.compile import compile


@dataclass(frozen=True)
class Point:
    """A value that can be compared; `name` is the framework's, or that of the graph's text."""

    name: str
    value: Value

    @property
    def origin(self) -> str:
        """The framework's name of the node that computes it, and its operator."""
        return self.value.node.origin if self.value.node is not None else self.value.origin


@dataclass(frozen=True)
class Runner:
    """What runs graphs: a backend, options of its, and arrays for the graphs' parameters by name.

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


@dataclass(frozen=True)
class Traced:
    """A graph, and its points in topological order."""

    graph: Graph
    points: Sequence[Point]
    outputs: Sequence[Point | None]
    """That of each of the model's outputs, None for one that no node computes."""
    _places: dict[Value, int] = field(default_factory=dict)

    @staticmethod
    def of(graph: Graph, points: Iterable[Point], outputs: Sequence[Value | None]) -> Traced:
        """`outputs`: the values of the model's outputs, None for one that is none. A value that has several names keeps
        the first one."""
        order = {value: place for place, value in enumerate(value for node in graph.nodes for value in node.outputs)}
        by_value: dict[Value, Point] = {}
        for point in points:
            value = _as_read(point.value)
            if value in order:
                by_value.setdefault(value, Point(point.name, value))
        found = sorted(by_value.values(), key=lambda point: order[point.value])
        return Traced(graph, found, [by_value.get(_as_read(value)) if value is not None else None
                                     for value in outputs],
                      {point.value: place for place, point in enumerate(found)})

    @staticmethod
    def everywhere(graph: Graph) -> Traced:
        """With all values as points that nodes compute, but for constants, called as in the graph's text."""
        names = value_names(graph)
        return Traced.of(graph, [Point(names[value], value) for node in graph.nodes if node.inputs
                                 for value in node.outputs], graph.results)

    def before(self, point: Point) -> list[Point]:
        """All points that the value is computed of."""
        return self._behind(point, set())

    def operands(self, point: Point, known: Collection[Point]) -> list[Point]:
        """The last ones of these points before the value."""
        return self._behind(point, {one.value for one in known})

    def _behind(self, point: Point, stops: Collection[Value]) -> list[Point]:
        """The points that the value is computed of, back to these values; if there are any, only such."""
        found, seen = set[int](), {point.value}
        stack = list(point.value.node.inputs) if point.value.node is not None else []
        while stack:
            value = stack.pop()
            if value in seen:
                continue
            seen.add(value)
            if value in self._places and (not stops or value in stops):
                found.add(self._places[value])
            if value.node is not None and value not in stops:
                stack.extend(value.node.inputs)
        return [self.points[place] for place in sorted(found)]

    def part(self, results: Sequence[Value], given: Iterable[Value] = ()) -> Extract:
        """What these values need, back to those given."""
        return extract(self.graph, results, [*given, *self.graph.parameters], name=self.graph.name,
                       label=lambda value, number: f"given{number}")


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
