"""`Symbol.optimize_for` for our backend, and the symbol that a bind runs.

A symbol's nodes are judged, then its regions, and each good one is put back as one node. MXNet's own partitioner would
take ten times as long, remembers names of nodes for graphs to come, and needs a name for each node; what it does for us
is done here on the graph's JSON, with types that MXNet infers. libmxnet's partitioner is registered all the same, for
the name of the backend: as far as libmxnet knows it supports no node.

The graph has places for names, so that all that is found out serves every graph that differs in names only: a model's
second instance. Partitioned symbols are kept in memory and in the cache: to make one takes several times as long as to
read it again. The entry of a graph is the record of its partitioning and the partitioned symbol's JSON.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from json.encoder import encode_basestring
from typing import Any

import numpy as np
from mxnet import symbol as mx_symbol
from mxnet.base import MXNetError
from mxnet.context import Context
from mxnet.ndarray import NDArray
from mxnet.symbol import Symbol
from mxnet.util import is_np_shape

from ngraph_mxnet.base import config
from ngraph_mxnet.base.errors import UnsupportedError
from ngraph_mxnet.base.forks import Recent, collector_paused
from ngraph_mxnet.frontends.mxnet.inlining import inline
from ngraph_mxnet.frontends.mxnet.judgement import (
    Cut,
    Partitioned,
    TypedGraph,
    contracted,
    judged,
)
from ngraph_mxnet.frontends.mxnet.symbol_json import SymbolGraph, SymbolNode, graph_of
from ngraph_mxnet.frontends.verdicts import Partition, Region, Verdict
from ngraph_mxnet.ir import Graph
from ngraph_mxnet.ir.graph import Cost
from ngraph_mxnet.ir.types import ELEMENT_TYPES, TensorType
from ngraph_mxnet.plugin import regions
from ngraph_mxnet.plugin.binding import environment, fallbacks, interrupts
from ngraph_mxnet.plugin.callbacks import lowered as lowered_regions
from ngraph_mxnet.plugin.callbacks import region_key
from ngraph_mxnet.plugin.regions import DATA, STRUCTURE, is_small, settings_key
from ngraph_mxnet.program import cache
from ngraph_mxnet.program.backend import Backend, get_backend
from ngraph_mxnet.program.program_cache import program_key

#: On both sides of a node's place. It stands for itself in JSON.
_MARK = "\x7f"
_NAME_OF_BODY = "__subgraph_name__"
"""An attribute that tells MXNet's Python, when it makes control flow, which nodes belong into a body."""
_PLACE = re.compile(f"{_MARK}([0-9]+){_MARK}")


class NamelessGraph:
    """`root` is the graph's JSON in which a node's name is its place between marks; `text` is `root` as text.

    `names`: of each place. Of operators that share a name, as those of a Gluon block that is called twice do, all but
    the first get another. The nodes of graphs within nodes have the places behind.
    """

    def __init__(self, text: str) -> None:
        """
        Args:
            text: the symbol's JSON.

        Raises:
            UnsupportedError: it holds a mark.
        """
        if _MARK in text:
            raise UnsupportedError("a name or an attribute of the symbol holds the character DEL")
        self.root: dict[str, Any] = json.loads(text)
        self.root.pop("node_row_ptr", None)
        nodes = self.root["nodes"]
        self.variables = [place for place, node in enumerate(nodes) if node["op"] == "null"]
        self.names = _distinct([node["name"] for node in nodes], self.variables)
        for place, node in enumerate(nodes):
            _rename(node, place)
        self._take_names_within(nodes)
        self.text = dump(self.root)

    def _take_names_within(self, nodes: list[dict[str, Any]]) -> None:
        for node in nodes:
            for body in node.get("subgraphs", ()):
                for inner in body["nodes"]:
                    self.names.append(inner["name"])
                    _rename(inner, len(self.names) - 1)
                self._take_names_within(body["nodes"])

    def with_names(self, text: str) -> str:
        """A JSON text with this graph's names put in."""
        names = [encode_basestring(name)[1:-1] for name in self.names]
        return _PLACE.sub(lambda found: names[int(found[1])], text)

    def named(self, text: str) -> str:
        """A plain text with this graph's names put in."""
        return with_places_as(text, self.names)

    def named_bodies(self, bodies: Sequence[Any]) -> tuple[Any, ...]:
        """The JSON of graphs within a node with this graph's names put in."""
        return tuple(json.loads(self.with_names(dump(bodies)))) if bodies else ()

    def put_names(self, graph: Graph) -> None:
        """Name all in IR that was lowered from the nameless graph."""
        graph.name = self.named(graph.name)
        for parameter in graph.parameters:
            parameter.name = self.named(parameter.name)
        for node in graph.nodes:
            node.origin = self.named(node.origin)
            for value in node.attrs.values():
                if isinstance(value, Graph):
                    self.put_names(value)


def _rename(node: dict[str, Any], place: int) -> None:
    node["name"] = name_of(place)
    node.get("attrs", {}).pop(_NAME_OF_BODY, None)


def _distinct(names: list[str], variables: list[int]) -> list[str]:
    taken = set(names)
    if len(taken) == len(names):
        return names
    found, seen = names.copy(), {names[place] for place in variables}
    for place in sorted(set(range(len(names))).difference(variables)):
        name, number = names[place], 1
        if name in seen:
            while f"{name}_again{number}" in taken:
                number += 1
            found[place] = f"{name}_again{number}"
            taken.add(found[place])
        seen.add(name)
    return found


def name_of(place: int) -> str:
    """Return the text that stands for the name of the node at this place."""
    return f"{_MARK}{place}{_MARK}"


def with_places_as(text: str, names: Sequence[str]) -> str:
    """A plain text with the name of each place put in."""
    return _PLACE.sub(lambda found: names[int(found[1])], text)


def place_in(text: str) -> int:
    """The place of the node whose name `text`, MXNet's name of an output, begins with."""
    found = _PLACE.match(text)
    assert found is not None, text
    return int(found[1])


def dump(value: Any) -> str:
    """Its JSON, the shortest."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


Types = Mapping[str, tuple[Sequence[int] | None, Any]]
"""Shape and dtype by name; None for what is not known."""

SUBGRAPH_OP = "NGraphSubgraphOp"

_ELEMENTS = {element.numpy: element for element in ELEMENT_TYPES.values()}


@collector_paused
def partition(symbol: Symbol, nameless: NamelessGraph, types: Types, backend: Backend,
              data: Collection[str] = ()) -> Partitioned:
    """
    Args:
        symbol: an inference graph.
        nameless: the same graph without names.
        types: those of its variables, by their names.
        data: names of variables that are no weights, whatever reads them.

    Raises:
        MXNetError: the types contradict each other.
    """
    config.logger(__name__).debug("partition a graph of %d variables", len(nameless.variables))
    left: dict[int, str] = {}
    while True:  # once more for nodes that were inlined and then are in no region: behind these MXNet knows no shape
        typed = inlined_with_types(symbol, nameless, types, left)
        found, apart = judged(typed, backend, left, partial(_places, nameless, data=data), partial(_kept, nameless))
        if not apart:
            return found
        left |= apart


def _kept(nameless: NamelessGraph, lowered: Graph, cut: Cut, data: Sequence[int]) -> None:
    """Put names into the IR of a region, and keep it for the compilation."""
    nameless.put_names(lowered)
    lowered_regions.put(region_key(cut.graph.structure, [value.type for value in lowered.parameters], data), lowered)


def _places(nameless: NamelessGraph, cut: Cut, data: Collection[str]) -> list[int]:
    """The numbers of the region's arguments that are variables called as in `data`."""
    return [place for place, node in enumerate(cut.graph.arguments())
            if not node.is_computed and nameless.named(node.name) in data]


def partitioned_text(nameless: NamelessGraph, found: Partitioned, options: Mapping[str, str],
                     data: Collection[str] = ()) -> str | None:
    """The JSON of the symbol with its regions as one op each, with places for names; None if it has none."""
    if not found.cuts:
        return None
    numbers = {id(cut): number for number, cut in enumerate(found.cuts)}

    def one_node(cut: Cut) -> SymbolNode:
        attrs = {**options, STRUCTURE: settings_key(cut.graph.structure, options)}
        places = _places(nameless, cut, data)
        if places:
            attrs[DATA] = json.dumps(places)
        return SymbolNode(0, SUBGRAPH_OP, f"_op{numbers[id(cut)]}", attrs, (), None, (cut.graph.to_json(),))

    root = contracted(found.graph, found.cuts, one_node).to_json()
    return dump(root | {"attrs": nameless.root["attrs"]} if "attrs" in nameless.root else root)


def with_types(symbol: Symbol, nameless: NamelessGraph, types: Types) -> SymbolGraph:
    """The graph with the types of all outputs, as MXNet infers them from those of the variables."""
    return _as_it_is(graph_of(nameless.root), symbol, nameless, types)


def _as_it_is(graph: SymbolGraph, symbol: Symbol, nameless: NamelessGraph, types: Types) -> SymbolGraph:
    internals = symbol.get_internals()
    if len(internals.list_outputs()) > len(graph.nodes):  # whose they are names tell, and the user's need not
        return _with_types(graph, nameless, types, mx_symbol.load_json(nameless.text).get_internals())
    return _with_types(graph, nameless, types, internals, nameless.names)


def inlined_with_types(symbol: Symbol, nameless: NamelessGraph, types: Types, left: dict[int, str]) -> TypedGraph:
    """The graph with the types of all outputs, those included of which MXNet infers none, unless they are `left`. What
    can't be inlined is added there, with the reason.

    Raises:
        MXNetError: the types contradict each other.
    """
    graph = graph_of(nameless.root)
    while True:
        found = inline(graph, left)
        left |= found.reasons
        if not found.outputs:
            typed = _as_it_is(graph, symbol, nameless, types)
            return TypedGraph(typed, replace(found, graph=typed))
        named = tuple(replace(node, name=name_of(node.index)) for node in found.graph.nodes)
        root = replace(found.graph, nodes=named).to_json()
        text = dump(root | {"attrs": nameless.root["attrs"]} if "attrs" in nameless.root else root)
        try:
            typed = _with_types(found.graph, nameless, types, mx_symbol.load_json(text).get_internals())
        except MXNetError as error:
            why = with_places_as(str(error).strip().splitlines()[-1], [node.name for node in found.graph.nodes])
            left |= dict.fromkeys(found.outputs, f"its results' shapes can't be inferred: {why}")
            continue
        found = replace(found, graph=typed)
        return TypedGraph.of(graph, found)


def _with_types(graph: SymbolGraph, nameless: NamelessGraph, types: Types, internals: Symbol,
                names: Sequence[str] | None = None) -> SymbolGraph:
    """The graph with the types of `internals`, its outputs in order; without `names` those tell whose they are."""
    name: Callable[[int], str] = name_of if names is None else names.__getitem__
    own = {node.index: nameless.named(node.name) for node in graph.nodes if node.is_variable}
    given = {index: types[called] for index, called in own.items() if called in types}
    places: Sequence[int] = range(len(graph.nodes))
    if names is None:
        places = [place_in(output) for output in internals.list_outputs()]
    shapes = internals.infer_shape_partial(**{name(at): tuple(shape) for at, (shape, _) in given.items() if shape})[1]
    dtypes = _dtypes(internals, {name(at): dtype for at, (_, dtype) in given.items() if dtype is not None}, len(places))
    outputs: list[list[TensorType | None]] = [[] for _ in graph.nodes]
    for place, shape, dtype in zip(places, shapes, dtypes, strict=True):
        outputs[place].append(_type(shape, dtype))
    nodes = tuple(node.typed(of) for node, of in zip(graph.nodes, outputs, strict=True))
    return replace(graph, nodes=nodes)


def _dtypes(internals: Symbol, told: Mapping[str, Any], count: int) -> Sequence[Any]:
    """The dtype of each of so many outputs; float32 for variables of which nothing tells it."""
    names = internals.list_inputs() if len(told) < count else ()
    if not told.keys() >= set(names):
        try:
            arguments, _, states = internals.infer_type_partial(**told)
        except MXNetError:  # some operators (Dropout) insist on types
            arguments, states = [], []
        order = [*internals.list_arguments(), *internals.list_auxiliary_states()]
        found = dict(zip(order, [*(arguments or []), *(states or [])], strict=False))
        told = {name: told.get(name) or found.get(name) or np.float32 for name in names}
    return internals.infer_type_partial(**told)[1] or [None] * count


def _type(shape: Sequence[int] | None, dtype: Any) -> TensorType | None:
    """None where MXNet does not know."""
    if not shape or min(shape) < 0 or dtype is None or np.dtype(dtype) not in _ELEMENTS:
        return None
    return TensorType(_ELEMENTS[np.dtype(dtype)], tuple(shape))


recent = Recent(32)  # about 100 KiB each

Made = tuple[Partition, str | None]
"""A partitioning, and the partitioned symbol's JSON if it has a region."""


class _Unsettled(Exception):  # noqa: N818
    """A partitioning in which a rule failed, which is not remembered; its argument is the entry."""


def get_or_make(graph: NamelessGraph, facts: str, make: Callable[[], Made]) -> Made:
    """Return the result of `make` with this graph's names. The result is made once for such a graph and `facts`, unless
    a rule failed.

    `facts` are what the partitioning depends on beside the graph.
    """
    def made() -> bytes:
        partition, symbol = make()
        entry = f"{dump(_record(partition))}\n{symbol or ''}"
        if partition.failed:
            raise _Unsettled(entry)
        return entry.encode()

    key = f"{facts}\n{graph.text}"
    try:
        content = recent.get_or_make(key, lambda: cache.get_or_make(
            "partition", key, made, small=is_small(graph.text), of_build=True).decode())
    except _Unsettled as found:
        content = found.args[0]
    record, _, text = graph.with_names(content).partition("\n")
    return _partition(json.loads(record)), text or None


def with_names(partition: Partition, graph: NamelessGraph) -> Partition:
    """The partition of such a graph, with this one's names."""
    return _partition(json.loads(graph.with_names(dump(_record(partition)))))


def _record(partition: Partition) -> list[Any]:
    """Plain data; `_partition` is the reverse."""
    return [
        partition.backend, [[verdict.name, verdict.op, verdict.reason] for verdict in partition.verdicts],
        [[region.nodes, region.inputs, region.outputs, [region.cost.macs, region.cost.operations, region.cost.bytes],
          region.rejected] for region in partition.reviewed],
    ]


def _partition(record: list[Any]) -> Partition:
    backend, verdicts, reviewed = record
    return Partition(
        backend, [Verdict(*verdict) for verdict in verdicts],
        [Region(tuple((name, op) for name, op in nodes), tuple(inputs), tuple(outputs), Cost(*cost), rejected)
         for nodes, inputs, outputs, cost, rejected in reviewed],
    )


stock_optimize_for = Symbol.optimize_for


def json_of(symbol: Symbol) -> str:
    """The symbol's JSON. To leave out AMP's casts, as is the default, MXNet makes a copy, which it never frees."""
    return symbol.tojson(remove_amp_cast=False)


def has_region(symbol: Symbol) -> bool:
    return f'"op": "{SUBGRAPH_OP}"' in json_of(symbol)


latest = Recent(16)
"""The latest partitionings, with the symbols that came of them; MXNet changes no symbol that it binds."""


def partitioned(symbol: Symbol, text: str, types: Types, given: Mapping[str, Any] | None = None) -> Symbol | None:
    """The symbol with its regions as one op each; None if it has none. The order of its inputs may change.

    Args:
        symbol: an inference graph.
        text: its JSON.
        types: of its arguments and auxiliary states.
        given: the options of `optimize_for`.

    Raises:
        MXNetError: the types contradict each other.
        ConfigError: there is no such backend.
    """
    own = regions.own_options(given or {})
    own[regions.BACKEND] = regions.chosen_backend(own)
    data = own.pop(regions.DATA, "[]")
    facts = program_key(is_np_shape(), own[regions.BACKEND], own)
    key = text, facts, data, tuple((name, shape and tuple(shape), dtype and np.dtype(dtype).num)
                             for name, (shape, dtype) in types.items())
    found = latest.get(key)
    if found is None:
        try:
            found = _partitioned(symbol, NamelessGraph(text), types, own, frozenset(json.loads(data)), facts)
        except UnsupportedError as error:
            fallbacks.add_failure("a whole graph", error)
            return None
        if not found[0].failed:
            latest.put(key, found)
    fallbacks.add_partition(found[0])
    return found[1]


def _partitioned(symbol: Symbol, graph: NamelessGraph, types: Types, own: Mapping[str, str], data: frozenset[str],
                 facts: str) -> tuple[Partition, Symbol | None]:
    in_order = [(shape and tuple(shape), dtype and np.dtype(dtype).name, name in data)
                for name in (graph.names[place] for place in graph.variables)
                for shape, dtype in [types.get(name, (None, None))]]

    def make() -> Made:
        found = partition(symbol, graph, types, get_backend(own[regions.BACKEND]), data)
        return found.partition, partitioned_text(graph, found, own, data)

    record, found = get_or_make(graph, f"{facts} {in_order}", make)
    return record, None if found is None else mx_symbol.load_json(found)


@interrupts.delivering
@interrupts.told_apart
def optimize_for(self: Symbol, backend: str, args: dict[str, NDArray] | None = None,
                 aux: dict[str, NDArray] | None = None, ctx: Context | None = None,
                 shape_dict: Mapping[str, Sequence[int]] | None = None, type_dict: Mapping[str, Any] | None = None,
                 stype_dict: Mapping[str, str] | None = None, skip_infer: bool = False, **kwargs: Any) -> Symbol:
    """`Symbol.optimize_for`; for our backend in any case of letters.

    Raises:
        ConfigError: an option for our backend is unknown, or its value not allowed.
        MXNetError: the types contradict each other.
    """
    if not environment.names_backend(backend):
        return stock_optimize_for(self, backend, args, aux, ctx, shape_dict, type_dict, stype_dict, skip_infer,
                                  **kwargs)
    if environment.problem() is not None:
        raise MXNetError(f"the backend {environment.BACKEND} is not usable: {environment.problem()}")
    regions.check_options(kwargs)
    types: dict[str, tuple[Sequence[int] | None, Any]] = {}
    if not skip_infer:
        shapes, dtypes = dict(shape_dict or {}), dict(type_dict or {})
        types = {name: (shapes.get(name), dtypes.get(name)) for name in {**shapes, **dtypes}}
        types |= {name: (array.shape, array.dtype) for name, array in {**(args or {}), **(aux or {})}.items()
                  if isinstance(array, NDArray)}
    try:
        found = partitioned(self, json_of(self), types, kwargs)
    except MXNetError:
        raise
    except Exception as error:
        fallbacks.add_failure("a whole graph", error)
        found = None
    return copy.deepcopy(self if found is None else found)
