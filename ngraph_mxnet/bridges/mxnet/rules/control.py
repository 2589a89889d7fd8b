"""Control flow: bodies are repeated in the graph, of a choice both sides are computed."""

from __future__ import annotations

from ngraph_mxnet.bridges.mxnet.rules.lowering import lower_operators, read
from ngraph_mxnet.bridges.mxnet.rules.registry import EXACT, rule
from ngraph_mxnet.bridges.mxnet.symbols.attrs import Attrs, Halves
from ngraph_mxnet.bridges.mxnet.symbols.inlining import (
    COND,
    FOREACH,
    MOST_OPERATORS,
    WHILE,
    Cond,
    Foreach,
    While,
    expansion,
    operators_in,
)
from ngraph_mxnet.bridges.mxnet.symbols.symbol_json import Edge, SymbolGraph, SymbolNode
from ngraph_mxnet.compositions.tensors import slice_axis
from ngraph_mxnet.errors import UnsupportedError
from ngraph_mxnet.ir import Builder, Value
from ngraph_mxnet.ir.graph import Cost, node_cost

MOST_IN_VAIN = 1 << 25
"""Multiply-adds and operations of a choice's sides, or of all trips that a loop may have, some of which are in vain:
they take about as long as MXNet takes for one choice or two trips, whatever these compute."""


MOST_NODES = 5 * MOST_OPERATORS
"""The most nodes of the IR that all trips come to. It bounds loops within loops, of which only the data tell how many
trips they are together; an operator comes to three or so."""


@rule(FOREACH, types=EXACT, ignored=["num_args"])
def foreach(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> list[Value]:
    """The body for each place along the first axis of its data; in all at most 10000 operators."""
    loop = Foreach.of(node, attrs)
    lengths = {int(value.shape[0]) for value in inputs[:loop.data]}
    if len(lengths) > 1:
        raise UnsupportedError(f"the arrays that it goes over have {sorted(lengths)} places")
    trips, graph, halves = lengths.pop(), loop.body.graph, Halves()
    count = trips * operators_in(graph)
    if count > MOST_OPERATORS:
        raise UnsupportedError(f"its {trips} trips apply {count} operators; at most {MOST_OPERATORS} are compiled")
    state, captured = inputs[loop.data:loop.data + loop.states], inputs[loop.data + loop.states:]
    begin = len(b.graph.nodes)
    rows: list[list[Value]] = [[] for _ in range(loop.outputs)]
    for trip in range(trips):
        places = [_place(b, value, trip) for value in inputs[:loop.data]]
        read_by_node = [*places, *state, *captured]
        results = _lowered(b, graph, [read_by_node[source] for source in loop.body.sources], halves)
        for row, value in zip(rows, results, strict=False):
            row.append(b.reshape(value, shape=(1, *value.shape)))
        before, state = state, results[loop.outputs:]
        _check_states(before, state)
        nodes = (len(b.graph.nodes) - begin) * trips // (trip + 1)
        if nodes > MOST_NODES:
            raise UnsupportedError(f"its {trips} trips come to {nodes} nodes; at most {MOST_NODES} are compiled")
    return [*(b.concat(*row, axis=0) for row in rows), *state]


def _place(b: Builder, value: Value, trip: int) -> Value:
    """value[trip], of rank 1 at least."""
    return b.reshape(slice_axis(b, value, 0, trip, trip + 1), shape=value.shape[1:] or (1,))


def _check_states(before: list[Value], after: list[Value]) -> None:
    for number, (old, new) in enumerate(zip(before, after, strict=True)):
        if old.type != new.type:
            raise UnsupportedError(f"state {number} is {old.type} before a trip and {new.type} after it")


@rule(WHILE, types=EXACT, ignored=["num_args"])
def while_loop(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> list[Value]:
    """All `max_iterations`, if together they compute little; where the condition no longer holds, variables stay as
    they are. Rows behind are 0, where MXNet leaves what was in the memory."""
    While.of(node, attrs)
    return _selected(b, inputs, node, "all its trips")


@rule(COND, types=EXACT, ignored=["num_args"])
def cond(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> list[Value]:
    """Both sides and a selection, if both together compute little."""
    Cond.of(node, attrs)
    return _selected(b, inputs, node, "both its sides")


def _selected(b: Builder, inputs: list[Value], node: SymbolNode, what: str) -> list[Value]:
    begin = len(b.graph.nodes)
    results = _lowered(b, expansion(node), inputs, Halves(), MOST_NODES)
    total = sum((node_cost(each) for each in b.graph.nodes[begin:]), Cost())
    if total.macs + total.operations > MOST_IN_VAIN:
        raise UnsupportedError(f"{what} compute {total.macs + total.operations} multiply-adds and operations, some of "
                               f"which are in vain; at most {MOST_IN_VAIN} are compiled")
    return results


def _lowered(b: Builder, graph: SymbolGraph, arguments: list[Value], halves: Halves,
             most: int | None = None) -> list[Value]:
    """The graph's results for these arguments."""
    values = {Edge(index, 0): value for index, value in zip(graph.arg_nodes, arguments, strict=True)}
    lower_operators(b, graph, values, halves, most=most)
    return [read(graph, values, head) for head in graph.heads]
