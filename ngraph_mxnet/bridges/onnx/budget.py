"""How much a model may ask for: with functions in functions and loops in loops, a file of a kilobyte can ask for any
amount of time and memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import onnx

from ngraph_mxnet.bridges.onnx.names import subgraphs
from ngraph_mxnet.errors import ModelError, UnsupportedError
from ngraph_mxnet.ir import Builder
from ngraph_mxnet.ir.graph import Node, Value
from ngraph_mxnet.ir.roles import Role
from ngraph_mxnet.ir.sizes import at_hand
from ngraph_mxnet.ir.types import ElementType, TensorType

MOST_NODES = 1 << 16
"""The most nodes of a model when its functions are inlined, and again when its loops are repeated: those that are
lowered, and those of the IR that they become."""
MOST_INLINED_BYTES = 1 << 28
"""The size of the functions' nodes with their tensors, counted once for each call of a function."""
MOST_AXES = 32
"""A tensor's rank: NumPy's bound, of versions before 2."""
MOST_TENSOR_BYTES = 1 << 40
MOST_CONSTANT_BYTES = 1 << 28
"""The size of what is computed when the model is compiled, beside its weights."""
MOST_DECLARED_BYTES = 1 << 26
"""The size of inputs for whose shapes a model is compiled because it says so; larger ones the caller has to bring."""
MOST_VALUE_BYTES = 1 << 36
"""The size of all values together, in one call, ..."""
MOST_VALUE_FACTOR = 1 << 10
"""... and as many times the bytes of its inputs and weights."""

_DEFAULT = ("", "ai.onnx")
_Name = tuple[str, str, str]


@dataclass(frozen=True)
class Mark:
    """How many nodes and parameters a graph has, and the bytes that were counted for them."""

    nodes: int
    parameters: int
    sizes: tuple[int, int, int]


class BoundedBuilder(Builder):
    """Counts what it builds; its methods raise UnsupportedError when that is more than a model may ask for."""

    def __init__(self, *, name: str) -> None:
        super().__init__(name=name)
        self._nodes = self._constants = self._values = self._given = 0

    def parameter(self, name: str, shape: Sequence[int], dtype: str | ElementType = "f32",
                  role: Role = Role.INPUT) -> Value:
        value = super().parameter(name, shape, dtype, role)
        self._given += require_type(value.type)
        return value

    def node(self, op_name: str, inputs: Sequence[Value], attrs: dict[str, Any]) -> Node:
        node = super().node(op_name, inputs, attrs)
        self.count_node()
        size = sum(require_type(value.type) for value in node.outputs)
        if op_name == "constant":
            self._constants += size
            if self._constants > MOST_CONSTANT_BYTES:
                raise UnsupportedError(f"the constants up to here have more than {MOST_CONSTANT_BYTES} bytes, "
                                       "weights aside")
        else:
            self._values += size
            most = MOST_VALUE_BYTES + MOST_VALUE_FACTOR * self._given
            if self._values > most:
                raise UnsupportedError(f"the values up to here have more than {most} bytes together, "
                                       f"of {self._given} bytes of inputs and weights")
        return node

    def mark(self) -> Mark:
        """How far the graph is, for `undo`."""
        return Mark(len(self.graph.nodes), len(self.graph.parameters), (self._constants, self._values, self._given))

    def undo(self, mark: Mark) -> None:
        """Take back all nodes and parameters since `mark`, and their bytes. The nodes still count: trying branches of
        branches takes time without end, too."""
        del self.graph.nodes[mark.nodes :], self.graph.parameters[mark.parameters :]
        self._constants, self._values, self._given = mark.sizes

    def count_node(self) -> None:
        """One of the model's: repeated, it need not become one of the IR."""
        self._nodes += 1
        if self._nodes > MOST_NODES:
            raise UnsupportedError(f"more than {MOST_NODES} nodes, as loops are repeated in the graph, and branches "
                                   "tried")


def require_type(type_: TensorType) -> int:
    """The bytes that its shape asks for. Of an empty tensor these are what the other axes say, which must fit, too.

    Raises:
        UnsupportedError: they are too many, or it has too many axes.
    """
    size = prod([size if type(size) is int and size > 0 else max(at_hand(size), 1) for size in type_.shape])
    size *= type_.element.size
    if size > MOST_TENSOR_BYTES or type_.rank > MOST_AXES:
        raise UnsupportedError(f"a tensor of {size} bytes and {type_.rank} axes; supported: {MOST_TENSOR_BYTES} bytes "
                               f"and {MOST_AXES} axes")
    return size


def require_inlinable(proto: onnx.ModelProto) -> None:
    """Count what the model's functions come to in place of their calls.

    Raises:
        ModelError: a function calls itself.
        UnsupportedError: they come to too much.
    """
    functions = {_key(function.domain, function.name, function.overload): function for function in proto.functions}
    calls = {key: _calls(function.node, functions) for key, function in functions.items()}
    sizes: dict[_Name, tuple[int, int]] = {}
    for key in _callees_first(calls):
        nodes, size = _inlined(calls[key], sizes)
        body = functions[key].node
        sizes[key] = nodes + _count(body), size + sum(node.ByteSize() for node in body)
    # The graph's own bytes are not counted: to do so takes as long as to write the model.
    nodes, size = _inlined(_calls(proto.graph.node, functions), sizes)
    nodes += _count(proto.graph.node)
    if nodes > MOST_NODES or size > MOST_INLINED_BYTES:
        raise UnsupportedError(f"its functions come to {size} bytes when they are inlined, and with them there are "
                               f"{nodes} nodes; supported: {MOST_INLINED_BYTES} bytes, and {MOST_NODES} nodes")


def _key(domain: str, name: str, overload: str) -> _Name:
    return "" if domain in _DEFAULT else domain, name, overload


def all_nodes(nodes: Iterable[onnx.NodeProto]) -> Iterable[onnx.NodeProto]:
    """Those of subgraphs, too."""
    for node in nodes:
        yield node
        for graph in subgraphs(node):
            yield from all_nodes(graph.node)


def _calls(nodes: Iterable[onnx.NodeProto], functions: dict[_Name, onnx.FunctionProto]) -> Counter[_Name]:
    """How often they call each function."""
    if not functions:
        return Counter()
    keys = (_key(node.domain, node.op_type, node.overload) for node in all_nodes(nodes))
    return Counter(key for key in keys if key in functions)


def _count(nodes: Iterable[onnx.NodeProto]) -> int:
    return sum(1 for _ in all_nodes(nodes))


def _inlined(calls: Counter[_Name], sizes: dict[_Name, tuple[int, int]]) -> tuple[int, int]:
    """Nodes and bytes that come in the place of these calls."""
    return (sum(times * sizes[key][0] for key, times in calls.items()),
            sum(times * sizes[key][1] for key, times in calls.items()))


def _callees_first(calls: dict[_Name, Counter[_Name]]) -> list[_Name]:
    done: dict[_Name, None] = {}
    for first in calls:
        waiting, open_ = [first], dict.fromkeys([first])  # a chain may be longer than Python's stack
        while waiting:
            top = waiting[-1]
            unknown = [key for key in calls[top] if key not in done]
            cycle = next((key for key in unknown if key in open_), None)
            if cycle is not None:
                raise ModelError(f"the function {cycle[1]!r} of {cycle[0]!r} calls itself")
            if unknown:
                waiting.append(unknown[0])
                open_[unknown[0]] = None
            else:
                done[waiting.pop()] = None
                open_.pop(top, None)
    return list(done)
