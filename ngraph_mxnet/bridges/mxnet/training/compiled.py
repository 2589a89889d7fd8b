"""From a symbol to the two programs of its training step: differentiated, split and compiled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ngraph_mxnet import config
from ngraph_mxnet.autodiff import differentiate, split
from ngraph_mxnet.autodiff.reverse import HEAD
from ngraph_mxnet.autodiff.split import Split
from ngraph_mxnet.bridges.mxnet.importer import own_results
from ngraph_mxnet.bridges.mxnet.kept import Made
from ngraph_mxnet.bridges.mxnet.symbols.symbol_json import SymbolGraph, parse_symbol
from ngraph_mxnet.bridges.mxnet.training.graph import import_training
from ngraph_mxnet.bridges.mxnet.training.integers import refuse_gradients
from ngraph_mxnet.errors import UnsupportedError
from ngraph_mxnet.ir import Builder, Graph, TensorType
from ngraph_mxnet.ir.roles import Role
from ngraph_mxnet.passes.attention_fusion import attention_fusion
from ngraph_mxnet.passes.base import PassManager
from ngraph_mxnet.passes.dead_code import DeadCode
from ngraph_mxnet.passes.movement import movement
from ngraph_mxnet.passes.recurrent_cells import recurrent_cells
from ngraph_mxnet.runtime.compile import compile as compile_graph

_BLOCKS = 16
"""Channels that lie together in the CPU's layout of images."""


def compile_step(symbol: SymbolGraph | str, types: Mapping[str, TensorType], wanted: Sequence[str], *,
                 recorded: bool) -> Made:
    """What `TrainingProgram` is made of: its attributes as plain data, and the forward and backward programs.

    Raises:
        UnsupportedError: it can't be trained as a whole; the text says why.
    """
    for name in wanted:
        if not types[name].element.is_float:
            raise UnsupportedError(f"a gradient of {name} is wanted, of {types[name]}")
    if isinstance(symbol, str):
        symbol = parse_symbol(symbol)
    training = import_training(symbol, types)
    refuse_gradients(training.graph, wanted)
    # An unrolled cell becomes one op, whose adjoint is one, too. Attention computes its scores anew where the
    # gradients of its parts would be given them.
    PassManager([movement(), recurrent_cells(), attention_fusion(), DeadCode()]).run(training.graph)
    results = training.graph.results[:training.outputs]
    floats = [number for number, value in enumerate(results) if value.type.element.is_float]
    early = training.outputs + (len(training.updated) if recorded else 0)
    joint = differentiate(training.graph, list(wanted), floats)
    halves = split(joint, early, blocks=_BLOCKS, share=config.get("NGRAPH_REMATERIALIZE"))
    read = {parameter.name: parameter.type for parameter in halves.backward.parameters}
    repeated = {} if recorded else _repeated(halves, training.outputs)
    programs: list[Any] = [_compiled(halves.forward), _compiled(halves.backward)]
    return {
        "name": symbol.nodes[symbol.heads[0].node].name,
        "outputs": [_plain(value.type) for value in results],
        "heads": [(number, name) for number in floats if (name := f"{HEAD}{number}") in read],
        "updated": training.updated,
        "saved": [(name, *_plain(read[name])) for name in halves.saved if name not in repeated],
        "repeated": repeated,
        "gone_back": sorted(joint.passed),
        "arenas": [int(program.memory.planned) for program in programs],
    }, programs


def _plain(type_: TensorType) -> tuple[str, tuple[int, ...]]:
    return type_.element.name, type_.shape


def _compiled(graph: Graph) -> Any:
    for parameter in graph.parameters:
        parameter.role = Role.INPUT  # weights change with every step: nothing is derived from them in advance
    graph.results = own_results(Builder(graph), graph.results)
    return compile_graph(graph, "CPU")


def _repeated(halves: Split, outputs: int) -> dict[str, int]:
    """What is saved and is an output, by name; the forward half gives it once."""
    results = halves.forward.results
    first = {value: number for number, value in reversed([*enumerate(results[:outputs])])}
    begin = len(results) - len(halves.saved)
    pairs = list(zip(halves.saved, results[begin:], strict=True))
    results[begin:] = [value for _, value in pairs if value not in first]
    return {name: first[value] for name, value in pairs if value in first}
