"""Graphs of our own IR: a node of any op, as the tests record them, and random graphs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fuzzing.values import test_helpers  # noqa: F401  (before what it makes importable)
from fuzzing.values.closeness import Closeness
from fuzzing.values.drawing import Draw, chance, generator, pick
from fuzzing.values.setups import Setup, draw_setup
from fuzzing.values.trials import Feeds, Trial, family
from ngraph_mxnet.ir import Builder, Graph, print_graph
from ngraph_mxnet.ir.types import Role

# isort: split
from op_records import RECORDS, array_of, tolerance_for
from random_graphs import graphs


def trial_of(draw: Draw, graph: Graph, calls: Sequence[Feeds], closeness: Closeness, *, files: bool = True) -> Trial:
    notes: Mapping[str, object] = {"binds": True} if chance(draw, 4) else {}
    setup = draw_setup(draw)
    if files and chance(draw, 6):
        notes, setup = {"way": "file"}, Setup(environment=setup.environment)
    if notes.get("binds"):
        for feeds in calls[1:]:
            feeds.update({each.name: calls[0][each.name] for each in graph.parameters if each.is_weight})
    ops = tuple(node.op.name for node in graph.nodes)
    return Trial("graph", print_graph(graph).encode(), list(calls), setup, closeness, ops, notes)


@family("one op", weight=6)
def one_op(draw: Draw) -> Trial:
    """As its record in the tests draws it."""
    record = RECORDS[pick(draw, *sorted(RECORDS))]
    types, attrs = record.case(draw)
    rng, b = generator(draw), Builder(name=record.op)
    roles = [Role.WEIGHT if number and chance(draw) else Role.INPUT for number in range(len(types))]
    operands = [b.parameter(f"x{number}", each.shape, each.element, role)
                for number, (each, role) in enumerate(zip(types, roles, strict=True))]
    graph = b.results(*b.node(record.op, operands, attrs).outputs)
    feeds = {f"x{number}": array_of(each, rng, record.low, record.high) for number, each in enumerate(types)}
    width = max([record.tolerance, *(tolerance_for(record, each.element.numpy) for each in types)])
    # Terms that cancel leave the rounding of what was summed, as the tests have it: the operands are about 1.
    floor = Closeness.floor if graph.nodes[0].op.elementwise else width
    empty = any(0 in value.shape for node in graph.nodes for value in (*node.inputs, *node.outputs))
    return trial_of(draw, graph, [feeds], Closeness(width, width, floor=floor), files=not empty)


@family("random graphs", weight=3)
def random_graphs(draw: Draw) -> Trial:
    graph: Graph = draw(graphs())
    rng = generator(draw)
    calls = [{parameter.name: rng.uniform(-2, 2, parameter.shape).astype(parameter.type.element.numpy)
              for parameter in graph.parameters} for _ in range(pick(draw, 1, 2))]
    ops = {node.op.name for node in graph.nodes}
    rounds = {"floor", "argmax", "greater", "convert"} & ops
    return trial_of(draw, graph, calls, Closeness(2e-3, 2e-3, steps=0, share=0.02 if rounds else 0.0))


