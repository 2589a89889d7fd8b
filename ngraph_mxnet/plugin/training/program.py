"""The memory of compiled training steps, for `ngraph_mxnet.report()`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakSet

import mxnet as mx
from mxnet.ndarray import NDArray

from ngraph_mxnet.base import config
from ngraph_mxnet.base.errors import UnsupportedError
from ngraph_mxnet.frontends.mxnet.symbol_json import SymbolGraph
from ngraph_mxnet.ir import TensorType
from ngraph_mxnet.ir.ranges import described
from ngraph_mxnet.ir.sizes import Binding
from ngraph_mxnet.plugin import regions
from ngraph_mxnet.plugin.regions import is_small
from ngraph_mxnet.plugin.training.rules import Statistic
from ngraph_mxnet.program.executable import Executable, Port
from ngraph_mxnet.program.program_cache import Made, get_or_make, program_key
from ngraph_mxnet.program.ranges import Shapes, Template


@dataclass(frozen=True)
class PlannedStep:
    """Bytes of a training step beside the arrays that are the caller's: weights, gradients, inputs and outputs.

    `name`: of the first output. `forward` and `backward`: what each half works in. `saved`: what one keeps for the
    other, `times` as often as calls have waited for their backward pass at once.
    """

    name: str
    forward: int
    backward: int
    saved: int
    times: int

    @property
    def total(self) -> int:
        return self.forward + self.backward + self.saved * self.times


class Planned:
    """The owner of a training step's memory."""

    def __init__(self, name: str, forward: int, backward: int, saved: int) -> None:
        self._name, self._bytes = name, (forward, backward, saved)
        self.times = 0
        _all.add(self)

    def step(self) -> PlannedStep:
        return PlannedStep(self._name, *self._bytes, self.times)


_all: WeakSet[Planned] = WeakSet()


def planned_steps() -> tuple[PlannedStep, ...]:
    """Return the memory of each existing training step, the largest first."""
    return tuple(sorted((planned.step() for planned in list(_all)), key=lambda step: (-step.total, step.name)))


Facts = dict[str, Any]
Types = Mapping[str, TensorType]


def read_of_forward(facts: Facts, results: Sequence[Port]) -> dict[str, TensorType]:
    """Return the types of what the backward half reads, by name: results of the forward half, and head gradients."""
    types = [port.type for port in results]
    saved = types[len(types) - len(facts["saved"]):]
    return {**dict(zip(facts["saved"], saved, strict=True)),
            **{name: types[number] for name, number in facts["repeated"].items()},
            **{name: types[number] for number, name in facts["heads"]}}


class StepTemplate(Template):
    """Both halves of a step, as `compile_step` makes them for a range. `inputs` are the symbol's variables."""

    def __init__(self, made: Made, inputs: Sequence[Port]) -> None:
        self.inputs, self._facts = inputs, made.facts
        self._forward, self._backward = made.programs
        self.guards = list(dict.fromkeys(guard for half in made.programs for guard in half.guards))

    def bind(self, shapes: Shapes) -> Made | None:
        types = {port.name: port.type.with_shape(tuple(shape))
                 for port, shape in zip(self.inputs, shapes, strict=True)}
        forward = _bound(self._forward, types)
        if forward is None:
            return None
        backward = _bound(self._backward, types | read_of_forward(self._facts, forward.outputs))
        return None if backward is None else Made([forward, backward], self._facts)


def _bound(half: Template, types: Types) -> Executable | None:
    found: Executable | None = half.bind([types.get(port.name, port.type).shape for port in half.inputs])
    return found


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
        """Return a `_core.BoundGraph`, which runs the graph on these arrays as an operator of MXNet's engine.

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
        made = found or _cached_or_compiled(symbol, types, wanted, recorded)
        facts, (forward, backward) = made.facts, made.programs
        self.was_compiled = found is None
        self._predicting = lambda: _cached_or_predicting(symbol, types, wanted)
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
        """Return the half that goes back in predict mode after the same forward half, and its `heads`. It serves where
        predict mode goes back in another way than `backward`. The half computes forward, too, and its results are the
        gradients.

        Raises:
            UnsupportedError: it can't be compiled.
        """
        made = self._predicting()
        return Half(made.programs[0]), dict(made.facts["heads"])

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


def _for_range(symbol: SymbolGraph | str, types: Types, wanted: Sequence[str], recorded: bool) -> Made | None:
    """Both halves, of what is compiled for a range; None for the first shapes, and where that can't be. None of a part
    of a symbol, too: the types of what it computes are those that were inferred for these sizes."""
    if not isinstance(symbol, str):
        return None
    shapes, elements = zip(*((type_.shape, type_.element.name) for type_ in types.values()), strict=True)
    what = (*_kind(recorded), symbol, tuple(wanted), elements)
    ranges = regions.ranges_of("step", (what, config.compile_settings()), tuple(map(len, shapes)), lambda: list(types))
    if ranges is None:
        return None

    def named(sizes: Shapes) -> dict[str, TensorType]:
        return {name: type_.with_shape(tuple(size)) for (name, type_), size in zip(types.items(), sizes, strict=True)}

    def template(sizes: Shapes, hint: Binding) -> StepTemplate:
        def compiled() -> Made:
            from ngraph_mxnet.plugin.training.graph import compile_step

            return compile_step(symbol, named(sizes), wanted, recorded=recorded, for_range=True)

        def key() -> str:
            return program_key((what, described(dict(zip(types, sizes, strict=True)))), "CPU", {})

        made = get_or_make(key, compiled, hint=hint, small=is_small(symbol))
        return StepTemplate(made, [Port(*each) for each in named(sizes).items()])

    found: Made | None = ranges.bind(shapes, template, "a training step", lambda made: regions.add_named(
        "a training step", named(made.shapes), made))
    return found


def _kind(recorded: bool) -> tuple[Any, ...]:
    return "training", "halves", recorded, config.get("NGRAPH_REMATERIALIZE")


def _cached_or_compiled(symbol: SymbolGraph | str, types: Types, wanted: Sequence[str], recorded: bool) -> Made:
    def compiled() -> Made:
        from ngraph_mxnet.plugin.training.graph import compile_step

        return compile_step(symbol, types, wanted, recorded=recorded)

    return _cached_or_made(_kind(recorded), symbol, types, wanted, compiled)


def _cached_or_predicting(symbol: SymbolGraph | str, types: Types, wanted: Sequence[str]) -> Made:
    def compiled() -> Made:
        from ngraph_mxnet.plugin.training.graph import compile_predicting

        return compile_predicting(symbol, types, wanted)

    return _cached_or_made(("training", "predicting"), symbol, types, wanted, compiled)


def _cached_or_made(kind: tuple[Any, ...], symbol: SymbolGraph | str, types: Types, wanted: Sequence[str],
                    compiled: Callable[[], Made]) -> Made:
    text = symbol if isinstance(symbol, str) else json.dumps(symbol.to_json())

    def key() -> str:
        inferred = "" if isinstance(symbol, str) else [node.types for node in symbol.nodes]
        told = sorted((name, str(type_)) for name, type_ in types.items())
        return program_key((*kind, text, inferred, told, list(wanted)), "CPU", {})

    return get_or_make(key, compiled, small=is_small(text))
