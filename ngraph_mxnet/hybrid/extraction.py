"""Cuts the graph of a region out of the whole."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from ngraph_mxnet.hybrid.outline import Outline
from ngraph_mxnet.hybrid.schedule import Region
from ngraph_mxnet.ir.graph import Graph, Node, Value


@dataclass(frozen=True)
class Part:
    """A graph for one device. `inputs` and `outputs` are the whole graph's values that its parameters and results are.
    """

    device: int
    graph: Graph
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]


def extract_regions(outline: Outline, regions: Iterable[Region]) -> list[Part]:
    """Each region, with a copy of what prepares its weights; first what only prepared nodes make for the results."""
    graph = outline.graph
    parts: list[Part] = []
    for region in regions:
        nodes = [outline.nodes[item] for item in region.items]
        own = set(nodes)
        outside = {value for node in graph.nodes if node not in own for value in node.inputs} | set(graph.results)
        outputs = tuple(value for node in nodes for value in node.outputs if value in outside)
        name = f"{graph.name}_{region.device}_{len(parts)}"
        parts.append(_extract(name, region.device, outline, own, outputs))
    made = tuple(value for value in dict.fromkeys(graph.results) if value.node in outline.prepared)
    return [*([_extract(f"{graph.name}_weights", 0, outline, set(), made)] if made else []), *parts]


def _extract(name: str, device: int, outline: Outline, own: Collection[Node], outputs: tuple[Value, ...]) -> Part:
    needed = set(own)
    inputs: set[Value] = set()
    stack = [value for node in own for value in node.inputs] + [v for v in outputs if v.node not in own]
    while stack:
        value = stack.pop()
        if value.node in outline.prepared and value.node is not None:
            if value.node not in needed:
                needed.add(value.node)
                stack.extend(value.node.inputs)
        elif value.node is None or value.node not in own:
            inputs.add(value)
    part = Graph(name)
    table: dict[Value, Value] = {}
    taken = {parameter.name for parameter in outline.graph.parameters}
    for value in outline.graph.values():
        if value in inputs:
            label = value.name if value.node is None else _fresh(value.name or f"value{len(table)}", taken)
            origin = value.origin if value.node is None else value.node.origin
            table[value] = part.add_parameter(value.type, label, cacheable=value.cacheable, origin=origin)
    for node in outline.graph.nodes:
        if node in needed:
            twin = Node(node.op, [table[v] for v in node.inputs], dict(node.attrs), origin=node.origin)
            twin.outputs = [Value(v.type, twin, v.index, v.name) for v in node.outputs]
            table.update(zip(node.outputs, twin.outputs, strict=True))
            part.nodes.append(twin)
    part.results = [table[value] for value in outputs]
    return Part(device, part, tuple(value for value in table if value in inputs), outputs)


def _fresh(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    taken.add(name)
    return name
