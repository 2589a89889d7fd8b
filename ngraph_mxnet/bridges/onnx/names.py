"""The subgraphs of nodes, and which names they read of what is around them."""

from __future__ import annotations

from collections.abc import Iterable

import onnx


def subgraphs(node: onnx.NodeProto) -> list[onnx.GraphProto]:
    """Those that its attributes hold, not those within them."""
    return [graph for attribute in node.attribute
            for graph in (*([attribute.g] if attribute.HasField("g") else ()), *attribute.graphs)]


def names_from_outside(nodes: Iterable[onnx.NodeProto], made: Iterable[str] = ()) -> dict[str, None]:
    """What the nodes and their subgraphs read that they do not make, and that is not in `made`; in order."""
    own, found = {*made, ""}, dict[str, None]()
    for node in nodes:
        read = (*node.input, *names_in_subgraphs(node))
        found.update(dict.fromkeys(name for name in read if name not in own))
        own.update(node.output)
    return found


def names_in_subgraphs(node: onnx.NodeProto) -> list[str]:
    """What a node's subgraphs read of the graphs around them."""
    return [name for graph in subgraphs(node) for name in names_around(graph)]


def names_around(graph: onnx.GraphProto) -> list[str]:
    """What a subgraph reads of the graphs around it."""
    own = {*(value.name for value in graph.input), *(tensor.name for tensor in graph.initializer)}
    read = names_from_outside(graph.node, own)
    own.update(name for node in graph.node for name in node.output)
    return list({**read, **dict.fromkeys(value.name for value in graph.output if value.name not in own)})
