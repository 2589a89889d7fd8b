"""Forward and backward of a whole symbol, for any arrays: compiled, or kept from another process."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import mxnet as mx
from mxnet.ndarray import NDArray

from ngraph_mxnet import config
from ngraph_mxnet.bridges.mxnet.kept import Made, is_small, kept_or_made
from ngraph_mxnet.bridges.mxnet.symbols.symbol_json import SymbolGraph
from ngraph_mxnet.bridges.mxnet.training.planned import Planned
from ngraph_mxnet.bridges.mxnet.training.ranges import read_of_forward, step_for_range
from ngraph_mxnet.bridges.mxnet.training.written import Statistic
from ngraph_mxnet.cache import cpu_features
from ngraph_mxnet.errors import UnsupportedError
from ngraph_mxnet.ir import TensorType
from ngraph_mxnet.runtime.ranges import Template


class Half:
    """One of the two graphs.

    Attributes:
        inputs: names, in the graph's order.
        outputs: its ports.
        native: the `_core.Executable`.
    """

    def __init__(self, executable: Any) -> None:
        self.inputs = [port.name for port in executable.inputs]
        self.outputs = list(executable.outputs)
        self.native = executable.native

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
        forward: its results are the symbol's outputs, the batch's value of each of `statistics`, ones for each of
            `gammas`, then what is saved.
        backward: its results are the gradients.
        outputs: types of the symbol's outputs.
        heads: for each output whose gradient `backward` reads, by its number: the parameter's name.
        statistics: what a backward pass moves.
        gammas: names of the variables that a forward pass overwrites.
        saved: types of what `backward` reads of `forward`, by name, in order.
        repeated: what it reads that is an output or the batch's value of a statistic, by name: the number of the
            result. When `recorded` no output is among them: they are the caller's to write.
        gone_back: origins of the nodes that a gradient comes through.
        planned: for `report`; who makes arrays of what is saved counts them there.
        was_compiled: for these types alone, or loaded; else a template of a range was bound, which takes no time.

    Args:
        symbol: parsed, or its JSON.
        types: of its arguments and states, by name.
        wanted: names of the arguments that gradients are wanted of.
        recorded: for calls of which several may wait for their backward pass.

    Raises:
        UnsupportedError: it can't be trained as a whole; the text says why.
    """

    def __init__(self, symbol: SymbolGraph | str, types: Mapping[str, TensorType], wanted: Sequence[str], *,
                 recorded: bool = False) -> None:
        found = _for_range(symbol, types, wanted, recorded)
        facts, (forward, backward) = found or _kept_or_compiled(symbol, types, wanted, recorded)
        self.was_compiled = found is None
        self._predicting = lambda: _kept_or_predicting(symbol, types, wanted)
        self.forward, self.backward = Half(forward), Half(backward)
        self.outputs = [port.type for port in self.forward.outputs[:facts["outputs"]]]
        self.heads: dict[int, str] = dict(facts["heads"])
        self.statistics = [Statistic(name, momentum, tuple(of)) for name, momentum, of in facts["statistics"]]
        self.gammas: tuple[str, ...] = tuple(facts["gammas"])
        read = read_of_forward(facts, self.forward.outputs)
        self.saved = {name: read[name] for name in facts["saved"]}
        self.saved_bytes = sum(type_.bytes for type_ in self.saved.values())
        self.repeated: dict[str, int] = facts["repeated"]
        self.gone_back = frozenset(facts["gone_back"])
        self.planned = Planned(facts["name"], self.forward.native.arena_bytes, self.backward.native.arena_bytes,
                               self.saved_bytes)

    def predicting(self) -> tuple[Half, dict[int, str]]:
        """What goes back in predict mode after the same forward half, where that is another way than `backward`: a
        half that computes forward, too, whose results are the gradients; and its `heads`.

        Raises:
            UnsupportedError: it can't be compiled.
        """
        facts, (program,) = self._predicting()
        return Half(program), dict(facts["heads"])

    def new_statistics(self) -> list[NDArray]:
        """Arrays for the batch's values."""
        first = len(self.outputs)
        ports = self.forward.outputs[first:first + len(self.statistics)]
        return [new(port.type) for port in ports]

    def new_saved(self) -> dict[str, NDArray]:
        """Arrays for what one step saves, by name."""
        self.planned.times += 1
        return {name: new(type_) for name, type_ in self.saved.items()}


def new(type_: TensorType) -> NDArray:
    """An array of this type; [1] for a number of rank 0, which MXNet has no arrays of."""
    array: NDArray = mx.nd.empty(type_.shape or (1,), dtype=type_.element.numpy)
    return array


def _for_range(symbol: SymbolGraph | str, types: Mapping[str, TensorType], wanted: Sequence[str],
               recorded: bool) -> Made | None:
    """None of a part of a symbol, too: the types of what it computes are those that were inferred for these sizes."""
    if not isinstance(symbol, str):
        return None

    def compiled(symbolic: Mapping[str, TensorType]) -> tuple[dict[str, Any], list[Template]]:
        from ngraph_mxnet.bridges.mxnet.training.compiled import compile_step_for_range

        return compile_step_for_range(symbol, symbolic, wanted, recorded=recorded)

    key = (*_kind(recorded), symbol, tuple(wanted), config.compile_settings(), cpu_features())
    return step_for_range(key, types, compiled, small=is_small(symbol))


def _kind(recorded: bool) -> tuple[Any, ...]:
    return "training", "halves", recorded, config.get("NGRAPH_REMATERIALIZE")


def _kept_or_compiled(symbol: SymbolGraph | str, types: Mapping[str, TensorType], wanted: Sequence[str],
                      recorded: bool) -> Made:
    def compiled() -> Made:
        from ngraph_mxnet.bridges.mxnet.training.compiled import compile_step

        return compile_step(symbol, types, wanted, recorded=recorded)

    return _kept_or_made(_kind(recorded), symbol, types, wanted, compiled)


def _kept_or_predicting(symbol: SymbolGraph | str, types: Mapping[str, TensorType], wanted: Sequence[str]) -> Made:
    def compiled() -> Made:
        from ngraph_mxnet.bridges.mxnet.training.compiled import compile_predicting

        return compile_predicting(symbol, types, wanted)

    return _kept_or_made(("training", "predicting"), symbol, types, wanted, compiled)


def _kept_or_made(kind: tuple[Any, ...], symbol: SymbolGraph | str, types: Mapping[str, TensorType],
                  wanted: Sequence[str], compiled: Callable[[], Made]) -> Made:
    text = symbol if isinstance(symbol, str) else json.dumps(symbol.to_json())
    inferred = "" if isinstance(symbol, str) else [node.types for node in symbol.nodes]
    told = sorted((name, str(type_)) for name, type_ in types.items())
    key = repr((*kind, text, inferred, told, list(wanted), config.compile_settings(), cpu_features()))
    return kept_or_made(key, compiled, small=is_small(text))
