"""A symbol's graph, its nodes judged, its regions judged, and each good one put back as one node.

MXNet's own partitioner would take ten times as long, remembers names of nodes for graphs to come, and needs a name for
each node; what it does for us is done here on the graph's JSON, with types that MXNet infers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from mxnet import symbol as mx_symbol
from mxnet.base import MXNetError
from mxnet.symbol import Symbol

from ngraph_mxnet.bridges.mxnet.callbacks import lowered as lowered_regions
from ngraph_mxnet.bridges.mxnet.callbacks import region_key
from ngraph_mxnet.bridges.mxnet.judging.judgement import (
    Cut,
    argument_types,
    contracted,
    cut_region,
    judge_graph,
    judge_region,
    type_of,
)
from ngraph_mxnet.bridges.mxnet.judging.nameless import NamelessGraph, dump, name_of, place_in, with_places_as
from ngraph_mxnet.bridges.mxnet.options import DATA, STRUCTURE, settings_key
from ngraph_mxnet.bridges.mxnet.symbols.inlining import Inlined, inline
from ngraph_mxnet.bridges.mxnet.symbols.symbol_json import SymbolGraph, SymbolNode, graph_of
from ngraph_mxnet.ir.types import ELEMENT_TYPES, TensorType
from ngraph_mxnet.placement.verdicts.report import ALONE, Partition, Region, Verdict
from ngraph_mxnet.runtime.backend import Backend
from ngraph_mxnet.runtime.garbage import collector_paused

Types = Mapping[str, tuple[Sequence[int] | None, Any]]
"""Shape and dtype by name; None for what is not known."""

SUBGRAPH_OP = "NGraphSubgraphOp"

_ELEMENTS = {element.numpy: element for element in ELEMENT_TYPES.values()}


@dataclass(frozen=True)
class Partitioned:
    """`graph` is the whole, with types and with places for names, as in `partition`; `cuts` are the regions that run
    on the backend. What MXNet infers no shape of is inlined in it, where it runs on the backend."""

    graph: SymbolGraph
    partition: Partition
    cuts: list[Cut]


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
    left: dict[int, str] = {}
    while True:  # once more for nodes that were inlined and then are in no region: behind these MXNet knows no shape
        typed = inlined_with_types(symbol, nameless, types, left)
        found, apart = _partitioned(typed, nameless, backend, data, left)
        if not apart:
            return found
        left |= apart


def _partitioned(typed: TypedGraph, nameless: NamelessGraph, backend: Backend, data: Collection[str],
                 left: Mapping[int, str]) -> tuple[Partitioned, dict[int, str]]:
    """Partition the graph while the operators numbered `left` stay with MXNet. Return the result, and for each inlined
    operator that has to stay, by number, the reason."""
    graph = typed.whole
    reasons, numbers = judge_graph(graph, backend, left=left)
    verdicts = [Verdict(node.name, node.op, reasons[node.index]) for node in graph.operators()]
    found = Partitioned(typed.inlined.graph, Partition(backend.name, verdicts), [])
    members: dict[int, list[int]] = {}
    for index, number in enumerate(numbers):
        if number != ALONE:
            members.setdefault(number, []).append(index)
    apart = {index: reasons[index] or "it is in no region" for index in typed.inlined.outputs}
    for region in members.values():
        cut = cut_region(typed.inlined.graph, [at for index in region for at in typed.inlined.nodes[index]])
        nodes = tuple((graph.nodes[index].name, graph.nodes[index].op) for index in region)
        reviewed = _review(nameless, cut, nodes, backend, _places(nameless, cut, data))
        found.partition.reviewed.append(reviewed)
        if reviewed.rejected is None:
            found.cuts.append(cut)
        for index in apart.keys() & region:
            if reviewed.rejected is None:
                del apart[index]
            else:
                apart[index] = reviewed.rejected
    return found, apart


def _review(nameless: NamelessGraph, cut: Cut, nodes: tuple[tuple[str, str], ...], backend: Backend,
            data: Sequence[int]) -> Region:
    """Return the region with its cost, and the reason if the region is rejected. Otherwise the IR that it was lowered
    to waits for the compilation."""
    graph = cut.graph
    types = argument_types(graph)
    assert types is not None  # a node that reads an unknown type is in no region
    cost, rejected, lowered = judge_region(graph, types, backend, data)
    if lowered is not None and rejected is None:
        nameless.put_names(lowered)
        lowered_regions.put(region_key(graph.structure, types, data), lowered)
    return Region(nodes, tuple(node.name for node in graph.arguments()),
                  tuple(graph.nodes[head.node].name for head in graph.heads), cost, rejected)


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


@dataclass(frozen=True)
class TypedGraph:
    """`whole`: the graph with types. `inlined`: what MXNet inferred them of, with types, too."""

    whole: SymbolGraph
    inlined: Inlined


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
        return TypedGraph(_original(graph, found), found)


def _original(graph: SymbolGraph, found: Inlined) -> SymbolGraph:
    """The graph with the types of what stands for its outputs."""
    def types_of(node: SymbolNode) -> tuple[TensorType | None, ...] | None:
        if node.index not in found.outputs:
            return found.graph.nodes[found.nodes[node.index][-1]].types
        return tuple(type_of(found.graph, edge) for edge in found.outputs[node.index])

    return replace(graph, nodes=tuple(replace(node, types=types_of(node)) for node in graph.nodes))


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
