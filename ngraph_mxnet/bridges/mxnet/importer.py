"""From MXNet's symbol JSON to an `ir.Graph`.

Each operator lowers by its rule (`rules/<family>.py`); every IR node carries `mx:<name> <Op>`. A variable
that feeds nothing but parameter slots (a weight, a bias, batch-norm statistics), be it rearranged, becomes a weight
parameter. A rule says which element types it takes and computes in (`rules/registry.py: Types`); the conversions
around it are made here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from ngraph_mxnet.bridges.mxnet.rules.left import why_left
from ngraph_mxnet.bridges.mxnet.rules.registry import EXACT, Rule, find_rule
from ngraph_mxnet.bridges.mxnet.symbols.aliases import canonical
from ngraph_mxnet.bridges.mxnet.symbols.attrs import Attrs
from ngraph_mxnet.bridges.mxnet.symbols.half import Halves
from ngraph_mxnet.bridges.mxnet.symbols.symbol_json import Edge, SymbolGraph, SymbolNode, parse_symbol
from ngraph_mxnet.errors import ModelError, TypeRuleError, UnsupportedError
from ngraph_mxnet.ir import Builder, ElementType, Graph, TensorType, Value, element_type
from ngraph_mxnet.ir.guards import because
from ngraph_mxnet.ir.roles import Role
from ngraph_mxnet.ir.types import f16, f32

FindRule = Callable[[str], "Rule | None"]

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
    graph = b.results(*own_results(b, [_read(symbol, values, head) for head in symbol.heads]))
    if halves.used:
        graph.remove_dead()
    return graph


def lower_values(b: Builder, symbol: SymbolGraph, types: Sequence[TensorType], halves: Halves, *,
                 data: Collection[int] = (), rules: FindRule = find_rule) -> dict[Edge, Value]:
    """Append the IR of all operators, by these rules, and return all values. Errors and `data` as in `lower_graph`."""
    arguments = symbol.arguments()
    if len(types) != len(arguments):
        raise ModelError(f"found {len(types)} input types, expected {len(arguments)}: one for each argument")
    weights = weights_of(symbol)
    values: dict[Edge, Value] = {}
    names = _distinct([node.argument for node in arguments])
    for position, (node, type_) in enumerate(zip(arguments, types, strict=True)):
        b.origin = node.origin
        is_weight = node.index in weights and not node.is_computed and position not in data
        values[Edge(node.index, 0)] = b.parameter(names[position], type_.shape, type_.element,
                                                  Role.WEIGHT if is_weight else Role.INPUT)
    for node in symbol.operators():
        try:
            outputs = lower_node(b, node, [_read(symbol, values, edge) for edge in node.inputs], halves, rules)
        except UnsupportedError as error:
            raise UnsupportedError(f"{node.origin}: {error}") from None
        values.update((Edge(node.index, i), value) for i, value in enumerate(outputs))
    return values


def lower_node(b: Builder, node: SymbolNode, inputs: list[Value], halves: Halves | None = None,
               rules: FindRule = find_rule) -> list[Value]:
    """Append one operator's IR and return its outputs: without those of MXNet's that no rule computes.

    `halves` is shared by the nodes of a graph.

    Raises:
        UnsupportedError: the bare reason: naming the node is the caller's.
        ModelError: an attribute is malformed.
    """
    b.origin = node.origin
    try:
        return _apply(b, node, inputs, halves or Halves(), _rule(node, rules))
    except TypeRuleError as error:
        raise UnsupportedError(str(error)) from None


def _apply(b: Builder, node: SymbolNode, inputs: list[Value], halves: Halves, rule: Rule) -> list[Value]:
    least, most = rule.operands
    if not least <= len(inputs) <= most:
        wanted = str(least) if least == most else f"{least} to {most}"
        raise UnsupportedError(f"found {len(inputs)} inputs, expected {wanted}")
    for position, value in enumerate(inputs):
        _check_type(f"input {position}", value.type, rule.types.elements)
    attrs = Attrs(node.attrs, node.origin)
    attrs.ignore(*rule.ignored)
    named = attrs.element(rule.result, None) if rule.result else None
    with because(node.origin):
        lowered = rule.lower(b, _computing(b, rule, inputs, halves), attrs, node)
    if attrs.unread():
        unknown = ", ".join(f"{key}={value}" for key, value in attrs.unread().items())
        raise UnsupportedError(f"no support for {unknown}")
    outputs = [lowered] if isinstance(lowered, Value) else list(lowered)
    if named is None:
        outputs = [_stored(b, rule, inputs, value, halves) for value in outputs]
    else:
        outputs = [_as_named(b, value, named, halves) for value in outputs]
    for position, value in enumerate(outputs):
        _check_type(f"output {position}", value.type, EXACT.elements)
    return outputs


def _computing(b: Builder, rule: Rule, inputs: list[Value], halves: Halves) -> list[Value]:
    """The inputs in the types that the rule computes in."""
    if rule.types.moves and not any(halves.has_wide(value) for value in inputs):
        return inputs
    return [_in_f32(b, value, halves) if value.type.element.name in rule.types.in_f32 else value for value in inputs]


def _in_f32(b: Builder, value: Value, halves: Halves) -> Value:
    return halves.widened(b, value) if value.type.element is f16 else b.convert(value, element=f32)


def _stored(b: Builder, rule: Rule, inputs: list[Value], result: Value, halves: Halves) -> Value:
    """A result in the element type that MXNet gives it."""
    elements = [value.type.element for value in inputs]
    position = rule.typed_by if isinstance(rule.typed_by, int) else rule.typed_by(elements)
    if result.type.element is not f32 or position >= len(inputs):
        return result
    element = elements[position]
    if element.name not in rule.types.in_f32:
        return result
    return halves.narrowed(b, result) if element is f16 else b.convert(result, element=element)


def _as_named(b: Builder, result: Value, element: ElementType, halves: Halves) -> Value:
    """A result in the element type that an attribute names."""
    own = result.type.element
    if own is element:
        return result
    return halves.narrowed(b, result) if (own, element) == (f32, f16) else b.convert(result, element=element)


def _rule(node: SymbolNode, rules: FindRule) -> Rule:
    rule = rules(node.op)
    if rule is None:
        reason = why_left(node.op) or ("it runs subgraphs of its own" if node.bodies else None)
        raise UnsupportedError(f"{node.op} stays with MXNet: {reason}" if reason
                               else f"no rule for the MXNet operator {node.op}")
    return rule


def _check_type(what: str, type_: TensorType, elements: tuple[str, ...]) -> None:
    if type_.element.name not in elements:
        raise UnsupportedError(f"{what} is {type_}; supported element types: {', '.join(elements)}")
    if not type_.rank:
        raise UnsupportedError(f"{what} has rank 0, which MXNet takes for an unknown shape")
    if not type_.size:
        raise UnsupportedError(f"{what} is {type_}, which has no elements")


def _read(symbol: SymbolGraph, values: Mapping[Edge, Value], edge: Edge) -> Value:
    if edge not in values:
        raise UnsupportedError(unread_output(symbol.nodes[edge.node], edge.output))
    return values[edge]


def unread_output(node: SymbolNode, output: int) -> str:
    """The reason when someone reads an output that no rule computes, such as batch norm's mean."""
    return f"output {output} of {node.origin} is read, which is not computed at inference"


def weights_of(symbol: SymbolGraph) -> set[int]:
    """The variables that hold weights: whoever reads one reads it as a weight, directly or through operators that only
    rearrange, such as those that join projections into one."""
    readers: dict[int, list[tuple[SymbolNode, int]]] = {}
    for edge, slots in symbol.readers().items():
        readers.setdefault(edge.node, []).extend(slots)
    heads = {head.node for head in symbol.heads}
    found: set[int] = set()
    for node in reversed(symbol.nodes):  # all readers of a node come behind it
        if node.index in heads or not (node.is_variable or canonical(node.op) in _REARRANGING):
            continue
        slots = readers.get(node.index, [])
        if slots and all(_is_parameter_slot(*slot) or slot[0].index in found for slot in slots):
            found.add(node.index)
    return {index for index in found if symbol.nodes[index].is_variable}


def _is_parameter_slot(node: SymbolNode, slot: int) -> bool:
    rule = find_rule(node.op)
    return rule is not None and slot in rule.parameters


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
