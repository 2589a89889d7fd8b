"""From MXNet's symbol JSON to an `ir.Graph`.

Each operator lowers by its rule (`rules/<family>.py`); every IR node carries `mx:<name> <Op>`. A variable
that feeds nothing but parameter slots (a weight, a bias, batch-norm statistics), be it rearranged, becomes a weight
parameter. A rule says which element types it takes and computes in (`rules/registry.py: Types`); the conversions
around it are made here.

Some shapes a symbol leaves open: of the states with which recurrent cells begin (their batch is 0, for unknown), and
of ranges that are as long as what is added to them. MXNet infers them from those that read them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ngraph_mxnet.base import config
from ngraph_mxnet.base.errors import ModelError, UnsupportedError, listed
from ngraph_mxnet.frontends.mxnet.attrs import Attrs, Halves, canonical
from ngraph_mxnet.frontends.mxnet.inlining import FOREACH, Foreach, inlined
from ngraph_mxnet.frontends.mxnet.rules.registry import FindRule, find_rule, lower_operators, read
from ngraph_mxnet.frontends.mxnet.symbol_json import Edge, SymbolGraph, SymbolNode, parse_symbol
from ngraph_mxnet.ir import Builder, Graph, TensorType, Value, element_type
from ngraph_mxnet.ir.sizes import Atom, Dim, at_hand, evaluate, symbols_in
from ngraph_mxnet.ir.types import Role, Shape
from ngraph_mxnet.plugin.arrays import brief

if TYPE_CHECKING:
    from mxnet.symbol import Symbol


_VERSION = {"mxnet_version": ["int", 10901]}


def with_open_shapes(symbol: SymbolGraph, types: Sequence[TensorType]) -> SymbolGraph:
    """The graph in which operators that leave their shape open have the type that MXNet infers from those of the
    arguments, and no type where it infers none. Where sizes are symbols, an open one is linear in them.

    Raises:
        UnsupportedError: an open size is not linear in those that are symbols, or MXNet finds the types inconsistent.
    """
    places = [node.index for node in symbol.nodes if _is_open(node)]
    if not places:
        return symbol
    found = _Inference(symbol, types, places)
    nodes = list(symbol.nodes)
    for place, type_ in found.types().items():
        nodes[place] = replace(nodes[place], types=(type_,))
    return replace(symbol, nodes=tuple(nodes))


def _is_open(node: SymbolNode) -> bool:
    if node.is_variable or node.inputs:
        return False
    if node.attrs.get("infer_range") in ("True", "1"):
        return True
    least = 0 if node.op.startswith("_np") else 1  # to NumPy's operators 0 is a size
    return any(int(size) < least for size in re.findall(r"-?\d+", node.attrs.get("shape", "")))


class _Inference:
    """MXNet's, of the outputs of the nodes at `places`."""

    def __init__(self, symbol: SymbolGraph, types: Sequence[TensorType], places: Sequence[int]) -> None:
        from mxnet import symbol as mx_symbol

        named = tuple(replace(node, name=f"n{node.index}", attrs={} if node.is_variable else node.attrs)
                      for node in symbol.nodes)
        text = json.dumps(replace(symbol, nodes=named).to_json() | {"attrs": _VERSION})
        with _refusals():
            self._internals = mx_symbol.load_json(text).get_internals()
        outputs = self._internals.list_outputs()
        self._outputs = {place: outputs.index(f"n{place}_output") for place in places}
        self._told = {f"n{node.index}": type_ for node, type_ in zip(symbol.arguments(), types, strict=True)}
        self._origins = {place: symbol.nodes[place].origin for place in places}

    def types(self) -> dict[int, TensorType | None]:
        """By place."""
        told = {name: type_.element.numpy for name, type_ in self._told.items()}
        with _refusals():
            dtypes = self._internals.infer_type_partial(**told)[1]
        return {place: None if shape is None else TensorType(element_type(dtypes[self._outputs[place]]), shape)
                for place, shape in self._shapes().items()}

    def _shapes(self) -> dict[int, Shape | None]:
        symbols = symbols_in(*(type_.shape for type_ in self._told.values()))
        now = {atom.text: at_hand(Dim({(atom,): 1})) for atom in symbols}
        found = self._at(now)
        for atom in symbols:
            step = _step(atom, now, 1)
            moved = self._at({**now, atom.text: now[atom.text] + step})
            for place, shape in found.items():
                if shape is None:
                    continue
                before = _evaluated(shape, now)
                found[place] = tuple(size + (b - a) // step * (Dim({(atom,): 1}) - now[atom.text])
                                     for size, a, b in zip(shape, before, moved[place] or before, strict=True))
        for binding in _others(symbols, now):
            wanted = self._at(binding)
            for place, shape in found.items():
                if shape and _evaluated(shape, binding) != wanted[place]:
                    raise UnsupportedError(f"{self._origins[place]}: its shape, which the model leaves open, is not "
                                           "linear in the sizes that change")
        return found

    def _at(self, binding: Mapping[str, int]) -> dict[int, Shape | None]:
        """The shapes for these sizes; None where MXNet infers none."""
        from mxnet.util import np_shape

        shapes = {name: _evaluated(type_.shape, binding) for name, type_ in self._told.items()}
        with _refusals(), np_shape(False):
            found = self._internals.infer_shape_partial(**shapes)[1]
        return {place: found[at] if found[at] and min(found[at]) > 0 else None for place, at in self._outputs.items()}


@contextmanager
def _refusals() -> Iterator[None]:
    """Turn MXNet's error about a graph into an UnsupportedError."""
    from mxnet.base import MXNetError

    try:
        yield
    except MXNetError as error:
        raise UnsupportedError(f"MXNet can't infer shapes that are left open: {brief(error)}") from None


def _evaluated(shape: Sequence[int], binding: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(evaluate(size, binding) for size in shape)


def _others(symbols: Sequence[Atom], now: Mapping[str, int]) -> Iterator[dict[str, int]]:
    """Sizes at which what was found must hold."""
    for atom in symbols:
        yield {**now, atom.text: now[atom.text] + _step(atom, now, 5)}
    if symbols:
        yield {atom.text: now[atom.text] + _step(atom, now, 2) for atom in symbols}


def _step(atom: Atom, now: Mapping[str, int], step: int) -> int:
    """That far up, or down where that leaves the symbol's bounds."""
    size = now[atom.text]
    return -step if size + step > atom.high and size - step >= atom.low else step


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
    config.logger(__name__).debug("lowered a graph of %d nodes", len(symbol.nodes))
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


def check_inputs(symbol: Symbol, shapes: Mapping[str, Sequence[int]], dtypes: Mapping[str, Any] | None = None) -> None:
    """Refuse names that are no inputs, dtypes that are none, and shapes that leave one of an input open.

    Raises:
        ModelError: naming the input, and what is there or missing.
    """
    import mxnet as mx

    names = symbol.list_inputs()
    unknown = sorted({*shapes, *(dtypes or {})} - set(names))
    if unknown:
        raise ModelError(f"no input is called {listed(unknown)}; the inputs: {listed(names, unknown[0])}")
    for name, dtype in (dtypes or {}).items():
        try:
            element_type(dtype)
        except (KeyError, TypeError):
            raise ModelError(f"input {name}: found dtype {dtype!r}, expected one such as float32 or int8") from None
    try:
        arguments, _, states = symbol.infer_shape_partial(**{name: tuple(shape) for name, shape in shapes.items()})
    except mx.base.MXNetError as error:
        raise ModelError(f"MXNet can't infer the model's shapes from {dict(shapes)}: {brief(error)}") from None
    found = dict(zip([*symbol.list_arguments(), *symbol.list_auxiliary_states()],
                     [*(arguments or []), *(states or [])], strict=False))
    missing = [name for name in names if not is_whole(found.get(name))]
    if missing:
        graph = parse_symbol(symbol.tojson(remove_amp_cast=False))
        weights = {graph.nodes[index].name for index in weights_of(graph)}
        wanted = [name for name in missing if name not in weights] or missing
        raise ModelError(f"the shape of {listed(wanted)} is not known: give it, on the command line as in "
                         f"--shape {wanted[0]}=1,3,224,224")


def inferred_shapes(symbol: Symbol, shapes: Mapping[str, Sequence[int]]) -> dict[str, tuple[int, ...]]:
    """The shape of every input, from those that `check_inputs` found to be enough; where sizes are symbols, those that
    are not given are for the sizes at hand."""
    return {**_inferred(symbol, at_hand_shapes(shapes)), **{name: tuple(shape) for name, shape in shapes.items()}}


def at_hand_shapes(shapes: Mapping[str, Sequence[int]]) -> dict[str, tuple[int, ...]]:
    """The shapes with numbers for symbols: the sizes at hand, which nothing is assumed of."""
    return {name: tuple(map(at_hand, shape)) for name, shape in shapes.items()}


def shapes_that_change(symbol: Symbol, shapes: Mapping[str, Sequence[int]]) -> list[str]:
    """The inputs, beside those given, whose shapes are others where sizes that are symbols are."""
    symbols = symbols_in(*shapes.values())
    now = {atom.text: at_hand(size) for shape in shapes.values() for size in shape if isinstance(size, Dim)
           for atom in size.symbols}
    found = _inferred(symbol, at_hand_shapes(shapes))
    names = set[str]()
    for atom in symbols:
        other = {**now, atom.text: now[atom.text] + (1 if now[atom.text] < atom.high else -1)}
        moved = {name: _evaluated(shape, other) for name, shape in shapes.items()}
        names.update(name for name, shape in _inferred(symbol, moved).items() if shape != found[name])
    return sorted(names - set(shapes))


def _inferred(symbol: Symbol, shapes: Mapping[str, Sequence[int]]) -> dict[str, tuple[int, ...]]:
    """Infer the shapes of all inputs, by name. The inference is partial, because MXNet infers no shape of outputs
    behind `while_loop` and `cond`."""
    arguments, _, states = symbol.infer_shape_partial(**{name: tuple(shape) for name, shape in shapes.items()})
    names = [*symbol.list_arguments(), *symbol.list_auxiliary_states()]
    return dict(zip(names, [*arguments, *states], strict=True))


def is_whole(shape: Sequence[int] | None) -> bool:
    """True if the whole shape is known. MXNet marks an unknown dimension with 0, or with -1 where 0 is a size
    (`mx.util.is_np_shape`)."""
    import mxnet as mx

    if mx.util.is_np_shape():
        return shape is not None and all(size >= 0 for size in shape)
    return shape is not None and len(shape) > 0 and all(size > 0 for size in shape)


A_SPARSE_GRADIENT = "a gradient is sparse"
"""Why a model is not trained as a whole."""

# MXNet's numbers for storage types: -1 undefined, 0 default.
_SPARSE = re.compile(r'"__storage_type__": "(?!0"|-1")')


def why_not_dense(text: str) -> str | None:
    """Why MXNet runs all of a symbol whose JSON is `text`: a variable has sparse storage. None: none has."""
    return "a variable has sparse storage" if _SPARSE.search(text) else None


def sparse_gradients(graph: SymbolGraph) -> list[str]:
    """The variables whose gradients MXNet makes row_sparse: weights of an Embedding with `sparse_grad`."""
    weights = [graph.nodes[node.inputs[1].node] for node in graph.operators()
               if canonical(node.op) == "Embedding" and Attrs(node.attrs, node.origin).bool("sparse_grad", False)]
    return [weight.name for weight in weights if weight.is_variable]


def why_left(names: Iterable[str]) -> dict[str, str]:
    """Return, for each named parameter with a sparse gradient, the reason why MXNet runs what reads the parameter."""
    return {name: f"the gradient of {name} is sparse" for name in names}
