"""Graphs that belong together: the steps that call them in order, and the values that they share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from ngraph_mxnet.base.errors import GraphError
from ngraph_mxnet.ir.graph import Extract, Graph, Node, Value, verify
from ngraph_mxnet.ir.types import Role, TensorType


@dataclass(frozen=True)
class Shared:
    """A value that steps share; no other has its name."""

    name: str
    type: TensorType
    role: Role

    def __str__(self) -> str:
        return f"{self.name}: {self.type} {self.role.value}"


@dataclass(frozen=True)
class Step:
    """One call of the graph of that name: `inputs` are its parameters, `outputs` its results, in order."""

    graph: str
    inputs: tuple[Shared, ...]
    outputs: tuple[Shared, ...]


@dataclass(frozen=True)
class Flow:
    """The steps, in an order in which they can run, from what a caller gives to what it gets.

    `names` are those of the results; one value may be several results, and an input may be one.
    """

    inputs: tuple[Shared, ...]
    steps: tuple[Step, ...]
    results: tuple[Shared, ...]
    names: tuple[str, ...]

    def values(self) -> Iterator[Shared]:
        """The inputs, then what each step makes."""
        yield from self.inputs
        for step in self.steps:
            yield from step.outputs

    def step(self, graph: str) -> Step:
        """The first call of the graph of that name. Raises GraphError: there is none."""
        found = next((step for step in self.steps if step.graph == graph), None)
        if found is None:
            raise GraphError(f"no step calls a graph {graph!r}; the steps call {[step.graph for step in self.steps]}")
        return found

    def verify(self) -> None:
        """Check that names are unique, that each value is there before it is read, and what brings it. Raises
        GraphError: naming the value."""
        there: dict[str, Shared] = {}  # by name: to hash values takes longer than to compare them

        def bring(value: Shared, who: str, *, made: bool) -> None:
            if value.name in there:
                raise GraphError(f"two shared values are called {value.name!r}")
            if (value.role is Role.MADE) != made:
                raise GraphError(f"{value} is {who}: found the role {value.role.value}")
            there[value.name] = value

        for value in self.inputs:
            bring(value, "an input", made=False)
        for number, step in enumerate(self.steps):
            for value in step.inputs:
                if there.get(value.name) != value:
                    raise GraphError(f"step {number} ({step.graph}) reads {value}, which no earlier one makes")
            for value in step.outputs:
                bring(value, f"made by step {number} ({step.graph})", made=True)
        for value in self.results:
            if there.get(value.name) != value:
                raise GraphError(f"{value} is a result, and nothing makes it")
        if len(self.names) != len(self.results):
            raise GraphError(f"{len(self.results)} results have {len(self.names)} names")


@dataclass(frozen=True)
class Module:
    name: str
    graphs: Mapping[str, Graph]
    flow: Flow

    def verify(self) -> None:
        """Check the flow, each graph, and that the one fits the other. Raises GraphError: naming the step and the
        value, or the node."""
        self.flow.verify()
        for graph in self.graphs.values():
            verify(graph)
        for number, step in enumerate(self.flow.steps):
            where = f"module {self.name}, step {number} ({step.graph})"
            if step.graph not in self.graphs:
                raise GraphError(f"{where}: there is no such graph; there are {sorted(self.graphs)}")
            graph = self.graphs[step.graph]
            _check(where, "parameters", step.inputs, graph.parameters)
            _check(where, "results", step.outputs, graph.results)
            for value, parameter in zip(step.inputs, graph.parameters, strict=True):
                if parameter.is_weight != (value.role is Role.WEIGHT):
                    raise GraphError(f"{where}: {value} is given for {parameter.name!r}, a {parameter.role.value}")


def _check(where: str, kind: str, found: Sequence[Shared], wanted: Sequence[Value]) -> None:
    if len(found) != len(wanted):
        raise GraphError(f"{where}: found {len(found)} values, the graph has {len(wanted)} {kind}")
    for position, (value, own) in enumerate(zip(found, wanted, strict=True)):
        if value.type != own.type:
            raise GraphError(f"{where}: {value} is number {position} of the {kind}, which is {own.type}")


def shared_inputs(graph: Graph) -> tuple[Shared, ...]:
    """The graph's parameters as what a caller gives."""
    return tuple(Shared(parameter.name, parameter.type, parameter.role) for parameter in graph.parameters)


def result_names(graph: Graph) -> tuple[str, ...]:
    """Return the names of the graph's results, as they were before passes: `output<i>` for a result without a name."""
    names = graph.names if len(graph.names) == len(graph.results) else [value.name for value in graph.results]
    return tuple(name or f"output{index}" for index, name in enumerate(names))


def single_step(graph: Graph, called: str = "main") -> Flow:
    """One call of the whole graph, under that name."""
    inputs, names = shared_inputs(graph), {parameter.name for parameter in graph.parameters}
    outputs = tuple(made_value(f"{called}.{index}", value.type, names) for index, value in enumerate(graph.results))
    return Flow(inputs, (Step(called, inputs, outputs),), outputs, result_names(graph))


class Modules:
    """Makes a Module of parts that are cut out of one graph: each is a step, in the order in which they are added."""

    def __init__(self, whole: Graph) -> None:
        self._whole = whole
        self._inputs = shared_inputs(whole)
        self._shared: dict[Value, Shared] = dict(zip(whole.parameters, self._inputs, strict=True))
        self._names = {value.name for value in self._inputs}
        self._graphs: dict[str, Graph] = {}
        self._steps: list[Step] = []

    def add(self, called: str, part: Extract, outputs: Sequence[Value]) -> None:
        """`outputs` are the whole graph's values that the part's results are; the name is the step's. Raises
        GraphError: there is a part of that name, or an earlier one makes an output, too."""
        if called in self._graphs:
            raise GraphError(f"two parts of graph {self._whole.name} are called {called!r}")
        made = []
        for index, value in enumerate(outputs):
            if value in self._shared:
                raise GraphError(f"part {called!r} of graph {self._whole.name} makes {self._shared[value]} again")
            made.append(made_value(f"{called}.{index}", value.type, self._names))
            self._shared[value] = made[-1]
        self._add(called, part, made)

    def build(self) -> Module:
        """The Module, whose results are the whole graph's."""
        return self._module([self._shared[value] for value in self._whole.results])

    def finish(self, called: str, part: Extract) -> Module:
        """The Module, of which this last part makes all results, one for each of the whole graph's, whatever they are.
        """
        made = [made_value(f"{called}.{index}", value.type, self._names)
                for index, value in enumerate(self._whole.results)]
        self._add(called, part, made)
        return self._module(made)

    def _add(self, called: str, part: Extract, made: Sequence[Shared]) -> None:
        self._graphs[called] = part.graph
        self._steps.append(Step(called, tuple(self._shared[value] for value in part.inputs), tuple(made)))

    def _module(self, results: Sequence[Shared]) -> Module:
        return Module(self._whole.name, self._graphs,
                      Flow(self._inputs, tuple(self._steps), tuple(results), result_names(self._whole)))


def made_value(name: str, type_: TensorType, names: set[str]) -> Shared:
    """Return a value that a step makes, with this name, or a similar one if `names` has it. Add its name to `names`."""
    while name in names:
        name += "_"
    names.add(name)
    return Shared(name, type_, Role.MADE)


def joined(module: Module) -> Graph:
    """One graph for all steps, in their order. Its parameters and results are the flow's, and have their names; a value
    that is made elsewhere may be an input of the flow."""
    graph, table, replaced = Graph(module.name), dict[Shared, Value](), dict[Value, Value]()
    for value in module.flow.inputs:
        role = Role.INPUT if value.role is Role.MADE else value.role
        table[value] = graph.add_parameter(value.type, value.name, role)
    for step in module.flow.steps:
        part = module.graphs[step.graph].clone()
        replaced.update(zip(part.parameters, (table[value] for value in step.inputs), strict=True))
        table.update(zip(step.outputs, part.results, strict=True))
        graph.nodes += part.nodes
    graph.results, graph.names = [table[value] for value in module.flow.results], list(module.flow.names)
    graph.replace(replaced)
    return graph


class Changes(IntEnum):
    """When a value changes; what is computed of several changes as often as the one that changes most."""

    NEVER = 0
    WITH_WEIGHTS = 1
    WITH_CALLS = 2


def _given(role: Role) -> Changes:
    return Changes.WITH_WEIGHTS if role is Role.WEIGHT else Changes.WITH_CALLS


def _most(found: Iterable[Changes]) -> Changes:
    return max(found, default=Changes.NEVER)


class Derivation:
    """When values of graphs change. What was found out is remembered: a node's operands may be replaced by others that
    change as often, or less often, which is then not noticed."""

    def __init__(self) -> None:
        self._known: dict[Value, Changes] = {}

    def of(self, value: Value) -> Changes:
        known = self._known
        if value in known:
            return known[value]
        stack = [value]
        while stack:
            top = stack[-1]
            if top in known:
                stack.pop()
            elif top.type.is_symbolic:  # its size is not known before a call
                known[top] = Changes.WITH_CALLS
            elif top.node is None:
                known[top] = _given(top.role)
            else:
                unknown = [operand for operand in top.node.inputs if operand not in known]
                if unknown:
                    stack.extend(unknown)
                else:
                    known[top] = _most([known[operand] for operand in top.node.inputs])
        return known[value]

    def of_node(self, node: Node) -> Changes:
        """When what it computes changes."""
        if any(value.type.is_symbolic for value in node.outputs):
            return Changes.WITH_CALLS
        return _most([self.of(operand) for operand in node.inputs])


def changes_of(flow: Flow) -> dict[Shared, Changes]:
    found = {value: _given(value.role) for value in flow.inputs}
    for step in flow.steps:
        found.update(dict.fromkeys(step.outputs, _most(found[value] for value in step.inputs)))
    return found
