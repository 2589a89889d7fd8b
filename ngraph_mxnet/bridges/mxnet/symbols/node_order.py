"""The order in which MXNet has the nodes of a graph that it loads: that of its walk from the outputs."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import replace
from typing import TypeVar

from ngraph_mxnet.bridges.mxnet.symbols.symbol_json import SymbolGraph

Key = TypeVar("Key", bound=Hashable)


def in_order(heads: Iterable[Key], reads: Callable[[Key], Iterable[Key]]) -> Iterator[Key]:
    """All that is reached from the heads, each behind what it reads, as MXNet's walk leaves them."""
    left: set[Key] = set()
    waiting = [(head, False) for head in reversed(list(heads))]
    while waiting:
        of, is_read = waiting.pop()
        if of in left:
            continue
        if is_read:
            left.add(of)
            yield of
        else:
            waiting.append((of, True))
            waiting.extend((read, False) for read in reversed(list(reads(of))))


def as_loaded(graph: SymbolGraph) -> SymbolGraph:
    """The graph as MXNet has it once it is loaded: without what no output depends on."""
    order = list(in_order([head.node for head in graph.heads],
                          lambda index: [edge.node for edge in graph.nodes[index].inputs]))
    at = {index: place for place, index in enumerate(order)}
    nodes = tuple(graph.nodes[index].placed(place, [replace(edge, node=at[edge.node])
                                                    for edge in graph.nodes[index].inputs])
                  for place, index in enumerate(order))
    return SymbolGraph(nodes, tuple(node.index for node in nodes if node.is_variable),
                       tuple(replace(head, node=at[head.node]) for head in graph.heads))
