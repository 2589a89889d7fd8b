"""From MXNet's symbol JSON to an `ir.Graph`.

Each operator lowers by its rule (`rules/<family>.py`); every IR node carries `mx:<name> <Op>`. A variable
that feeds nothing but parameter slots (a weight, a bias, batch-norm statistics), be it rearranged, becomes a weight
parameter. A rule says which element types it takes and computes in (`rules/registry.py: Types`); the conversions
around it are made here.

The types of variables that are not given are found on the way, from the operators that read them first
(`rules/signatures.py`). Some shapes a symbol leaves open: of the states with which recurrent cells begin (their batch
is 0, for unknown), and of ranges that are as long as what is added to them. The operators that read them tell them.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ngraph_mxnet.base import config
from ngraph_mxnet.base.errors import ModelError, NGraphError, UnsupportedError, listed, no_result
from ngraph_mxnet.frontends.mxnet.attrs import Attrs, Halves, canonical
from ngraph_mxnet.frontends.mxnet.inlining import bodies_of, inline, inlined, is_open
from ngraph_mxnet.frontends.mxnet.rules.control_flow import keeping
from ngraph_mxnet.frontends.mxnet.rules.registry import (
    FindRule,
    Rule,
    find_rule,
    find_whole_rule,
    lower_node,
    lower_operators,
    read,
)
from ngraph_mxnet.frontends.mxnet.rules.signatures import (
    EQUAL,
    LABELLED,
    LENIENT,
    OUTPUTS,
    WANTED,
    every_axis,
    output_name,
)
from ngraph_mxnet.frontends.mxnet.symbol_json import (
    VARIABLE,
    Edge,
    SymbolGraph,
    SymbolNode,
    as_loaded,
    in_order,
    mxnet_element,
    parse_symbol,
)
from ngraph_mxnet.frontends.verdicts import Verdict, backend_reason
from ngraph_mxnet.ir import Builder, Graph, TensorType, Value, element_type
from ngraph_mxnet.ir.ranges import Guards, assuming
from ngraph_mxnet.ir.sizes import IN_FORCE, Atom, Dim, are_same, substituted
from ngraph_mxnet.ir.sizes import symbol as size_symbol
from ngraph_mxnet.ir.types import ElementType, Role, Shape, f32
from ngraph_mxnet.program.backend import Backend


def with_open_shapes(symbol: SymbolGraph, types: Sequence[TensorType | None]) -> SymbolGraph:
    """The graph in which operators that leave their shape open have the type that its readers give it, and no type
    where none does. `types`: those of the arguments, None where not known.

    Raises:
        UnsupportedError: two readers contradict each other.
    """
    places = [node.index for node in symbol.nodes if _is_open(node)]
    if not places:
        return symbol
    found = _OpenSizes(symbol, types, places).types()
    nodes = list(symbol.nodes)
    for place in places:
        nodes[place] = replace(nodes[place], types=(found[place],))
    return replace(symbol, nodes=tuple(nodes))


def _is_open(node: SymbolNode) -> bool:
    if node.is_variable or node.inputs:
        return False
    return _is_range(node) or any(size < _least(node) for size in _numbers(node.attrs.get("shape", "")))


def _is_range(node: SymbolNode) -> bool:
    return node.attrs.get("infer_range") in ("True", "1")


def _least(node: SymbolNode) -> int:
    return 0 if node.op.startswith("_np") else 1  # to NumPy's operators 0 is a size


def _numbers(text: str) -> tuple[int, ...]:
    """The sizes of a shape's text. Raises ModelError: one has more than 18 digits."""
    found = re.findall(r"-?\d+", text)
    if any(len(part) > 19 for part in found):
        raise ModelError(f"found shape {text!r:.80}, expected sizes of at most 18 digits")
    return tuple(map(int, found))


_ATOM = "open_size_"


class _OpenSizes:
    """The sizes that operators at `places` leave open: symbols, of which readers tell what they are equal to.

    Types are found as lowering finds them, each operator by itself.
    """

    def __init__(self, symbol: SymbolGraph, types: Sequence[TensorType | None], places: Sequence[int]) -> None:
        self._symbol, self._places = symbol, places
        self._sizes: dict[Atom, Any] = {}
        self._open: set[Atom] = set()
        self._types: dict[Edge, TensorType] = {
            Edge(node.index, 0): type_ for node, type_ in zip(symbol.arguments(), types, strict=True)
            if type_ is not None}
        for place in places:
            node = symbol.nodes[place]
            shape = (self._new(),) if _is_range(node) else tuple(
                size if size >= _least(node) else self._new() for size in _numbers(node.attrs.get("shape", "")))
            dtype = Attrs(node.attrs, node.origin).element("dtype", f32)
            self._types[Edge(place, 0)] = TensorType(dtype, shape)

    def _new(self) -> Dim:
        size = size_symbol(f"{_ATOM}{len(self._open)}")
        self._open.update(size.symbols)
        return size

    def types(self) -> dict[int, TensorType | None]:
        """By place; None where a size stays open."""
        with assuming(IN_FORCE.get() or Guards()):
            for node in self._symbol.operators():
                if self._open <= self._sizes.keys():
                    break
                if Edge(node.index, 0) not in self._types:
                    self._walk(node)
            return {place: self._known(self._types[Edge(place, 0)]) for place in self._places}

    def _walk(self, node: SymbolNode) -> None:
        types = [self._types[edge] for edge in node.inputs if edge in self._types]
        if len(types) < len(node.inputs):
            return
        self._compare(node, [self._settled(type_.shape) for type_ in types])
        b = Builder()
        try:
            outputs = lower_node(b, node, [
                b.parameter(f"input{slot}", self._settled(type_.shape), type_.element)
                for slot, type_ in enumerate(types)], rules=find_whole_rule)
        except NGraphError:
            return  # the lowering itself will say why
        self._types.update((Edge(node.index, place), value.type) for place, value in enumerate(outputs))

    def _compare(self, node: SymbolNode, shapes: list[Shape]) -> None:
        axes = EQUAL.get(canonical(node.op))
        if axes is None:
            return
        for group in axes(Attrs(node.attrs, node.origin), shapes):
            sizes = [shapes[place][axis] for place, axis in group if axis < len(shapes[place])]
            for size in sizes[1:]:
                self._equal(node, sizes[0], size)

    def _equal(self, node: SymbolNode, a: Any, b: Any) -> None:
        a, b = self._settled((a,))[0], self._settled((b,))[0]
        for size, other in ((a, b), (b, a)):
            atom = next(iter(size.symbols), None) if isinstance(size, Dim) else None
            if atom in self._open and are_same(size, Dim({(atom,): 1})):
                if not are_same(size, other):
                    self._sizes[atom] = other
                return
        if not isinstance(a, Dim) and not isinstance(b, Dim) and a != b:
            raise UnsupportedError(f"{node.origin}: shapes that are left open would be {a} and {b} at once")

    def _is_told(self, size: Any) -> bool:
        return not isinstance(size, Dim) or not self._open & set(size.symbols)

    def _settled(self, shape: Sequence[Any]) -> Shape:
        """The shape with the sizes that are known by now."""
        found = list(shape)
        for axis, size in enumerate(found):
            while isinstance(size, Dim) and self._sizes.keys() & set(size.symbols):
                size = substituted(size, self._sizes)
            found[axis] = size
        return tuple(found)

    def _known(self, type_: TensorType) -> TensorType | None:
        shape = self._settled(type_.shape)
        return TensorType(type_.element, shape) if all(map(self._is_told, shape)) else None


# Between a weight and the operator that it is a parameter of: elements only move.
_REARRANGING = frozenset({
    "Concat", "Reshape", "SliceChannel", "SwapAxis", "_rnn_param_concat", "_split_v2", "expand_dims", "slice",
    "slice_axis", "squeeze", "stack", "transpose",
})


def import_symbol(symbol: SymbolGraph | str, shapes: Mapping[str, Sequence[int]],
                  dtypes: Mapping[str, str] | None = None, *, name: str = "main", keep_loops: bool = False) -> Graph:
    """The graph of a whole symbol: parameters in the order of its arguments, results by MXNet's names.

    Args:
        symbol: parsed, or JSON text.
        shapes: of variables, by name. Those of weights, states and labels may be missing: operators that read them
            tell them.
        dtypes: by name, as NumPy calls them. Where not given, it is the variable's own, a weight's that of its data, or
            float32.
        keep_loops: make one node of each loop and choice, in place of the nodes that stand for it.

    Raises:
        ModelError: the JSON is corrupt, or a shape is missing, or a weight's does not fit its operator.
        UnsupportedError: a node can't be lowered; the text names it and the reason.
    """
    if isinstance(symbol, str):
        symbol = parse_symbol(symbol)
    closed = _with_one_variable_each(symbol if keep_loops else inlined(symbol))
    types = [_told(node, shapes, dtypes or {}) for node in closed.arguments()]
    graph, outputs = _lowered(closed, types, name, (), _keeping if keep_loops else find_whole_rule)
    for value, head, lowered in zip(graph.results, symbol.heads, closed.heads, strict=True):
        node = symbol.nodes[head.node]
        count = next(number for number in itertools.count() if Edge(lowered.node, number) not in outputs)
        value.name = output_name(node, head.output, int(node.attrs["num_outputs"]) if is_open(node) else count)
    return graph


def _keeping(op: str) -> Rule | None:
    return keeping(op) or find_whole_rule(op)


def with_results(symbol: SymbolGraph, names: Sequence[str]) -> SymbolGraph:
    """The graph cut behind these outputs of its operators, by MXNet's names, in this order. Labels that operators
    compute become variables of their own, which inference does not read.

    Raises:
        ModelError: there is no such output.
    """
    operators = {node.name: node for node in symbol.operators()}
    heads = []
    for name in names:
        node, place = None, None
        for end in (end for end, letter in enumerate(name) if letter == "_"):
            node = operators.get(name[:end])
            place = None if node is None else _output_place(node, name[end + 1:])
            if place is not None:
                break
        if node is None or place is None:
            raise no_result(name, [output_name(node, 0, 1) for node in operators.values()])
        heads.append(Edge(node.index, place))
    return as_loaded(replace(_without_labels(symbol), heads=tuple(heads)))


def other_results(symbol: SymbolGraph, names: Collection[str]) -> str:
    """The end of a message that tells outputs which depend on none of these nodes but through labels; empty if there
    are none."""
    bare, found = _without_labels(symbol), []
    for head in bare.heads:
        reached = in_order([head.node], lambda index: [edge.node for edge in bare.nodes[index].inputs])
        if not bare.nodes[head.node].is_variable and not any(bare.nodes[index].name in names for index in reached):
            several = any(edge.node == head.node and edge.output for edge in [*symbol.readers(), *symbol.heads])
            found.append(output_name(bare.nodes[head.node], head.output, 1 + several))
    return f"; {listed(found)} can be had alone, by results= or --result {found[0]}" if found else ""


def _without_labels(symbol: SymbolGraph) -> SymbolGraph:
    """The graph whose operators read no labels that others compute, but variables in their place."""
    nodes = list(symbol.nodes)
    for node in symbol.operators():
        if canonical(node.op) in LABELLED and len(node.inputs) == 2 and not nodes[node.inputs[1].node].is_variable:
            label = SymbolNode(len(nodes), VARIABLE, f"{node.name}_label", {}, ())
            nodes.append(label)
            nodes[node.index] = node.placed(node.index, [node.inputs[0], Edge(label.index, 0)])
    return replace(symbol, nodes=tuple(nodes), arg_nodes=tuple(node.index for node in nodes if node.is_variable))


def _output_place(node: SymbolNode, ending: str) -> int | None:
    """The place of a node's output, by what its name ends with."""
    named = OUTPUTS.get(canonical(node.op), ())
    if ending in named:
        return named.index(ending)
    number = re.fullmatch(r"output(\d*)", ending)
    return None if number is None else int(number[1] or 0)


def _with_one_variable_each(symbol: SymbolGraph) -> SymbolGraph:
    """The graph in which variables of one name, which MXNet binds to one array, are one."""
    first: dict[str, int] = {}
    for index in symbol.arg_nodes:
        first.setdefault(symbol.nodes[index].name, index)
    if len(first) == len(symbol.arg_nodes):
        return symbol
    at = {index: first[symbol.nodes[index].name] for index in symbol.arg_nodes}

    def moved(edge: Edge) -> Edge:
        return replace(edge, node=at.get(edge.node, edge.node))

    nodes = tuple(node.placed(node.index, map(moved, node.inputs)) for node in symbol.nodes)
    return SymbolGraph(nodes, tuple(first.values()), tuple(map(moved, symbol.heads)))


def with_types(symbol: SymbolGraph, shapes: Mapping[str, Sequence[int]],
               dtypes: Mapping[str, str]) -> SymbolGraph:
    """The graph with the types of all outputs, as rules tell them: None of an operator that has no rule, and of what
    reads it. `shapes` and `dtypes`: as for `import_symbol`, which also has the errors."""
    told = [_told(node, shapes, dtypes) for node in symbol.arguments()]
    symbol = with_open_shapes(symbol, [type_ if isinstance(type_, TensorType) else None for type_ in told])
    b = Builder()
    values = (arguments := _Arguments(b, symbol, told, ())).values
    lower_operators(b, symbol, values, Halves(), find_whole_rule, before=arguments.complete,
                    refused=lambda node, reason: None)
    types: dict[int, dict[int, TensorType]] = {}
    for edge, value in values.items():
        types.setdefault(edge.node, {})[edge.output] = value.type
    return replace(symbol, nodes=tuple(
        node.typed(found.get(place) for place in range(1 + max(found, default=-1)))
        for node in symbol.nodes for found in [types.get(node.index, {})]))


def refusals(symbol: SymbolGraph, shapes: Mapping[str, Sequence[int]], dtypes: Mapping[str, str],
             backend: Backend) -> list[Verdict]:
    """The operators that can't be lowered, or that the backend does not run, and why, as far as types are known.

    Raises:
        ModelError: as `import_symbol`.
    """
    b, whole = Builder(), inline(symbol)
    found = [Verdict(symbol.nodes[index].name, symbol.nodes[index].op, reason)
             for index, reason in whole.reasons.items()]
    arguments = _Arguments(b, whole.graph, [_told(node, shapes, dtypes) for node in whole.graph.arguments()], ())
    lower_operators(b, whole.graph, arguments.values, Halves(), find_whole_rule, before=arguments.complete,
                    refused=lambda node, reason: found.append(Verdict(node.name, node.op, reason)))
    for node in b.graph.nodes:
        if (reason := backend_reason(backend, [node])) is not None:
            name, _, op = node.origin.removeprefix("mx:").rpartition(" ")
            found.append(Verdict(name, op, reason))
    return list(dict.fromkeys(found))


def _told(node: SymbolNode, shapes: Mapping[str, Sequence[int]],
          dtypes: Mapping[str, str]) -> TensorType | ElementType | None:
    """The type of a variable, or its element where its shape is not known."""
    element = element_type(dtypes[node.name]) if node.name in dtypes else None
    own = node.attrs.get("__dtype__", "-1")
    if element is None and own.isdecimal():
        element = mxnet_element(int(own[:9]))
    shape = shapes.get(node.name)
    if shape is None:
        shape = _numbers(node.attrs.get("__shape__", ""))
        shape = shape if shape and min(shape) > 0 else None
    return element if shape is None else TensorType(element or f32, tuple(shape))


def lower_graph(symbol: SymbolGraph, types: Sequence[TensorType | ElementType | None], *, name: str = "main",
                data: Collection[int] = ()) -> Graph:
    """The graph, given what is known of each argument's type in order: all, its element, or nothing.

    `data`: the places of arguments that are no weights, whatever slot they are read in.

    In a region cut out by the partitioner an argument may be what another part of the model computes anew at
    every call; such a one is never a weight.

    Raises:
        UnsupportedError, ModelError: as `import_symbol`.
    """
    return _lowered(symbol, types, name, data)[0]


def _lowered(symbol: SymbolGraph, types: Sequence[TensorType | ElementType | None], name: str,
             data: Collection[int], rules: FindRule = find_rule) -> tuple[Graph, Collection[Edge]]:
    """The graph, and the outputs of operators that were lowered."""
    config.logger(__name__).debug("lowered a graph of %d nodes", len(symbol.nodes))
    b, halves = Builder(name=name), Halves()
    values = lower_values(b, symbol, types, halves, data=data, rules=rules)
    graph = b.results(*own_results(b, [read(symbol, values, head) for head in symbol.heads]))
    if halves.used:
        graph.remove_dead()
    return graph, values.keys()


def lower_values(b: Builder, symbol: SymbolGraph, types: Sequence[TensorType | ElementType | None], halves: Halves, *,
                 data: Collection[int] = (), rules: FindRule = find_rule) -> dict[Edge, Value]:
    """Append the IR of all operators, by these rules, and return all values. Errors and `data` as in `lower_graph`."""
    if len(types) != len(symbol.arg_nodes):
        raise ModelError(f"found {len(types)} input types, expected {len(symbol.arg_nodes)}: one for each argument")
    symbol = with_open_shapes(symbol, [type_ if isinstance(type_, TensorType) else None for type_ in types])
    arguments = _Arguments(b, symbol, types, data)
    lower_operators(b, symbol, arguments.values, halves, rules, before=arguments.complete)
    arguments.finish()
    return arguments.values


class _Arguments:
    """The parameters of a graph. A variable of unknown type gets it from the first operator that reads it."""

    def __init__(self, b: Builder, symbol: SymbolGraph, types: Sequence[TensorType | ElementType | None],
                 data: Collection[int]) -> None:
        self._b, self._symbol, self._roles, variables = b, symbol, roles_of(symbol, data), symbol.arguments()
        self.values: dict[Edge, Value] = {}
        self._names = dict(zip(symbol.arg_nodes, distinct([node.argument for node in variables]), strict=True))
        self._open = {node.index: (node, type_) for node, type_ in zip(variables, types, strict=True)
                      if not isinstance(type_, TensorType)}
        self._order = [Edge(index, 0) for index in symbol.arg_nodes]
        for node, type_ in zip(variables, types, strict=True):
            if isinstance(type_, TensorType):
                self._add(node, type_)

    def _add(self, node: SymbolNode, type_: TensorType) -> None:
        self._b.origin = node.origin
        self.values[Edge(node.index, 0)] = self._b.parameter(self._names[node.index], type_.shape, type_.element,
                                                             self._roles[node.index])

    def complete(self, node: SymbolNode) -> None:
        """Add the variables that the operator reads, with the shapes that it gives them.

        Raises:
            ModelError: one has no shape, or a weight has another.
        """
        wanted = self._wanted(node)
        for slot, edge in enumerate(node.inputs):
            if edge.node in self._open:
                if slot not in wanted:
                    raise ModelError(self._missing())
                variable, element = self._open.pop(edge.node)
                self._add(variable, TensorType(element or self._element(node), wanted[slot]))
            elif (self._roles.get(edge.node) is Role.WEIGHT and slot in wanted and canonical(node.op) not in LENIENT
                    and _differ(self.values[edge].shape, wanted[slot])):
                raise ModelError(f"{self._names[edge.node]} has shape {self.values[edge].shape}, {node.origin} expects "
                                 f"{wanted[slot]}")

    def _wanted(self, node: SymbolNode) -> Mapping[int, Shape]:
        known = [self.values.get(edge) for edge in node.inputs]
        name, attrs = canonical(node.op), Attrs(node.attrs, node.origin)
        if EQUAL.get(name) is every_axis:
            shape = next((value.shape for value in known if value is not None), None)
            return {} if shape is None else dict.fromkeys(range(len(known)), shape)
        if name not in WANTED or not known or known[0] is None:
            return {}
        try:
            return WANTED[name](attrs, known[0].shape)
        except (IndexError, KeyError, ZeroDivisionError):
            return {}  # the rule says what does not fit

    def _element(self, node: SymbolNode) -> ElementType:
        own = Attrs(node.attrs, node.origin).element("dtype", None)
        data = self.values.get(node.inputs[0])
        return own or (data.type.element if data is not None and data.type.element.is_float else f32)

    def _missing(self) -> str:
        roles = {node.name: self._roles[node.index] for node, _ in self._open.values()}
        names = [name for name, role in roles.items() if role is Role.INPUT and not name.endswith("label")]
        return unknown_shapes(names or list(roles)) + other_results(self._symbol, names or list(roles))

    def finish(self) -> None:
        """Put the parameters in the order of the arguments, before those that rules have added. Raises ModelError: one
        has no shape."""
        if self._open:
            raise ModelError(self._missing())
        place = {self.values[edge]: number for number, edge in enumerate(self._order)}
        self._b.graph.parameters.sort(key=lambda value: place.get(value, len(place)))


def unknown_shapes(names: Sequence[str]) -> str:
    """The message that the shapes of these inputs must be given."""
    return (f"the shape of {listed(names)} is not known: give it, on the command line as in "
            f"--shape {names[0]}=1,3,224,224")


def check_names(names: Sequence[str], told: Collection[str]) -> None:
    """Raises ModelError: something is told of inputs that are not among `names`."""
    unknown = sorted(set(told) - set(names))
    if unknown:
        raise ModelError(f"no input is called {listed(unknown)}; the inputs: {listed(names, unknown[0])}")


def dtype_name(name: str, dtype: Any) -> str:
    """The name of the dtype that is told of input `name`. Raises ModelError: it is none."""
    try:
        return str(element_type(dtype).numpy)
    except (KeyError, TypeError):
        raise ModelError(f"input {name}: found dtype {dtype!r}, expected one such as float32 or int8") from None


def _differ(shape: Shape, other: Shape) -> bool:
    """True if the shapes differ whatever symbols in them are."""
    return len(shape) != len(other) or any(
        not isinstance(a, Dim) and not isinstance(b, Dim) and a != b for a, b in zip(shape, other, strict=True))


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


def roles_of(symbol: SymbolGraph, data: Collection[int] = ()) -> dict[int, Role]:
    """The roles of a graph's variables, by their numbers. What another region computes is no weight, nor are the
    variables at the places `data`."""
    weights = weights_of(symbol)
    return {node.index: Role.WEIGHT if node.index in weights and not node.is_computed and place not in data
            else Role.INPUT for place, node in enumerate(symbol.arguments())}


def data_variables(symbol: SymbolGraph) -> list[str]:
    """The names of the variables that are read as data, in order, without labels."""
    weights = weights_of(symbol)
    return [node.name for node in symbol.arguments() if node.index not in weights and not node.name.endswith("label")]


def _parameter_slots(node: SymbolNode) -> Collection[int]:
    """The inputs that an operator reads as weights."""
    if bodies := bodies_of(node):
        found: dict[int, bool] = {}
        for body, changing in bodies:
            inner = weights_of(body.graph)
            for index, source in zip(body.graph.arg_nodes, body.sources, strict=True):
                found[source] = source not in changing and index in inner and found.get(source, True)
        return {source for source, is_weight in found.items() if is_weight}
    rule = find_rule(node.op)
    return rule.parameters if rule is not None else ()


def distinct(names: list[str]) -> list[str]:
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
