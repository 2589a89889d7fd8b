"""The graph, with the rewriting primitives that passes use."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ngraph_mxnet.errors import listed
from ngraph_mxnet.ir.attributes import Attribute
from ngraph_mxnet.ir.dims import Atom, Dim
from ngraph_mxnet.ir.printer import print_graph
from ngraph_mxnet.ir.sizes import evaluate
from ngraph_mxnet.ir.structure import Node, Structure, Value, constant_of, count_ops
from ngraph_mxnet.ir.types import Role, TensorType

__all__ = ["Graph", "Node", "Value", "constant_of", "count_ops"]


_DRAWS = "ngraph_mxnet.debug:to_svg"
"""The function that draws a graph; imported when a notebook first asks for a picture."""
_MOST_DRAWN = 300
"""Nodes; of more a picture takes long, and shows nothing."""


class Graph(Structure):
    """A stateless computation from `parameters` to `results`, in topological order of `nodes`."""

    def add_parameter(self, type: TensorType, name: str, role: Role = Role.INPUT, *, origin: str = "") -> Value:
        value = Value(type, name=name, role=role, origin=origin)
        self.parameters.append(value)
        return value

    def replace(self, mapping: dict[Value, Value]) -> None:
        """Redirect every read of a key to its value (chains are followed), results included."""

        def final(value: Value) -> Value:
            while value in mapping:
                value = mapping[value]
            return value

        for node in self.nodes:
            if not mapping.keys().isdisjoint(node.inputs):
                node.inputs = [final(operand) for operand in node.inputs]
        self.results = [final(result) for result in self.results]

    def remove_dead(self) -> int:
        """Drop the nodes that no result needs; parameters stay. Returns how many went."""
        needed: set[Node] = set()
        stack = [result.node for result in self.results]
        while stack:
            node = stack.pop()
            if node is not None and node not in needed:
                needed.add(node)
                stack += [operand.node for operand in node.inputs]
        before = len(self.nodes)
        self.nodes = [node for node in self.nodes if node in needed]
        return before - len(self.nodes)

    def sort(self) -> None:
        """Restore topological order, stable with respect to the present one."""
        done: set[Node] = set()
        order: list[Node] = []
        for root in list(self.nodes):
            stack: list[tuple[Node, Iterator[Value]]] = []
            if root not in done:
                done.add(root)
                stack.append((root, iter(root.inputs)))
            while stack:
                node, operands = stack[-1]
                child = next((v.node for v in operands if v.node is not None and v.node not in done), None)
                if child is None:
                    order.append(node)
                    stack.pop()
                else:
                    done.add(child)
                    stack.append((child, iter(child.inputs)))
        self.nodes = order

    def clone(self) -> Graph:
        """A deep copy of structure (attribute values are shared: they are immutable)."""
        copy, table = Graph(self.name), dict[Value, Value]()
        for parameter in self.parameters:
            table[parameter] = copy.add_parameter(
                parameter.type, parameter.name, parameter.role, origin=parameter.origin
            )
        for node in self.nodes:
            twin = Node(node.op, [table[v] for v in node.inputs], dict(node.attrs), origin=node.origin)
            twin.outputs = [Value(v.type, twin, v.index, v.name) for v in node.outputs]
            table.update(zip(node.outputs, twin.outputs, strict=True))
            copy.nodes.append(twin)
        copy.results = [table[v] for v in self.results]
        copy.guards = list(self.guards)
        return copy

    def symbols(self) -> list[Atom]:
        """Return the symbols in the sizes of the graph's parameters, in the order in which they come."""
        return list(dict.fromkeys(atom for parameter in self.parameters for size in parameter.shape
                                  if isinstance(size, Dim) for atom in sorted(size.symbols, key=str)))

    def at(self, binding: Mapping[str, int]) -> Graph:
        """A copy where each symbol has a value.

        Raises:
            UnknownSize: a symbol has none.
        """
        copy = self.clone()
        for value in copy.values():
            value.type = value.type.at(binding)
        for node in copy.nodes:
            node.attrs = {name: _at(attribute, binding) for name, attribute in node.attrs.items()}
        copy.guards = []
        return copy

    def __str__(self) -> str:
        return print_graph(self)

    def __repr__(self) -> str:
        parameters, results = (listed(texts) or "nothing" for texts in (
            (f"{value.name}: {value.type}" for value in self.parameters), (str(value.type) for value in self.results)))
        return f"<Graph @{self.name} of {len(self.nodes)} nodes: {parameters} -> {results}>"

    def _repr_svg_(self) -> str | None:
        """For notebooks, where the graph can be taken in at a glance."""
        if len(self.nodes) > _MOST_DRAWN:
            return None
        module, _, name = _DRAWS.partition(":")
        found: str = getattr(importlib.import_module(module), name)(self)
        return found


def _at(attribute: Any, binding: Mapping[str, int]) -> Any:
    """An attribute where each symbol has a value."""
    if isinstance(attribute, Graph):
        return attribute.at(binding)
    if isinstance(attribute, tuple):
        return tuple(_at(each, binding) for each in attribute)
    return evaluate(attribute, binding) if isinstance(attribute, Dim) else attribute


class Body(Attribute):
    """A graph, not to be changed any more. It prints as lines of its own below the node."""

    expects = "a graph"

    def convert(self, value: Any) -> Graph:
        if not isinstance(value, Graph):
            raise TypeError(value)
        return value


@dataclass(frozen=True)
class Extract:
    """A copy of a part; `inputs` are the whole graph's values that its parameters stand for."""

    graph: Graph
    inputs: tuple[Value, ...]


def extract(graph: Graph, results: Sequence[Value], inputs: Iterable[Value], *, name: str,
            label: Callable[[Value, int], str]) -> Extract:
    """A copy of what `results` need, back to `inputs`. The whole graph stays as it is.

    Args:
        graph: the whole.
        results: values of it, which are the part's results.
        inputs: values to stop at; those that are needed become the part's parameters, in this order.
        name: the part's.
        label: the name of the parameter of that number for a value that a node computes; names of the whole graph's
            parameters are taken.
    """
    stops = dict.fromkeys(inputs)
    reached: set[Value] = set()
    needed: set[Node] = set()
    stack = list(results)
    while stack:
        value = stack.pop()
        if value.node is None or value in stops:
            reached.add(value)
        elif value.node not in needed:
            needed.add(value.node)
            stack.extend(value.node.inputs)
    part, table = Graph(name), dict[Value, Value]()
    taken = {parameter.name for parameter in graph.parameters}
    for value in stops:
        if value in reached:
            own = value.name if value.node is None else _fresh(label(value, len(table)), taken)
            origin = value.origin if value.node is None else value.node.origin
            role = value.role if value.is_parameter else Role.INPUT
            table[value] = part.add_parameter(value.type, own, role, origin=origin)
    read = tuple(table)
    for node in graph.nodes:
        if node in needed:
            twin = Node(node.op, [table[v] for v in node.inputs], dict(node.attrs), origin=node.origin)
            twin.outputs = [Value(v.type, twin, v.index, v.name) for v in node.outputs]
            for old, new in zip(node.outputs, twin.outputs, strict=True):
                table.setdefault(old, new)  # one of several outputs may be an input
            part.nodes.append(twin)
    part.results = [table[value] for value in results]
    return Extract(part, read)


def _fresh(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    taken.add(name)
    return name
