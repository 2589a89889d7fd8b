"""From a symbol to the two programs of its training step: differentiated, split and compiled."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ngraph_mxnet import config
from ngraph_mxnet.autodiff import differentiate, split
from ngraph_mxnet.autodiff.reverse import HEAD, Joint
from ngraph_mxnet.autodiff.split import Split
from ngraph_mxnet.bridges.mxnet.importer import own_results
from ngraph_mxnet.bridges.mxnet.symbols.symbol_json import SymbolGraph, parse_symbol
from ngraph_mxnet.bridges.mxnet.training.graph import TrainingGraph, import_training, refuse_gradients
from ngraph_mxnet.errors import UnsupportedError
from ngraph_mxnet.ir import Builder, Graph, TensorType
from ngraph_mxnet.ir.types import Role
from ngraph_mxnet.passes.base import PassManager
from ngraph_mxnet.passes.fuse import attention_fusion, recurrent_cells
from ngraph_mxnet.passes.movement import movement
from ngraph_mxnet.passes.simplify import DeadCode
from ngraph_mxnet.runtime.backend import get_backend
from ngraph_mxnet.runtime.compile import compile as compile_graph
from ngraph_mxnet.runtime.executable import Executable
from ngraph_mxnet.runtime.ranges import Template

_CPU = "CPU"
_BLOCKS = 16
"""Channels that lie together in the CPU's layout of images."""


def compile_step(symbol: SymbolGraph | str, types: Mapping[str, TensorType], wanted: Sequence[str], *,
                 recorded: bool) -> tuple[dict[str, Any], list[Executable]]:
    """Compile the content of a `TrainingProgram`: its attributes as plain data, and the forward and backward programs.

    Raises:
        UnsupportedError: it can't be trained as a whole; the text says why.
    """
    facts, halves = _halves(symbol, types, wanted, recorded)
    return facts, list(map(_compiled, halves))


def compile_step_for_range(symbol: SymbolGraph | str, types: Mapping[str, TensorType], wanted: Sequence[str], *,
                           recorded: bool) -> tuple[dict[str, Any], list[Template]]:
    """Compile as `compile_step` does, for types with symbols among their sizes. Guards are in force.

    Raises:
        UnsupportedError: as `compile_step`.
    """
    facts, halves = _halves(symbol, types, wanted, recorded)
    return facts, list(map(_template, halves))


def _halves(symbol: SymbolGraph | str, types: Mapping[str, TensorType], wanted: Sequence[str],
            recorded: bool) -> tuple[dict[str, Any], tuple[Graph, Graph]]:
    for name in wanted:
        if not types[name].element.is_float:
            raise UnsupportedError(f"a gradient of {name} is wanted, of {types[name]}")
    if isinstance(symbol, str):
        symbol = parse_symbol(symbol)
    training = import_training(symbol, types, wanted)
    gammas = [place for place, gamma in enumerate(training.gammas) if recorded or gamma.of]
    first_gamma = training.outputs + len(training.statistics)
    training.graph.results[first_gamma:] = [training.graph.results[first_gamma + place] for place in gammas]
    joint, floats = _joint(training, wanted)
    halves = split(joint, len(training.graph.results), blocks=_BLOCKS, share=config.get("NGRAPH_REMATERIALIZE"))
    read = {parameter.name for parameter in halves.backward.parameters}
    # What a recorded call gives is the caller's to write.
    repeated = _repeated(halves, range(training.outputs if recorded else 0, first_gamma), len(training.graph.results))
    return {
        "name": symbol.nodes[symbol.heads[0].node].name,
        "outputs": training.outputs,
        "heads": [(number, name) for number in floats if (name := f"{HEAD}{number}") in read],
        "statistics": [(one.name, one.momentum, one.of) for one in training.statistics],
        "gammas": [training.gammas[place].name for place in gammas],
        "saved": [name for name in halves.saved if name not in repeated],
        "repeated": repeated,
        "gone_back": sorted(joint.passed),
    }, (halves.forward, halves.backward)


def compile_predicting(symbol: SymbolGraph | str, types: Mapping[str, TensorType],
                       wanted: Sequence[str]) -> tuple[dict[str, Any], list[Executable]]:
    """The program of a backward pass in predict mode, which computes forward, too; its attributes are the heads that it
    reads, as those of `compile_step`. Its results are the gradients.

    Raises:
        UnsupportedError: as `compile_step`.
    """
    training = import_training(symbol, types, predicting=True)
    joint, floats = _joint(training, wanted)
    graph = joint.graph
    graph.results = joint.gradients
    graph.replace({node.output: node.inputs[0] for node in graph.nodes if node.op.name == "own_gradient"})
    graph.remove_dead()
    read = {value for node in graph.nodes for value in node.inputs} | set(graph.results)
    graph.parameters = [parameter for parameter in graph.parameters if parameter in read]
    names = {parameter.name for parameter in graph.parameters}
    return {"heads": [(number, name) for number in floats if (name := f"{HEAD}{number}") in names]}, [_compiled(graph)]


def _joint(training: TrainingGraph, wanted: Sequence[str]) -> tuple[Joint, list[int]]:
    """With its gradients, and the numbers of the outputs that take head gradients."""
    refuse_gradients(training.graph, wanted)
    # An unrolled cell becomes one op, whose adjoint is one, too. Attention computes its scores anew where the
    # gradients of its parts would be given them.
    PassManager([movement(), recurrent_cells(), attention_fusion(), DeadCode()]).run(training.graph)
    results = training.graph.results[:training.outputs]
    floats = [number for number, value in enumerate(results) if value.type.element.is_float]
    return differentiate(training.graph, list(wanted), floats), floats


def _compiled(graph: Graph) -> Executable:
    return compile_graph(_prepared(graph), _CPU)


def _template(graph: Graph) -> Template:
    made = get_backend(_CPU).template(_prepared(graph), {})
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
