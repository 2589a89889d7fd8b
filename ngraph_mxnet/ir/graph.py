"""The graph, with the rewriting primitives that passes use."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from typing import Any

from ngraph_mxnet.errors import listed
from ngraph_mxnet.ir.dim_terms import Atom
from ngraph_mxnet.ir.dims import Dim
from ngraph_mxnet.ir.printer import print_graph
from ngraph_mxnet.ir.roles import Role
from ngraph_mxnet.ir.sizes import evaluate
from ngraph_mxnet.ir.structure import Node, Structure, Value, constant_of, count_ops
from ngraph_mxnet.ir.types import TensorType

__all__ = ["Graph", "Node", "Value", "constant_of", "count_ops"]

_DRAWS = "ngraph_mxnet.debug.picture:to_svg"
"""What draws a graph; imported when a notebook first asks for a picture."""
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
        """Those of its parameters' sizes, as they come."""
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
