"""From MXNet's symbol JSON to an `ir.Graph`.

Each operator lowers by its rule (`rules/<family>.py`); every IR node carries `mx:<name> <Op>`. A variable
that feeds nothing but parameter slots (a weight, a bias, batch-norm statistics), be it rearranged, becomes a weight
parameter. A rule says which element types it takes and computes in (`rules/registry.py: Types`); the conversions
around it are made here.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from ngraph_mxnet.bridges.mxnet.rules.lowering import FindRule, lower_operators, read
from ngraph_mxnet.bridges.mxnet.rules.registry import find_rule
from ngraph_mxnet.bridges.mxnet.symbols.attrs import Halves, canonical
from ngraph_mxnet.bridges.mxnet.symbols.inlining import FOREACH, Foreach, inlined
from ngraph_mxnet.bridges.mxnet.symbols.open_shapes import with_open_shapes
from ngraph_mxnet.bridges.mxnet.symbols.symbol_json import Edge, SymbolGraph, SymbolNode, parse_symbol
from ngraph_mxnet.errors import ModelError
from ngraph_mxnet.ir import Builder, Graph, TensorType, Value, element_type
from ngraph_mxnet.ir.types import Role

# Between a weight and the operator that it is a parameter of: elements only move.
_REARRANGING = frozenset({
    "Concat", "Reshape", "SliceChannel", "SwapAxis", "_rnn_param_concat", "_split_v2", "expand_dims", "slice",
    "slice_axis", "squeeze", "stack", "transpose",
})


def import_symbol(symbol: SymbolGraph | str, shapes: Mapping[str, Sequence[int]],
                  dtypes: Mapping[str, str] | None = None, *, name: str = "main") -> Graph:
    """The graph of a whole symbol; parameters in the order of its arguments.

    Args:
        symbol: parsed, or JSON text.
        shapes: of every variable, by name.
        dtypes: by name, as NumPy calls them; float32 where not given.

    Raises:
        ModelError: the JSON is corrupt, or a shape is missing.
        UnsupportedError: a node can't be lowered; the text names it and the reason.
    """
    if isinstance(symbol, str):
        symbol = parse_symbol(symbol)
    symbol = inlined(symbol)
    missing = [node.name for node in symbol.arguments() if node.name not in shapes]
    if missing:
        raise ModelError(f"no shape for {', '.join(missing[:8])}{', ...' if len(missing) > 8 else ''}")
    types = [TensorType(element_type((dtypes or {}).get(node.name, "float32")), tuple(shapes[node.name]))
             for node in symbol.arguments()]
    return lower_graph(symbol, types, name=name)


def lower_graph(symbol: SymbolGraph, types: Sequence[TensorType], *, name: str = "main",
                data: Collection[int] = ()) -> Graph:
    """The graph, given the type of each argument in order.

    `data`: the places of arguments that are no weights, whatever slot they are read in.

    In a region cut out by the partitioner an argument may be what another part of the model computes anew at
    every call; such a one is never a weight.

    Raises:
        UnsupportedError, ModelError: as `import_symbol`.
    """
    b, halves = Builder(name=name), Halves()
    values = lower_values(b, symbol, types, halves, data=data)
    graph = b.results(*own_results(b, [read(symbol, values, head) for head in symbol.heads]))
    if halves.used:
        graph.remove_dead()
    return graph


def lower_values(b: Builder, symbol: SymbolGraph, types: Sequence[TensorType], halves: Halves, *,
                 data: Collection[int] = (), rules: FindRule = find_rule) -> dict[Edge, Value]:
    """Append the IR of all operators, by these rules, and return all values. Errors and `data` as in `lower_graph`."""
    arguments = symbol.arguments()
    if len(types) != len(arguments):
        raise ModelError(f"found {len(types)} input types, expected {len(arguments)}: one for each argument")
    symbol, weights = with_open_shapes(symbol, types), weights_of(symbol)
    values: dict[Edge, Value] = {}
    names = _distinct([node.argument for node in arguments])
    for position, (node, type_) in enumerate(zip(arguments, types, strict=True)):
        b.origin = node.origin
        is_weight = node.index in weights and not node.is_computed and position not in data
        values[Edge(node.index, 0)] = b.parameter(names[position], type_.shape, type_.element,
                                                  Role.WEIGHT if is_weight else Role.INPUT)
    lower_operators(b, symbol, values, halves, rules)
    return values


def weights_of(symbol: SymbolGraph) -> set[int]:
    """The variables that hold weights: whoever reads one reads it as a weight, directly or through operators that only
    rearrange, such as those that join projections into one, or within a loop, which gets it from outside."""
    readers: dict[int, list[tuple[SymbolNode, int]]] = {}
    for edge, slots in symbol.readers().items():
        readers.setdefault(edge.node, []).extend(slots)
    heads = {head.node for head in symbol.heads}
    parameters = {node.index: _parameter_slots(node) for node in symbol.operators()}
    found: set[int] = set()
    for node in reversed(symbol.nodes):  # all readers of a node come behind it
        if node.index in heads or not (node.is_variable or canonical(node.op) in _REARRANGING):
            continue
        slots = readers.get(node.index, [])
        if slots and all(slot in parameters[reader.index] or reader.index in found for reader, slot in slots):
            found.add(node.index)
    return {index for index in found if symbol.nodes[index].is_variable}


def _parameter_slots(node: SymbolNode) -> Collection[int]:
    """The inputs that an operator reads as weights."""
    if node.op == FOREACH:
        loop = Foreach.of(node)
        inner, captured = weights_of(loop.body.graph), loop.data + loop.states
        arguments = zip(loop.body.graph.arg_nodes, loop.body.sources, strict=True)
        return {source for index, source in arguments if source >= captured and index in inner}
    rule = find_rule(node.op)
    return rule.parameters if rule is not None else ()


def _distinct(names: list[str]) -> list[str]:
    """A region that reads one tensor twice may list it twice, under one name."""
    taken, result = set(names), []
    seen: set[str] = set()
    for name in names:
        unique, count = name, 1
        while unique in seen or (unique != name and unique in taken):
            unique, count = f"{name}_{count}", count + 1
        seen.add(unique)
        result.append(unique)
    return result


def own_results(b: Builder, results: list[Value]) -> list[Value]:
    """MXNet gives every output a buffer of its own: no result is a parameter, or returned twice."""
    seen: set[Value] = set()
    b.origin = ""
    for position, value in enumerate(results):
        if value.is_parameter or value in seen:
            results[position] = b.identity(value)
        seen.add(results[position])
    return results
