"""Models that are verified, what each can be compared with, and how parts of one are cut out and run.

A model is points: values that a reference knows, too. Graphs of the IR are one kind.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ngraph_mxnet.base.errors import ConfigError, ModelError, listed
from ngraph_mxnet.frontends.model import Model
from ngraph_mxnet.ir.graph import Extract, Graph, Node, Value, extract, format_node, value_names
from ngraph_mxnet.ir.module import result_names
from ngraph_mxnet.ir.types import RANDOM_STATE, f16, f32
from ngraph_mxnet.program.compile import compile
from ngraph_mxnet.program.executable import Port, checked_array
from ngraph_mxnet.program.feeds import Draw, draws_of, fitting_inputs


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
    value: Any


PointArrays = Mapping[Point, np.ndarray]


class Traced(ABC):
    """A model's points, in topological order, and those of its outputs: None for an output that is none."""

    def __init__(self, points: Sequence[Point], outputs: Sequence[Point | None]) -> None:
        self.points, self.outputs = points, outputs

    @abstractmethod
    def reads(self, value: Any) -> Iterable[Any]:
        """The values that the node reads which computes this one; none if it is no node's."""

    @abstractmethod
    def run(self, results: Sequence[Point], given: PointArrays) -> list[Any]:
        """Return the values of the points `results`, from a part of the model that is compiled alone. The part ends
        behind these points, and begins behind the points of `given`. Raises NGraphError: such a part can't be
        compiled."""

    @abstractmethod
    def text(self, point: Point, given: PointArrays) -> str:
        """Return the nodes that compute the point of those given, as text for people. These nodes are marked with `>`;
        the nodes that compute the given points have no mark."""

    @abstractmethod
    def parameters(self, point: Point, given: Collection[Point]) -> list[str]:
        """The names of the model's inputs and weights that are read on the way to the point from those given."""

    def way(self, values: Iterable[Any], given: Iterable[Point] = ()) -> set[Any]:
        """These values and all that they are computed of, back to those given, which are left out."""
        stops, found, stack = {point.value for point in given}, set[Any](), list(values)
        while stack:
            value = stack.pop()
            if value not in found and value not in stops:
                found.add(value)
                stack.extend(self.reads(value))
        return found

    def before(self, point: Point) -> list[Point]:
        """All points that this one is computed of."""
        found = self.way(self.reads(point.value))
        return [one for one in self.points if one.value in found]

    def operands(self, point: Point, known: Collection[Point]) -> list[Point]:
        """The last ones before this one, among those known."""
        way = self.way(self.reads(point.value), known)
        read = {value for each in (point.value, *way) for value in self.reads(each)}
        return [one for one in self.points if one.value in read and one in known]


_MOST_LINES = 24


@dataclass(frozen=True)
class Runner:
    """A backend with its options, and arrays for the parameters of graphs, by name. The compiler is given the content
    of those that are `constant`."""

    backend: str
    options: Mapping[str, Any]
    arrays: Mapping[str, np.ndarray]
    constant: frozenset[str] = frozenset()

    def with_arrays(self, arrays: Mapping[str, np.ndarray]) -> Runner:
        """With these in place of those of their names."""
        return replace(self, arrays={**self.arrays, **arrays})

    def run(self, part: Extract, given: Mapping[Value, np.ndarray]) -> list[np.ndarray]:
        """The results of a part; `given` are arrays for those of its inputs that are no parameters of the whole. Raises
        NGraphError: it can't be compiled."""
        names = [parameter.name for parameter in part.graph.parameters]
        weights = {name: self.arrays[name] for name in names if name in self.constant}
        compiled = compile(part.graph, self.backend, weights, **self.options)
        arrays = [given[value].astype(parameter.type.element.numpy) if value in given else self.arrays[parameter.name]
                  for value, parameter in zip(part.inputs, part.graph.parameters, strict=True)
                  if parameter.name not in weights and parameter.name != RANDOM_STATE]
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
        super().__init__(sorted(by_value.values(), key=lambda point: order[point.value]),
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

    def run(self, results: Sequence[Point], given: PointArrays) -> list[np.ndarray]:
        return self.run_on(self._runner, results, given)

    def run_on(self, runner: Runner, results: Sequence[Point], given: PointArrays) -> list[np.ndarray]:
        """Run a part as `run` does, on another runner."""
        return runner.run(self._part(results, given), {point.value: array for point, array in given.items()})

    def parameters(self, point: Point, given: Collection[Point]) -> list[str]:
        return [value.name for value in self._part([point], given).inputs if value.is_parameter]

    def text(self, point: Point, given: PointArrays) -> str:
        own = {value.node for value in self.way([point.value], given)} - {None}
        producers = {operand.node for node in own for operand in node.inputs if operand.node is not None}
        return marked_lines(self.graph, own, producers - own)

    def _part(self, results: Sequence[Point], given: Iterable[Point]) -> Extract:
        return extract(self.graph, [point.value for point in results],
                       [*(point.value for point in given), *self.graph.parameters], name=self.graph.name,
                       label=lambda value, number: f"given{number}")


def marked_lines(graph: Graph, marked: Collection[Node], others: Collection[Node] = ()) -> str:
    """The lines of these nodes, some marked with `>`; the last ones of many."""
    names = value_names(graph)
    lines = [("> " if node in marked else "  ") + format_node(node, names, elide=True).strip()
             for node in graph.nodes if node in marked or node in others]
    return "\n".join(lines if len(lines) <= _MOST_LINES else ["  ...", *lines[-_MOST_LINES:]])


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


Arrays = Mapping[str, np.ndarray]
Shapes = Mapping[str, Sequence[int]]
INTERPRETER = "interpreter"


@dataclass(frozen=True)
class Given:
    """The arguments of `verify`, with arrays and a backend of their names; see there."""

    inputs: Mapping[str, Any]
    shapes: Shapes
    params: Any
    reference_params: Any
    dtypes: Mapping[str, str]
    backend: str
    seed: int
    of: Any
    against: str | None


class Verified(ABC):
    """A model with weights for our run, weights for the reference's, and inputs for both.

    Attributes:
        framework: the reference beside the interpreter, None if there is none.
        output_names: in order.
        drawn: the inputs that were drawn at random.
        draws: what the model is made for, as far as it says.
        weights: where they are from, as text.
    """

    framework: str | None = None
    output_names: Sequence[str]
    inputs: Arrays
    drawn: Sequence[str] = ()
    draws: Mapping[str, Draw] = {}
    given = "given"
    """The origin of the inputs that were not drawn, as text."""
    weights = "the model's own"
    precision: str | None = None
    """The precision in which the model is compiled already, whatever the options say."""
    note: str | None = None
    """A further remark on how the model runs."""

    @abstractmethod
    def results(self, backend: str, options: Mapping[str, Any]) -> list[np.ndarray]:
        """Return the results of our run of the whole model."""

    @abstractmethod
    def expected(self, against: str) -> list[np.ndarray]:
        """Return the results of the reference's run of the whole model."""

    @abstractmethod
    def traced(self, against: str, backend: str, options: Mapping[str, Any]) -> tuple[Traced, list[Any]]:
        """The points that this reference knows, of what our run compiles, and the reference's arrays for these; other
        objects where its value is no tensor. Raises UnsupportedError or ModelError: the model can't be cut into
        parts."""

    @property
    @abstractmethod
    def has_halves(self) -> bool:
        """True if the model stores values in float16."""

    def parts_agree(self) -> str:
        """Why outputs may differ though those of all parts agree."""
        return ("each output agrees when the model is cut behind it, with nothing else to compute: the difference is "
                "one of how the whole is compiled")

    def default_reference(self) -> str:
        return self.framework or INTERPRETER

    def take(self, ports: Sequence[Port], arrays: Arrays, seed: int) -> None:
        """Set the inputs, those that are not given at random, as `draws` says. Raises ModelError, InputError: an array
        is missing, belongs to no input or does not fit."""
        found = fitting_inputs(ports, arrays, {}, seed, self.draws)
        self.inputs = {port.name: checked_array(port, found[port.name]) for port in ports}
        self.drawn = drawn(found, arrays)

    def reference_title(self, against: str) -> str:
        return "the interpreter of the IR"

    def differing_weights(self, names: Sequence[str]) -> list[str]:
        """Return the names of the given parameters whose content for our run is not the reference's."""
        return []


def drawn(found: Mapping[str, Any], given: Mapping[str, Any]) -> list[str]:
    """The names of the arrays that are not among those given."""
    return [name for name, array in found.items() if not any(array is one for one in given.values())]


def require_common(weights: Arrays, reference_weights: Arrays) -> None:
    """Refuse weights for the reference of which none is the model's. Raises ModelError: they are such."""
    if reference_weights and not weights.keys() & reference_weights.keys():
        raise ModelError(f"none of the reference's weights {listed(reference_weights)} is one of the model's, which "
                         f"are {listed(weights, next(iter(reference_weights))) or 'none'}")


class VerifiedGraph(Verified):
    """A graph; it can be compared with what the interpreter makes of it."""

    @staticmethod
    def of(model: Model, given: Given) -> VerifiedGraph:
        """Raises NGraphError: as `Model.graph` and `VerifiedGraph`."""
        graph, weights, _ = model.first_part(given.shapes)
        others = model.holding(given.reference_params or {}, None).weights({})
        return VerifiedGraph(graph, weights, others, given.inputs, given.seed)

    def __init__(self, graph: Graph, weights: Arrays, reference_weights: Arrays, arrays: Arrays, seed: int, *,
                 constant: bool = True) -> None:
        """`constant`: whether the compiler is given the content of weights.

        Raises:
            ModelError: an input is missing, or one that is given belongs to none, or no weight of the reference's does.
            InputError: one does not fit.
        """
        if graph.symbols():
            raise ConfigError("the sizes of the graph's inputs are ranges: give a graph of one set of shapes")
        by_name = {one.name: Port(one.name, one.type) for one in graph.parameters if one.name != RANDOM_STATE}
        self.graph, self._constant = graph, constant
        self.weight_arrays = {name: checked_array(by_name[name], array, what="weight")
                              for name, array in weights.items() if name in by_name}
        self._reference_weights = {
            name: checked_array(by_name[name], reference_weights[name], what="weight of the reference")
            for name in self.weight_arrays if name in reference_weights}
        require_common(self.weight_arrays, reference_weights)
        ports = [port for name, port in by_name.items() if name not in self.weight_arrays]
        self.draws = draws_of(graph, self.weight_arrays)
        self.take(ports, arrays, seed)
        self.output_names = result_names(graph)

    @property
    def has_halves(self) -> bool:
        return any(value.type.element is f16 for value in self.graph.values())

    def results(self, backend: str, options: Mapping[str, Any]) -> list[np.ndarray]:
        return self.runner(backend, options).run_whole(self.graph)

    def expected(self, against: str) -> list[np.ndarray]:
        return self._interpreter().run_whole(self.graph)

    def traced(self, against: str, backend: str, options: Mapping[str, Any]) -> tuple[Traced, list[Any]]:
        found = TracedGraph.everywhere(self.graph, self.runner(backend, options))
        return found, found.run_on(self._interpreter(), found.points, {})

    def runner(self, backend: str, options: Mapping[str, Any]) -> Runner:
        constant = frozenset(self.weight_arrays) if self._constant else frozenset[str]()
        return Runner(backend, options, {**self.weight_arrays, **self.inputs}, constant)

    def _interpreter(self) -> Runner:
        return self.runner("INTERPRETER", {}).with_arrays(self._reference_weights)

    def differing_weights(self, names: Sequence[str]) -> list[str]:
        return [name for name in names if name in self._reference_weights
                and not np.array_equal(self.weight_arrays[name], self._reference_weights[name], equal_nan=True)]
