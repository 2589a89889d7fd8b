"""Judge a symbol's operators and cut its regions, on one graph to which all of the symbol is lowered.

An operator stays with MXNet if no rule lowers it, or the backend does not run what it became.
"""

from __future__ import annotations

import glob
import itertools
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ngraph_mxnet.base import config
from ngraph_mxnet.base.errors import ConfigError, ModelError, NGraphError, UnsupportedError
from ngraph_mxnet.frontends.mxnet.attrs import Halves
from ngraph_mxnet.frontends.mxnet.importer import distinct, lower_graph, own_results, roles_of, with_types
from ngraph_mxnet.frontends.mxnet.inlining import Inlined, inline
from ngraph_mxnet.frontends.mxnet.rules.quantization import QUANTIZED
from ngraph_mxnet.frontends.mxnet.rules.registry import FindRule, find_rule, lower_node, unread_output
from ngraph_mxnet.frontends.mxnet.symbol_json import VARIABLE, Edge, SymbolGraph, SymbolNode, in_order
from ngraph_mxnet.frontends.verdicts import (
    ALONE,
    RULE_FAILED,
    Partition,
    Region,
    Verdict,
    backend_reason,
    grow_regions,
    not_worth_it,
    too_small_alone,
)
from ngraph_mxnet.ir import Builder, Graph, TensorType, Value
from ngraph_mxnet.ir.graph import Cost, Node, extract, graph_cost
from ngraph_mxnet.ir.types import boolean, i8, u8
from ngraph_mxnet.program.backend import Backend


def why_left(symbol: SymbolGraph, node: SymbolNode) -> str | None:
    """Why an operator on quantised data stays with MXNet; None for others, and where int8 is compiled."""
    return "NGRAPH_INT8=0" if _on_quantised_data(symbol, node) and not config.get("NGRAPH_INT8") else None


def _on_quantised_data(symbol: SymbolGraph, node: SymbolNode) -> bool:
    rule = find_rule(node.op)
    if rule is None or rule.types is not QUANTIZED:
        return False
    read = [(symbol.nodes[edge.node].types or (), edge.output) for edge in node.inputs]
    types = [*(node.types or ()), *(types[output] for types, output in read if output < len(types))]
    return any(type_ is not None and type_.element in (i8, u8) for type_ in types)


logger = config.logger("ngraph_mxnet")

BOOL_CROSSES = "a bool would cross a region's border, and MXNet's interface for extensions has no such type"


Check = Callable[[SymbolNode, Callable[[], Graph]], "str | None"]


@dataclass(frozen=True)
class Mode:
    """The purpose that operators are judged for.

    Attributes:
        rules: those that they lower by.
        unfit: why an operator stays although it lowered, to the graph that the function makes; else None.
        too_small: why an operator alone between MXNet's is no region, of its graph.
    """

    rules: FindRule
    unfit: Check
    too_small: Callable[[Graph], str | None]


INFERENCE = Mode(find_rule, lambda node, alone: None, too_small_alone)


class WholeGraph:
    """A symbol with types, lowered once, operator by operator, to one graph.

    The outputs of an operator that stays with MXNet are parameters of the graph.

    Attributes:
        reasons: why operators stay, by their numbers.
    """

    def __init__(self, symbol: SymbolGraph, backend: Backend, mode: Mode = INFERENCE) -> None:
        self.symbol, self.reasons = symbol, dict[int, str]()
        self._backend, self.mode = backend, mode
        self._builder, self._halves = Builder(), Halves()
        self._values: dict[Edge, Value] = {}
        self._nodes: dict[int, list[Node]] = {}
        self._supported: set[Any] = set()
        read: dict[int, int] = {}
        for edge in [*symbol.readers(), *symbol.heads]:
            read[edge.node] = max(edge.output, read.get(edge.node, 0))
        for node in symbol.nodes:
            reason = None if node.is_variable else self._lower(node, read.get(node.index, 0))
            if reason is not None:
                self.reasons[node.index] = reason
            if node.is_variable or reason is not None:
                self._stand_in(node)
        config.logger(__name__).debug("lowered a graph of %d nodes", len(symbol.nodes))

    def _stand_in(self, node: SymbolNode) -> None:
        for output, type_ in enumerate(node.types or ()):
            if type_ is not None:
                self._values[Edge(node.index, output)] = self._builder.parameter(
                    f"{node.index} {output}", type_.shape, type_.element)

    def _lower(self, node: SymbolNode, highest: int) -> str | None:
        """Append the operator, or return why it stays. `highest`: the last of its outputs that someone reads."""
        nodes, begin, mark = self._builder.graph.nodes, len(self._builder.graph.nodes), self._halves.mark()
        outputs: Sequence[Value] = ()
        try:
            reason = why_left(self.symbol, node)
            if reason is None:
                inputs = [self._input(slot, edge) for slot, edge in enumerate(node.inputs)]
                outputs = lower_node(self._builder, node, inputs, self._halves, self.mode.rules)
                reason = unread_output(node, highest) if highest >= len(outputs) else self._unfit(node, outputs, begin)
        except ConfigError:
            raise  # a setting, which would be told anew of each node
        except Exception as error:
            is_told = isinstance(error, (UnsupportedError, ModelError))
            fault = error if not is_told else error.__cause__
            reason = str(error)
            if fault is not None and not isinstance(fault, (NGraphError, MemoryError)):
                # A bug of a rule: the node stays with MXNet, and the log has what is needed to mend it.
                logger.warning("the rule for %s failed: %s", node.op, fault, exc_info=True)
                reason = f"{RULE_FAILED}: {fault!r}"
        if reason is None:
            self._nodes[node.index] = nodes[begin:]
            self._values.update((Edge(node.index, place), value) for place, value in enumerate(outputs))
        else:
            del nodes[begin:]
            self._halves.forget(mark)
        return reason

    def _input(self, slot: int, edge: Edge) -> Value:
        if edge in self._values and type_of(self.symbol, edge) is not None:
            return self._values[edge]
        if edge.node in self._nodes and edge not in self._values:
            raise UnsupportedError(unread_output(self.symbol.nodes[edge.node], edge.output))
        raise UnsupportedError(f"the shape or type of input {slot} is unknown")

    def _unfit(self, node: SymbolNode, outputs: Sequence[Value], begin: int) -> str | None:
        """Why an operator stays although it lowered. A model has many that are alike, of which one is asked."""
        key = (node.op, tuple(node.attrs.items()), node.types, tuple(self._values[edge].type for edge in node.inputs))
        if key in self._supported and not node.bodies:
            return None
        nodes = self._builder.graph.nodes[begin:]
        reason = (_type_mismatch(node, outputs) or backend_reason(self._backend, nodes)
                  or self.mode.unfit(node, lambda: self._alone(node, nodes, outputs)))
        if reason is None:
            self._supported.add(key)
        return reason

    def _alone(self, node: SymbolNode, nodes: Sequence[Node], outputs: Sequence[Value]) -> Graph:
        """The operator by itself, over its inputs."""
        inputs = dict.fromkeys(self._values[edge] for edge in node.inputs)
        made = {value for one in nodes for value in one.outputs}
        inputs.update(dict.fromkeys(value for one in nodes for value in one.inputs if value not in made))
        return extract(self._builder.graph, outputs, inputs, name="alone",
                       label=lambda value, number: f"input{number}").graph

    def alone(self, node: SymbolNode) -> Graph:
        """The operator by itself, over its inputs."""
        nodes = self._nodes[node.index]
        outputs = [self._values[Edge(node.index, place)] for place in itertools.takewhile(
            lambda place: Edge(node.index, place) in self._values, itertools.count())]
        return self._alone(node, nodes, outputs)

    def region(self, cut: Cut, data: Collection[int] = ()) -> Graph | None:
        """The graph of a region, with `data` as in `lower_graph`; None if it is no part of this graph as it is. The
        region's nodes move there."""
        sources = [self._values[edge] for edge in cut.sources]
        if self._halves.used or len(set(sources)) < len(sources):
            return None
        own = {node for member in cut.members for node in self._nodes.get(member, ())}
        read = {value for node in own for value in node.inputs if value.node not in own}
        results = [self._values[edge] for edge in cut.outputs]
        reached = {value for value in results if value.node not in own}
        if not read | reached <= set(sources):
            return None
        variables, roles = cut.graph.arguments(), roles_of(cut.graph, data)
        names = distinct([variable.argument for variable in variables])
        b = Builder(name=cut.graph.nodes[cut.graph.heads[0].node].name)
        table: dict[Value, Value] = {}
        for variable, name, value in zip(variables, names, sources, strict=True):
            b.origin = variable.origin
            table[value] = b.parameter(name, value.shape, value.type.element, roles[variable.index])
        for node in self._builder.graph.nodes:
            if node in own:
                node.inputs = [table.get(value, value) for value in node.inputs]
                b.graph.nodes.append(node)
        return b.results(*own_results(b, [table.get(value, value) for value in results]))


def judge_graph(whole: WholeGraph, left: Mapping[int, str] | None = None) -> tuple[list[str | None], list[int]]:
    """For each node why it stays with MXNet (None: supported, or a variable), and the number of its region or ALONE.

    Nodes that hand each other bools must belong to one region, or none does. Beside others that stay, a lone operator
    must be worth a call.

    Args:
        left: why further operators stay, by their numbers.
    """
    symbol = whole.symbol
    reasons = [whole.reasons.get(node.index) for node in symbol.nodes]
    for index, reason in (left or {}).items():
        reasons[index] = reason
    inputs = [[edge.node for edge in node.inputs] for node in symbol.nodes]
    together = _joined_by_bools(symbol)
    for head in symbol.heads:
        if _is_bool(symbol, head) and not symbol.nodes[head.node].is_variable:
            reasons[head.node] = reasons[head.node] or BOOL_CROSSES
    while True:
        supported = [not node.is_variable and reasons[node.index] is None for node in symbol.nodes]
        numbers = grow_regions(inputs, supported)
        apart = [nodes for nodes in together if len({numbers[node] for node in nodes}) > 1]
        small = {} if apart else _too_small(whole, numbers)
        if not apart and not small:
            return reasons, numbers
        for node in (node for nodes in apart for node in nodes if numbers[node] != ALONE):
            reasons[node] = BOOL_CROSSES
        for node, reason in small.items():
            reasons[node] = reason


def regions_of(numbers: Sequence[int]) -> list[list[int]]:
    """The nodes of each region, from the number of each node's."""
    members: dict[int, list[int]] = {}
    for index, number in enumerate(numbers):
        if number != ALONE:
            members.setdefault(number, []).append(index)
    return list(members.values())


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


def _too_small(whole: WholeGraph, numbers: Sequence[int]) -> dict[int, str]:
    """The operators that are regions by themselves and not worth it, and why; none unless others stay with MXNet."""
    operators = whole.symbol.operators()
    sizes = Counter(numbers[node.index] for node in operators)
    if ALONE not in sizes:
        return {}
    lone = [node for node in operators if numbers[node.index] != ALONE and sizes[numbers[node.index]] == 1]
    reasons = {node.index: whole.mode.too_small(whole.alone(node)) for node in lone}
    return {node: reason for node, reason in reasons.items() if reason is not None}


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


def judge_region(whole: WholeGraph | None, cut: Cut, backend: Backend,
                 data: Collection[int] = ()) -> tuple[Cost, str | None, Graph | None]:
    """The region's work, why it is rejected, and its graph, with `data` as in `lower_graph`. `whole`: the graph that it
    is a part of; without it, or where a part can't be cut out of it, the region is lowered by itself."""
    graph, unfit = None if whole is None else whole.region(cut, data), None
    if graph is None:
        types = argument_types(cut.graph)
        assert types is not None  # a node that reads an unknown type is in no region
        try:
            graph = lower_graph(cut.graph, types, name=cut.graph.nodes[cut.graph.heads[0].node].name, data=data)
        except (UnsupportedError, ModelError) as error:
            return Cost(), str(error), None
        unfit = backend_reason(backend, graph.nodes)
    cost = graph_cost(graph)
    return cost, crossing_bool(graph) or unfit or not_worth_it(cost), graph


def crossing_bool(graph: Graph) -> str | None:
    """Why MXNet can't call a region that is lowered to `graph`, if an input or output is bool; else None."""
    border = [*graph.parameters, *graph.results]
    return BOOL_CROSSES if any(value.type.element is boolean for value in border) else None


@dataclass(frozen=True)
class Cut:
    """A region: the numbers of its nodes, its own graph, and what its arguments and outputs are in the whole one."""

    members: tuple[int, ...]
    graph: SymbolGraph
    sources: tuple[Edge, ...]
    outputs: tuple[Edge, ...]


def cut_region(graph: SymbolGraph, members: Sequence[int]) -> Cut:
    """The nodes numbered `members` as a graph of their own; what they read from outside become variables, what is
    read outside its outputs. Nodes stand as MXNet orders them when it loads the graph."""
    inside = set(members)
    read_outside = [edge for edge, readers in graph.readers().items()
                    if edge.node in inside and any(reader.index not in inside for reader, _ in readers)]
    outputs = tuple(dict.fromkeys(read_outside + [head for head in graph.heads if head.node in inside]))
    nodes: list[SymbolNode] = []
    at: dict[int | Edge, int] = {}

    def key(edge: Edge) -> int | Edge:
        """A node of the region by its number, what is read from outside by its edge."""
        return edge.node if edge.node in inside else edge

    def own(edge: Edge) -> Edge:
        return Edge(at[key(edge)], edge.output if edge.node in inside else 0, edge.version)

    for of in in_order(map(key, outputs), lambda of: () if isinstance(of, Edge) else map(key, graph.nodes[of].inputs)):
        at[of] = index = len(nodes)
        if isinstance(of, Edge):
            nodes.append(_outer_variable(graph.nodes[of.node], of.output, index))
        else:
            nodes.append(graph.nodes[of].placed(index, map(own, graph.nodes[of].inputs)))
    arguments = tuple(node.index for node in nodes if node.is_variable)
    sources = tuple(of for of in at if isinstance(of, Edge))
    return Cut(tuple(members), SymbolGraph(tuple(nodes), arguments, tuple(map(own, outputs))), sources, outputs)


def _outer_variable(producer: SymbolNode, output: int, index: int) -> SymbolNode:
    attrs = {} if producer.is_variable else {"isArg": "False", "isAux": "False"}
    types = producer.types[output:output + 1] if producer.types else None
    name = producer.name if producer.is_variable else f"{producer.name}_output{output}"
    return SymbolNode(index, VARIABLE, name, attrs, (), types or None)


def contracted(graph: SymbolGraph, cuts: Sequence[Cut], one_node: Callable[[Cut], SymbolNode]) -> SymbolGraph:
    """The graph with each region as the node that `one_node` makes of it; index and inputs are set here.

    Nodes stand as MXNet orders them when it loads the graph.
    """
    region = {member: number for number, cut in enumerate(cuts) for member in cut.members}
    exported = {edge: place for cut in cuts for place, edge in enumerate(cut.outputs)}
    nodes: list[SymbolNode] = []
    placed: dict[tuple[str, int], int] = {}

    def unit(index: int) -> tuple[str, int]:
        return ("region", region[index]) if index in region else ("node", index)

    def reads(of: tuple[str, int]) -> Sequence[Edge]:
        kind, number = of
        return cuts[number].sources if kind == "region" else graph.nodes[number].inputs

    def moved(edge: Edge) -> Edge:
        at = placed[unit(edge.node)]
        return Edge(at, exported[edge] if edge.node in region else edge.output, edge.version)

    heads = [unit(head.node) for head in graph.heads]
    for of in in_order(heads, lambda of: [unit(edge.node) for edge in reads(of)]):
        kind, number = of
        node = one_node(cuts[number]) if kind == "region" else graph.nodes[number]
        placed[of] = len(nodes)
        nodes.append(node.placed(len(nodes), map(moved, reads(of))))
    arguments = tuple(node.index for node in nodes if node.is_variable)
    return SymbolGraph(tuple(nodes), arguments, tuple(map(moved, graph.heads)))


@dataclass(frozen=True)
class TypedGraph:
    """`whole`: the graph with types. `inlined`: what they were inferred of, with types, too."""

    whole: SymbolGraph
    inlined: Inlined

    @staticmethod
    def of(graph: SymbolGraph, found: Inlined) -> TypedGraph:
        """`graph`: the original, which gets the types of what stands for its outputs."""
        def types_of(node: SymbolNode) -> tuple[TensorType | None, ...] | None:
            if node.index not in found.outputs:
                return found.graph.nodes[found.nodes[node.index][-1]].types
            return tuple(type_of(found.graph, edge) for edge in found.outputs[node.index])

        return TypedGraph(replace(graph, nodes=tuple(replace(node, types=types_of(node)) for node in graph.nodes)),
                          found)


@dataclass(frozen=True)
class Partitioned:
    """`graph` is the whole, with types; `cuts` are the regions that run on the backend, `graphs` their IR. Operators
    whose shapes nobody infers are inlined in it, where they run on the backend."""

    graph: SymbolGraph
    partition: Partition
    cuts: list[Cut]
    graphs: list[Graph]


def judged(typed: TypedGraph, backend: Backend, left: Mapping[int, str],
           data: Callable[[Cut], Sequence[int]] = lambda cut: (),
           keep: Callable[[Graph, Cut, Sequence[int]], None] = lambda graph, cut, data: None
           ) -> tuple[Partitioned, dict[int, str]]:
    """Partition the graph while the operators numbered `left` stay with MXNet.

    Args:
        data: the numbers of a region's arguments that are no weights, whatever reads them.
        keep: called with the IR of each region that runs on the backend, the region, and its `data`.

    Returns:
        the result, and for each inlined operator that has to stay, by number, the reason.
    """
    graph = typed.whole
    whole = WholeGraph(graph, backend)
    reasons, numbers = judge_graph(whole, left)
    verdicts = [Verdict(node.name, node.op, reasons[node.index]) for node in graph.operators()]
    found = Partitioned(typed.inlined.graph, Partition(backend.name, verdicts), [], [])
    apart = {index: reasons[index] or "it is in no region" for index in typed.inlined.outputs}
    for region in regions_of(numbers):
        cut = cut_region(typed.inlined.graph, [at for index in region for at in typed.inlined.nodes[index]])
        nodes = tuple((graph.nodes[index].name, graph.nodes[index].op) for index in region)
        places = data(cut)
        cost, rejected, lowered = judge_region(None if typed.inlined.outputs else whole, cut, backend, places)
        if lowered is not None and rejected is None:
            keep(lowered, cut, places)
            found.cuts.append(cut)
            found.graphs.append(lowered)
        found.partition.reviewed.append(Region(
            nodes, tuple(node.name for node in cut.graph.arguments()),
            tuple(cut.graph.nodes[head.node].name for head in cut.graph.heads), cost, rejected))
        for index in apart.keys() & region:
            if rejected is None:
                del apart[index]
            else:
                apart[index] = rejected
    return found, apart


def judged_by_rules(symbol: SymbolGraph, shapes: Mapping[str, Sequence[int]], dtypes: Mapping[str, str],
                    backend: Backend) -> Partitioned:
    """Partition the graph with the types that rules tell; behind an operator that has none they are unknown. `shapes`
    and `dtypes`: as for `import_symbol`, which also has the errors."""
    left: dict[int, str] = {}
    while True:
        inlined = inline(symbol, left)
        left |= inlined.reasons
        typed = replace(inlined, graph=with_types(inlined.graph, shapes, dtypes))
        found, apart = judged(TypedGraph.of(symbol, typed), backend, left)
        if not apart:
            return found
        left |= apart


DEVICE = "__ngraph_device__"
_GROUP = "__ctx_group__"


def pins_of(symbol: SymbolGraph, devices: Collection[str]) -> dict[str, str]:
    """The device of each operator that has one, by its origin as a pattern. `devices` are what groups may mean."""
    known = {device.upper() for device in devices}
    found = {}
    for node in symbol.operators():
        device, group = node.attrs.get(DEVICE), node.attrs.get(_GROUP, "")
        if device is None and group.upper() in known:
            device = group
        if device is not None:
            found[glob.escape(node.origin)] = device
    return found
