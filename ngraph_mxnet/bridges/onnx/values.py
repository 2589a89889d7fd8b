"""What a name in a model stands for while it is lowered, beside a tensor of known shape."""

from __future__ import annotations

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
