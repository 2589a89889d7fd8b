"""What a name in a model stands for while it is lowered, beside a tensor of known shape."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ngraph_mxnet.errors import UnsupportedError
from ngraph_mxnet.ir import Value

if TYPE_CHECKING:
    import onnx


class DataDependentError(UnsupportedError):
    """Something must be known when the model is compiled, and depends on the elements of an input."""


class TakenError(DataDependentError):
    """So it is within the branch of an If that is known to be taken: its nodes may stand in place of the If."""

    def __init__(self, text: str, branch: onnx.GraphProto) -> None:
        super().__init__(text)
        self.branch = branch


class BetweenError(DataDependentError):
    """The node is not lowered here but run between programs: a loop, an operator on lists."""


class CutError(DataDependentError):
    """The model is divided at a node of its graph: what is before it is a model of its own, and so is what follows.

    nodes: the graph's, with those of branches in place of Ifs that take them; `initializers` are the branches'.
    runs_node: whether the node itself is run between the two; else it is the first of what follows.
    specialised: inputs whose elements decided that it is divided here.
    is_fixed: whether it is divided here for all shapes and data.
    """

    def __init__(self, text: str, nodes: Sequence[onnx.NodeProto], position: int, *, runs_node: bool,
                 initializers: Sequence[onnx.TensorProto], specialised: Sequence[str], is_fixed: bool) -> None:
        super().__init__(text)
        self.nodes, self.position, self.runs_node = list(nodes), position, runs_node
        self.initializers, self.specialised, self.is_fixed = list(initializers), list(specialised), is_fixed

    def key(self) -> bytes:
        """The same for cuts that make the same parts."""
        digest = hashlib.sha256(f"{self.position} {self.runs_node}".encode())
        for node in self.nodes:
            content = node.SerializeToString(deterministic=True)
            digest.update(len(content).to_bytes(8, "little") + content)
        return digest.digest()


@dataclass(frozen=True)
class Between:
    """That nodes may be run between programs, and which.

    `varying`: None outside loops; in a loop's body its inputs that change from trip to trip. What asks for their
    elements is run between programs: a program for them would be one for each trip.
    `lists`: whether operators on sequences are, too: their lengths change.
    """

    varying: frozenset[str] | None = None
    lists: bool = False

    @property
    def is_body(self) -> bool:
        return self.varying is not None


@dataclass(frozen=True, eq=False)
class TensorSequence:
    """A sequence, whose length is known when the model is compiled."""

    items: tuple[Value, ...]


@dataclass(frozen=True, eq=False)
class EmptyOptional:
    """An optional without an element. One with an element is the element."""


@dataclass(frozen=True, eq=False)
class Ragged:
    """A tensor of which only the first `count` places along `axis` count; how many these are depends on the data.

    `count` is an i64 of rank 0. Nothing reads it in the graph that makes it: what follows is a graph of its own.
    """

    value: Value
    count: Value
    axis: int


Item = Value | TensorSequence | EmptyOptional | Ragged


def parts_of(item: Item) -> tuple[Value, ...]:
    """The tensors that it is made of."""
    if isinstance(item, Value):
        return (item,)
    if isinstance(item, TensorSequence):
        return item.items
    return (item.value, item.count) if isinstance(item, Ragged) else ()
