"""Verdicts on nodes and regions, from lowering them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from ngraph_mxnet import config
from ngraph_mxnet.bridges.mxnet.importer import lower_graph
from ngraph_mxnet.bridges.mxnet.judging import int8
from ngraph_mxnet.bridges.mxnet.rules.lowering import FindRule, lower_node, unread_output
from ngraph_mxnet.bridges.mxnet.rules.registry import find_rule
from ngraph_mxnet.bridges.mxnet.symbols.symbol_json import Edge, SymbolGraph, SymbolNode
from ngraph_mxnet.errors import ConfigError, ModelError, UnsupportedError
from ngraph_mxnet.ir import Builder, Graph, TensorType, Value
from ngraph_mxnet.ir.cost import Cost, graph_cost
from ngraph_mxnet.ir.types import boolean
from ngraph_mxnet.placement.verdicts.regions import ALONE, grow_regions
from ngraph_mxnet.placement.verdicts.support import Verdict, backend_reason
from ngraph_mxnet.placement.verdicts.worth import not_worth_it, too_small_alone
from ngraph_mxnet.recent import Recent
from ngraph_mxnet.runtime.backend import Backend

logger = config.logger("ngraph_mxnet")

found_supported = Recent(1024)
"""Operators that are supported, by everything that this depends on: a model has many that are alike."""

BOOL_CROSSES = "a bool would cross a region's border, and MXNet's interface for extensions has no such type"


Check = Callable[[SymbolNode, Builder, Sequence[Value]], "str | None"]


@dataclass(frozen=True)
class Mode:
    """What operators are judged for.

    Attributes:
        rules: those that they lower by.
        unfit: why an operator stays although it lowered, to the builder's graph and these outputs; else None.
        too_small: why an operator alone between MXNet's is no region, of its graph.
    """

    name: str
    rules: FindRule
    unfit: Check
    too_small: Callable[[Graph], str | None]


INFERENCE = Mode("inference", find_rule, lambda node, b, outputs: None, too_small_alone)


def judge(symbol: SymbolGraph, backend: Backend, mode: Mode = INFERENCE) -> dict[int, Verdict]:
    """The verdict on each operator by its number, from lowering it alone."""
    highest: dict[int, int] = {}
    for edge in [*symbol.readers(), *symbol.heads]:
        highest[edge.node] = max(edge.output, highest.get(edge.node, 0))
    settings = config.compile_settings()
    return {
        node.index: Verdict(node.name, node.op,
                            _reason(symbol, node, highest.get(node.index, 0), backend, settings, mode))
        for node in symbol.operators()
    }


def judge_graph(symbol: SymbolGraph, backend: Backend,
                mode: Mode = INFERENCE, left: Mapping[int, str] | None = None) -> tuple[list[str | None], list[int]]:
    """For each node why it stays with MXNet (None: supported, or a variable), and the number of its region or ALONE.

    Nodes that hand each other bools must belong to one region, or none does. Beside others that stay, a lone operator
    must be worth a call.

    Args:
        left: why further operators stay, by their numbers.
    """
    verdicts = judge(symbol, backend, mode)
    reasons = [verdicts[node.index].reason if node.index in verdicts else None for node in symbol.nodes]
    for index, reason in (left or {}).items():
        reasons[index] = reason
    inputs = [[edge.node for edge in node.inputs] for node in symbol.nodes]
    together = _joined_by_bools(symbol)
    for head in symbol.heads:
        if _is_bool(symbol, head) and head.node in verdicts:
            reasons[head.node] = reasons[head.node] or BOOL_CROSSES
    while True:
        supported = [node.index in verdicts and reasons[node.index] is None for node in symbol.nodes]
        numbers = grow_regions(inputs, supported)
        apart = [nodes for nodes in together if len({numbers[node] for node in nodes}) > 1]
        small = {} if apart else _too_small(symbol, numbers, mode)
        if not apart and not small:
            return reasons, numbers
        for node in (node for nodes in apart for node in nodes if numbers[node] != ALONE):
            reasons[node] = BOOL_CROSSES
        for node, reason in small.items():
            reasons[node] = reason


def _joined_by_bools(symbol: SymbolGraph) -> list[list[int]]:
    """The numbers of nodes that write and read the same bools, directly or through others; variables too."""
    groups: dict[int, set[int]] = {}
    for edge, readers in symbol.readers().items():
        if _is_bool(symbol, edge):
            nodes = {edge.node, *(reader.index for reader, _ in readers)}
            whole = nodes.union(*(groups.get(node, ()) for node in nodes))
            groups.update(dict.fromkeys(whole, whole))
    return [sorted(group) for group in {id(group): group for group in groups.values()}.values()]


def _is_bool(symbol: SymbolGraph, edge: Edge) -> bool:
    type_ = type_of(symbol, edge)
    return type_ is not None and type_.element is boolean


def _too_small(symbol: SymbolGraph, numbers: Sequence[int], mode: Mode) -> dict[int, str]:
    """The operators that are regions by themselves and not worth it, and why; none unless others stay with MXNet."""
    sizes = Counter(numbers[node.index] for node in symbol.operators())
    if ALONE not in sizes:
        return {}
    lone = [node for node in symbol.operators() if numbers[node.index] != ALONE and sizes[numbers[node.index]] == 1]
    reasons = {node.index: mode.too_small(_lowered(symbol, node, mode)[0].graph) for node in lone}
    return {node: reason for node, reason in reasons.items() if reason is not None}


def _reason(symbol: SymbolGraph, node: SymbolNode, highest: int, backend: Backend, settings: str,
            mode: Mode) -> str | None:
    """Why the node stays with MXNet. `highest`: the last of its outputs that someone reads."""
    try:
        if (left := int8.why_left(symbol, node)) is not None:
            return left
        key = (mode.name, backend.name, settings, node.op, tuple(node.attrs.items()), node.types, highest,
               tuple(type_of(symbol, edge) for edge in node.inputs))
        if not node.bodies and found_supported.get(key):
            return None
        b, outputs = _lowered(symbol, node, mode)
        if highest >= len(outputs):
            return unread_output(node, highest)
        reason = (_type_mismatch(node, outputs) or backend_reason(backend, b.graph.nodes)
                  or mode.unfit(node, b, outputs))
        if reason is None:
            found_supported.put(key, True)
        return reason
    except (UnsupportedError, ModelError) as error:
        return str(error)
    except ConfigError:
        raise  # a setting, which would be told anew of each node
    except Exception as error:
        # A bug of a rule: the node stays with MXNet, and the log has what is needed to mend it.
        logger.warning("the rule for %s failed: %s", node.op, error, exc_info=True)
        return f"its rule failed: {error!r}"


def _lowered(symbol: SymbolGraph, node: SymbolNode, mode: Mode) -> tuple[Builder, Sequence[Value]]:
    """The node alone, over parameters of its inputs' types."""
    b = Builder()
    inputs = [_stand_in(b, symbol, slot, edge) for slot, edge in enumerate(node.inputs)]
    return b, lower_node(b, node, inputs, rules=mode.rules)


def _stand_in(b: Builder, symbol: SymbolGraph, slot: int, edge: Edge) -> Value:
    """A parameter of the type of `edge`."""
    type_ = type_of(symbol, edge)
    if type_ is None:
        raise UnsupportedError(f"the shape or type of input {slot} is unknown")
    return b.parameter(f"input{slot}", type_.shape, type_.element)


def type_of(symbol: SymbolGraph, edge: Edge) -> TensorType | None:
    """None when MXNet has not told it, and of what no output depends on."""
    types = symbol.nodes[edge.node].types
    return types[edge.output] if types is not None and edge.output < len(types) else None


def _type_mismatch(node: SymbolNode, outputs: Sequence[Value]) -> str | None:
    """The output for which MXNet has another type than what the rule made, if there is one: then the rule is wrong."""
    for position, (found, expected) in enumerate(zip(outputs, node.types or (), strict=False)):
        if expected is not None and found.type != expected:
            return f"output {position} would be {found.type}, for MXNet it is {expected}"
    return None


def argument_types(symbol: SymbolGraph) -> list[TensorType] | None:
    """The type of each argument in order; None when MXNet has not told one of them."""
    types = [node.types[0] if node.types else None for node in symbol.arguments()]
    return [type_ for type_ in types if type_ is not None] if None not in types else None


def judge_region(symbol: SymbolGraph, types: Sequence[TensorType], backend: Backend,
                 data: Collection[int] = ()) -> tuple[Cost, str | None, Graph | None]:
    """The region's work, why it is rejected, and what it is lowered to, with `data` as in `lower_graph`."""
    try:
        graph = lower_graph(symbol, types, name=symbol.nodes[symbol.heads[0].node].name, data=data)
    except (UnsupportedError, ModelError) as error:
        return Cost(), str(error), None
    cost = graph_cost(graph)
    return cost, crossing_bool(graph) or backend_reason(backend, graph.nodes) or not_worth_it(cost), graph


def crossing_bool(graph: Graph) -> str | None:
    """Why MXNet can't call a region that is lowered to `graph`, if an input or output is bool; else None."""
    border = [*graph.parameters, *graph.results]
    return BOOL_CROSSES if any(value.type.element is boolean for value in border) else None
