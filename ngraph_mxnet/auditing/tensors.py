"""Names of a graph's tensors in an audit, and the framework's node to which each tensor belongs."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ngraph_mxnet.forks import ForkSafeLock
from ngraph_mxnet.ir.graph import Graph, Node, Value
from ngraph_mxnet.ir.printer import print_graph

WEIGHT, INPUT, VALUE, RESULT = KINDS = ("weight", "input", "value", "result")
"""In the order in which a call meets them."""
FIRST_CONSTANT, FIRST_VALUE = 1 << 20, 1 << 21
"""Places of weights that are constants, and of values: a graph's inputs are numbered from 0 on, then its results."""


@dataclass(frozen=True)
class Tensor:
    """One of a graph's: `node` is the framework's name of the node that makes it; of an input or weight, of the first
    that reads it."""

    place: int
    kind: str
    name: str
    node: str
    element: str
    shape: tuple[int, ...]


@dataclass
class Described:
    """A graph before any pass. `constants`: the weights that the caller gave as such, by their places."""

    name: str
    backend: str
    digest: str
    nodes: int
    tensors: list[Tensor]
    constants: dict[int, np.ndarray]
    _values: dict[tuple[Node, int], Tensor] = field(default_factory=dict)
    _names: dict[str, int] = field(default_factory=dict)
    _lock: ForkSafeLock = field(default_factory=ForkSafeLock)

    @property
    def weights(self) -> list[int]:
        """Which inputs are such."""
        return [each.place for each in self.tensors if each.kind == WEIGHT and each.place < FIRST_CONSTANT]

    def at(self, place: int) -> Tensor:
        """An input or a result."""
        return self.tensors[place]

    def value(self, node: Node, index: int) -> Tensor:
        """The tensor of a node's output; they are numbered as they are first asked for."""
        with self._lock:
            found = self._values.get((node, index))
            if found is None:
                name = named(node) + (f" output {index}" if len(node.outputs) > 1 else "")
                count = self._names[name] = self._names.get(name, 0) + 1
                type_ = node.outputs[index].type
                found = Tensor(FIRST_VALUE + len(self._values), VALUE, name if count == 1 else f"{name} #{count}",
                               named(node), type_.element.name, type_.shape)
                self._values[node, index] = found
                self.tensors.append(found)
            return found


def phrase(tensor: Tensor) -> str:
    """For messages: what it is, with its node."""
    of = {WEIGHT: f", which {tensor.node} reads", INPUT: "", VALUE: "", RESULT: f" of {tensor.node}"}[tensor.kind]
    return f"{tensor.kind} {tensor.name}{of}, {tensor.element}[{','.join(map(str, tensor.shape))}],"


def named(node: Node) -> str:
    """By the framework's name; by its op where it has none."""
    return node.origin or node.op.name


def describe(graph: Graph, weights: Mapping[str, Any], backend: str) -> Described:
    """`weights`: arrays by the names of the parameters that become constants, as `compile` takes them."""
    readers = graph.readers()
    inputs = [value for value in graph.parameters if value.name not in weights]
    tensors = [_parameter(value, place, readers[value]) for place, value in enumerate(inputs)]
    for place, result in enumerate(graph.results, len(inputs)):
        tensors.append(Tensor(place, RESULT, f"result {place - len(inputs)}", _maker(result), result.type.element.name,
                              result.shape))
    constants = {}
    for place, value in enumerate((v for v in graph.parameters if v.name in weights), FIRST_CONSTANT):
        tensors.append(_parameter(value, place, readers[value], WEIGHT))
        constants[place] = weights[value.name]
    return Described(graph.name, backend, digest(graph), len(graph.nodes), tensors, constants)


def _parameter(value: Value, place: int, readers: Iterable[tuple[Node, int]], kind: str = "") -> Tensor:
    node = next((named(reader) for reader, _ in readers), "")
    kind = kind or (WEIGHT if value.is_weight else INPUT)
    return Tensor(place, kind, value.name, node, value.type.element.name, value.shape)


def _maker(result: Value) -> str:
    """Behind what only passes a value on."""
    while result.node is not None and not result.node.origin and result.node.inputs:
        result = result.node.inputs[0]
    return named(result.node) if result.node is not None else result.name


def digest(graph: Graph) -> str:
    """Return the SHA-256 digest, in hexadecimal, of all that the graph computes, names and constants included."""
    hasher = hashlib.sha256(print_graph(graph, elide=True).encode())
    for node in graph.nodes:
        if node.op.name == "constant":
            hasher.update(np.ascontiguousarray(node.attrs["value"]).tobytes())
    return hasher.hexdigest()
