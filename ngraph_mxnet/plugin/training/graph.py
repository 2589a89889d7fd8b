"""From a symbol to the two programs of its training step: its graph, differentiated, split and compiled.

The graph has what the step writes beside outputs and gradients.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ngraph_mxnet.autodiff import differentiate, split
from ngraph_mxnet.autodiff.reverse import ADJOINTS, HEAD, Joint, dependence
from ngraph_mxnet.autodiff.split import Split
from ngraph_mxnet.base import config, registry
from ngraph_mxnet.base.errors import UnsupportedError
from ngraph_mxnet.frontends.mxnet.attrs import Attrs, Halves, canonical
from ngraph_mxnet.frontends.mxnet.importer import lower_values, own_results
from ngraph_mxnet.frontends.mxnet.symbol_json import Edge, SymbolGraph, SymbolNode, in_order, parse_symbol
from ngraph_mxnet.ir import Builder, Graph, TensorType, Value
from ngraph_mxnet.ir.types import RANDOM_STATE, Role, f32
from ngraph_mxnet.ops.compositions import scalar
from ngraph_mxnet.passes.base import PassManager
from ngraph_mxnet.passes.fuse import attention_fusion, pick_fusion, recurrent_cells
from ngraph_mxnet.passes.movement import movement
from ngraph_mxnet.passes.simplify import DeadCode
from ngraph_mxnet.plugin.training.rules import (
    Gamma,
    Statistic,
    find_predicting_rule,
    find_training_rule,
    fixes_gamma,
    updates_statistics,
)
from ngraph_mxnet.program.backend import get_backend
from ngraph_mxnet.program.compile import compile as compile_graph
from ngraph_mxnet.program.executable import Executable
from ngraph_mxnet.program.program_cache import Made
from ngraph_mxnet.program.ranges import Template

_MOMENTUM = 0.9


@dataclass(frozen=True)
class TrainingGraph:
    """`graph`: its parameters are the symbol's arguments and auxiliary states, and
    `RANDOM_STATE` if it draws random numbers; its results are the symbol's outputs, as many as `outputs`, then the
    batch's value of each of `statistics`, then ones for each of `gammas`."""

    graph: Graph
    outputs: int
    statistics: tuple[Statistic, ...]
    gammas: tuple[Gamma, ...]


def import_training(symbol: SymbolGraph | str, types: Mapping[str, TensorType], wanted: Sequence[str] | None = None, *,
                    predicting: bool = False, name: str = "main") -> TrainingGraph:
    """Args:
        symbol: parsed, or JSON text.
        types: of every variable, by name.
        wanted: names of variables that gradients are wanted of; by default all of floats.
        predicting: gradients are those of a backward pass in predict mode, and nothing is written.

    Raises:
        ModelError: the JSON is corrupt.
        UnsupportedError: a node can't be lowered for training; the text names it and the reason.
    """
    if isinstance(symbol, str):
        symbol = parse_symbol(symbol)
    b, halves = Builder(name=name), Halves()
    if RANDOM_STATE in types:
        raise UnsupportedError(f"a variable is called {RANDOM_STATE}, as what random numbers follow from")
    values = lower_values(b, symbol, [types[node.name] for node in symbol.arguments()], halves,
                          rules=find_predicting_rule if predicting else find_training_rule)
    for head in symbol.heads:
        if head not in values:
            raise UnsupportedError(f"output {head.output} of {symbol.nodes[head.node].origin} is not computed")
    statistics: list[tuple[Statistic, Value]] = []
    gammas: dict[Gamma, Value] = {}
    if not predicting:
        floats = [parameter for parameter in b.graph.parameters if parameter.type.element.is_float]
        wishes = [parameter for parameter in floats if wanted is None or parameter.name in wanted]
        statistics, gammas = list(_statistics(b, symbol, values, wishes)), dict(_gammas(b, symbol, values, wishes))
    results = [*(values[head] for head in symbol.heads), *(batch for _, batch in statistics), *gammas.values()]
    graph = b.results(*own_results(b, results))
    graph.remove_dead()
    return TrainingGraph(graph, len(symbol.heads), tuple(one for one, _ in statistics), tuple(gammas))


def _statistics(b: Builder, symbol: SymbolGraph, values: Mapping[Edge, Value],
                wishes: Sequence[Value]) -> Iterator[tuple[Statistic, Value]]:
    """Yield the statistics that a backward pass moves, each with the batch's value, in MXNet's order. A block that is
    used twice moves its statistics twice."""
    active = dependence(b.graph.nodes, wishes)
    for node in _gone_back(symbol, {value.name for value in wishes}):
        attrs = Attrs(node.attrs, node.origin)
        if not updates_statistics(node, attrs) or not (of := _of(node, values, active, wishes)):
            continue
        for place, output in ((3, 1), (4, 2)):
            variable, batch = _variable(symbol, node, place), values[Edge(node.index, output)]
            if not batch.type == values[node.inputs[place]].type == TensorType(f32, batch.type.shape):
                raise UnsupportedError(f"{node.origin}: {variable.name} is {values[node.inputs[place]].type}, the "
                                       f"batch's {batch.type}, and only float32 is moved")
            yield Statistic(variable.name, attrs.float("momentum", _MOMENTUM), of), batch


def _gone_back(symbol: SymbolGraph, wanted: Collection[str]) -> list[SymbolNode]:
    """Return the operators that the gradients of the wanted variables come through, in the order of MXNet's backward
    pass: it walks from each gradient in turn, and where several operators read a value, the last one's share is the
    first."""
    readers = symbol.readers()
    later: dict[int, list[int]] = {node.index: [] for node in symbol.nodes}
    for edge in sorted(readers, key=lambda edge: (edge.node, edge.output)):
        later[edge.node] += [reader.index for reader, _ in reversed(readers[edge])]
    starts = [node.index for node in symbol.arguments() if node.name in wanted]
    return [symbol.nodes[index] for index in in_order(starts, later.__getitem__) if not symbol.nodes[index].is_variable]


def _gammas(b: Builder, symbol: SymbolGraph, values: Mapping[Edge, Value],
            wishes: Sequence[Value]) -> Iterator[tuple[Gamma, Value]]:
    """Yield each gamma that is overwritten, once, with the ones that overwrite it."""
    found: set[str] = set()
    active = dependence(b.graph.nodes, wishes)
    for node in symbol.operators():
        if not fixes_gamma(node) or not (read := symbol.nodes[node.inputs[1].node]).is_variable or read.name in found:
            continue
        found.add(read.name)
        gamma = values[node.inputs[1]]
        b.origin = node.origin
        ones = b.broadcast(scalar(b, 1, gamma), shape=gamma.shape)
        yield Gamma(read.name, _of(node, values, active, wishes)), ones


def _of(node: SymbolNode, values: Mapping[Edge, Value], active: Mapping[Value, int],
        wishes: Sequence[Value]) -> tuple[str, ...]:
    """Names of what is wanted that the batch norm's data, gamma or beta depends on."""
    bits = 0
    for edge in node.inputs[:3]:
        bits |= active.get(values[edge], 0)
    return tuple(value.name for place, value in enumerate(wishes) if bits >> place & 1)


def _variable(symbol: SymbolGraph, node: SymbolNode, place: int) -> SymbolNode:
    read = symbol.nodes[node.inputs[place].node]
    if not read.is_variable:
        raise UnsupportedError(f"{node.origin}: input {place} is computed, not a state")
    return read


_CONVERTING = frozenset(map(canonical, ("Cast", "_npi_cast", "amp_cast", "sum", "_np_sum", "_np_cumsum")))
"""Operators that convert where an attribute asks for it; others convert positions and counts, without a gradient."""


def refuse_gradients(graph: Graph, wanted: Collection[str]) -> None:
    """
    Raises:
        UnsupportedError: one of these operators makes integers of what depends on the `wanted` parameters.
    """
    active = {parameter for parameter in graph.parameters if parameter.name in wanted}
    for node in graph.nodes:
        if not any(value in active for value in node.inputs):
            continue
        if node.op.name == "convert" and not node.output.type.element.is_float:
            if canonical(node.origin.rpartition(" ")[2]) in _CONVERTING:
                raise UnsupportedError(f"{node.origin}: MXNet hands gradients back through {node.output.type}, here "
                                       "nothing goes back from integers")
        elif node.op.name in ADJOINTS:
            active.update(value for value in node.outputs if value.type.element.is_float)


def compile_step(symbol: SymbolGraph | str, types: Mapping[str, TensorType], wanted: Sequence[str], *,
                 recorded: bool = True, for_range: bool = False, predicting: bool = False) -> Made:
    """Compile the content of a `Step`: the forward and backward programs, and its attributes as facts.

    Args:
        recorded: the outputs are the caller's to write: the backward program reads none of them.
        for_range: the types have symbols among their sizes, of which guards are in force: templates are compiled.
        predicting: compile the one program of a backward pass in predict mode, which computes forward, too; its facts
            are the heads that it reads. Its results are the gradients.

    Raises:
        UnsupportedError: it can't be trained as a whole; the text says why.
    """
    if predicting:
        return _predicting(symbol, types, wanted)
    for name in wanted:
        if not types[name].element.is_float:
            raise UnsupportedError(f"a gradient of {name} is wanted, of {types[name]}")
    if isinstance(symbol, str):
        symbol = parse_symbol(symbol)
    training = import_training(symbol, types, wanted)
    first_gamma = training.outputs + len(training.statistics)
    joint, floats = _joint(training, wanted)
    halves = split(joint, len(training.graph.results), blocks=get_backend(registry.TRAINER).channel_block,
                   share=config.get("NGRAPH_REMATERIALIZE"))
    read = {parameter.name for parameter in halves.backward.parameters}
    repeated = _repeated(halves, range(training.outputs if recorded else 0, first_gamma), len(training.graph.results))
    facts = {
        "name": symbol.nodes[symbol.heads[0].node].name,
        "outputs": training.outputs,
        "heads": [(number, name) for number in floats if (name := f"{HEAD}{number}") in read],
        "statistics": [(one.name, one.momentum, one.of) for one in training.statistics],
        "gammas": [(one.name, one.of) for one in training.gammas],
        "saved": [name for name in halves.saved if name not in repeated],
        "repeated": repeated,
        "gone_back": sorted(joint.passed),
    }
    return Made(list(map(_template if for_range else compiled_half, (halves.forward, halves.backward))), facts)


def _predicting(symbol: SymbolGraph | str, types: Mapping[str, TensorType], wanted: Sequence[str]) -> Made:
    training = import_training(symbol, types, predicting=True)
    joint, floats = _joint(training, wanted)
    graph = joint.graph
    graph.results = joint.gradients
    graph.replace({node.output: node.inputs[0] for node in graph.nodes if node.op.name == "own_gradient"})
    graph.remove_dead()
    read = {value for node in graph.nodes for value in node.inputs} | set(graph.results)
    graph.parameters = [parameter for parameter in graph.parameters if parameter in read]
    names = {parameter.name for parameter in graph.parameters}
    heads = [(number, name) for number in floats if (name := f"{HEAD}{number}") in names]
    return Made([compiled_half(graph)], {"heads": heads})


def _joint(training: TrainingGraph, wanted: Sequence[str]) -> tuple[Joint, list[int]]:
    """With its gradients, and the numbers of the outputs that take head gradients."""
    refuse_gradients(training.graph, wanted)
    # An unrolled cell becomes one op, whose adjoint is one, too. Attention computes its scores anew where the
    # gradients of its parts would be given them. A loss of labels needs no logarithms of probabilities.
    PassManager([movement(), recurrent_cells(), attention_fusion(), pick_fusion(), DeadCode()]).run(training.graph)
    results = training.graph.results[:training.outputs]
    floats = [number for number, value in enumerate(results) if value.type.element.is_float]
    return differentiate(training.graph, list(wanted), floats), floats


def compiled_half(graph: Graph) -> Executable:
    """A half of a step, compiled: it derives nothing from weights in advance."""
    return compile_graph(_prepared(graph), registry.TRAINER)


def _template(graph: Graph) -> Template:
    made = get_backend(registry.TRAINER).template(_prepared(graph), {})
    if made is None:
        raise UnsupportedError("kernels that are generated for a graph are for its sizes")
    return made


def _prepared(graph: Graph) -> Graph:
    for parameter in graph.parameters:
        parameter.role = Role.INPUT  # weights change with every step: nothing is derived from them in advance
    graph.results = own_results(Builder(graph), graph.results)
    return graph


def _repeated(halves: Split, numbers: Collection[int], begin: int) -> dict[str, int]:
    """Remove saved values, from the result `begin` on, that are also one of the results `numbers`. Return the numbers
    of those results by the saved values' names."""
    results = halves.forward.results
    first = {results[number]: number for number in sorted(numbers, reverse=True)}
    pairs = list(zip(halves.saved, results[begin:], strict=True))
    results[begin:] = [value for _, value in pairs if value not in first]
    return {name: first[value] for name, value in pairs if value in first}
