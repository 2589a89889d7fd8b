"""The graph: values, nodes, and the rewriting primitives that passes use."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ngraph_mxnet.ir.types import Shape, TensorType

if TYPE_CHECKING:
    from ngraph_mxnet.ir.opdef import OpDef


@dataclass(eq=False)
class Value:
    """One tensor: a graph parameter (`node is None`) or output `index` of `node`.

    `cacheable` marks a parameter whose content seldom changes, such as a weight; what depends on
    cacheable parameters only is computed once and kept (see `passes.prepare`).
    """

    type: TensorType
    node: Node | None = None
    index: int = 0
    name: str = ""
    cacheable: bool = False
    origin: str = ""

    @property
    def shape(self) -> Shape:
        return self.type.shape

    @property
    def is_parameter(self) -> bool:
        return self.node is None


@dataclass(eq=False)
class Node:
    """One application of an op. `origin` is the framework's name for it, e.g. `mx:conv0 Convolution`."""

    op: OpDef
    inputs: list[Value]
    attrs: dict[str, Any]
    outputs: list[Value] = field(default_factory=list)
    origin: str = ""

    @property
    def output(self) -> Value:
        """The only output."""
        (only,) = self.outputs
        return only

    def __str__(self) -> str:
        return f"{self.op.name}" + (f" ({self.origin})" if self.origin else "")


class Graph:
    """A stateless computation from `parameters` to `results`, in topological order of `nodes`."""

    def __init__(self, name: str = "main") -> None:
        self.name = name
        self.parameters: list[Value] = []
        self.nodes: list[Node] = []
        self.results: list[Value] = []

    def add_parameter(self, type: TensorType, name: str, *, cacheable: bool = False, origin: str = "") -> Value:
        value = Value(type, name=name, cacheable=cacheable, origin=origin)
        self.parameters.append(value)
        return value

    def values(self) -> Iterator[Value]:
        yield from self.parameters
        for node in self.nodes:
            yield from node.outputs

    def readers(self) -> dict[Value, list[tuple[Node, int]]]:
        """Who reads each value, and as which operand."""
        table: dict[Value, list[tuple[Node, int]]] = {value: [] for value in self.values()}
        for node in self.nodes:
            for position, operand in enumerate(node.inputs):
                table[operand].append((node, position))
        return table

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
                stack.extend(operand.node for operand in node.inputs)
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
                parameter.type, parameter.name, cacheable=parameter.cacheable, origin=parameter.origin
            )
        for node in self.nodes:
            twin = Node(node.op, [table[v] for v in node.inputs], dict(node.attrs), origin=node.origin)
            twin.outputs = [Value(v.type, twin, v.index, v.name) for v in node.outputs]
            table.update(zip(node.outputs, twin.outputs, strict=True))
            copy.nodes.append(twin)
        copy.results = [table[v] for v in self.results]
        return copy

    def __str__(self) -> str:
        from ngraph_mxnet.ir.printer import print_graph

        return print_graph(self)


def count_ops(nodes: Iterable[Node]) -> dict[str, int]:
    """How often each op occurs, sorted by name."""
    counts: dict[str, int] = {}
    for node in nodes:
        counts[node.op.name] = counts.get(node.op.name, 0) + 1
    return dict(sorted(counts.items()))
