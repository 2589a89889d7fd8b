"""Text of a graph.

    graph @head(%data: f32[8,512,7,7], %w: f32[10,512] weight) -> (f32[8,10]) {
      %0: f32[8,512] = reduce_mean(%data) {axes=[2,3]}       # mx:pool1 Pooling
      %1: f32[8,10] = matmul(%0, %w) {transpose_b=true}      # mx:fc1 FullyConnected
      return %1
    }

Sizes that are symbols are declared behind the name, with their bounds, and `guard` lines say what is assumed of them:

    graph @flat<N: 1..32, H: 1..>(%data: f32[N,3,H,8]) -> (f32[N,24*H]) {
      guard H - 7 > 0
      %0: f32[N,24*H] = reshape(%data) {shape=[N,24*H]}
      return %0
    }

Attributes that equal their default are left out. A graph in an attribute follows its node's line:

      %0: f32[4,8] = fused(%x)
        body @body(%a: f32[4,8]) -> (f32[4,8]) {
          %0: f32[4,8] = sigmoid(%a)
          %1: f32[4,8] = multiply(%a, %0)
          return %1
        }

`parser.parse_graph` reads it back.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from ngraph_mxnet.ir.attributes import format_attribute
from ngraph_mxnet.ir.dims import Atom, Dim
from ngraph_mxnet.ir.sizes import range_of
from ngraph_mxnet.ir.structure import Node, Structure, Value

_PLAIN_NAME = re.compile(r"[A-Za-z_][\w.\-]*\Z")


def print_graph(graph: Structure, *, elide: bool = False, origins: bool = True) -> str:
    """The text; `elide` shortens constants of over 16 elements (such text does not parse back)."""
    names = value_names(graph)
    parameters = ", ".join(
        f"{names[p]}: {p.type}" + (" weight" if p.is_weight else "") for p in graph.parameters
    )
    results = ", ".join(str(r.type) for r in graph.results)
    symbols = ", ".join(f"{atom.text}: {range_of(atom.low, atom.high)}" for atom in symbols_of(graph))
    declared = f"<{symbols}>" if symbols else ""
    lines = [f"graph @{_quote(graph.name)}{declared}({parameters}) -> ({results}) {{"]
    lines += [f"  guard {guard}" for guard in graph.guards]
    for node in graph.nodes:
        lines.append(format_node(node, names, elide=elide, origins=origins))
        for key, value in node.attrs.items():
            if isinstance(value, Structure):
                text = print_graph(value, elide=elide, origins=origins).replace("graph ", f"{key} ", 1)
                lines += ["    " + line for line in text.splitlines()]
    lines += ["  return " + ", ".join(names[r] for r in graph.results), "}"]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def symbols_of(graph: Structure) -> list[Atom]:
    """The symbols among the sizes of its values and attributes, as they come."""
    sizes: list[Any] = [size for value in graph.values() for size in value.shape]
    for node in graph.nodes:
        for attribute in node.attrs.values():
            sizes += attribute if isinstance(attribute, tuple) else [attribute]
    found = dict.fromkeys(atom for size in sizes if isinstance(size, Dim)
                          for atom in sorted(size.symbols, key=str))
    return list(found)


def value_names(graph: Structure) -> dict[Value, str]:
    """`%name` for parameters, `%0`, `%1` ... for node outputs."""
    names = {parameter: "%" + _quote(parameter.name) for parameter in graph.parameters}
    outputs = (value for node in graph.nodes for value in node.outputs)
    names.update((value, f"%{number}") for number, value in enumerate(outputs))
    return names


def format_node(node: Node, names: dict[Value, str], *, elide: bool = False, origins: bool = True) -> str:
    """One line of text."""
    outputs = ", ".join(f"{names[v]}: {v.type}" for v in node.outputs)
    operands = ", ".join(names.get(v, "%?") for v in node.inputs)
    shown = []
    for key, value in node.attrs.items():
        if isinstance(value, Structure):
            continue  # printed below the node
        kind = node.op.schema.get(key)  # None in a damaged graph, which the verifier's errors show
        if kind is None or not _equal(value, kind.default):
            big = elide and isinstance(value, np.ndarray) and value.size > 16
            shown.append(f"{key}={'dense<...>' if big else format_attribute(value)}")
    attrs = f" {{{', '.join(shown)}}}" if shown else ""
    line = f"  {outputs} = {node.op.name}({operands}){attrs}"
    return f"{line:<60}  # {_escape_end(_escape(node.origin))}" if origins and node.origin else line


def neighbourhood(graph: Structure, node: Node, radius: int = 3) -> str:
    """The lines of IR around `node`, its own marked."""
    names = value_names(graph)
    at = graph.nodes.index(node)
    lines = []
    for position in range(max(0, at - radius), min(len(graph.nodes), at + radius + 1)):
        mark = ">" if position == at else " "
        lines.append(mark + format_node(graph.nodes[position], names, elide=True))
    return "\n".join(lines)


def _equal(a: object, b: object) -> bool:
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return False
    return type(a) is type(b) and a == b


def _quote(name: str) -> str:
    if _PLAIN_NAME.match(name):
        return name
    return '"' + _escape(name).replace('"', "\\u0022") + '"'


def _escape_end(text: str) -> str:
    """Make a last space survive the stripping of lines."""
    return text[:-1] + "\\x20" if text.endswith(" ") else text


def _escape(text: str) -> str:
    return text.encode("unicode_escape").decode("ascii")
