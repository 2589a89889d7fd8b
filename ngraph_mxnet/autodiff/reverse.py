"""Reverse-mode differentiation: a graph that goes on to its gradients.

Griewank and Walther, Evaluating Derivatives, 2nd edition, chapter 3: each node's adjoint, from the last to the first.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from ngraph_mxnet.autodiff.adjoints import (
    ADJOINTS,
    FORWARD,
    INTEGERS,
    NO_DERIVATIVE,
    Expression,
    Gradients,
    Reverse,
    why_not,
)
from ngraph_mxnet.errors import GraphError, NGraphError, UnsupportedError
from ngraph_mxnet.ir.graph import Builder, Graph, Node, Value, make_node
from ngraph_mxnet.ir.opdef import OpDef
from ngraph_mxnet.ir.types import TensorType, f32

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
            _go_back(builder, node, adjoints.get(node, node.op.name), active, found)
    builder.origin = ""
    copy.results += [found[target] if target in found else _zeros(builder, target) for target in targets]
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
    known = why_not(node.op.name, node.attrs)
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


def _zeros(builder: Builder, value: Value) -> Value:
    return Expression(builder, value).full(0.0).value


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
