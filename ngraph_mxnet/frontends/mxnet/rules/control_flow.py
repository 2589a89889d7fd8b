"""Loops and choices: each a node of the IR with its bodies' graphs, or, as a rule, the nodes that stand for it.

Bodies of loops are repeated then; of a choice both sides are computed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from ngraph_mxnet.base.errors import ModelError, UnsupportedError
from ngraph_mxnet.frontends.mxnet.attrs import Halves, canonical
from ngraph_mxnet.frontends.mxnet.inlining import (
    COND,
    FOREACH,
    MOST_OPERATORS,
    WHILE,
    Cond,
    Foreach,
    While,
    operators_in,
    require_few,
)
from ngraph_mxnet.frontends.mxnet.rules.registry import (
    EXACT,
    Call,
    FindRule,
    Rule,
    find_rule,
    lower_operators,
    read,
    rule,
)
from ngraph_mxnet.frontends.mxnet.symbol_json import Edge, SymbolGraph
from ngraph_mxnet.ir import Builder, Graph, TensorType, Value
from ngraph_mxnet.ir.graph import Cost, constant_of, node_cost
from ngraph_mxnet.ir.types import Role
from ngraph_mxnet.ops.bodies import expanded, without_unread
from ngraph_mxnet.ops.compositions import reshaped, truth

MOST_IN_VAIN = 1 << 25
"""Multiply-adds and operations of a choice's sides, or of all trips that a loop may have, some of which are in vain:
they take about as long as MXNet takes for one choice or two trips, whatever these compute."""


MOST_NODES = 5 * MOST_OPERATORS
"""The most nodes of the IR that all trips come to. It bounds loops within loops, of which only the data tell how many
trips they are together; an operator comes to three or so."""


class _Flow(NamedTuple):
    """An op of the IR with bodies: its operands and attributes; the places of MXNet's outputs among its own."""

    op: str
    operands: list[Value]
    attrs: dict[str, Any]
    outputs: Sequence[int]


def _foreach(b: Builder, attrs: Call, inputs: Sequence[Value], rules: FindRule) -> _Flow:
    loop = Foreach.of(attrs.node, attrs)
    lengths = {value.shape[0] for value in inputs[:loop.data]}
    if len(lengths) > 1:
        raise UnsupportedError(f"the arrays that it goes over have {sorted(map(int, lengths))} places")
    data = [reshaped(b, value, (*value.shape, 1)) if value.rank == 1 else value for value in inputs[:loop.data]]
    operands = [*data, *inputs[loop.data:]]
    types = [value.type.with_shape(value.shape[1:]) if place < loop.data else value.type
             for place, value in enumerate(operands)]
    fixed = loop.data + loop.states
    body = _graph(loop.body.graph, operands, types, loop.body.sources, fixed, rules)
    body.results = [*body.results[loop.outputs:], *body.results[:loop.outputs]]
    _require_same(types[loop.data:fixed], body.results, "state")
    count = loop.states + loop.outputs
    return _Flow("foreach", without_unread(operands, fixed, body), {
        "body": body, "data": loop.data, "states": loop.states}, [*range(loop.states, count), *range(loop.states)])


def _while(b: Builder, attrs: Call, inputs: Sequence[Value], rules: FindRule) -> _Flow:
    loop = While.of(attrs.node, attrs)
    order = list(dict.fromkeys([*loop.variables, *range(len(inputs))]))
    count = len(loop.variables)
    if len(set(loop.variables)) < count:
        raise ModelError(f"{attrs.node.origin}: two of its variables are one input")
    operands, types = [inputs[at] for at in order], [inputs[at].type for at in order]
    condition, body = (
        _graph(each.graph, operands, types, [order.index(source) for source in each.sources], count, rules)
        for each in (loop.condition, loop.body))
    _with_flag(condition)
    body.results = [*body.results[loop.outputs:], *body.results[:loop.outputs]]
    _require_same(types[:count], body.results, "variable")
    both = count + loop.outputs
    return _Flow("while_loop", without_unread(operands, count, condition, body), {
        "condition": condition, "body": body, "variables": count, "trips": loop.trips,
    }, [*range(count, both), *range(count)])


def _cond(b: Builder, attrs: Call, inputs: Sequence[Value], rules: FindRule) -> _Flow:
    choice = Cond.of(attrs.node, attrs)
    types = [value.type for value in inputs]
    condition, then, otherwise = (_graph(each.graph, inputs, types, each.sources, 0, rules)
                                  for each in (choice.condition, choice.then, choice.otherwise))
    _with_flag(condition)
    _require_same([value.type for value in then.results], otherwise.results, "result")
    flag, = expanded(b, "fused", inputs, {"body": condition})
    return _Flow("cond", [flag, *without_unread(inputs, 0, then, otherwise)], {"then": then, "otherwise": otherwise},
                 range(len(then.results)))


_FLOWS: dict[str, Callable[[Builder, Call, Sequence[Value], FindRule], _Flow]] = {
    FOREACH: _foreach, WHILE: _while, COND: _cond}


def _graph(symbol: SymbolGraph, operands: Sequence[Value], types: Sequence[TensorType], sources: Sequence[int],
           fixed: int, rules: FindRule) -> Graph:
    """The graph of a body. Its parameters stand for the operands, of which those from `fixed` on are captured; its
    arguments are the operands at `sources`."""
    b = Builder(name="body")
    own = [b.parameter(f"x{place}", type_.shape, type_.element, Role.WEIGHT if value.is_weight else Role.INPUT)
           for place, (value, type_) in enumerate(zip(operands, types, strict=True))]
    for place, value in enumerate(operands[fixed:], fixed):
        if (array := constant_of(value)) is not None:
            own[place] = b.constant(array)
    values = {Edge(index, 0): own[source] for index, source in zip(symbol.arg_nodes, sources, strict=True)}
    lower_operators(b, symbol, values, Halves(), rules, most=MOST_NODES)
    return b.results(*(read(symbol, values, head) for head in symbol.heads))


def _with_flag(condition: Graph) -> None:
    """Let the graph give bool[] where it gives a number of one element."""
    b = Builder(condition)
    (found,) = condition.results
    if found.size != 1:
        raise UnsupportedError(f"its condition is {found.type}, expected one element")
    b.results(b.reshape(truth(b, found), shape=()))


def _require_same(types: Sequence[TensorType], after: Sequence[Value], what: str) -> None:
    for number, (old, new) in enumerate(zip(types, after, strict=False)):
        if old != new.type:
            raise UnsupportedError(f"{what} {number} is {old} before a trip and {new.type} after it" if what != "result"
                                   else f"{what} {number} is {old} on one side and {new.type} on the other")


def _kept(b: Builder, attrs: Call, *inputs: Value) -> list[Value]:
    flow = _FLOWS[canonical(attrs.node.op)](b, attrs, inputs, keeping)
    b.origin = attrs.node.origin
    outputs = b.node(flow.op, flow.operands, flow.attrs).outputs
    return [outputs[place] for place in flow.outputs]


def keeping(op: str) -> Rule | None:
    """`find_rule` whose rules of loops and choices make one node of the IR of each."""
    found = find_rule(op)
    return replace(found, lower=_kept) if found is not None and canonical(op) in _FLOWS else found


def _expanded(b: Builder, attrs: Call, flow: _Flow) -> list[Value]:
    b.origin = attrs.node.origin
    results = expanded(b, flow.op, flow.operands, flow.attrs)
    return [results[place] for place in flow.outputs]


def _nodes(flow: _Flow) -> int:
    return sum(len(body.nodes) for body in flow.attrs.values() if isinstance(body, Graph))


@rule(FOREACH, types=EXACT, ignored=["num_args"])
def foreach(b: Builder, attrs: Call, *inputs: Value) -> list[Value]:
    """The body for each place along the first axis of its data; in all at most 10000 operators."""
    loop = Foreach.of(attrs.node, attrs)
    trips = int(inputs[0].shape[0])
    count = trips * max(1, operators_in(loop.body.graph))
    if count > MOST_OPERATORS:
        raise UnsupportedError(f"its {trips} trips apply {count} operators; at most {MOST_OPERATORS} are compiled")
    flow = _foreach(b, attrs, inputs, find_rule)
    nodes = trips * _nodes(flow)
    if nodes > MOST_NODES:
        raise UnsupportedError(f"its {trips} trips come to {nodes} nodes; at most {MOST_NODES} are compiled")
    return _expanded(b, attrs, flow)


@rule(WHILE, types=EXACT, ignored=["num_args"])
def while_loop(b: Builder, attrs: Call, *inputs: Value) -> list[Value]:
    """All `max_iterations`, if together they compute little; where the condition no longer holds, variables stay as
    they are. Rows behind are 0, where MXNet leaves what was in the memory."""
    require_few(attrs.node)
    flow = _while(b, attrs, inputs, find_rule)
    return _in_vain(b, attrs, flow, flow.attrs["trips"], "all its trips")


@rule(COND, types=EXACT, ignored=["num_args"])
def cond(b: Builder, attrs: Call, *inputs: Value) -> list[Value]:
    """Both sides and a selection, if both together compute little."""
    require_few(attrs.node)
    return _in_vain(b, attrs, _cond(b, attrs, inputs, find_rule), 1, "both its sides")


def _in_vain(b: Builder, attrs: Call, flow: _Flow, trips: int, what: str) -> list[Value]:
    if trips * _nodes(flow) > MOST_NODES:
        raise UnsupportedError(f"its operators come to more than {MOST_NODES} nodes")
    begin = len(b.graph.nodes)
    results = _expanded(b, attrs, flow)
    total = sum((node_cost(each) for each in b.graph.nodes[begin:]), Cost())
    if total.macs + total.operations > MOST_IN_VAIN:
        raise UnsupportedError(f"{what} compute {total.macs + total.operations} multiply-adds and operations, some of "
                               f"which are in vain; at most {MOST_IN_VAIN} are compiled")
    return results
