"""The graph in Graphviz' dot language and as a picture."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np

from ngraph_mxnet.base.drawing import Box, Edge, Look, picture
from ngraph_mxnet.ir.graph import Graph, Node, Value, count_ops, print_graph, value_names
from ngraph_mxnet.ir.types import format_attribute
from ngraph_mxnet.passes.base import PassRecord


def to_dot(graph: Graph, *, highlight: Collection[Node] = ()) -> str:
    """The text for `dot -Tsvg`. An edge is labelled with its type; nodes in `highlight` are outlined.

    Constants are left out: most are parameters of the node that reads them.
    """
    names, (items, edges) = value_names(graph), items_of(graph)
    lines = [f"digraph {_quote(graph.name)} {{", "  node [shape=box, style=filled, fontname=sans];"]
    for place, item in enumerate(items):
        if isinstance(item, Node):
            colour = "lightsalmon" if item.op.contraction else "lightblue" if item.op.computes else "lightgrey"
            text, style = label(item), f"fillcolor={colour}" + ", color=red, penwidth=3" * (item in highlight)
        else:
            text = f"result {item}" if isinstance(item, int) else f"{names[item]}\n{item.type}"
            colour = "lightyellow" if isinstance(item, Value) and item.is_weight else "khaki"
            style = f"shape=ellipse, fillcolor={colour}"
        lines.append(f"  n{place} [label={_quote(text)}, {style}];")
    lines += [f"  n{source} -> n{reader} [label={_quote(str(value.type))}];" for source, reader, value in edges]
    return "\n".join([*lines, "}"]) + "\n"


Item = Value | Node | int


def items_of(graph: Graph, *, weights: bool = True) -> tuple[list[Item], list[tuple[int, int, Value]]]:
    """Return what a drawing shows, parameters, nodes but constants, and the numbers of results, and the edges: the
    places of two of them, and the value that the second reads of the first. Without `weights`, nodes that depend on
    nothing else are left out, too."""
    items: list[Item] = [value for value in graph.parameters if weights or not value.is_weight]
    made = {value: place for place, value in enumerate(items) if isinstance(value, Value)}
    edges: list[tuple[int, int, Value]] = []
    for node in graph.nodes:
        read = [value for value in node.inputs if value in made]
        if node.op.name != "constant" and (weights or read or not node.inputs):
            edges += [(made[value], len(items), value) for value in read]
            made.update(dict.fromkeys(node.outputs, len(items)))
            items.append(node)
    for number, result in enumerate(graph.results):
        edges += [(made[result], len(items), result)] if result in made else []
        items.append(number)
    return items, edges


def label(node: Node) -> str:
    """The op, the attributes that are not as by default, and the origin, a line each."""
    shown = [f"{key}={_text(value)}" for key, value in node.attrs.items()
             if not isinstance(value, np.ndarray) and value != node.op.schema[key].default]
    return "\n".join([node.op.name, *shown, *([node.origin] if node.origin else [])])


def _text(value: Any) -> str:
    """An attribute's; a body is only named, for it would be a drawing of its own."""
    return f"@{value.name}" if isinstance(value, Graph) else format_attribute(value)


def _quote(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


class Dump:
    """An observer for `PassManager`: `optimize(graph, observer=Dump("dumps"))`.

    Files are called `<graph>.<number>.<pass>.ngraph`, in the order of execution; a pass that changed nothing
    takes a number, but writes no file. `elide` shortens constants; such a text does not parse back.
    """

    def __init__(self, folder: str | Path, *, elide: bool = True, dot: bool = False) -> None:
        self.folder = Path(folder)
        self.elide, self.dot = elide, dot
        self._number = 0

    def __call__(self, record: PassRecord, graph: Graph) -> None:
        if record.changed:
            self.write(graph, record.name)
        self._number += 1

    def write(self, graph: Graph, stage: str) -> Path:
        """Write the graph as it is now; `stage` is part of the file's name."""
        self.folder.mkdir(parents=True, exist_ok=True)
        stem = f"{_file_name(graph.name)}.{self._number:03d}.{_file_name(stage)}"
        path = self.folder / f"{stem}.ngraph"
        path.write_text(print_graph(graph, elide=self.elide), encoding="utf-8")
        if self.dot:
            (self.folder / f"{stem}.dot").write_text(to_dot(graph), encoding="utf-8")
        return path


def _file_name(name: str) -> str:
    return "".join(c if c.isalnum() or c in "-_" else "_" for c in name) or "graph"


_PORT = Look("#dcf0dc", "#3a7a40", "input, result")
_CONTRACTION = Look("#ffe2c2", "#b1611a", "convolution, matrix product")
_COMPUTING = Look("#d8e8f9", "#2f6ca8", "other computing")
_MOVING = Look("#eaedf0", "#77828d", "moves data only")


def to_svg(graph: Graph) -> str:
    """Boxes for inputs, nodes and results; edges carry types. Weights and constants, and what depends on nothing else,
    are left out: most are parameters of the node that reads them."""
    items, edges = items_of(graph, weights=False)
    nodes = [item for item in items if isinstance(item, Node)]

    def box(item: Item) -> Box:
        if isinstance(item, Value):
            return Box(item.name, str(item.type), _PORT, is_round=True)
        if isinstance(item, int):
            return Box(f"result {item}", str(graph.results[item].type), _PORT, is_round=True)
        look = _CONTRACTION if item.op.contraction else _COMPUTING if item.op.computes else _MOVING
        return Box(item.op.name, item.origin, look, label(item))

    return picture(list(map(box, items)), [Edge(source, reader, str(value.type)) for source, reader, value in
                                           dict.fromkeys(edges)], graph.name, [_line(nodes, len(graph.nodes))])


def _line(drawn: list[Node], of: int) -> str:
    counts = sorted(count_ops(drawn).items(), key=lambda each: -each[1])
    ops = ", ".join(f"{name} \u00d7{count}" for name, count in counts)
    left_out = "; weights, constants and what depends on nothing else are left out" if len(drawn) < of else ""
    return f"{len(drawn)} nodes{': ' if ops else ''}{ops}{left_out}"
