"""The items that a name in a model can stand for during lowering, beside a tensor of known shape."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ngraph_mxnet.errors import UnsupportedError
from ngraph_mxnet.ir import Builder, Value
from ngraph_mxnet.ir.graph import Node

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


def of_sizes_at_hand(b: Builder, items: Sequence[Item | None],
                     static_value: Callable[[Value], np.ndarray | None]) -> list[Item | None]:
    """The items with numbers in place of symbols, in their shapes and where they are sizes themselves. Guards hold
    these, so that what is compiled is for these sizes.

    Raises:
        UnknownSize: there are no sizes at hand.
    """
    def fixed(value: Value) -> Value:
        sizes = static_value(value)
        if sizes is not None and _is_of_symbols(sizes):
            return b.constant(sizes.astype(np.int64), value.type.element)
        return b.reshape(value, shape=[int(size) for size in value.shape]) if value.type.is_symbolic else value

    return [TensorSequence(tuple(map(fixed, item.items))) if isinstance(item, TensorSequence) else
            fixed(item) if isinstance(item, Value) else item for item in items]


def have_symbols(items: Sequence[Item | None], static_value: Callable[[Value], np.ndarray | None]) -> bool:
    """True if a size among the items is a symbol."""
    values = [value for item in items for value in (item.items if isinstance(item, TensorSequence) else [item])
              if isinstance(value, Value)]
    return any(value.type.is_symbolic or _is_of_symbols(static_value(value)) for value in values)


def _is_of_symbols(sizes: np.ndarray | None) -> bool:
    return sizes is not None and sizes.dtype.kind == "O"


MOST_ELEMENTS = 1 << 20
"""The most elements of a value that is computed for them: more are no shape, and not worth the time."""
FEW_ELEMENTS = 1 << 12
"""The same of what depends on inputs, where the graph may end instead and the rest be compiled for what it gives."""


class Statics:
    """Elements of values, computed by the ops' references when they are asked for.

    `offered` are the elements of graph inputs at the call that the model is compiled for. They are used only where a
    rule can't do without, and then the compiled model is for these elements only: `used` has such inputs.
    """

    def __init__(self) -> None:
        self._weights: dict[Value, np.ndarray] = {}
        self._always: dict[Value, np.ndarray | None] = {}
        self._now: dict[Value, np.ndarray | None] = {}
        self.offered: dict[Value, np.ndarray] = {}
        self.used: set[Value] = set()
        self._noted: set[Value] = set()
        """Whose inputs are among the used ones: each node is walked once, as a loop's trips lengthen one chain."""
        self.most_computed = MOST_ELEMENTS
        self._sizes: dict[Value, np.ndarray] = {}
        """Values that stand for sizes of which some are symbols: arrays of ints and `Dim`s."""

    def add(self, value: Value, array: np.ndarray) -> None:
        """A weight's elements."""
        self._weights[value] = array

    def note_sizes(self, value: Value, sizes: Sequence[int]) -> None:
        """`value` is a constant of these sizes as they are at hand."""
        self._sizes[value] = np.array(sizes, object)

    def fix_sizes(self, nodes: Iterable[Node]) -> None:
        """Fix each noted size that these nodes still make to its value at hand. The graph is then for these sizes."""
        for node in nodes:
            for value in node.outputs:
                for size in self._sizes[value].reshape(-1) if value in self._sizes else ():
                    int(size)

    def find(self, value: Value) -> np.ndarray | None:
        """The elements if they depend on constants and weights only, and are not too many."""
        return self._search(value, self._always, {})

    def require(self, value: Value) -> np.ndarray | None:
        """The elements, if need be of inputs as they are at this call."""
        found = self.find(value)
        if found is None and value in self.offered:
            self.used.add(value)
            return self.offered[value]
        if found is None and self.offered:
            found = self._search(value, self._now, self.offered)
            if found is not None:
                self._note(value)
        return found

    def _search(self, value: Value, known: dict[Value, np.ndarray | None],
                inputs: dict[Value, np.ndarray]) -> np.ndarray | None:
        waiting = [value]  # deep chains: no recursion
        while waiting:
            top = waiting[-1]
            node = top.node
            if top in known:
                waiting.pop()
            elif top in self._sizes:
                known[top] = self._sizes[top]
            elif top.type.size > (self.most_computed if inputs else MOST_ELEMENTS):
                known[top] = self._weights.get(top)
            elif node is None:
                known[top] = self._weights.get(top, inputs.get(top))
            elif node.op.name == "constant":
                known[top] = node.attrs["value"]
            elif any(known.get(operand, operand) is None for operand in node.inputs):
                known[top] = None
            else:
                unknown = [operand for operand in node.inputs if operand not in known]
                waiting.extend(unknown)
                if not unknown:
                    operands = [known[operand] for operand in node.inputs]
                    known.update(zip(node.outputs, _evaluated(node, operands), strict=True))  # type: ignore[arg-type]
        return known[value]

    def forget(self, used: set[Value]) -> None:
        """Only `used` of the inputs decide: what asked for others was taken back."""
        self.used = set(used)
        self._noted.clear()

    def _note(self, value: Value) -> None:
        """Remember which inputs `value` depends on."""
        waiting = [value]
        while waiting:
            top = waiting.pop()
            if top in self.offered:
                self.used.add(top)
            if top not in self._noted and top.node is not None:
                self._noted.add(top)
                waiting.extend(top.node.inputs)


def _evaluated(node: Node, operands: list[np.ndarray]) -> list[np.ndarray]:
    """Evaluate a node by the reference of its op. Sizes stay symbols as far as the reference can compute with them;
    where it needs a number, a guard is set."""
    if any(array.dtype == object for array in operands) and not node.outputs[0].type.element.is_float:
        if node.op.name == "convert":
            return operands
        try:
            if node.op.name == "divide":
                return [operands[0] // operands[1]]  # sizes are not negative
            return [np.asarray(result, object) for result in node.op.evaluate(operands, node.attrs)]
        except (TypeError, ValueError, AttributeError):
            pass  # it is no such reference: of values
    operands = [array.astype(value.type.element.numpy) if array.dtype == object else array
                for array, value in zip(operands, node.inputs, strict=True)]
    with np.errstate(all="ignore"):
        return list(node.op.evaluate(operands, node.attrs))
