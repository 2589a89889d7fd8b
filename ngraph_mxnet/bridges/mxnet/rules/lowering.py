"""Operators of MXNet's, lowered by their rules: the conversions around what a rule computes, and the checks."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ngraph_mxnet.bridges.mxnet.rules.left import why_left
from ngraph_mxnet.bridges.mxnet.rules.registry import EXACT, Rule, find_rule
from ngraph_mxnet.bridges.mxnet.symbols.attrs import Attrs, Halves
from ngraph_mxnet.bridges.mxnet.symbols.symbol_json import Edge, SymbolGraph, SymbolNode
from ngraph_mxnet.errors import TypeRuleError, UnsupportedError
from ngraph_mxnet.ir import Builder, ElementType, TensorType, Value
from ngraph_mxnet.ir.sizes import because
from ngraph_mxnet.ir.types import f16, f32

FindRule = Callable[[str], "Rule | None"]


def lower_operators(b: Builder, symbol: SymbolGraph, values: dict[Edge, Value], halves: Halves,
                    rules: FindRule = find_rule, most: int | None = None) -> None:
    """Append the IR of all operators of a graph to what `values` has of its variables; their outputs are added to it.

    Raises:
        UnsupportedError: a node can't be lowered; the text names it and the reason. Or they come to more than `most`
            nodes.
        ModelError: an attribute is malformed.
    """
    begin = len(b.graph.nodes)
    for node in symbol.operators():
        try:
            outputs = lower_node(b, node, [read(symbol, values, edge) for edge in node.inputs], halves, rules)
        except UnsupportedError as error:
            raise UnsupportedError(f"{node.origin}: {error}") from None
        values.update((Edge(node.index, i), value) for i, value in enumerate(outputs))
        if most is not None and len(b.graph.nodes) - begin > most:
            raise UnsupportedError(f"its operators come to more than {most} nodes")


def lower_node(b: Builder, node: SymbolNode, inputs: list[Value], halves: Halves | None = None,
               rules: FindRule = find_rule) -> list[Value]:
    """Append one operator's IR and return its outputs: without those of MXNet's that no rule computes.

    `halves` is shared by the nodes of a graph.

    Raises:
        UnsupportedError: the bare reason: naming the node is the caller's.
        ModelError: an attribute is malformed.
    """
    b.origin = node.origin
    try:
        return _apply(b, node, inputs, halves or Halves(), _rule(node, rules))
    except TypeRuleError as error:
        raise UnsupportedError(str(error)) from None


def _apply(b: Builder, node: SymbolNode, inputs: list[Value], halves: Halves, rule: Rule) -> list[Value]:
    least, most = rule.operands
    if not least <= len(inputs) <= most:
        wanted = str(least) if least == most else f"{least} to {most}"
        raise UnsupportedError(f"found {len(inputs)} inputs, expected {wanted}")
    for position, value in enumerate(inputs):
        _check_type(f"input {position}", value.type, rule.types.elements)
    attrs = Attrs(node.attrs, node.origin)
    attrs.ignore(*rule.ignored)
    named = attrs.element(rule.result, None) if rule.result else None
    with because(node.origin):
        lowered = rule.lower(b, _computing(b, rule, inputs, halves), attrs, node)
    if attrs.unread():
        unknown = ", ".join(f"{key}={value}" for key, value in attrs.unread().items())
        raise UnsupportedError(f"no support for {unknown}")
    outputs = [lowered] if isinstance(lowered, Value) else list(lowered)
    if named is None:
        outputs = [_stored(b, rule, inputs, value, halves) for value in outputs]
    else:
        outputs = [_as_named(b, value, named, halves) for value in outputs]
    for position, value in enumerate(outputs):
        _check_type(f"output {position}", value.type, EXACT.elements)
    return outputs


def _computing(b: Builder, rule: Rule, inputs: list[Value], halves: Halves) -> list[Value]:
    """The inputs in the types that the rule computes in."""
    if rule.types.moves and not any(halves.has_wide(value) for value in inputs):
        return inputs
    return [_in_f32(b, value, halves) if value.type.element.name in rule.types.in_f32 else value for value in inputs]


def _in_f32(b: Builder, value: Value, halves: Halves) -> Value:
    return halves.widened(b, value) if value.type.element is f16 else b.convert(value, element=f32)


def _stored(b: Builder, rule: Rule, inputs: list[Value], result: Value, halves: Halves) -> Value:
    """A result in the element type that MXNet gives it."""
    elements = [value.type.element for value in inputs]
    position = rule.typed_by if isinstance(rule.typed_by, int) else rule.typed_by(elements)
    if result.type.element is not f32 or position >= len(inputs):
        return result
    element = elements[position]
    if element.name not in rule.types.in_f32:
        return result
    return halves.narrowed(b, result) if element is f16 else b.convert(result, element=element)


def _as_named(b: Builder, result: Value, element: ElementType, halves: Halves) -> Value:
    """A result in the element type that an attribute names."""
    own = result.type.element
    if own is element:
        return result
    return halves.narrowed(b, result) if (own, element) == (f32, f16) else b.convert(result, element=element)


def _rule(node: SymbolNode, rules: FindRule) -> Rule:
    rule = rules(node.op)
    if rule is None:
        reason = why_left(node.op) or ("it runs subgraphs of its own" if node.bodies else None)
        raise UnsupportedError(f"{node.op} stays with MXNet: {reason}" if reason
                               else f"no rule for the MXNet operator {node.op}")
    return rule


def _check_type(what: str, type_: TensorType, elements: tuple[str, ...]) -> None:
    if type_.element.name not in elements:
        raise UnsupportedError(f"{what} is {type_}; supported element types: {', '.join(elements)}")
    if not type_.rank:
        raise UnsupportedError(f"{what} has rank 0, which MXNet takes for an unknown shape")
    if not type_.size:
        raise UnsupportedError(f"{what} is {type_}, which has no elements")


def read(symbol: SymbolGraph, values: Mapping[Edge, Value], edge: Edge) -> Value:
    """The value of `edge`.

    Raises:
        UnsupportedError: no rule computes it.
    """
    if edge not in values:
        raise UnsupportedError(unread_output(symbol.nodes[edge.node], edge.output))
    return values[edge]


def unread_output(node: SymbolNode, output: int) -> str:
    """The reason when someone reads an output that no rule computes, such as batch norm's mean."""
    return f"output {output} of {node.origin} is read, which is not computed at inference"
