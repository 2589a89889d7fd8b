"""The table of rules: which ONNX operator lowers how.

    @rule("Where")
    def where(b, call, condition, x, y):
        ...
        return value                      # or one value for each output

A rule names the first tensors that it takes; one that may be left out has the default None. It appends IR to `b` and
raises UnsupportedError with the reason when it can't lower the node. It serves every version of its operator from opset
6 on: where versions differ it asks `call.opset`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from ngraph_mxnet.base import registry
from ngraph_mxnet.base.errors import ModelError, UnsupportedError
from ngraph_mxnet.frontends.onnx.model import MOST_CONSTANT_BYTES
from ngraph_mxnet.frontends.onnx.values import Attributes, DataDependentError, Item, TensorSequence
from ngraph_mxnet.ir import Builder, Graph, TensorType, Value
from ngraph_mxnet.ir.sizes import number

if TYPE_CHECKING:
    import onnx


@dataclass
class Call:
    """A node that is being lowered."""

    op: str
    attrs: Attributes
    inputs: list[Item | None]
    """None where an optional input is left out; missing at the end."""
    outputs: int
    """How many outputs the node has; left-out ones at the end do not count."""
    opset: int
    """The version of the operators of the node's domain."""
    static_value: Callable[[Value], np.ndarray | None]
    """Gives the elements of a value that depends on no data; None of others."""
    required_value: Callable[[Value], np.ndarray | None]
    """Does the same, and may use the elements that inputs have at this call: the model is then compiled for these."""
    lower_body: Callable[[onnx.GraphProto, Sequence[Item]], list[Item]]
    """Lowers a subgraph in place, its inputs bound to values."""
    to_array: Callable[[onnx.TensorProto], np.ndarray]
    may_end: bool
    """True if the graph can end before the node, so that values that decide about the node are computed first. False in
    a loop."""
    runs_between: bool
    """True if the node may be run between programs instead; a rule asks for that with BetweenError."""
    decision: Callable[[Value], np.ndarray | None]
    """Gives the elements of a condition that decides what is lowered; None if they are better computed first."""
    mark: Callable[[], Callable[[], None]]
    """Gives what takes back all that was lowered since."""
    note_sizes: Callable[[Value, Sequence[int]], None]
    """Tells that a constant of the sizes at hand stands for these, of which some are symbols."""
    graphs: Callable[[Sequence[onnx.GraphProto], Sequence[TensorType | np.ndarray]],
                     tuple[list[Graph], list[Value]]] | None
    """Gives subgraphs as graphs of the IR, and the values around them that they read; None if loops are not kept. A
    graph's parameters are of these types, then those values; an array stands for an input that is it."""

    def input(self, position: int) -> Value:
        """A tensor that must be there.

        Raises:
            ModelError: it is left out, or no tensor.
        """
        value = self.optional(position)
        if value is None:
            raise ModelError(f"input {position} is missing")
        return value

    def optional(self, position: int) -> Value | None:
        """A tensor; None if it is left out.

        Raises:
            ModelError: it is no tensor.
        """
        item = self.optional_item(position)
        if item is not None and not isinstance(item, Value):
            raise ModelError(f"input {position} is a sequence or optional, expected a tensor")
        return item

    def optional_item(self, position: int) -> Item | None:
        """An input of any kind; None if it is left out."""
        return self.inputs[position] if position < len(self.inputs) else None

    def item(self, position: int) -> Item:
        """An input of any kind.

        Raises:
            ModelError: it is left out.
        """
        item = self.optional_item(position)
        if item is None:
            raise ModelError(f"input {position} is missing")
        return item

    def sequence(self, position: int) -> tuple[Value, ...]:
        """The tensors of a sequence.

        Raises:
            ModelError: it is no sequence.
        """
        item = self.item(position)
        if not isinstance(item, TensorSequence):
            raise ModelError(f"input {position}: found a tensor or an empty optional, expected a sequence")
        return item.items

    def all_inputs(self) -> list[Value]:
        return [self.input(position) for position in range(len(self.inputs))]

    def static(self, position: int, what: str) -> np.ndarray:
        """The elements of an input that must be known when the model is compiled.

        Raises:
            DataDependentError: it depends on data.
        """
        array = self.required_value(self.input(position))
        if array is None:
            raise DataDependentError(f"{what} (input {position}) depends on the data; it must be known at compile time")
        return array

    def static_ints(self, position: int, what: str) -> tuple[int, ...]:
        return tuple(number(each) for each in self.static(position, what).reshape(-1))

    def number(self, position: int, what: str, default: Any = None) -> Any:
        """The one number of an input that must be known when the model is compiled, and is whole unless `default` is a
        float; `default` if it is left out."""
        if default is not None and self.optional(position) is None:
            return default
        return float(self.static(position, what).reshape(())) if isinstance(default, float) else self.static_ints(
            position, what)[0]

    def ints(self, name: str, position: int, since: int, default: Any = None) -> Any:
        """A list that was attribute `name` and is input `position` from opset `since` on."""
        if self.opset < since:
            return self.attrs.ints(name, default)
        return default if self.optional(position) is None else self.static_ints(position, name)


Rule = Callable[..., "Item | Sequence[Item | None]"]
"""Takes a builder, a Call, and tensors. Gives one item for each output, None for one that is not computed, and is
refused where it has a name."""
_Rule = TypeVar("_Rule", bound=Rule)

_RULES: dict[tuple[str, str], Rule] = {}


def rule(*names: str, domain: str = "") -> Callable[[_Rule], _Rule]:
    """Register the decorated function for the operators `names` of `domain`."""

    def declare(lower: _Rule) -> _Rule:
        for name in names:
            if (domain, name) in _RULES:
                raise ValueError(f"ONNX operator {name} has two rules")
            _RULES[domain, name] = _of_call(lower)
        registry.note_outside(lower)
        return lower

    return declare


def _of_call(lower: Rule) -> Rule:
    """The rule as a function of `(b, call)`."""
    count = lower.__code__.co_argcount - 2
    required = count - len(lower.__defaults__ or ())

    @functools.wraps(lower)
    def lowered(b: Builder, call: Call) -> Item | Sequence[Item | None]:
        return lower(b, call, *map(call.input, range(required)), *map(call.optional, range(required, count)))

    return lowered if count else lower


def find_rule(op: str, domain: str = "") -> Rule | None:
    return all_rules().get((domain, op))


def all_rules() -> dict[tuple[str, str], Rule]:
    """Every rule by domain and operator: importing this module imports its package, and so all families."""
    return _RULES


Ints = tuple[int, ...]
MOST_ELEMENTS = 1 << 28
"""The most elements of a tensor that a few numbers in a file ask for."""


def require_size(count: int) -> None:
    """Refuse a tensor of more than `MOST_ELEMENTS` elements.

    Raises:
        UnsupportedError: there are too many elements.
    """
    if count > MOST_ELEMENTS:
        raise UnsupportedError(f"asks for a tensor of {count} elements; supported: {MOST_ELEMENTS}")


def require_table(shape: Iterable[int], bytes_each: int) -> None:
    """Refuse a constant of this shape before its array is made, which would take the memory first.

    Raises:
        UnsupportedError: it has too many bytes.
    """
    size = prod(shape) * bytes_each
    if size > MOST_CONSTANT_BYTES:
        raise UnsupportedError(f"asks for a constant of {size} bytes; supported: {MOST_CONSTANT_BYTES}")


def normal_axis(axis: int, rank: int) -> int:
    """`axis` in [0, rank).

    Raises:
        ModelError: it is outside [-rank, rank).
    """
    if not -rank <= axis < rank:
        raise ModelError(f"axis {axis} is outside [-{rank}, {rank})")
    return axis % rank


def axis_of(call: Call, x: Value, default: int) -> int:
    """The attribute `axis` of an operator on x, from 0 on."""
    return normal_axis(call.attrs.int("axis", default), x.rank)


def normal_axes(axes: Iterable[int], rank: int) -> Ints:
    """Sorted, distinct, in [0, rank)."""
    return tuple(sorted({normal_axis(axis, rank) for axis in axes}))


def window(call: Call, sizes: Sequence[int], kernel: Ints, *, strides: Ints, dilations: Ints) -> tuple[Ints, Ints]:
    """Padding before and after each spatial axis, from `auto_pad` or `pads`."""
    count = len(sizes)
    mode = call.attrs.choice("auto_pad", "NOTSET", ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"))
    pads = call.attrs.ints("pads", (0,) * (2 * count))
    for name, values, wanted in (("kernel_shape", kernel, count), ("strides", strides, count),
                                 ("dilations", dilations, count), ("pads", pads, 2 * count)):
        if len(values) != wanted:
            raise ModelError(f"{name}={values}: expected {wanted} numbers for {count} spatial axes")
    if min((*strides, *dilations, *kernel), default=1) < 1:
        raise ModelError(f"kernel_shape={kernel}, strides={strides}, dilations={dilations}: expected 1 or more")
    if mode == "NOTSET":
        if min(pads, default=0) < 0:
            raise UnsupportedError(f"negative pads={pads}")
        return pads[:count], pads[count:]
    if mode == "VALID":
        return (0,) * count, (0,) * count
    begins, ends = [], []
    for size, width, stride, dilation in zip(sizes, kernel, strides, dilations, strict=True):
        total = max(0, (-(-size // stride) - 1) * stride + dilation * (width - 1) + 1 - size)
        less, more = total // 2, total - total // 2
        begins.append(less if mode == "SAME_UPPER" else more)
        ends.append(more if mode == "SAME_UPPER" else less)
    return tuple(begins), tuple(ends)


@dataclass(frozen=True)
class Windows:
    """The windows of an operator over spatial axes of these sizes; `begins` and `ends` are the padding of each axis."""

    sizes: Ints
    kernel: Ints
    strides: Ints
    dilations: Ints
    begins: Ints
    ends: Ints
    ceil: bool = False

    @property
    def reach(self) -> Ints:
        """The places from a window's first tap to its last."""
        return tuple((size - 1) * step + 1 for size, step in zip(self.kernel, self.dilations, strict=True))

    @property
    def counts(self) -> Ints:
        """The windows of each axis; with `ceil` none starts beyond the data and the padding before it."""
        result = []
        for size, span, stride, begin, end in zip(self.sizes, self.reach, self.strides, self.begins, self.ends,
                                                  strict=True):
            room = size + begin + end - span
            count = (-(-room // stride) if self.ceil else room // stride) + 1
            result.append(count - 1 if self.ceil and (count - 1) * stride >= size + begin else count)
        return tuple(result)

    @property
    def behind(self) -> Ints:
        """The padding behind the data that the last window of each axis reaches into."""
        rows = zip(self.counts, self.strides, self.reach, self.sizes, self.begins, strict=True)
        return tuple(max((count - 1) * step + span - size - begin, 0) for count, step, span, size, begin in rows)


def windows(call: Call, sizes: Sequence[int], kernel: Ints) -> Windows:
    """The windows that the attributes of a pool or convolution ask for."""
    strides, dilations = (call.attrs.ints(name, (1,) * len(sizes)) for name in ("strides", "dilations"))
    padding = window(call, sizes, kernel, strides=strides, dilations=dilations)
    return Windows(tuple(sizes), kernel, strides, dilations, *padding)


def kernel_of(call: Call, weight: Value) -> Ints:
    """The kernel of a convolution, which is the weight's."""
    kernel: Ints = call.attrs.ints("kernel_shape", tuple(weight.shape[2:]))
    if kernel != weight.shape[2:]:
        raise ModelError(f"kernel_shape={kernel} does not fit the weight {weight.type}")
    return kernel
