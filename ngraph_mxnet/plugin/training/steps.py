"""Training steps: what is compiled of one, and what feeds it, an executor's arrays or those of recorded calls.

Their random numbers follow from `mx.random.seed` and the number of steps taken since. As in MXNet, each device has a
state of its own, a seed for all devices gives each another one, and without a call the seed is 0. The numbers are
others than MXNet's own.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from weakref import WeakSet

import mxnet as mx
import numpy as np
from mxnet import autograd
from mxnet.base import MXNetError
from mxnet.context import Context
from mxnet.ndarray import NDArray

from ngraph_mxnet.base import config, registry
from ngraph_mxnet.base.errors import UnsupportedError
from ngraph_mxnet.base.forks import ForkSafeLock
from ngraph_mxnet.frontends.mxnet.symbol_json import SymbolGraph
from ngraph_mxnet.ir import TensorType, element_type
from ngraph_mxnet.ir.ranges import described
from ngraph_mxnet.ir.sizes import Binding
from ngraph_mxnet.ir.types import RANDOM_STATE
from ngraph_mxnet.plugin import regions
from ngraph_mxnet.plugin.regions import is_small
from ngraph_mxnet.plugin.training.rules import Gamma, Statistic
from ngraph_mxnet.program.executable import Executable, Port
from ngraph_mxnet.program.program_cache import Made, get_or_make, program_key
from ngraph_mxnet.program.ranges import Shapes, Template

_WORD = 1 << 32
Device = tuple[int, int]
"""MXNet's numbers of the device's kind, and of the device among those."""


class Seeds:
    """The states of all devices."""

    def __init__(self) -> None:
        self._lock = ForkSafeLock()
        self._common = 0
        self._states: dict[Device, tuple[int, int]] = {}

    def seed(self, number: int) -> None:
        """For all devices."""
        with self._lock:
            self._common = number % _WORD
            self._states.clear()

    def seed_device(self, number: int, device: Device) -> None:
        """For one device: the same numbers for the same seed, whichever it is."""
        with self._lock:
            self._states[device] = number % _WORD, 0

    def next(self, device: Device) -> tuple[int, int]:
        """The key and the step of the next step of training on the device, each less than 2^63."""
        with self._lock:
            common = self._common + device[1] % (_WORD >> 1) * _WORD
            key, step = self._states.get(device, (common, 0))
            self._states[device] = key, step + 1
            return key, step


seeds = Seeds()
"""This process's."""


def install(libmxnet: Any) -> None:
    """From now on `seeds` hears of what MXNet's own generators are seeded with."""
    libmxnet.MXRandomSeed = _heard(libmxnet.MXRandomSeed, lambda number: seeds.seed(_plain(number)))
    libmxnet.MXRandomSeedContext = _heard(
        libmxnet.MXRandomSeedContext,
        lambda number, kind, place: seeds.seed_device(_plain(number), (_plain(kind), _plain(place))))


def _heard(stock: Callable[..., int], hear: Callable[..., None]) -> Callable[..., int]:
    def call(*arguments: Any) -> int:
        status = stock(*arguments)
        if status == 0:
            hear(*arguments)
        return status

    return call


def _plain(number: Any) -> int:
    return int(getattr(number, "value", number))


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


_steps: WeakSet[Step] = WeakSet()


def planned_steps() -> tuple[PlannedStep, ...]:
    """Return the memory of each existing training step, the largest first."""
    return tuple(sorted((step.planned() for step in list(_steps)), key=lambda step: (-step.total, step.name)))


Facts = dict[str, Any]
Types = Mapping[str, TensorType]
Arrays = Mapping[str, NDArray]


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


Placed = TypeVar("Placed")
"""An array, or the source that stands for an array of each call: see csrc/mxnet/recorded_steps.h."""


@dataclass(frozen=True)
class Wiring(Generic[Placed]):
    """What the halves of a step read, and write beside outputs and gradients.

    Attributes:
        given: by name, what forward halves may read: of predict mode, too.
        kept: the results of the forward half behind the outputs.
        moved: each moving statistic, with the batch's and the momentum, in the order of MXNet's backward pass.
    """

    given: Mapping[str, Placed]
    forward: Sequence[Placed]
    kept: Sequence[Placed]
    backward: Sequence[Placed]
    moved: Sequence[tuple[Placed, Placed, float]]


class Step:
    """A compiled training step: both halves, what the one saves for the other, and what both write.

    Attributes:
        forward: its results are the symbol's outputs, the batch's value of each of `statistics`, ones for each of
            `gammas`, then what is saved.
        backward: its results are the gradients of `wanted`.
        outputs: types of the symbol's outputs.
        heads: for each output whose gradient `backward` reads, by its number: the parameter's name.
        statistics: what a backward pass moves.
        gammas: the variables that a forward pass overwrites.
        saved: types of what `backward` reads of `forward`, by name, in order.
        repeated: what it reads that is an output or the batch's value of a statistic, by name: the number of the
            result. When `recorded` no output is among them: they are the caller's to write.
        gone_back: origins of the nodes that a gradient comes through.
        draws: whether it draws random numbers.
        was_compiled: for these types alone, or loaded; else a template of a range was bound, which takes no time.

    Args:
        symbol: parsed, or its JSON.
        types: of its arguments and states, by name.
        wanted: names of the arguments that gradients are wanted of.
        recorded: for `calls`, not `bound`.

    Raises:
        UnsupportedError: it can't be trained as a whole; the text says why.
    """

    def __init__(self, symbol: SymbolGraph | str, types: Types, wanted: Sequence[str], *,
                 recorded: bool = True) -> None:
        found = _for_range(symbol, types, wanted, recorded)
        made = found or _cached(symbol, types, wanted, recorded=recorded)
        facts, (self.forward, self.backward) = made.facts, made.programs
        self.was_compiled = found is None
        self._predicting = lambda: _cached(symbol, types, wanted, predicting=True)
        self.wanted = tuple(wanted)
        self.outputs = [port.type for port in self.forward.outputs[:facts["outputs"]]]
        self.heads: dict[int, str] = dict(facts["heads"])
        self.statistics = [Statistic(name, momentum, tuple(of)) for name, momentum, of in facts["statistics"]]
        self.gammas = [Gamma(name, tuple(of)) for name, of in facts["gammas"]]
        read = read_of_forward(facts, self.forward.outputs)
        self.saved = {name: read[name] for name in facts["saved"]}
        self.saved_bytes = sum(type_.bytes for type_ in self.saved.values())
        self.repeated: dict[str, int] = facts["repeated"]
        self.gone_back = frozenset(facts["gone_back"])
        self.draws = any(port.name == RANDOM_STATE for port in self.forward.ports)
        self._name, self._times = facts["name"], 0
        _steps.add(self)
        config.logger("ngraph_mxnet").info(
            "%s trains compiled, with gradients of %d arrays: %d bytes are saved from forward to backward",
            self._name, len(wanted), self.saved_bytes)

    def planned(self) -> PlannedStep:
        """Return the memory of the step."""
        return PlannedStep(self._name, self.forward.native.arena_bytes, self.backward.native.arena_bytes,
                           self.saved_bytes, self._times)

    def new_arrays(self, device: Context) -> list[NDArray]:
        """Return the arrays that one step keeps from forward to backward: the state that random numbers follow from,
        if it draws any, the batch's statistics, and what is saved."""
        self._times += 1
        state = [mx.nd.empty((4,), ctx=device, dtype=np.int32)] if self.draws else []
        first = len(self.outputs)
        batch = [port.type for port in self.forward.outputs[first:first + len(self.statistics)]]
        return [*state, *map(_new, [*batch, *self.saved.values()])]

    def wired(self, given: Mapping[str, Placed], own: Sequence[Placed], heads: Mapping[int, Placed],
              outputs: Sequence[Placed] = ()) -> Wiring[Placed]:
        """Return what the halves read and write, as arrays or as sources.

        Args:
            given: the arguments and states, by name.
            own: as `new_arrays` gives them.
            heads: the gradients of outputs, by number.
            outputs: where `repeated` has any.
        """
        read = {**given, RANDOM_STATE: own[0]} if self.draws else given
        batch = own[self.draws:self.draws + len(self.statistics)]
        saved = dict(zip(self.saved, own[self.draws + len(batch):], strict=True))
        results = dict(enumerate([*outputs, *batch], len(self.outputs) - len(outputs)))
        later = {**read, **saved, **{name: heads[number] for number, name in self.heads.items()},
                 **{name: results[number] for name, number in self.repeated.items()}}
        kept = [*batch, *(given[one.name] for one in self.gammas), *saved.values()]
        moved = [(given[one.name], new, one.momentum) for one, new in zip(self.statistics, batch, strict=True)]
        return Wiring(read, _inputs(self.forward, read), kept, _inputs(self.backward, later), moved)

    def predicting(self, given: Mapping[str, Placed], heads: Mapping[int, Placed]) -> tuple[Any, list[Placed]]:
        """Return the native half that goes back in predict mode after the same forward half, and what it reads. It
        computes forward, too, and its results are the gradients.

        Args:
            given: as `Wiring.given`.

        Raises:
            UnsupportedError: it can't be compiled.
        """
        made = self._predicting()
        (half,) = made.programs
        return half.native, _inputs(half, {**given, **{name: heads[number] for number, name in made.facts["heads"]}})

    def calls(self, arguments: Sequence[str], parameters: Arrays) -> Calls:
        """Return the feeder of recorded calls: see `Calls`."""
        return Calls(self, arguments, parameters)

    def bound(self, arrays: Arrays, gradients: Arrays, added: Sequence[str]) -> Bound:
        """Return the feeder of an executor: see `Bound`."""
        return Bound(self, arrays, gradients, added)


def _inputs(half: Executable, placed: Mapping[str, Placed]) -> list[Placed]:
    return [placed[port.name] for port in half.ports]


def _new(type_: TensorType) -> NDArray:
    """An array of this type; [1] for a number of rank 0, which MXNet has no arrays of."""
    return mx.nd.empty(type_.shape or (1,), dtype=type_.element.numpy)


def _like(array: NDArray) -> NDArray:
    return mx.nd.empty(array.shape, dtype=array.dtype)


def types_of(arrays: Arrays) -> dict[str, TensorType]:
    """By name."""
    return {name: TensorType(element_type(np.dtype(array.dtype)), array.shape) for name, array in arrays.items()}


def _for_range(symbol: SymbolGraph | str, types: Types, wanted: Sequence[str], recorded: bool) -> Made | None:
    """Both halves, of what is compiled for a range; None for the first shapes, and where that can't be. None of a part
    of a symbol, too: the types of what it computes are those that were inferred for these sizes."""
    if not isinstance(symbol, str):
        return None
    shapes, elements = zip(*((type_.shape, type_.element.name) for type_ in types.values()), strict=True)
    what = (*_kind(), recorded, symbol, tuple(wanted), elements)
    ranges = regions.ranges_of("step", (what, config.compile_settings()), tuple(map(len, shapes)), lambda: list(types))
    if ranges is None:
        return None

    def named(sizes: Shapes) -> dict[str, TensorType]:
        return {name: type_.with_shape(tuple(size)) for (name, type_), size in zip(types.items(), sizes, strict=True)}

    def template(sizes: Shapes, hint: Binding) -> StepTemplate:
        def key() -> str:
            return program_key((what, described(dict(zip(types, sizes, strict=True)))), registry.TRAINER, {})

        made = get_or_make(key, lambda: _compiled(symbol, named(sizes), wanted, recorded=recorded, for_range=True),
                           hint=hint, small=is_small(symbol))
        return StepTemplate(made, [Port(*each) for each in named(sizes).items()])

    found: Made | None = ranges.bind(shapes, template, "a training step", lambda made: regions.add_named(
        "a training step", named(made.shapes), made))
    return found


def _cached(symbol: SymbolGraph | str, types: Types, wanted: Sequence[str], **how: bool) -> Made:
    """`how`: as `compile_step` takes it."""
    text = symbol if isinstance(symbol, str) else json.dumps(symbol.to_json())

    def key() -> str:
        inferred = "" if isinstance(symbol, str) else [node.types for node in symbol.nodes]
        told = sorted((name, str(type_)) for name, type_ in types.items())
        return program_key((*_kind(), how, text, inferred, told, list(wanted)), registry.TRAINER, {})

    return get_or_make(key, lambda: _compiled(symbol, types, wanted, **how), small=is_small(text))


def _kind() -> tuple[Any, ...]:
    return "training", config.get("NGRAPH_REMATERIALIZE")


def _compiled(symbol: SymbolGraph | str, types: Types, wanted: Sequence[str], **how: bool) -> Made:
    from ngraph_mxnet.plugin.training.graph import compile_step

    return compile_step(symbol, types, wanted, **how)


def _draw(state: Sequence[NDArray]) -> None:
    """Before each forward half. `state`: one array, or none where no random numbers are drawn. It is set by an array of
    its own: what is under way may still read it, and is not awaited."""
    from ngraph_mxnet import _core

    for target in state:
        drawn = seeds.next((target.ctx.device_typeid, target.ctx.device_id))
        with autograd.pause():
            source = mx.nd.array(np.array(drawn, np.int64).view(np.int32), dtype=np.int32)
            if not _core.copy_now(source.handle.value, target.handle.value):
                source.copyto(target)


def head_of(heads: Sequence[NDArray], number: int, output: NDArray) -> NDArray:
    """The head gradient of this output, as a dense array.

    Raises:
        MXNetError: it is missing, or has another shape.
    """
    if number >= len(heads):
        raise MXNetError(f"Because output {number} is not made by a loss function, head_gradient is required in "
                         f"calling backward: found {len(heads)} of them in out_grads")
    head = heads[number]
    if head.shape != output.shape:
        raise MXNetError(f"head gradient {number}: found shape {head.shape}, expected {output.shape}")
    if isinstance(head, mx.np.ndarray):
        return head.as_nd_ndarray()
    return head if head.stype == "default" else head.tostype("default")


class Bound:
    """A step fed by an executor's arrays, in the place of the executor's forward and backward.

    Attributes:
        outputs: the symbol's, written by each forward.

    Args:
        arrays: of the symbol's arguments and states, by name, which are read, and of the states written.
        gradients: those that are wanted, by the arguments' names, to be written.
        added: names of gradients that are added to what is there.

    Raises:
        UnsupportedError: it can't run on these arrays; the text says why.
    """

    def __init__(self, step: Step, arrays: Arrays, gradients: Arrays, added: Sequence[str]) -> None:
        for name, array in gradients.items():
            if array.dtype != arrays[name].dtype:
                type_ = types_of(arrays)[name]
                raise UnsupportedError(f"the gradient of {name} is {array.dtype}, of an array of {type_}")
        own = step.new_arrays(next(iter(arrays.values())).ctx)
        self._state = own[:step.draws]
        self.outputs = list(map(_new, step.outputs))
        self._heads = heads = {number: _new(step.outputs[number]) for number in step.heads}
        sums = {name: _like(arrays[name]) for name in added}
        self._sums = [(source, gradients[name]) for name, source in sums.items()]
        targets = list({**gradients, **sums}.values())
        wiring = step.wired(arrays, own, heads, self.outputs)
        kept = list(wiring.kept)
        for place, gamma in enumerate(step.gammas, len(step.statistics)):
            if not gamma.of:  # MXNet's executors leave it
                kept[place] = _like(arrays[gamma.name])
        self._forward = bound_graph(step.forward.native, wiring.forward, [*self.outputs, *kept])
        self._backward = bound_graph(step.backward.native, wiring.backward, targets)
        moved = wiring.moved
        self._moved = ([one.handle.value for one, _, _ in moved], [one.handle.value for _, one, _ in moved],
                       [momentum for *_, momentum in moved])
        self._arrays = arrays, own  # which the handles are of
        self._predicting = functools.cache(lambda: bound_graph(*step.predicting(wiring.given, heads), targets))

    def forward(self) -> bool:
        """False: nothing was done."""
        _draw(self._state)
        return bool(self._forward.run())

    def backward(self, heads: Sequence[NDArray], is_train: bool = True) -> None:
        """After a forward, whose masks and statistics stay what they are.

        Args:
            heads: the gradients of the outputs, as many as are given; those of loss layers are not read.
            is_train: the mode: where it is not in training, batch norms take their moving statistics for constants, and
                move none.

        Raises:
            MXNetError: one is missing, or has another shape; or the pass did not run, and nobody else has the forward
                pass's masks.
            UnsupportedError: the mode's way can't be compiled.
        """
        from ngraph_mxnet import _core

        with autograd.pause():
            given = [(head_of(heads, number, array), array) for number, array in self._heads.items()]
            for head, array in given:
                head.copyto(array)
            half = self._backward if is_train or not self._moved[0] else self._predicting()
            if not half.run(profiled=True) or (is_train and not _core.move_statistics(*self._moved)):
                raise MXNetError("the backward pass of a compiled training step has not run: an array has no memory; "
                                 "run forward again, or set NGRAPH_TRAINING=0")
            for source, target in self._sums:
                target += source


def bound_graph(native: Any, inputs: Sequence[NDArray], outputs: Sequence[NDArray], **how: bool) -> Any:
    """Return a `_core.BoundGraph`, which runs the graph on these arrays as an operator of MXNet's engine.

    Args:
        how: `in_place` and `given`, as csrc/mxnet/direct.h has them.

    Raises:
        UnsupportedError: it can't.
    """
    from ngraph_mxnet import _core

    bound = _core.BoundGraph(native, [array.handle.value for array in inputs],
                             [array.handle.value for array in outputs], **how)
    if not bound.possible:
        raise UnsupportedError("an array is none of MXNet's plain ones, or shares its memory with another")
    return bound


MOST_STEPS = 8
"""The most steps of one program: so many calls may wait for their backward pass."""

_PARAMETER, _ARGUMENT, _STEP, _HEAD = range(4)
"""Kinds of sources: see csrc/mxnet/recorded_steps.h."""


def check_engine() -> None:
    """
    Raises:
        UnsupportedError: nothing may go past MXNet.
    """
    from ngraph_mxnet import _core

    if not _core.runs_past_mxnet():
        raise UnsupportedError("MXNET_ENGINE_TYPE=NaiveEngine, or arrays that lie otherwise in memory than those of "
                               "MXNet 1.9.1: training steps are MXNet's")


class Calls:
    """A step fed by the arrays of recorded calls. Each call has arrays of its own until it is gone back through.

    Attributes:
        made: how many calls have had arrays of their own at once.
        checks: `run` finds out that arguments are others than expected.

    Args:
        arguments: names of what each call brings, in order.
        parameters: what all have in common.

    Raises:
        UnsupportedError: an output or a parameter is none of MXNet's plain arrays, or its naive engine runs.
    """

    checks = True

    def __init__(self, step: Step, arguments: Sequence[str], parameters: Arrays) -> None:
        from ngraph_mxnet import _core

        check_engine()
        if not all(type_.shape for type_ in step.outputs):
            raise UnsupportedError("an output has no dimensions")
        self._step, self._parameters = step, parameters
        self.saved_bytes, self.was_compiled = step.saved_bytes, step.was_compiled
        self.made = 0
        self._lock = ForkSafeLock()
        self._states: list[Sequence[NDArray]] = []
        with autograd.pause():
            ones = [mx.nd.ones(type_.shape, dtype=type_.element.numpy) for type_ in step.outputs]
        given = {name: (_ARGUMENT, place) for place, name in enumerate(arguments)}
        given |= {name: (_PARAMETER, place) for place, name in enumerate(parameters)}
        own = [(_STEP, place) for place in range(step.draws + len(step.statistics) + len(step.saved))]
        self._heads = {number: (_HEAD, number) for number in range(len(ones))}
        wiring = step.wired(given, own, self._heads)
        self._given = wiring.given
        moved = [(moving, place, momentum, [step.wanted.index(name) for name in one.of])
                 for (moving, (_, place), momentum), one in zip(wiring.moved, step.statistics, strict=True)]
        self._native = _core.RecordedCalls(
            step.forward.native, step.backward.native, wiring.forward, wiring.backward, len(ones), wiring.kept,
            [given[name] for name in step.wanted], [array.handle.value for array in parameters.values()],
            [array.handle.value for array in ones], moved)
        self._predicts = not moved
        if moved:
            _moving.add(self)

    def run(self, arrays: Sequence[NDArray], array_type: type[NDArray] = NDArray,
            checked: bool = False) -> list[NDArray] | None:
        """The outputs, recorded; None: nothing was done, for all steps wait for their backward pass, the profiler is
        on, or an argument is not as expected.

        Args:
            arrays: the arguments.
            array_type: of the outputs, `mx.nd.NDArray` or `mx.np.ndarray`.
            checked: whether to look for arguments that are trained but not recorded, or the other way round.
        """
        native = self._native
        while (step := native.take()) is None:
            if not self._add():
                return None
        _draw(self._states[step.number])
        outputs: list[NDArray] | None = native.call(step, checked, array_type, *[one.handle.value for one in arrays])
        return outputs

    def prepare_predicting(self) -> None:
        """For a backward pass in predict mode.

        Raises:
            UnsupportedError: it can't be compiled.
        """
        if not self._predicts:
            self._native.set_predicting(*self._step.predicting(self._given, self._heads))
            self._predicts = True

    def _add(self) -> bool:
        """Add a step. Return False, and add none, if there are MOST_STEPS already."""
        step = self._step
        with self._lock:
            if self.made >= MOST_STEPS:
                return False
            with autograd.pause():
                arrays = step.new_arrays(mx.cpu())
                marks = _marked([self._parameters[one.name] for one in step.statistics])
            self._states[self.made:] = [arrays[:step.draws]]
            if not self._native.add([array.handle.value for array in arrays], [mark.handle.value for mark in marks]):
                raise UnsupportedError("what a step keeps is none of MXNet's plain arrays")
            self.made += 1
        return True


_moving: WeakSet[Calls] = WeakSet()
"""The calls that move statistics. They go back in another way in predict mode."""


def prepare_predicting() -> None:
    """For a backward pass in predict mode through whichever calls it meets.

    Raises:
        UnsupportedError: it can't be compiled.
    """
    for calls in list(_moving):
        calls.prepare_predicting()


def _marked(moving: Sequence[NDArray]) -> list[NDArray]:
    """Variables of a step's own, whose gradients are the moving statistics: so MXNet's engine knows which backward pass
    writes them, and keeps later readers behind it."""
    marks = [array.detach() for array in moving]
    if marks:
        autograd.mark_variables(marks, list(moving), "add")
    return marks
