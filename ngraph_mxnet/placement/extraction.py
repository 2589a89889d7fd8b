"""Cuts the graphs of the regions out of the whole, as a module."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from ngraph_mxnet.ir.extract import Extract, extract
from ngraph_mxnet.ir.graph import Graph, Node, Value
from ngraph_mxnet.ir.module import Module, Modules
from ngraph_mxnet.placement.outline import Outline
from ngraph_mxnet.placement.problem import HOST
from ngraph_mxnet.placement.schedule import Region


@dataclass(frozen=True)
class Regions:
    """A graph for each region, and the device of each step."""

    module: Module
    devices: tuple[int, ...]


def extract_regions(outline: Outline, regions: Sequence[Region]) -> Regions:
    """Each region, with a copy of what prepares its weights; first what only prepared nodes make for the results."""
    graph, modules = outline.graph, Modules(outline.graph)
    made = tuple(value for value in dict.fromkeys(graph.results) if value.node in outline.prepared)
    if made:
        name = f"{graph.name}_weights"
        modules.add(name, _extract(name, outline, set(), made), made)
    for number, region in enumerate(regions):
        nodes = [outline.nodes[item] for item in region.items]
        own = set(nodes)
        outside = {value for node in graph.nodes if node not in own for value in node.inputs} | set(graph.results)
        outputs = tuple(value for node in nodes for value in node.outputs if value in outside)
        name = f"{graph.name}_{region.device}_{number}"
        modules.add(name, _extract(name, outline, own, outputs), outputs)
    return Regions(modules.build(), (*[HOST] * bool(made), *(region.device for region in regions)))


def whole_region(graph: Graph, device: int) -> Regions:
    """The whole graph, all its parameters too, as the only region."""
    own, modules = graph.clone(), Modules(graph)  # what is compiled may be rewritten
    both = dict.fromkeys(pair for pair in zip(graph.results, own.results, strict=True) if pair[0].node is not None)
    own.results = [result for _, result in both]
    modules.add(graph.name, Extract(own, tuple(graph.parameters)), [result for result, _ in both])
    return Regions(modules.build(), (device,))


def _extract(name: str, outline: Outline, own: Collection[Node], outputs: tuple[Value, ...]) -> Extract:
    """With a copy of what prepares its weights."""
    inside = outline.prepared.union(own)
    return extract(outline.graph, outputs, (value for value in outline.graph.values() if value.node not in inside),
                   name=name, label=lambda value, number: value.name or f"value{number}")
