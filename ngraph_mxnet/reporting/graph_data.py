"""Names of nodes as a tree of blocks, so that a picture can show a block as one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ngraph_mxnet.ir.graph import Graph, Node, Value, constant_of
from ngraph_mxnet.ir.types import format_attribute
from ngraph_mxnet.name_pieces import pieces
from ngraph_mxnet.runtime.lowered import Lowered

_DENSE = 0.4
"""The least share that a block has of the nodes from its first to its last: others are no part of the model, but
counters of an operator's kind, such as Conv in Conv_1, Conv_2."""


@dataclass(frozen=True)
class Scope:
    """A block. `parent` is the place of the block around it, -1 where there is none."""

    label: str
    parent: int


def scopes(names: Sequence[str]) -> tuple[list[Scope], list[int]]:
    """The blocks that names of nodes, in order, tell of: what several begin with, up to `/`, `.` or `_`.

    Returns:
        The blocks, each behind the one around it; and for each name the innermost that it is in, -1 for none.
    """
    found: list[Scope] = []
    innermost = [-1] * len(names)
    cut = [pieces(name) for name in names]

    def divide(members: list[int], depth: int, taken: int, parent: int) -> None:
        groups: dict[str, list[int]] = {}
        for member in members:
            innermost[member] = parent
            if depth < len(cut[member]) - 1:
                groups.setdefault(cut[member][depth], []).append(member)
        for group in groups.values():
            whole = len(group) == len(members)
            if len(group) < 2 or whole or len(group) / (group[-1] - group[0] + 1) < _DENSE:
                divide(group, depth + 1, taken, parent)
                continue
            label = "".join(cut[group[0]][taken:depth + 1]).strip("/._")
            found.append(Scope(label, parent))
            divide(group, depth + 1, depth + 1, len(found) - 1)

    divide(list(range(len(names))), 0, 0, -1)
    return found, innermost


_MOST_CHARACTERS = 200


def graph_data(graph: Graph, lowered: Lowered | None, where: Mapping[str, tuple[str, str]]) -> dict[str, Any]:
    """For JSON: `nodes` in order, the inputs before and the results behind; `edges` of places, with a place among
    `types`; `scopes`.

    Args:
        lowered: of the same graph, for layouts.
        where: the device of nodes, and why it is that, by origin.
    """
    nodes, place = [_parameter(value) for value in graph.parameters], dict[Value, int]()
    place.update((value, number) for number, value in enumerate(graph.parameters))
    kept = [(number, node) for number, node in enumerate(graph.nodes) if node.op.name != "constant"]
    places_of_nodes: dict[int, int] = {}
    types: dict[str, int] = {}
    edges: list[tuple[int, int, int]] = []
    for number, node in kept:
        reader = places_of_nodes[number] = len(nodes)
        nodes.append(_node(node, lowered.layouts[number] if lowered else "", where.get(node.origin)))
        for value in dict.fromkeys(node.inputs):
            if value in place:
                edges.append((place[value], reader, types.setdefault(str(value.type), len(types))))
        place.update(dict.fromkeys(node.outputs, reader))
    for number, value in enumerate(graph.results):
        nodes.append({"kind": "result", "op": "result", "name": value.name or f"result {number}",
                      "types": [str(value.type)]})
        if value in place:
            edges.append((place[value], len(nodes) - 1, types.setdefault(str(value.type), len(types))))
    found, innermost = scopes([name_of(node) for _, node in kept])
    for (number, _), scope in zip(kept, innermost, strict=True):
        nodes[places_of_nodes[number]]["scope"] = scope
    return {"name": graph.name, "nodes": nodes, "edges": edges, "types": list(types),
            "scopes": [[scope.label, scope.parent] for scope in found], "places": places_of_nodes}


def name_of(node: Node) -> str:
    """The framework's name of the first of what the node was made of; empty if it has none."""
    return node.origin.partition(" + ")[0].partition(":")[2].partition(" ")[0]


def _parameter(value: Value) -> dict[str, Any]:
    return {"kind": "weight" if value.is_weight else "input", "op": "weight" if value.is_weight else "input",
            "name": value.name, "types": [str(value.type)]}


def _node(node: Node, layout: str, where: tuple[str, str] | None) -> dict[str, Any]:
    kind = "contraction" if node.op.contraction else "computing" if node.op.computes else "moving"
    operands = [str(value.type) + (" constant" if constant_of(value) is not None else "") for value in node.inputs]
    found = {"kind": kind, "op": node.op.name, "name": name_of(node), "origin": node.origin,
             "types": [str(value.type) for value in node.outputs], "operands": operands,
             "attributes": {name: _text(value) for name, value in node.attrs.items()
                            if value != node.op.schema[name].default or isinstance(value, np.ndarray)}}
    if layout:
        found["layout"] = layout
    if where is not None:
        found["device"], found["why"] = where
    return found


def _text(value: Any) -> str:
    if isinstance(value, Graph):
        return "\n".join(f"{node.op.name}: {node.outputs[0].type}" for node in value.nodes)
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape}"
    text = format_attribute(value)
    return text if len(text) <= _MOST_CHARACTERS else text[:_MOST_CHARACTERS - 1] + "\u2026"
