"""Regions of a symbol's graph: cut out as graphs of their own, and put back as one node each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ngraph_mxnet.bridges.mxnet.symbols.node_order import in_order
from ngraph_mxnet.bridges.mxnet.symbols.symbol_json import VARIABLE, Edge, SymbolGraph, SymbolNode


@dataclass(frozen=True)
class Cut:
    """A region: the numbers of its nodes, its own graph, and what its arguments and outputs are in the whole one."""

    members: tuple[int, ...]
    graph: SymbolGraph
    sources: tuple[Edge, ...]
    outputs: tuple[Edge, ...]


def cut_region(graph: SymbolGraph, members: Sequence[int]) -> Cut:
    """The nodes numbered `members` as a graph of their own; what they read from outside become variables, what is
    read outside its outputs. Nodes stand as MXNet orders them when it loads the graph."""
    inside = set(members)
    read_outside = [edge for edge, readers in graph.readers().items()
                    if edge.node in inside and any(reader.index not in inside for reader, _ in readers)]
    outputs = tuple(dict.fromkeys(read_outside + [head for head in graph.heads if head.node in inside]))
    nodes: list[SymbolNode] = []
    at: dict[int | Edge, int] = {}

    def key(edge: Edge) -> int | Edge:
        """A node of the region by its number, what is read from outside by its edge."""
        return edge.node if edge.node in inside else edge

    def own(edge: Edge) -> Edge:
        return Edge(at[key(edge)], edge.output if edge.node in inside else 0, edge.version)

    for of in in_order(map(key, outputs), lambda of: () if isinstance(of, Edge) else map(key, graph.nodes[of].inputs)):
        at[of] = index = len(nodes)
        if isinstance(of, Edge):
            nodes.append(_outer_variable(graph.nodes[of.node], of.output, index))
        else:
            nodes.append(graph.nodes[of].placed(index, map(own, graph.nodes[of].inputs)))
    arguments = tuple(node.index for node in nodes if node.is_variable)
    sources = tuple(of for of in at if isinstance(of, Edge))
    return Cut(tuple(members), SymbolGraph(tuple(nodes), arguments, tuple(map(own, outputs))), sources, outputs)


def _outer_variable(producer: SymbolNode, output: int, index: int) -> SymbolNode:
    attrs = {} if producer.is_variable else {"isArg": "False", "isAux": "False"}
    types = producer.types[output:output + 1] if producer.types else None
    name = producer.name if producer.is_variable else f"{producer.name}_output{output}"
    return SymbolNode(index, VARIABLE, name, attrs, (), types or None)


def contracted(graph: SymbolGraph, cuts: Sequence[Cut], one_node: Callable[[Cut], SymbolNode]) -> SymbolGraph:
    """The graph with each region as the node that `one_node` makes of it; index and inputs are set here.

    Nodes stand as MXNet orders them when it loads the graph.
    """
    region = {member: number for number, cut in enumerate(cuts) for member in cut.members}
    exported = {edge: place for cut in cuts for place, edge in enumerate(cut.outputs)}
    nodes: list[SymbolNode] = []
    placed: dict[tuple[str, int], int] = {}

    def unit(index: int) -> tuple[str, int]:
        return ("region", region[index]) if index in region else ("node", index)

    def reads(of: tuple[str, int]) -> Sequence[Edge]:
        kind, number = of
        return cuts[number].sources if kind == "region" else graph.nodes[number].inputs

    def moved(edge: Edge) -> Edge:
        at = placed[unit(edge.node)]
        return Edge(at, exported[edge] if edge.node in region else edge.output, edge.version)

    heads = [unit(head.node) for head in graph.heads]
    for of in in_order(heads, lambda of: [unit(edge.node) for edge in reads(of)]):
        kind, number = of
        node = one_node(cuts[number]) if kind == "region" else graph.nodes[number]
        placed[of] = len(nodes)
        nodes.append(node.placed(len(nodes), map(moved, reads(of))))
    arguments = tuple(node.index for node in nodes if node.is_variable)
    return SymbolGraph(tuple(nodes), arguments, tuple(map(moved, graph.heads)))
