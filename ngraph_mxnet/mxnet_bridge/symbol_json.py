"""MXNet's symbol JSON (NNVM's graph format), parsed and checked; nothing here imports mxnet.

A file may be of any MXNet generation: node attributes stand under `attrs`, `attr` or `param`, and an edge
is `[node, output]` or `[node, output, version]`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from ngraph_mxnet.errors import ModelError
from ngraph_mxnet.ir.types import ElementType, Shape, TensorType, element_type

VARIABLE = "null"

# MXNet's numbers for element types (mshadow's type flags).
_ELEMENTS = ("f32", "f64", "f16", "u8", "i32", "i8", "i64", "bool")


@dataclass(frozen=True)
class Edge:
    """Output `output` of node number `node`."""

    node: int
    output: int


@dataclass(frozen=True)
class SymbolNode:
    """A variable (`op == "null"`) or one application of an MXNet operator; attribute values are text.

    `types` holds the type of each output where the partitioner wrote it; an entry, or all of it, is None
    when MXNet could not infer it. `bodies` are the JSON of graphs that the operator itself runs.
    """

    index: int
    op: str
    name: str
    attrs: Mapping[str, str]
    inputs: tuple[Edge, ...]
    types: tuple[TensorType | None, ...] | None = None
    bodies: tuple[Any, ...] = field(default=(), compare=False)

    @property
    def is_variable(self) -> bool:
        return self.op == VARIABLE

    @property
    def argument(self) -> str:
        """A variable's name in the whole model; in a region of the partitioner's it stands in `argName`."""
        return self.attrs.get("argName", self.name)

    @property
    def is_computed(self) -> bool:
        """Whether it is a variable of a region that stands for what another part of the model computes."""
        return self.attrs.get("isArg") == "False" and self.attrs.get("isAux") == "False"

    def body(self, number: int = 0) -> SymbolGraph:
        """The graph of that number which the operator runs.

        Raises:
            ModelError: there is none, or it is damaged.
        """
        if number >= len(self.bodies):
            raise ModelError(f"{self.origin}: it has no graph {number} of its own")
        return _graph(self.bodies[number])

    @property
    def origin(self) -> str:
        """How the IR and the messages name the node."""
        return f"mx:{self.name} {self.op}"


@dataclass(frozen=True)
class SymbolGraph:
    """Nodes in topological order, the numbers of the variables in argument order, and the outputs."""

    nodes: tuple[SymbolNode, ...]
    arg_nodes: tuple[int, ...]
    heads: tuple[Edge, ...]

    def arguments(self) -> list[SymbolNode]:
        """The variables, in argument order."""
        return [self.nodes[index] for index in self.arg_nodes]

    def operators(self) -> list[SymbolNode]:
        return [node for node in self.nodes if not node.is_variable]

    def readers(self) -> dict[Edge, list[tuple[SymbolNode, int]]]:
        """Who reads each edge, and as which input."""
        table: dict[Edge, list[tuple[SymbolNode, int]]] = {}
        for node in self.nodes:
            for slot, edge in enumerate(node.inputs):
                table.setdefault(edge, []).append((node, slot))
        return table


def mxnet_element(number: int) -> ElementType:
    """The element type behind MXNet's dtype number.

    Raises:
        ModelError: there is none (bfloat16, or a number MXNet does not have).
    """
    if not 0 <= number < len(_ELEMENTS):
        raise ModelError(f"MXNet dtype number {number} has no element type; known: 0 to {len(_ELEMENTS) - 1}")
    return element_type(_ELEMENTS[number])


def type_attributes(graph: SymbolGraph) -> dict[str, str]:
    """The types of the outputs as the partitioner writes them into a node's attributes; none if one is unknown."""
    heads = [(graph.nodes[head.node].types or ())[head.output:head.output + 1] for head in graph.heads]
    types = [head[0] for head in heads if head and head[0] is not None]
    if len(types) < len(heads):
        return {}
    shapes = ",".join(f"[{','.join(map(str, type_.shape))}]" for type_ in types)
    numbers = ",".join(str(_ELEMENTS.index(type_.element.name)) for type_ in types)
    return {"__ext_shape__": f"[{shapes}]", "__ext_dtype__": f"[{numbers}]"}


def parse_symbol(text: str) -> SymbolGraph:
    """The graph that a symbol JSON describes.

    Raises:
        ModelError: not JSON, a key is missing or of the wrong kind, or an edge points nowhere or forward;
            the text names the place.
    """
    try:
        root = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ModelError(f"symbol JSON does not parse: {error}") from None
    return _graph(root)


def _graph(root: Any) -> SymbolGraph:
    if not isinstance(root, dict):
        raise ModelError(f"symbol JSON: expected an object with 'nodes', found {type(root).__name__}")
    nodes: list[SymbolNode] = []
    for index, record in enumerate(_list(root, "nodes", "symbol JSON")):
        nodes.append(_node(index, record))
    default_args = [node.index for node in nodes if node.is_variable]
    arg_nodes = _list(root, "arg_nodes", "symbol JSON") if "arg_nodes" in root else default_args
    for position, index in enumerate(arg_nodes):
        if not _is_index(index, len(nodes)) or not nodes[index].is_variable:
            raise ModelError(f"symbol JSON: arg_nodes[{position}] is {index!r}, not a variable's number")
    if set(default_args) != set(arg_nodes) or len(arg_nodes) != len(default_args):
        raise ModelError(f"symbol JSON: arg_nodes lists {len(arg_nodes)} of {len(default_args)} variables")
    heads = [_edge(edge, len(nodes), "heads", position)
             for position, edge in enumerate(_list(root, "heads", "symbol JSON"))]
    if not heads:
        raise ModelError("symbol JSON: 'heads' is empty: the graph has no output")
    return SymbolGraph(tuple(nodes), tuple(arg_nodes), tuple(heads))


def cut_region(graph: SymbolGraph, members: Sequence[int]) -> SymbolGraph:
    """The nodes numbered `members` (ascending) as a graph of their own; what they read from outside become
    variables, what is read outside its outputs."""
    inside = set(members)
    nodes: list[SymbolNode] = []
    at: dict[Edge, Edge] = {}
    for index in members:
        node = graph.nodes[index]
        for edge in node.inputs:
            if edge not in at and edge.node not in inside:
                at[edge] = Edge(len(nodes), 0)
                nodes.append(_outer_variable(graph.nodes[edge.node], edge.output, len(nodes)))
        nodes.append(replace(node, index=len(nodes), inputs=tuple(at[edge] for edge in node.inputs)))
        outputs = range(len(node.types or (None,)))
        at.update((Edge(index, output), Edge(len(nodes) - 1, output)) for output in outputs)
    read_outside = [edge for edge, readers in graph.readers().items()
                    if edge.node in inside and any(reader.index not in inside for reader, _ in readers)]
    heads = dict.fromkeys(read_outside + [head for head in graph.heads if head.node in inside])
    arguments = tuple(node.index for node in nodes if node.is_variable)
    return SymbolGraph(tuple(nodes), arguments, tuple(at[head] for head in heads))


def _outer_variable(producer: SymbolNode, output: int, index: int) -> SymbolNode:
    attrs = {} if producer.is_variable else {"isArg": "False", "isAux": "False"}
    types = producer.types[output:output + 1] if producer.types else None
    name = producer.name if producer.is_variable else f"{producer.name}_output{output}"
    return SymbolNode(index, VARIABLE, name, attrs, (), types or None)


def _node(index: int, record: Any) -> SymbolNode:
    where = f"nodes[{index}]"
    if not isinstance(record, dict):
        raise ModelError(f"symbol JSON: {where} is {type(record).__name__}, expected an object")
    op, name = record.get("op"), record.get("name")
    if not isinstance(op, str) or not isinstance(name, str):
        raise ModelError(f"symbol JSON: {where} needs the strings 'op' and 'name', found {op!r} and {name!r}")
    where += f" ({name} {op})"
    inputs = tuple([_edge(edge, index, f"{where}.inputs", slot)
                    for slot, edge in enumerate(_list(record, "inputs", where) if "inputs" in record else [])])
    if op == VARIABLE and inputs:
        raise ModelError(f"symbol JSON: {where} is a variable and yet has inputs")
    attrs = _attributes(record, where)
    return SymbolNode(index, op, name, attrs, inputs, _types(attrs, where), tuple(record.get("subgraphs") or ()))


def _attributes(record: Mapping[str, Any], where: str) -> dict[str, str]:
    """All generations' keys together; the newest wins."""
    merged: dict[str, str] = {}
    for key in ("param", "attr", "attrs"):
        part = record.get(key, {})
        if not isinstance(part, dict):
            raise ModelError(f"symbol JSON: {where}.{key} is {type(part).__name__}, expected an object")
        merged.update((str(k), v if isinstance(v, str) else str(v)) for k, v in part.items())
    return merged


def _types(attrs: Mapping[str, str], where: str) -> tuple[TensorType | None, ...] | None:
    """From `__ext_shape__` and `__ext_dtype__`, which the partitioner writes."""
    if "__ext_shape__" not in attrs:
        return None
    try:
        return _parsed_types(attrs["__ext_shape__"], attrs.get("__ext_dtype__"))
    except (ValueError, TypeError) as error:
        raise ModelError(f"symbol JSON: {where}: can't read __ext_shape__={attrs['__ext_shape__']!r}, "
                         f"__ext_dtype__={attrs.get('__ext_dtype__')!r}: {error}") from None


@lru_cache
def _parsed_types(shape_text: str, dtype_text: str | None) -> tuple[TensorType | None, ...]:
    """A graph has few different ones."""
    shapes = json.loads(shape_text.replace("None", "null"))
    numbers = json.loads(dtype_text) if dtype_text is not None else [0] * len(shapes)
    return tuple(_type(shape, number) for shape, number in zip(shapes, numbers, strict=True))


def _type(shape: Any, number: Any) -> TensorType | None:
    """None where MXNet does not know: it writes `None`, -1 or an empty list."""
    if not shape or any(not isinstance(d, int) or d < 0 for d in shape) or number < 0:
        return None
    if number >= len(_ELEMENTS):
        return None
    return TensorType(mxnet_element(number), known_shape(shape))


def known_shape(shape: Any) -> Shape:
    return tuple(int(d) for d in shape)


def _edge(edge: Any, limit: int, where: str, position: int) -> Edge:
    """The edge at `where[position]`. `limit`: edges may point at nodes before it only, which keeps the order
    topological and acyclic."""
    if (not isinstance(edge, list) or len(edge) not in (2, 3) or not _is_index(edge[0], limit)
            or not _is_index(edge[1], 1 << 20)):
        raise ModelError(f"symbol JSON: {where}[{position}] is {edge!r}, "
                         f"expected [node, output] with node below {limit}")
    return Edge(edge[0], edge[1])


def _is_index(value: Any, limit: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < limit


def _list(record: Mapping[str, Any], key: str, where: str) -> list[Any]:
    value = record.get(key)
    if not isinstance(value, list):
        raise ModelError(f"{where}: '{key}' is {type(value).__name__}, expected a list")
    return value
