"""Reverse-mode differentiation: how gradients go back through an op, and through a graph.

Griewank and Walther, Evaluating Derivatives, 2nd edition, chapter 3: each node's adjoint, from the last to the first.
Each op has its adjoint, declared once, in `autodiff/<family>.py`, or in its row in `ops/elementwise.py`:

    @adjoint("multiply")
    def _(at):
        a, b = at.operands
        return at.head * b, at.head * a          # in the notation of `Expression`, values with operators

A gradient may be larger than its operand where this was broadcast: it is summed to the operand's shape. None says that
nothing goes back.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ngraph_mxnet.base.errors import GraphError, NGraphError, UnsupportedError
from ngraph_mxnet.ir.graph import Builder, Graph, Node, Value, make_node
from ngraph_mxnet.ir.opdef import OpDef
from ngraph_mxnet.ir.ranges import because
from ngraph_mxnet.ir.sizes import are_same_shape, is_one
from ngraph_mxnet.ir.types import ElementType, Shape, TensorType, f32
from ngraph_mxnet.ops.compositions import places_of, size_as


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
        return self.apply("slice",
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
MADE_BY_PASSES = "passes make it of ops that have one, after gradients are there"
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


HEAD = "head."
"""Before a result's number: the parameter that has its head gradient."""


@dataclass(frozen=True)
class Joint:
    """A graph that computes results and gradients.

    Attributes:
        graph: its parameters are those of the graph that was differentiated, then a head gradient for each result that
            takes one, called `head.<number>`; its results are that graph's, then the gradients.
        forward: the nodes of the graph that was differentiated.
        wanted: the parameters that the gradients are of, in their order.
        passed: origins of the nodes that a gradient comes through.
    """

    graph: Graph
    forward: frozenset[Node]
    wanted: tuple[str, ...]
    passed: frozenset[str]

    @property
    def results(self) -> list[Value]:
        return self.graph.results[:-len(self.wanted)]

    @property
    def gradients(self) -> list[Value]:
        return self.graph.results[-len(self.wanted):]


def differentiate(graph: Graph, wanted: Collection[str], heads: Collection[int] | None = None) -> Joint:
    """The graph with the gradients of these parameters. The graph stays as it is.

    Args:
        wanted: names of parameters of float types.
        heads: numbers of the results that get head gradients, each of its result's type; by default of all of float
            types. Nothing goes back from the others.

    Raises:
        GraphError: there is no such parameter or result, or it is of integers.
        UnsupportedError: naming all nodes that a gradient must go through and can't, with the reasons.
    """
    copy = graph.clone()
    targets = _wanted(copy, wanted)
    numbers = sorted(_heads(copy, heads))
    forward = list(copy.nodes)
    active = set(dependence(forward, targets))
    way = _on_the_way(forward, active, [copy.results[i] for i in numbers])
    refused = {f"{node}: {why}": None for node in way if (why := _why_not(node, active)) is not None}
    if refused:
        raise UnsupportedError("there is no gradient through\n" + "\n".join(f"  {line}" for line in refused))

    adjoints = _put_forward(copy, active)
    forward = list(copy.nodes)
    builder = Builder(copy)
    found: dict[Value, Value] = {}
    for number in numbers:
        result = copy.results[number]
        _add(builder, found, result, builder.parameter(f"{HEAD}{number}", result.type.shape, result.type.element))
    for node in reversed(forward):
        if any(v in found and v in active for v in node.outputs) and any(v in active for v in node.inputs):
            builder.origin = node.origin
            with because(f"the gradient of {node}"):
                _go_back(builder, node, adjoints.get(node, node.op.name), active, found)
    builder.origin = ""
    copy.results += [found[target] if target in found else Expression(builder, target).full(0.0).value
                     for target in targets]
    copy.remove_dead()
    return Joint(copy, frozenset(forward) & frozenset(copy.nodes), tuple(target.name for target in targets),
                 frozenset(node.origin for node in way))


def _wanted(graph: Graph, wanted: Collection[str]) -> list[Value]:
    parameters = {parameter.name: parameter for parameter in graph.parameters}
    for name in wanted:
        if name not in parameters:
            raise GraphError(f"graph {graph.name} has no parameter {name!r}; it has {', '.join(parameters)}")
        if not parameters[name].type.element.is_float:
            raise GraphError(f"parameter {name!r} is {parameters[name].type}: only floats have gradients")
    return [parameters[name] for name in wanted]


def _heads(graph: Graph, heads: Collection[int] | None) -> Collection[int]:
    floats = [number for number, value in enumerate(graph.results) if value.type.element.is_float]
    for number in heads or ():
        if number not in floats:
            raise GraphError(f"result {number} of graph {graph.name} takes no head gradient: of floats are {floats}")
    return floats if heads is None else heads


def dependence(nodes: Sequence[Node], targets: Sequence[Value]) -> dict[Value, int]:
    """Floats, and integers that stand for such, which depend on the targets through ops that gradients go through; and
    on which: bit k of the number is that of the k-th target."""
    active = {target: 1 << place for place, target in enumerate(targets)}
    for node in nodes:
        of = 0
        for value in node.inputs:
            of |= active.get(value, 0)
        if of and node.op.name not in NO_DERIVATIVE:
            stand = node.op.name in INTEGERS or _reads_integers(node, active)
            active.update((value, of) for value in node.outputs if stand or value.type.element.is_float)
    return active


def _reads_integers(node: Node, active: Collection[Value]) -> bool:
    return any(value in active and not value.type.element.is_float for value in node.inputs)


def _why_not(node: Node, active: set[Value]) -> str | None:
    """Why no gradient can go back through the node, or None."""
    known = MADE_BY_PASSES if node.epilogue else why_not(node.op.name, node.attrs)
    if known is None and _reads_integers(node, active) and not (node.op.selects or node.op.name in INTEGERS):
        return "it reads integers that `quantize` made, whose gradients go back from `dequantize` only"
    return known


def _on_the_way(nodes: Sequence[Node], active: set[Value], ends: Sequence[Value]) -> list[Node]:
    """The nodes that a gradient from these results comes through."""
    reached, met = set(ends) & active, []
    for node in reversed(nodes):
        if any(value in reached for value in node.outputs):
            met.append(node)
            reached.update(value for value in node.inputs if value in active)
    return met[::-1]


def _put_forward(graph: Graph, active: set[Value]) -> dict[Node, str]:
    """Put the ops of `FORWARD` in their places; the nodes made, and the ops whose adjoints they have."""
    made: dict[Node, str] = {}
    for place, node in enumerate(graph.nodes):
        if node.op.name in FORWARD and any(value in active for value in node.inputs):
            graph.nodes[place] = new = make_node(FORWARD[node.op.name], node.inputs, node.attrs, node.origin)
            graph.replace(dict(zip(node.outputs, new.outputs, strict=False)))
            active.update(new.outputs)
            made[new] = node.op.name
    return made


def _go_back(builder: Builder, node: Node, op: str, active: set[Value], found: dict[Value, Value]) -> None:
    gradients: Gradients = ADJOINTS[op](Reverse(builder, node, [found.get(v) for v in node.outputs]))
    for operand, gradient in zip(node.inputs, gradients, strict=True):
        if gradient is not None and operand in active:
            _add(builder, found, operand, gradient.summed_to(operand.type.shape).value)


def _add(builder: Builder, found: dict[Value, Value], value: Value, gradient: Value) -> None:
    expected = value.type if value.type.element.is_float else TensorType(f32, value.type.shape)
    if gradient.type != expected:
        raise GraphError(f"the gradient of {value} is {gradient.type}, expected {expected}")
    found[value] = builder.apply("add", found[value], gradient) if value in found else gradient


def described(op: OpDef) -> str:
    """The adjoint as IR for operands f32[2,3], if the op takes these, else its module; or why there is none."""
    if op.name in NO_DERIVATIVE:
        return f"nothing goes back: {NO_DERIVATIVE[op.name]}"
    if op.name not in ADJOINTS:
        return f"none: {why_not(op.name, {})}"
    b = Builder(name=op.name)
    operands = [b.parameter(f"x{number}", (2, 3)) for number in range(op.least)]
    try:
        graph = b.results(*b.node(op.name, operands, {}).outputs)
        return str(differentiate(graph, [operand.name for operand in operands]).graph)
    except NGraphError:
        return f"in {ADJOINTS[op.name].__module__}"
