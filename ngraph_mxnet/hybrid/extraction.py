"""Cuts the graph of a region out of the whole."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from ngraph_mxnet.hybrid.outline import Outline
from ngraph_mxnet.hybrid.schedule import Region
from ngraph_mxnet.ir.extract import extract
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
    """With a copy of what prepares its weights."""
    inside = outline.prepared.union(own)
    part = extract(outline.graph, outputs, (value for value in outline.graph.values() if value.node not in inside),
                   name=name, label=lambda value, number: value.name or f"value{number}")
    return Part(device, part.graph, part.inputs, outputs)
