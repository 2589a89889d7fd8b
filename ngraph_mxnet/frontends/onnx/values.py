"""The items that a name in a model can stand for beside a tensor of known shape, nodes' attributes, and lists."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import AttributeProto

from ngraph_mxnet.base.errors import ModelError, UnsupportedError
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


_REQUIRED: Any = object()
_KINDS: dict[int, str] = {
    AttributeProto.FLOAT: "f", AttributeProto.INT: "i", AttributeProto.STRING: "s", AttributeProto.TENSOR: "t",
    AttributeProto.GRAPH: "g", AttributeProto.FLOATS: "floats", AttributeProto.INTS: "ints",
    AttributeProto.STRINGS: "strings",
}


class Attributes:
    """The attributes of a node. Each read is recorded, so that an attribute that no rule reads is reported instead of
    ignored."""

    def __init__(self, node: onnx.NodeProto) -> None:
        self._found = {attribute.name: attribute for attribute in node.attribute}
        self._read: set[str] = set()

    def __contains__(self, name: str) -> bool:
        return name in self._found

    def _get(self, name: str, kind: int, default: Any) -> Any:
        self._read.add(name)
        attribute = self._found.get(name)
        if attribute is None:
            if default is _REQUIRED:
                raise ModelError(f"attribute {name} is missing")
            return default
        if attribute.ref_attr_name:
            raise ModelError(f"attribute {name} refers to {attribute.ref_attr_name} of a function, but is in none")
        if attribute.type != kind:
            wanted = AttributeProto.AttributeType.Name(kind).lower()
            raise ModelError(f"attribute {name}: found type {attribute.type}, expected {wanted}")
        return getattr(attribute, _KINDS[kind])

    def int(self, name: str, default: Any = _REQUIRED) -> Any:
        return self._get(name, AttributeProto.INT, default)

    def float(self, name: str, default: Any = _REQUIRED) -> Any:
        return self._get(name, AttributeProto.FLOAT, default)

    def bool(self, name: str, default: bool = False) -> bool:
        return bool(self._get(name, AttributeProto.INT, default))

    def string(self, name: str, default: Any = _REQUIRED) -> Any:
        value = self._get(name, AttributeProto.STRING, default)
        return value.decode("utf-8", "replace") if isinstance(value, bytes) else value

    def choice(self, name: str, default: str, allowed: Iterable[str]) -> str:
        """One of `allowed`.

        Raises:
            UnsupportedError: another.
        """
        value, allowed = self.string(name, default), tuple(allowed)
        if value not in allowed:
            raise UnsupportedError(f"{name}={value!r}; supported: {', '.join(allowed)}")
        return value

    def ints(self, name: str, default: Any = _REQUIRED) -> Any:
        value = self._get(name, AttributeProto.INTS, default)
        return value if value is None else tuple(value)

    def floats(self, name: str, default: Any = _REQUIRED) -> Any:
        value = self._get(name, AttributeProto.FLOATS, default)
        return value if value is None else tuple(value)

    def strings(self, name: str, default: Any = _REQUIRED) -> Any:
        value = self._get(name, AttributeProto.STRINGS, default)
        return value if value is None else tuple(text.decode("utf-8", "replace") for text in value)

    def tensor(self, name: str, default: Any = _REQUIRED) -> Any:
        return self._get(name, AttributeProto.TENSOR, default)

    def graph(self, name: str) -> onnx.GraphProto:
        return self._get(name, AttributeProto.GRAPH, _REQUIRED)

    def ignore(self, *names: str) -> None:
        """Attributes that do not change what inference computes."""
        self._read.update(names)

    def require_all_read(self) -> None:
        """To be called when all that a node's attributes change is known.

        Raises:
            UnsupportedError: there are others.
        """
        unread = sorted(set(self._found) - self._read)
        if unread:
            raise UnsupportedError(f"no support for {', '.join(unread)}")


Direct = Callable[[Attributes, Sequence[Any]], Any]
"""Gives the one output for inputs, None where one is left out. It is no view of an input, but may be one."""


def is_of_lists(node: onnx.NodeProto, domain: str, inputs: Sequence[Item | None]) -> bool:
    """True if the node reads or makes sequences as such: an operator on sequences, or an Identity of a sequence."""
    if domain:
        return False
    return node.op_type in _LISTS or (node.op_type == "Identity" and isinstance(inputs[0], TensorSequence))


def find_direct(node: onnx.NodeProto, domain: str, opset: int) -> Direct | None:
    """Find the function that runs the node on arrays and lists; None if no function here does."""
    if domain or (node.op_type == "Slice" and opset < 10):
        return None
    return _DIRECT.get(node.op_type)


def _place(given: Any, count: int, *, most: int) -> int:
    """In [0, most], negative ones from the end of `count`."""
    place = int(np.asarray(given).reshape(-1)[0])
    if not -count <= place <= most:
        raise ModelError(f"position {place} is outside [-{count}, {most}]")
    return place + count if place < 0 else place


def _list(given: Any) -> list[Any]:
    if not isinstance(given, list):
        raise ModelError("input 0: found a tensor or an empty optional, expected a sequence")
    return given


def _tensor(given: Sequence[Any], position: int) -> np.ndarray:
    value = _optional(given, position)
    if value is None:
        raise ModelError(f"input {position} is missing")
    if not isinstance(value, np.ndarray):
        raise ModelError(f"input {position} is a sequence or optional, expected a tensor")
    return value


def _optional(given: Sequence[Any], position: int) -> Any:
    return given[position] if position < len(given) else None


def _construct(attrs: Attributes, given: Sequence[Any]) -> Any:
    items = [_tensor(given, position) for position in range(len(given))]
    if len({item.dtype for item in items}) > 1:
        raise ModelError(f"found elements of {', '.join(str(item.dtype) for item in items)}, expected one type")
    return items


def _at(attrs: Attributes, given: Sequence[Any]) -> Any:
    items = _list(given[0])
    return items[_place(given[1], len(items), most=len(items) - 1)]


def _insert(attrs: Attributes, given: Sequence[Any]) -> Any:
    items, place, new = _list(given[0]), _optional(given, 2), _tensor(given, 1)
    if items and items[0].dtype != new.dtype:
        raise ModelError(f"input 1: found {new.dtype}, expected {items[0].dtype} as the elements before")
    at = len(items) if place is None else _place(place, len(items), most=len(items))
    return [*items[:at], new, *items[at:]]


def _erase(attrs: Attributes, given: Sequence[Any]) -> Any:
    items, place = _list(given[0]), _optional(given, 1)
    if not items:
        raise ModelError("the sequence is empty")
    at = len(items) - 1 if place is None else _place(place, len(items), most=len(items) - 1)
    return [*items[:at], *items[at + 1 :]]


def _split(attrs: Attributes, given: Sequence[Any]) -> Any:
    x, split = _tensor(given, 0), _optional(given, 1)
    axis, keep = attrs.int("axis", 0), attrs.bool("keepdims", True)
    if split is None:
        return [np.asarray(x.take([i] if keep else i, axis)) for i in range(x.shape[axis])]
    bounds = pairwise((0, *accumulate(split_sizes(split, x.shape[axis], axis))))
    return [x.take(range(begin, end), axis) for begin, end in bounds]


def split_sizes(split: np.ndarray, size: int, axis: int) -> list[int]:
    """The sizes of the parts of an axis of `size`: as given, or all of one size and the last of what is left.

    Raises:
        ModelError: they are not the whole axis.
    """
    each = int(split) if not split.ndim else 0
    if not split.ndim and each < 1:
        raise ModelError(f"split={each}, expected 1 or more")
    sizes = [min(each, size - at) for at in range(0, size, each)] if each else [int(part) for part in split]
    if sum(sizes) != size or min(sizes, default=0) < 0:
        raise ModelError(f"split={sizes} of {size} places along axis {axis}")
    return sizes


def _concat(attrs: Attributes, given: Sequence[Any]) -> Any:
    items, axis, new = _list(given[0]), attrs.int("axis"), attrs.bool("new_axis")
    if not items:
        raise ModelError("the sequence is empty")
    return np.stack(items, axis) if new else np.concatenate(items, axis)


def _slice(attrs: Attributes, given: Sequence[Any]) -> Any:
    x, starts, ends = _tensor(given, 0), _tensor(given, 1).reshape(-1), _tensor(given, 2).reshape(-1)
    axes, steps = _optional(given, 3), _optional(given, 4)
    axes = range(len(starts)) if axes is None else axes.reshape(-1)
    steps = [1] * len(starts) if steps is None else steps.reshape(-1)
    if not len(starts) == len(ends) == len(axes) == len(steps):
        raise ModelError(f"{len(starts)} starts, {len(ends)} ends, {len(axes)} axes, {len(steps)} steps: expected "
                         "equal numbers")
    cut = [slice(None)] * x.ndim
    for axis, begin, end, step in zip(axes, starts, ends, steps, strict=True):
        if not step or not -x.ndim <= axis < x.ndim:
            raise ModelError(f"step {step} along axis {axis} of {x.ndim}: expected another step, or axis")
        cut[axis] = slice(int(begin), int(end), int(step))
    return x[tuple(cut)].copy()


_LISTS: dict[str, Direct] = {
    "SequenceEmpty": lambda attrs, given: [],
    "SequenceConstruct": _construct,
    "SequenceAt": _at,
    "SequenceInsert": _insert,
    "SequenceErase": _erase,
    "SequenceLength": lambda attrs, given: np.array(len(_list(given[0])), np.int64),
    "SplitToSequence": _split,
    "ConcatFromSequence": _concat,
}
_DIRECT: dict[str, Direct] = {**_LISTS, "Identity": lambda attrs, given: given[0], "Slice": _slice}
