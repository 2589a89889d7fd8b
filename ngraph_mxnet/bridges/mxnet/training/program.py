"""Forward and backward of a whole symbol, compiled, for any arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import mxnet as mx
from mxnet.ndarray import NDArray

from ngraph_mxnet import config
from ngraph_mxnet.autodiff import differentiate, split
from ngraph_mxnet.autodiff.reverse import HEAD
from ngraph_mxnet.autodiff.split import Split
from ngraph_mxnet.bridges.mxnet.importer import own_results
from ngraph_mxnet.bridges.mxnet.symbols.symbol_json import SymbolGraph
from ngraph_mxnet.bridges.mxnet.training.graph import import_training, parse_typed
from ngraph_mxnet.bridges.mxnet.training.integers import refuse_gradients
from ngraph_mxnet.bridges.mxnet.training.planned import Planned
from ngraph_mxnet.errors import UnsupportedError
from ngraph_mxnet.ir import Builder, Graph, TensorType
from ngraph_mxnet.ir.roles import Role
from ngraph_mxnet.passes.attention_fusion import attention_fusion
from ngraph_mxnet.passes.base import PassManager
from ngraph_mxnet.passes.dead_code import DeadCode
from ngraph_mxnet.passes.movement import movement
from ngraph_mxnet.passes.recurrent_cells import recurrent_cells
from ngraph_mxnet.runtime.backend import canonical_name
from ngraph_mxnet.runtime.compile import compile as compile_graph

_BACKEND = canonical_name("CPU")
_BLOCKS = 16
"""Channels that lie together in the CPU's layout of images."""


class Half:
    """One of the two graphs.

    Attributes:
        inputs: names, in the graph's order.
        arena_bytes: what a run works in.
        native: the `_core.CompiledGraph`.
    """

    def __init__(self, graph: Graph) -> None:
        for parameter in graph.parameters:
            parameter.role = Role.INPUT  # weights change with every step: nothing is derived from them in advance
        graph.results = own_results(Builder(graph), graph.results)
        self.inputs = [parameter.name for parameter in graph.parameters]
        executable: Any = compile_graph(graph, _BACKEND)
        self.native, self.arena_bytes = executable.native, int(executable.memory.planned)

    def bound(self, arrays: Mapping[str, NDArray], outputs: Sequence[NDArray]) -> Any:
        """What runs it on these arrays as an operator of MXNet's engine: a `_core.BoundGraph`.

        Raises:
            UnsupportedError: it can't.
        """
        from ngraph_mxnet import _core

        bound = _core.BoundGraph(self.native, [arrays[name].handle.value for name in self.inputs],
                                 [array.handle.value for array in outputs])
        if not bound.possible:
            raise UnsupportedError("an array is none of MXNet's plain ones, or shares its memory with another")
        return bound


class TrainingProgram:
    """Both halves of a step.

    Attributes:
        forward: its results are the symbol's outputs, when `recorded` the states after the step, then what is saved.
        backward: its results are the states after the step, unless the forward half has them, then the gradients.
        outputs: types of the symbol's outputs.
        heads: for each output whose gradient `backward` reads, by its number: the parameter's name.
        updated: names of the states that a step writes.
        saved: types of what `backward` reads of `forward`, by name, in order.
        repeated: what it reads that is an output, by name: the output's number. When `recorded` there is none: outputs
            are the caller's to write.
        gone_back: origins of the nodes that a gradient comes through.
        planned: for `report`; who makes arrays of what is saved counts them there.

    Args:
        symbol: parsed, or its JSON.
        types: of its arguments and states, by name.
        wanted: names of the arguments that gradients are wanted of.
        recorded: for calls of which several may wait for their backward pass: the forward half gives the states.

    Raises:
        UnsupportedError: it can't be trained as a whole; the text says why.
    """

    def __init__(self, symbol: SymbolGraph | str, types: Mapping[str, TensorType], wanted: Sequence[str], *,
                 recorded: bool = False) -> None:
        for name in wanted:
            if not types[name].element.is_float:
                raise UnsupportedError(f"a gradient of {name} is wanted, of {types[name]}")
        if isinstance(symbol, str):
            symbol = parse_typed(symbol, types)
        training = import_training(symbol, types)
        refuse_gradients(training.graph, wanted)
        # An unrolled cell becomes one op, whose adjoint is one, too. Attention computes its scores anew where the
        # gradients of its parts would be given them.
        PassManager([movement(), recurrent_cells(), attention_fusion(), DeadCode()]).run(training.graph)
        results = training.graph.results[:training.outputs]
        floats = [number for number, value in enumerate(results) if value.type.element.is_float]
        early = training.outputs + (len(training.updated) if recorded else 0)
        joint = differentiate(training.graph, list(wanted), floats)
        self.gone_back = joint.passed
        halves = split(joint, early, blocks=_BLOCKS, share=config.get("NGRAPH_REMATERIALIZE"))
        read = {parameter.name: parameter for parameter in halves.backward.parameters}
        self.repeated = {} if recorded else _repeated(halves, training.outputs)
        saved = [name for name in halves.saved if name not in self.repeated]
        self.saved = {name: read[name].type for name in saved}
        self.saved_bytes = sum(type_.bytes for type_ in self.saved.values())
        self.outputs = [value.type for value in results]
        self.heads = {number: f"{HEAD}{number}" for number in floats if f"{HEAD}{number}" in read}
        self.updated = training.updated
        self.forward, self.backward = Half(halves.forward), Half(halves.backward)
        self.planned = Planned(symbol.nodes[symbol.heads[0].node].name, self.forward.arena_bytes,
                               self.backward.arena_bytes, self.saved_bytes)

    def new_saved(self) -> dict[str, NDArray]:
        """Arrays for what one step saves, by name."""
        self.planned.times += 1
        return {name: new(type_) for name, type_ in self.saved.items()}


def new(type_: TensorType) -> NDArray:
    """An array of this type; [1] for a number of rank 0, which MXNet has no arrays of."""
    array: NDArray = mx.nd.empty(type_.shape or (1,), dtype=type_.element.numpy)
    return array


def _repeated(halves: Split, outputs: int) -> dict[str, int]:
    """What is saved and is an output, by name; the forward half gives it once."""
    results = halves.forward.results
    first = {value: number for number, value in reversed([*enumerate(results[:outputs])])}
    begin = len(results) - len(halves.saved)
    pairs = list(zip(halves.saved, results[begin:], strict=True))
    results[begin:] = [value for _, value in pairs if value not in first]
    return {name: first[value] for name, value in pairs if value in first}
