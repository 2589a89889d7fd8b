"""How gradients go back through an op: its adjoint, declared once, in `autodiff/<family>.py`.

    @adjoint("multiply")
    def _(at):
        a, b = at.operands
        return at.head * b, at.head * a          # in the notation of `Expression`, values with operators

A gradient may be larger than its operand where this was broadcast: it is summed to the operand's shape. None says that
nothing goes back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ngraph_mxnet.compositions.tensors import places_of, size_as
from ngraph_mxnet.ir.graph import Builder, Node, Value
from ngraph_mxnet.ir.sizes import are_same_shape, is_one
from ngraph_mxnet.ir.types import ElementType, Shape


class Expression:
    """A value of a graph that is being built. Arithmetic with it appends nodes; a number takes its element type.

    Any op is a method: `x.exp()`, `x.reshape(shape=(2, 3))`.
    """

    __slots__ = ("builder", "value")

    def __init__(self, builder: Builder, value: Value) -> None:
        self.builder, self.value = builder, value

    @property
    def shape(self) -> Shape:
        return self.value.type.shape

    @property
    def rank(self) -> int:
        return self.value.type.rank

    @property
    def size(self) -> int:
        return self.value.type.size

    @property
    def element(self) -> ElementType:
        return self.value.type.element

    def apply(self, op: str, *others: Expression | float, **attrs: Any) -> Expression:
        """An op of one result, with this as operand 0."""
        values = [self.value, *(self.like(other).value for other in others)]
        return Expression(self.builder, self.builder.apply(op, *values, **attrs))

    def nodes(self, op: str, *others: Expression, **attrs: Any) -> list[Expression]:
        """The results of an op of several."""
        node = self.builder.node(op, [self.value, *(other.value for other in others)], attrs)
        return [Expression(self.builder, value) for value in node.outputs]

    def like(self, other: Expression | float) -> Expression:
        """A number as a constant of this element type; an expression as it is."""
        return other if isinstance(other, Expression) else self.constant(other)

    def constant(self, array: Any) -> Expression:
        return Expression(self.builder, self.builder.constant(np.asarray(array, self.element.numpy)))

    def count(self, size: int) -> Expression:
        return Expression(self.builder, size_as(self.builder, size, self.value))

    def indices(self, array: Any) -> Expression:
        return Expression(self.builder, self.builder.constant(np.asarray(array, np.int64)))

    def places(self, axis: int) -> Expression:
        """i64, the place of each element along `axis`."""
        return Expression(self.builder, places_of(self.builder, self.shape, axis))

    def full(self, number: float) -> Expression:
        return self.constant(number).to_shape(self.shape)

    def to_shape(self, shape: Sequence[int]) -> Expression:
        """Broadcast, if it has another shape."""
        return self if are_same_shape(self.shape, shape) else self.apply("broadcast", shape=tuple(shape))

    def to_element(self, element: ElementType) -> Expression:
        """Converted, if it has another element type."""
        return self if self.element == element else self.apply("convert", element=element)

    def sum(self, axes: Sequence[int], *, keep: bool = False) -> Expression:
        return self.apply("reduce_sum", axes=tuple(axes), keep_dims=keep) if axes else self

    def summed_to(self, shape: Shape) -> Expression:
        """The sum over what broadcasting to this shape repeats."""
        if are_same_shape(self.shape, shape):
            return self
        lead = self.rank - len(shape)
        axes = [axis for axis in range(self.rank)
                if axis < lead or (is_one(shape[axis - lead]) and not is_one(self.shape[axis]))]
        return self.sum(axes).reshape(shape)

    def reshape(self, shape: Sequence[int]) -> Expression:
        return self if are_same_shape(self.shape, shape) else self.apply("reshape", shape=tuple(shape))

    def transpose(self, order: Sequence[int]) -> Expression:
        return self if tuple(order) == tuple(range(self.rank)) else self.apply("transpose", order=tuple(order))

    def part(self, axis: int, begin: int, end: int) -> Expression:
        """The places from `begin` up to `end` along `axis`."""
        if are_same_shape((begin, end), (0, self.shape[axis])):
            return self
        bounds = [(begin, end) if own == axis else (0, size) for own, size in enumerate(self.shape)]
        return self.apply("slice", begin=[b for b, _ in bounds], end=[e for _, e in bounds])

    def padded(self, axis: int, before: int, after: int) -> Expression:
        """Zeros added along `axis`."""
        if not before and not after:
            return self
        return self.apply("pad", pads_begin=[before if own == axis else 0 for own in range(self.rank)],
                          pads_end=[after if own == axis else 0 for own in range(self.rank)])

    def spread(self, axis: int, step: int) -> Expression:
        """With `step - 1` zeros between neighbours along `axis`."""
        count, shape = self.shape[axis], self.shape
        if step == 1 or count < 2:
            return self
        columns = self.reshape((*shape[:axis + 1], 1, *shape[axis + 1:])).padded(axis + 1, 0, step - 1)
        return columns.reshape((*shape[:axis], count * step, *shape[axis + 1:])).part(axis, 0, (count - 1) * step + 1)

    def reversed(self, axes: Sequence[int]) -> Expression:
        """The elements along these axes in reverse order."""
        if self.size == 0:
            return self
        turned = [axis in axes for axis in range(self.rank)]
        return self.apply(
            "slice",
            begin=[size - 1 if turn else 0 for size, turn in zip(self.shape, turned, strict=True)],
            end=[-1 if turn else size for size, turn in zip(self.shape, turned, strict=True)],
            strides=[-1 if turn else 1 for turn in turned])

    def where(self, condition: Expression) -> Expression:
        """This where the condition holds, else 0."""
        chosen = self.builder.apply("select", condition.value, self.value, self.constant(0.0).value)
        return Expression(self.builder, chosen)

    def __add__(self, other: Expression | float) -> Expression:
        return self.apply("add", other)

    def __sub__(self, other: Expression | float) -> Expression:
        return self.apply("subtract", other)

    def __rsub__(self, other: float) -> Expression:
        return self.constant(other).apply("subtract", self)

    def __mul__(self, other: Expression | float) -> Expression:
        return self.apply("multiply", other)

    def __truediv__(self, other: Expression | float) -> Expression:
        return self.apply("divide", other)

    def __rtruediv__(self, other: float) -> Expression:
        return self.constant(other).apply("divide", self)

    def __neg__(self) -> Expression:
        return self.apply("negative")

    def __gt__(self, other: Expression | float) -> Expression:
        return self.apply("greater", other)

    def __ge__(self, other: Expression | float) -> Expression:
        return self.apply("greater_equal", other)

    def __lt__(self, other: Expression | float) -> Expression:
        return self.apply("less", other)

    def __le__(self, other: Expression | float) -> Expression:
        return self.apply("less_equal", other)

    def __and__(self, other: Expression) -> Expression:
        return self.apply("logical_and", other)

    def equals(self, other: Expression | float) -> Expression:
        return self.apply("equal", other)

    def __getattr__(self, op: str) -> Any:
        if op.startswith("_"):
            raise AttributeError(op)
        return lambda *others, **attrs: self.apply(op, *others, **attrs)


Gradients = Sequence[Expression | None]


class Reverse:
    """A node, seen from behind.

    Attributes:
        operands, results: the node's.
        heads: of each result the gradient, or None where none comes.
    """

    def __init__(self, builder: Builder, node: Node, heads: Sequence[Value | None]) -> None:
        self.builder, self.node = builder, node
        self.operands = [Expression(builder, value) for value in node.inputs]
        self.results = [Expression(builder, value) for value in node.outputs]
        self.heads = [None if head is None else Expression(builder, head) for head in heads]

    @property
    def attrs(self) -> Mapping[str, Any]:
        return self.node.attrs

    @property
    def result(self) -> Expression:
        return self.results[0]

    @property
    def head(self) -> Expression:
        return self.head_of(0)

    def head_of(self, index: int) -> Expression:
        """The gradient of that result: zeros where none comes."""
        head = self.heads[index]
        return self.results[index].full(0.0) if head is None else head


Adjoint = Callable[[Reverse], Gradients]
Refusal = Callable[[Mapping[str, Any]], "str | None"]

ADJOINTS: dict[str, Adjoint] = {}
NO_DERIVATIVE: dict[str, str] = {}
"""Ops through which nothing goes back, and why that is their derivative."""
REFUSED: dict[str, str] = {}
"""Ops that have a derivative which is not written down here, and why."""
_REFUSALS: dict[str, Refusal] = {}
FORWARD: dict[str, str] = {}
"""Ops in whose place another one goes forward where a gradient comes back: it has the same operands, attributes and
results, and behind these others, which the adjoint reads."""
INTEGERS: set[str] = set()
"""Ops that make integers stand for numbers, or numbers of such integers. The gradient of these integers is of f32, by
the integer, as if it were not rounded. Ops that select elements pass it on; no others do."""


def adjoint(*names: str, refuses: Refusal | None = None, forward: str = "",
            integers: bool = False) -> Callable[[Adjoint], Adjoint]:
    """Decorator: the adjoint of these ops. It gets a `Reverse` and returns a gradient, or None, for each operand.

    `refuses` says of attributes why there is none with them, or None. `forward`: see `FORWARD`;
    `integers`: see `INTEGERS`.
    """

    def declare(function: Adjoint) -> Adjoint:
        for name in names:
            _require_new(name)
            ADJOINTS[name] = function
            if refuses is not None:
                _REFUSALS[name] = refuses
            if forward:
                FORWARD[name] = forward
            if integers:
                INTEGERS.add(name)
        return function

    return declare


def no_derivative(reason: str, *names: str) -> None:
    """Nothing goes back through these ops."""
    for name in names:
        _require_new(name)
        NO_DERIVATIVE[name] = reason


def refuse(reason: str, *names: str) -> None:
    """Record that no gradient can go through these ops, with the reason. A graph that needs such a gradient can't be
    differentiated."""
    for name in names:
        _require_new(name)
        REFUSED[name] = reason


def why_not(op: str, attrs: Mapping[str, Any]) -> str | None:
    """Why no gradient can go back through this op with these attributes, or None."""
    if op in ADJOINTS:
        return _REFUSALS[op](attrs) if op in _REFUSALS else None
    return None if op in NO_DERIVATIVE else REFUSED.get(op, "it has no adjoint in autodiff/")


def _require_new(name: str) -> None:
    if name in ADJOINTS or name in NO_DERIVATIVE or name in REFUSED:
        raise ValueError(f"op {name} has an adjoint already, or a reason for none")
