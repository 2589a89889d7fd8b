"""The graph in Graphviz' dot language."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from ngraph_mxnet.ir.attributes import format_attribute
from ngraph_mxnet.ir.graph import Graph, Node
from ngraph_mxnet.ir.printer import value_names
from ngraph_mxnet.ir.roles import Role


def to_dot(graph: Graph, *, highlight: Collection[Node] = (), constants: bool = False) -> str:
    """The text for `dot -Tsvg`. An edge is labelled with its type; nodes in `highlight` are outlined.

    Constants are left out unless asked for: most are parameters of the node that reads them.
    """
    names = value_names(graph)
    ids = {value: f"p{index}" for index, value in enumerate(graph.parameters)}
    lines = [f"digraph {_quote(graph.name)} {{", "  node [shape=box, style=filled, fontname=sans];"]
    for parameter in graph.parameters:
        colour = "lightyellow" if parameter.role is Role.WEIGHT else "khaki"
        text = _quote(f"{names[parameter]}\n{parameter.type}")
        lines.append(f"  {ids[parameter]} [label={text}, shape=ellipse, fillcolor={colour}];")
    for index, node in enumerate(graph.nodes):
        if node.op.name == "constant" and not constants:
            continue
        outline = ", color=red, penwidth=3" if node in highlight else ""
        lines.append(f"  n{index} [label={_quote(label(node))}, fillcolor={_colour(node)}{outline}];")
        ids.update(dict.fromkeys(node.outputs, f"n{index}"))
        lines += [f"  {ids[v]} -> n{index} [label={_quote(str(v.type))}];" for v in node.inputs if v in ids]
    for index, result in enumerate(graph.results):
        lines.append(f"  r{index} [label={_quote(f'result {index}')}, shape=ellipse, fillcolor=khaki];")
        if result in ids:
            lines.append(f"  {ids[result]} -> r{index} [label={_quote(str(result.type))}];")
    return "\n".join([*lines, "}"]) + "\n"


def label(node: Node) -> str:
    """The op, the attributes that are not as by default, and the origin, a line each."""
    shown = [
        f"{key}={_text(value)}" for key, value in node.attrs.items()
        if not isinstance(value, np.ndarray) and value != node.op.schema[key].default
    ]
    return "\n".join([node.op.name, *shown, *([node.origin] if node.origin else [])])


def _text(value: Any) -> str:
    """An attribute's; a body is only named, for it would be a drawing of its own."""
    return f"@{value.name}" if isinstance(value, Graph) else format_attribute(value)


def _colour(node: Node) -> str:
    """By what the node costs: contractions, the rest, what computes nothing."""
    return "lightsalmon" if node.op.contraction else "lightblue" if node.op.computes else "lightgrey"


def _quote(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
