"""MXNet's symbol JSON (NNVM's graph format), parsed and checked; nothing here imports mxnet.

A file may be of any MXNet generation: node attributes stand under `attrs`, `attr` or `param`, and an edge
is `[node, output]` or `[node, output, version]`.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from ngraph_mxnet.base.errors import ModelError, unreadable
from ngraph_mxnet.ir.types import ElementType, TensorType, element_type

VARIABLE = "null"

# MXNet's numbers for element types (mshadow's type flags).
_ELEMENTS = ("f32", "f64", "f16", "u8", "i32", "i8", "i64", "bool")


@dataclass(unsafe_hash=True, slots=True)
class Edge:
    """Output `output` of node number `node`; `version` counts how often operators before wrote to a variable.

    Nobody changes an edge or a node. That is not enforced, because a graph is made anew several times on its way, and
    frozen ones take three times as long to make.
    """

    node: int
    output: int
    version: int = field(default=0, compare=False)


@dataclass(slots=True)
class SymbolNode:
    """A variable (`op == "null"`) or one application of an MXNet operator; attribute values are text.

    `types` holds the type of each output where it was inferred; an entry is None when MXNet could not.
    `bodies` are the JSON of graphs that the operator itself runs.
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
        """True if the node is a variable of a region that stands for what another part of the model computes."""
        return self.attrs.get("isArg") == "False" and self.attrs.get("isAux") == "False"

    def placed(self, index: int, inputs: Iterable[Edge]) -> SymbolNode:
        """The node with another number and other inputs. `replace` takes several times as long."""
        return SymbolNode(index, self.op, self.name, self.attrs, tuple(inputs), self.types, self.bodies)

    def typed(self, types: Iterable[TensorType | None]) -> SymbolNode:
        """The node with the types of its outputs."""
        return SymbolNode(self.index, self.op, self.name, self.attrs, self.inputs, tuple(types), self.bodies)

    def body(self, number: int = 0) -> SymbolGraph:
        """The graph of that number which the operator runs.

        Raises:
            ModelError: there is none, or it is damaged.
        """
        if number >= len(self.bodies):
            raise ModelError(f"{self.origin}: it has no graph {number} of its own")
        return graph_of(self.bodies[number])

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

    def to_json(self) -> dict[str, Any]:
        """The root object of its JSON, with no attributes of its own."""
        return {"nodes": [_record(node) for node in self.nodes], "arg_nodes": list(self.arg_nodes),
                "heads": [[head.node, head.output, head.version] for head in self.heads]}

    @cached_property
    def structure(self) -> str:
        """A digest of all that lowering depends on beside the types of arguments: of no names."""
        rows = [[node.op, sorted(node.attrs.items()), [[edge.node, edge.output] for edge in node.inputs], node.bodies]
                for node in self.nodes]
        heads = [[head.node, head.output] for head in self.heads]
        return hashlib.sha256(json.dumps([rows, self.arg_nodes, heads]).encode()).hexdigest()

    @cached_property
    def _readers(self) -> dict[Edge, list[tuple[SymbolNode, int]]]:
        table: dict[Edge, list[tuple[SymbolNode, int]]] = {}
        for node in self.nodes:
            for slot, edge in enumerate(node.inputs):
                table.setdefault(edge, []).append((node, slot))
        return table

    def readers(self) -> Mapping[Edge, Sequence[tuple[SymbolNode, int]]]:
        """Who reads each edge, and as which input."""
        return self._readers


def mxnet_element(number: int) -> ElementType:
    """The element type behind MXNet's dtype number.

    Raises:
        ModelError: there is none (bfloat16, or a number MXNet does not have).
    """
    if not 0 <= number < len(_ELEMENTS):
        raise ModelError(f"MXNet dtype number {number} has no element type; known: 0 to {len(_ELEMENTS) - 1}")
    return element_type(_ELEMENTS[number])


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
    return graph_of(root)


def read_symbol(source: str | os.PathLike[str]) -> SymbolGraph:
    """The graph in a file, or in JSON text, of any version since 0.7, as MXNet 1.9.1 has it once it is loaded.

    Raises:
        ModelError: the file can't be read, or as `parse_symbol`.
    """
    text = source if isinstance(source, str) else os.fspath(source)
    if not text.lstrip().startswith("{"):
        try:
            text = Path(text).read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise unreadable(source, error) from None
    graph = parse_symbol(text)
    told = json.loads(text).get("attrs")
    version = told.get("mxnet_version") if isinstance(told, dict) else None
    number = version[1] if isinstance(version, list) and len(version) == 2 and isinstance(version[1], int) else 800
    return as_loaded(upgraded(graph, number))


_STATES = {"BatchNorm": ("moving_mean", "moving_var")}
"""The last inputs of operators, which files before 0.9 have not: their auxiliary states."""
_HIDDEN = ("ctx_group", "force_mirroring", "lr_mult", "mirror_stage", "wd_mult")
"""Attributes that MXNet keeps between underscores, also of an input: `weight_lr_mult`."""


def upgraded(graph: SymbolGraph, version: int) -> SymbolGraph:
    """The graph of a file of this version (10901 is 1.9.1), with what later versions write (`LoadLegacyJSONPass` in
    MXNet's src/nnvm/legacy_json_util.cc)."""
    nodes: list[SymbolNode] = []
    at: list[int] = []
    for node in graph.nodes:
        inputs = [replace(edge, node=at[edge.node]) for edge in node.inputs]
        states = _STATES.get(node.op, ()) if version < 900 else ()
        for name in states[max(0, len(inputs) - 3):] if len(inputs) >= 3 else ():
            inputs.append(Edge(len(nodes), 0))
            nodes.append(SymbolNode(len(nodes), VARIABLE, f"{node.name}_{name}", {}, ()))
        attrs = {key if not key.endswith(_HIDDEN) or key.startswith("__") else f"__{key}__": value
                 for key, value in node.attrs.items()}
        if version < 905 and node.op in ("argmax", "argmin") and attrs.get("axis") == "-1":
            del attrs["axis"]  # it meant all axes
        at.append(len(nodes))
        nodes.append(replace(node, index=len(nodes), attrs=attrs, inputs=tuple(inputs)))
    arguments = tuple(node.index for node in nodes if node.is_variable)
    return SymbolGraph(tuple(nodes), arguments, tuple(replace(head, node=at[head.node]) for head in graph.heads))


def graph_of(root: Any) -> SymbolGraph:
    """The graph that a symbol's parsed JSON describes.

    Raises:
        ModelError: as `parse_symbol`.
    """
    if not isinstance(root, dict):
        raise ModelError(f"symbol JSON: expected an object with 'nodes', found {type(root).__name__}")
    nodes: list[SymbolNode] = []
    for index, record in enumerate(_list(root, "nodes", "symbol JSON")):
        nodes.append(_node(index, record))
        for edge in nodes[-1].inputs:
            if edge.output:
                _require_output(nodes[edge.node], edge, f"nodes[{index}]")
    default_args = [node.index for node in nodes if node.is_variable]
    arg_nodes = _list(root, "arg_nodes", "symbol JSON") if "arg_nodes" in root else default_args
    for position, index in enumerate(arg_nodes):
        if not _is_index(index, len(nodes)) or not nodes[index].is_variable:
            raise ModelError(f"symbol JSON: arg_nodes[{position}] is {index!r}, not a variable's number")
    if set(default_args) != set(arg_nodes) or len(arg_nodes) != len(default_args):
        raise ModelError(f"symbol JSON: arg_nodes lists {len(arg_nodes)} of {len(default_args)} variables")
    heads = [_edge(edge, len(nodes), "heads", position)
             for position, edge in enumerate(_list(root, "heads", "symbol JSON"))]
    for head in heads:
        _require_output(nodes[head.node], head, "heads")
    if not heads:
        raise ModelError("symbol JSON: 'heads' is empty: the graph has no output")
    return SymbolGraph(tuple(nodes), tuple(arg_nodes), tuple(heads))


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
    return SymbolNode(index, op, name, _attributes(record, where), inputs, None, _bodies(record, where))


_MOST_LEVELS = 16
"""Graphs within graphs: each level is read anew by all levels around it."""


def _bodies(record: Mapping[str, Any], where: str) -> tuple[Any, ...]:
    bodies = record.get("subgraphs")
    if not bodies:
        return ()
    if not isinstance(bodies, list):
        raise ModelError(f"symbol JSON: {where}.subgraphs is {type(bodies).__name__}, expected a list")
    level = bodies
    for _ in range(_MOST_LEVELS):
        nodes = [node for body in level for node in _of(body, "nodes") if isinstance(node, dict)]
        level = [body for node in nodes for body in _of(node, "subgraphs")]
        if not level:
            return tuple(bodies)
    raise ModelError(f"symbol JSON: {where} has graphs within graphs, more than {_MOST_LEVELS} deep")


def _of(held: Any, key: str) -> list[Any]:
    found = held.get(key) if isinstance(held, dict) else None
    return found if isinstance(found, list) else []


def _record(node: SymbolNode) -> dict[str, Any]:
    """The reverse of `_node`."""
    record: dict[str, Any] = {"op": node.op, "name": node.name,
                              "inputs": [[edge.node, edge.output, edge.version] for edge in node.inputs]}
    if node.attrs:
        record["attrs"] = dict(node.attrs)
    if node.bodies:
        record["subgraphs"] = list(node.bodies)
    return record


def _attributes(record: Mapping[str, Any], where: str) -> dict[str, str]:
    """All generations' keys together; the newest wins."""
    merged: dict[str, str] = {}
    for key in ("param", "attr", "attrs"):
        if key in record:
            part = record[key]
            if not isinstance(part, dict):
                raise ModelError(f"symbol JSON: {where}.{key} is {type(part).__name__}, expected an object")
            merged.update([(str(k), v if isinstance(v, str) else str(v)) for k, v in part.items()])
    return merged


def _edge(edge: Any, limit: int, where: str, position: int) -> Edge:
    """The edge at `where[position]`. `limit`: edges may point at nodes before it only, which keeps the order
    topological and acyclic."""
    if (not isinstance(edge, list) or len(edge) not in (2, 3) or {*map(type, edge)} != {int}
            or not 0 <= edge[0] < limit or min(edge) < 0 or max(edge[1:]) >= 1 << 20):
        raise ModelError(f"symbol JSON: {where}[{position}] is {edge!r}, "
                         f"expected [node, output] with node below {limit}")
    return Edge(*edge)


def _require_output(node: SymbolNode, edge: Edge, where: str) -> None:
    """Raises ModelError: the edge is an output of a variable that is not its only one, 0."""
    if node.is_variable and edge.output:
        raise ModelError(f"symbol JSON: {where} reads output {edge.output} of the variable {node.name}, which has one")


def _is_index(value: Any, limit: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < limit


def _list(record: Mapping[str, Any], key: str, where: str) -> list[Any]:
    value = record.get(key)
    if not isinstance(value, list):
        raise ModelError(f"{where}: '{key}' is {type(value).__name__}, expected a list")
    return value


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
