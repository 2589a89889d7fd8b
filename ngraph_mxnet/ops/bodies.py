"""Ops that run graphs in their attributes: a cluster of ops as one, loops, and a choice. The nodes that stand for them.

A body's parameters are, in order, what it gets at every trip: of loops first what changes from trip to trip, then the
operands that it captures, which are the same at every trip.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ngraph_mxnet.ir.graph import Body, Builder, Graph, Node, Value, copied, node_cost
from ngraph_mxnet.ir.opdef import Attrs, Rates, Shapes, Work, register_op
from ngraph_mxnet.ir.types import Int, TensorType, boolean
from ngraph_mxnet.ops.common import require
from ngraph_mxnet.ops.compositions import full, place_of, stacked


def _work(count: Callable[[Shapes, Attrs], Any], *bodies: str) -> Work:
    """That of these bodies, `count` times."""
    def rates(operands: Shapes, results: Shapes, attrs: Attrs) -> Rates:
        total: Counter[str] = Counter()
        for node in _nodes(attrs, bodies):
            total += node.op.operations([v.shape for v in node.inputs], [v.shape for v in node.outputs], node.attrs)
        return {name: rate * count(operands, attrs) for name, rate in total.items()}

    return rates


def _counts(count: Callable[[Shapes, Attrs], Any], *bodies: str) -> Callable[..., tuple[int, int]]:
    def counts(operands: Shapes, results: Shapes, attrs: Mapping[str, Any]) -> tuple[int, int]:
        costs = [node_cost(node) for node in _nodes(attrs, bodies)]
        trips = count(operands, attrs)
        return sum(cost.macs for cost in costs) * trips, sum(cost.operations for cost in costs) * trips

    return counts


def _nodes(attrs: Attrs, bodies: Iterable[str]) -> list[Node]:
    return [node for body in bodies for node in attrs[body].nodes]


def _facts(count: Callable[[Shapes, Attrs], Any], *bodies: str) -> dict[str, Any]:
    return {"work": _work(count, *bodies), "counts": _counts(count, *bodies)}


def bodies_of(node: Node) -> dict[str, Graph]:
    """The graphs among the node's attributes."""
    return {name: value for name, value in node.attrs.items() if isinstance(value, Graph)}


def nodes_within(node: Node) -> list[Node]:
    """Return the nodes of the graphs that the node runs, which may run graphs, too."""
    return _nodes(node.attrs, bodies_of(node))


def without_unread(operands: Sequence[Value], fixed: int, *bodies: Graph) -> list[Value]:
    """The operands without captured ones that no body reads, which lose their parameters, too."""
    read = {value for body in bodies
            for value in (*body.results, *(operand for node in body.nodes for operand in node.inputs))}
    kept = [place for place in range(len(operands))
            if place < fixed or any(body.parameters[place] in read for body in bodies)]
    for body in bodies:
        body.parameters = [body.parameters[place] for place in kept]
    return [operands[place] for place in kept]


def _require_parameters(body: Graph, name: str, types: Sequence[TensorType]) -> None:
    wanted = [parameter.type for parameter in body.parameters]
    require(len(types) == len(wanted), "operands", len(types), f"{len(wanted)}, as the {name} has parameters")
    for position, (found, parameter) in enumerate(zip(types, wanted, strict=True)):
        require(found == parameter, f"operand {position}", found, f"{parameter}, as the {name}'s parameter")


def _require_carried(body: Graph, types: Sequence[TensorType]) -> None:
    """What is carried has the same type behind a trip as before."""
    require(len(body.results) >= len(types), "body", f"{len(body.results)} results", f"{len(types)} or more")
    for position, (type_, result) in enumerate(zip(types, body.results, strict=False)):
        require(result.type == type_, f"result {position} of the body", result.type, f"{type_}, as before the trip")


def _require_flag(type_: TensorType, what: str) -> None:
    require(type_.element is boolean and type_.shape == (), what, type_, "bool[]")


def _evaluated(body: Graph, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    values: dict[Value, np.ndarray] = dict(zip(body.parameters, inputs, strict=True))
    for node in body.nodes:
        results = node.op.evaluate([values[operand] for operand in node.inputs], node.attrs)
        values.update(zip(node.outputs, results, strict=True))
    return [values[result] for result in body.results]


def placed(b: Builder, body: Graph, operands: Sequence[Value]) -> list[Value]:
    """Append a body's nodes, on these operands. Return its results."""
    table = dict(zip(body.parameters, operands, strict=True))
    for node in body.nodes:
        twin = copied(node, table, dict(node.attrs))
        for value in twin.outputs:
            value.builder = b
        b.graph.nodes.append(twin)
    return [table[result] for result in body.results]


@register_op("fused", operands=(0, None), attrs={"body": Body()}, **_facts(lambda operands, attrs: 1, "body"))
def fused(types, attrs):
    """Compute the graph `body`: its parameters are the operands, its results the outputs."""
    _require_parameters(attrs["body"], "body", types)
    return [result.type for result in attrs["body"].results]


@fused.reference
def _(inputs, attrs):
    return _evaluated(attrs["body"], inputs)


def _trips(operands: Shapes, attrs: Attrs) -> Any:
    return operands[0][0]


@register_op("foreach", operands=(1, None), attrs={"body": Body(), "data": Int(1), "states": Int(0)},
             **_facts(_trips, "body"))
def foreach(types, attrs):
    """The graph `body` for each place along axis 0 of the first `data` operands: T[N, ...], states, captured -> the
    states behind the last trip, then rows T[N, ...].

    The body gets a place T[...] of each of the data, the states and what is captured. It gives the next states, then a
    row each.
    """
    body, data, states = attrs["body"], attrs["data"], attrs["states"]
    require(data >= 1 and states >= 0 and data + states <= len(types), "data and states", f"{data} and {states}",
            f"1 or more and 0 or more, of {len(types)} operands")
    for position, type_ in enumerate(types[:data]):
        fits = type_.rank > 0 and type_.shape[0] == types[0].shape[0] and type_.shape[0] >= 1
        require(fits, f"operand {position}", type_, "the same number of places along axis 0, 1 or more")
    _require_parameters(body, "body", [*(type_.with_shape(type_.shape[1:]) for type_ in types[:data]), *types[data:]])
    _require_carried(body, types[data:data + states])
    return [*types[data:data + states], *_rows(body.results[states:], types[0].shape[0])]


def _rows(results: Sequence[Value], trips: Any) -> list[TensorType]:
    return [value.type.with_shape((trips, *value.shape)) for value in results]


@foreach.reference
def _(inputs, attrs):
    data, count = attrs["data"], attrs["states"]
    states, rows = list(inputs[data:data + count]), list[list[np.ndarray]]()
    for places in zip(*inputs[:data], strict=True):
        results = _evaluated(attrs["body"], [*map(np.asarray, places), *states, *inputs[data + count:]])
        states = results[:count]
        rows.append(results[count:])
    return [*states, *map(np.stack, zip(*rows, strict=True))]


def _repeated(b: Builder, operands: Sequence[Value], attrs: Attrs) -> list[Value]:
    data, count = attrs["data"], attrs["states"]
    states, rows = list(operands[data:data + count]), list[list[Value]]()
    for trip in range(int(operands[0].shape[0])):
        places = [place_of(b, value, 0, trip) for value in operands[:data]]
        results = placed(b, attrs["body"], [*places, *states, *operands[data + count:]])
        states = results[:count]
        rows.append(results[count:])
    return [*states, *(stacked(b, row) for row in zip(*rows, strict=True))]


@register_op("while_loop", operands=(1, None),
             attrs={"condition": Body(), "body": Body(), "variables": Int(1), "trips": Int()},
             **_facts(lambda operands, attrs: attrs["trips"], "condition", "body"))
def while_loop(types, attrs):
    """The graph `body` as long as `condition` gives true, at most `trips` times: the first `variables` operands, then
    what is captured -> the variables behind the last trip, then rows T[trips, ...], of 0 behind it.

    Both graphs get the variables and what is captured. The condition gives bool[], the body the next variables, then a
    row each.
    """
    variables, trips = attrs["variables"], attrs["trips"]
    require(1 <= variables <= len(types), "variables", variables, f"1 to {len(types)}, of the operands")
    require(trips >= 1, "trips", trips, "1 or more")
    for name in ("condition", "body"):
        _require_parameters(attrs[name], name, types)
    require(len(attrs["condition"].results) == 1, "condition", f"{len(attrs['condition'].results)} results", "1")
    _require_flag(attrs["condition"].results[0].type, "result of the condition")
    _require_carried(attrs["body"], types[:variables])
    return [*types[:variables], *_rows(attrs["body"].results[variables:], trips)]


@while_loop.reference
def _(inputs, attrs):
    count, trips, body = attrs["variables"], attrs["trips"], attrs["body"]
    values, captured = list(inputs[:count]), inputs[count:]
    rows = [np.zeros((trips, *value.shape), value.element.numpy) for value in body.results[count:]]
    for trip in range(trips):
        if not _evaluated(attrs["condition"], [*values, *captured])[0]:
            break
        results = _evaluated(body, [*values, *captured])
        values = results[:count]
        for row, value in zip(rows, results[count:], strict=True):
            row[trip] = value
    return [*values, *rows]


def _selected(b: Builder, operands: Sequence[Value], attrs: Attrs) -> list[Value]:
    """All trips; where the condition no longer holds, variables stay as they are."""
    count, holds = attrs["variables"], None
    values, captured, rows = list(operands[:count]), operands[count:], list[list[Value]]()
    for _ in range(attrs["trips"]):
        goes_on, = placed(b, attrs["condition"], [*values, *captured])
        holds = goes_on if holds is None else b.logical_and(holds, goes_on)
        results = placed(b, attrs["body"], [*values, *captured])
        rows.append([b.select(holds, value, full(b, 0, value)) for value in results[count:]])
        values = [b.select(holds, *pair) for pair in zip(results[:count], values, strict=True)]
    return [*values, *(stacked(b, row) for row in zip(*rows, strict=True))]


@register_op("cond", operands=(1, None), attrs={"then": Body(), "otherwise": Body()},
             **_facts(lambda operands, attrs: 1, "then", "otherwise"))
def cond(types, attrs):
    """bool[], captured -> what the graph `then` gives of what is captured where operand 0 is true, else `otherwise`."""
    then, otherwise = attrs["then"], attrs["otherwise"]
    _require_flag(types[0], "operand 0")
    for name in ("then", "otherwise"):
        _require_parameters(attrs[name], name, types[1:])
    found, wanted = ([value.type for value in graph.results] for graph in (otherwise, then))
    require(found == wanted, "results of otherwise", ", ".join(map(str, found)), f"{', '.join(map(str, wanted))}")
    return wanted


@cond.reference
def _(inputs, attrs):
    return _evaluated(attrs["then" if inputs[0] else "otherwise"], inputs[1:])


def _both(b: Builder, operands: Sequence[Value], attrs: Attrs) -> list[Value]:
    sides = [placed(b, attrs[name], operands[1:]) for name in ("then", "otherwise")]
    return [b.select(operands[0], *pair) for pair in zip(*sides, strict=True)]


_EXPANSIONS: dict[str, Callable[[Builder, Sequence[Value], Attrs], list[Value]]] = {
    "fused": lambda b, operands, attrs: placed(b, attrs["body"], operands),
    "foreach": _repeated,
    "while_loop": _selected,
    "cond": _both,
}


def has_bodies(op: str) -> bool:
    return op in _EXPANSIONS


def expanded(b: Builder, op: str, operands: Sequence[Value], attrs: Attrs) -> list[Value]:
    """Append the nodes that compute what the op does, without a node of the op's. Bodies are repeated for each trip,
    and both sides of a choice computed."""
    return _EXPANSIONS[op](b, operands, attrs)
