"""Structure of a graph: values, nodes, and their order. Printing needs no more than this; `graph` adds rewriting."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ngraph_mxnet.ir.opdef import OpDef
from ngraph_mxnet.ir.sizes import Guard
from ngraph_mxnet.ir.types import Role, Shape, TensorType


@dataclass(eq=False)
class Value:
    """One tensor: a graph parameter (`node is None`) or output `index` of `node`.

    `role` is a parameter's; what a node makes is MADE.
    """

    type: TensorType
    node: Node | None = None
    index: int = 0
    name: str = ""
    role: Role = Role.MADE
    origin: str = ""

    @property
    def shape(self) -> Shape:
        return self.type.shape

    @property
    def is_parameter(self) -> bool:
        return self.node is None

    @property
    def is_weight(self) -> bool:
        return self.role is Role.WEIGHT


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


def constant_of(value: Value) -> np.ndarray | None:
    """The array, if `value` is a constant."""
    return value.node.attrs["value"] if value.node is not None and value.node.op.name == "constant" else None


class Structure:
    """From `parameters` to `results`, in topological order of `nodes`."""

    def __init__(self, name: str = "main") -> None:
        self.name = name
        self.parameters: list[Value] = []
        self.nodes: list[Node] = []
        self.results: list[Value] = []
        self.guards: list[Guard] = []
        """Assumptions about the symbols among the graph's sizes."""

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


def count_ops(nodes: Iterable[Node]) -> dict[str, int]:
    """How often each op occurs, sorted by name."""
    counts: dict[str, int] = {}
    for node in nodes:
        counts[node.op.name] = counts.get(node.op.name, 0) + 1
    return dict(sorted(counts.items()))
