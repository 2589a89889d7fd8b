"""Training steps on an executor's arrays, and on arrays that come with each call.

Their random numbers follow from `mx.random.seed` and the number of steps taken since. As in MXNet, each device has a
state of its own, a seed for all devices gives each another one, and without a call the seed is 0. The numbers are
others than MXNet's own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from weakref import WeakSet

import mxnet as mx
import numpy as np
from mxnet import autograd
from mxnet.base import MXNetError
from mxnet.context import Context
from mxnet.ndarray import NDArray

from ngraph_mxnet.base.errors import UnsupportedError
from ngraph_mxnet.base.forks import ForkSafeLock
from ngraph_mxnet.ir import TensorType, element_type
from ngraph_mxnet.plugin.training.program import TrainingProgram, new
from ngraph_mxnet.plugin.training.rules import STATE

_WORD = 1 << 32
Device = tuple[int, int]
"""MXNet's numbers of the device's kind, and of the device among those."""


class Seeds:
    """The states of all devices."""

    def __init__(self) -> None:
        self._lock = ForkSafeLock()
        self._common = 0
        self._own: dict[Device, int] = {}
        self._steps: dict[Device, int] = {}

    def seed(self, number: int) -> None:
        """For all devices."""
        with self._lock:
            self._common = number % _WORD
            self._own.clear()
            self._steps.clear()

    def seed_device(self, number: int, device: Device) -> None:
        """For one device: the same numbers for the same seed, whichever it is."""
        with self._lock:
            self._own[device] = number % _WORD
            self._steps[device] = 0

    def next(self, device: Device) -> tuple[int, int]:
        """The key and the step of the next step of training on the device, each less than 2^63."""
        with self._lock:
            step = self._steps.get(device, 0)
            self._steps[device] = step + 1
            return self._own.get(device, self._common + device[1] % (_WORD >> 1) * _WORD), step


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


Arrays = Mapping[str, NDArray]


class RandomState:
    """The state that a program's random numbers follow from, if the program draws any."""

    def __init__(self, program: TrainingProgram, device: Context) -> None:
        self._device = device
        self.arrays = {STATE: mx.nd.empty((4,), dtype=np.int32)} if STATE in program.forward.inputs else {}

    def draw(self) -> None:
        """Before each forward half."""
        for array in self.arrays.values():
            drawn = seeds.next((self._device.device_typeid, self._device.device_id))
            _set(array, np.array(drawn, np.int64).view(np.int32))


class TrainingStep:
    """A compiled step that runs in the place of an executor's forward and backward.

    Attributes:
        outputs: the symbol's, written by each forward.
        planned: its memory.

    Args:
        text: the symbol's JSON.
        arrays: of its arguments and states, by name, which are read, and of the states written.
        gradients: those that are wanted, by the arguments' names, to be written.
        added: names of gradients that are added to what is there.

    Raises:
        UnsupportedError: it can't be trained as a whole, or not on these arrays; the text says why.
    """

    def __init__(self, text: str, arrays: Arrays, gradients: Arrays, added: Sequence[str] = ()) -> None:
        types = types_of(arrays)
        for name, array in gradients.items():
            if array.dtype != arrays[name].dtype:
                raise UnsupportedError(f"the gradient of {name} is {array.dtype}, of an array of {types[name]}")
        program = TrainingProgram(text, types, list(gradients))
        self.planned = program.planned
        self.outputs = [new(type_) for type_ in program.outputs]
        self._heads = {number: new(program.outputs[number]) for number in program.heads}
        self._random = RandomState(program, next(iter(arrays.values())).ctx)
        batch = program.new_statistics()
        results = [*self.outputs, *batch]
        saved = program.new_saved()
        repeated = {name: results[number] for name, number in program.repeated.items()}
        heads = {name: self._heads[number] for number, name in program.heads.items()}
        # Kept with the handles.
        self._moving, self._batch = [arrays[one.name] for one in program.statistics], batch
        self._moved = ([array.handle.value for array in self._moving], [array.handle.value for array in batch],
                       [one.momentum for one in program.statistics])
        self._sums = [(new(types[name]), gradients[name]) for name in added]
        sums = dict(zip(added, (source for source, _ in self._sums), strict=True))
        targets = [sums.get(name, array) for name, array in gradients.items()]
        self._forward = program.forward.bound({**arrays, **self._random.arrays}, [
            *results, *(arrays[name] for name in program.gammas), *saved.values()])
        given = {**arrays, **self._random.arrays}
        self._backward = program.backward.bound({**given, **saved, **repeated, **heads}, targets)
        self._make_predicting = lambda: _bound_predicting(program, given, self._heads, targets)
        self._predicting: Any = None

    def forward(self) -> bool:
        """False: nothing was done."""
        self._random.draw()
        return bool(self._forward.run())

    def backward(self, heads: Sequence[NDArray], is_train: bool = True) -> None:
        """After a forward, whose masks and statistics stay what they are.

        Args:
            heads: the gradients of the outputs, as many as are given; those of loss layers are not read.
            is_train: the mode: where it is not in training, batch norms take their moving statistics for constants, and
                move none.

        Raises:
            MXNetError: one is missing, or has another shape.
            UnsupportedError: the mode's way can't be compiled.
        """
        with autograd.pause():
            given = {number: head_of(heads, number, array) for number, array in self._heads.items()}
            for number, array in self._heads.items():
                given[number].copyto(array)
            if is_train or not self._batch:
                _ran(self._backward.run(profiled=True))
                self._move()
            else:
                if self._predicting is None:
                    self._predicting = self._make_predicting()
                _ran(self._predicting.run(profiled=True))
            for source, target in self._sums:
                target += source

    def _move(self) -> None:
        from ngraph_mxnet import _core

        if self._batch:
            _ran(_core.move_statistics(*self._moved))


def _ran(done: bool) -> None:
    """Check that the backward pass of a compiled forward pass ran, also while the profiler is on. Nobody else has the
    forward pass's masks.

    Raises:
        MXNetError: it did not.
    """
    if not done:
        raise MXNetError("the backward pass of a compiled training step has not run: an array has no memory; run "
                         "forward again, or set NGRAPH_TRAINING=0")


def _bound_predicting(program: TrainingProgram, arrays: Arrays, heads: Mapping[int, NDArray],
                      targets: Sequence[NDArray]) -> Any:
    half, names = program.predicting()
    return half.bound({**arrays, **{name: heads[number] for number, name in names.items()}}, targets)


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


def types_of(arrays: Arrays) -> dict[str, TensorType]:
    """By name."""
    return {name: TensorType(element_type(np.dtype(array.dtype)), array.shape) for name, array in arrays.items()}


def _set(target: NDArray, numbers: np.ndarray) -> None:
    """By an array of its own: what is under way may still read the target, and is not awaited."""
    from ngraph_mxnet import _core

    with autograd.pause():
        source = mx.nd.array(numbers, dtype=numbers.dtype)
        if not _core.copy_now(source.handle.value, target.handle.value):
            source.copyto(target)


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


class RecordedSteps:
    """A program's calls with the same parameters, each of which has a step of its own until it is gone back through.

    Attributes:
        made: how many steps there are.

    Args:
        program: made for `recorded` calls.
        arguments: names of what each call brings, in order.
        parameters: what all have in common.
        trained: names of what gradients may be wanted of.

    Raises:
        UnsupportedError: an output or a parameter is none of MXNet's plain arrays, or its naive engine runs.
    """

    def __init__(self, program: TrainingProgram, arguments: Sequence[str], parameters: Arrays,
                 trained: Sequence[str]) -> None:
        check_engine()
        if not all(type_.shape for type_ in program.outputs):
            raise UnsupportedError("an output has no dimensions")
        self._program, self._parameters = program, parameters
        self.made = 0
        self._lock = ForkSafeLock()
        self._random: list[RandomState] = []
        with autograd.pause():
            ones = [mx.nd.ones(type_.shape, dtype=type_.element.numpy) for type_ in program.outputs]
        self._sources = _sources(program, arguments, parameters)
        self._native = _native(program, self._sources, parameters, trained, ones)
        self._draws = STATE in program.forward.inputs
        self._predicts = not program.statistics
        if program.statistics:
            _moving.add(self)

    def call(self, handles: Sequence[int], checked: bool = False,
             array_type: type[NDArray] = NDArray) -> list[NDArray] | None:
        """The outputs, recorded; None: nothing was done, for all steps wait for their backward pass, the profiler is
        on, or an argument is not as expected.

        Args:
            handles: of the arguments.
            checked: whether to look for arguments that are trained but not recorded, or the other way round.
            array_type: of the outputs, `mx.nd.NDArray` or `mx.np.ndarray`.
        """
        native = self._native
        while (step := native.take()) is None:
            if not self._add():
                return None
        if self._draws:
            self._random[step.number].draw()
        outputs: list[NDArray] | None = native.call(step, checked, array_type, *handles)
        return outputs

    def prepare_predicting(self) -> None:
        """For a backward pass in predict mode.

        Raises:
            UnsupportedError: it can't be compiled.
        """
        if not self._predicts:
            half, heads = self._program.predicting()
            sources = {**self._sources, **{name: (_HEAD, number) for number, name in heads.items()}}
            self._native.set_predicting(half.native, [sources[name] for name in half.inputs])
            self._predicts = True

    def _add(self) -> bool:
        """Add a step. Return False, and add none, if there are MOST_STEPS already."""
        with self._lock:
            if self.made >= MOST_STEPS:
                return False
            program = self._program
            with autograd.pause():
                random = RandomState(program, mx.cpu())
                batch = program.new_statistics()
                saved = program.new_saved().values()
                marks = _marked([self._parameters[one.name] for one in program.statistics])
            arrays = [*random.arrays.values(), *batch, *saved]
            del self._random[self.made:]
            self._random.append(random)
            if not self._native.add([array.handle.value for array in arrays], [mark.handle.value for mark in marks]):
                raise UnsupportedError("what a step keeps is none of MXNet's plain arrays")
            self.made += 1
        return True


_moving: WeakSet[RecordedSteps] = WeakSet()
"""The recorded steps that move statistics. They go back in another way in predict mode."""


def prepare_predicting() -> None:
    """For a backward pass in predict mode through whichever calls it meets.

    Raises:
        UnsupportedError: it can't be compiled.
    """
    for steps in list(_moving):
        steps.prepare_predicting()


def _marked(moving: Sequence[NDArray]) -> list[NDArray]:
    """Variables of a step's own, whose gradients are the moving statistics: so MXNet's engine knows which backward pass
    writes them, and keeps later readers behind it."""
    marks = [array.detach() for array in moving]
    if marks:
        autograd.mark_variables(marks, list(moving), "add")
    return marks


Sources = dict[str, tuple[int, int]]


def _sources(program: TrainingProgram, arguments: Sequence[str], parameters: Arrays) -> Sources:
    """Return the sources of what the forward half reads, and of the moving statistics, by name."""
    given = {name: (_ARGUMENT, place) for place, name in enumerate(arguments)}
    given |= {name: (_PARAMETER, place) for place, name in enumerate(parameters)}
    return given | ({STATE: (_STEP, 0)} if STATE in program.forward.inputs else {})


def _native(program: TrainingProgram, forward: Sources, parameters: Arrays, trained: Sequence[str],
            ones: Sequence[NDArray]) -> Any:
    """A `_core.RecordedCalls`. A step's arrays: the random state, the batch's statistics, what is saved."""
    from ngraph_mxnet import _core

    batch = [(_STEP, (STATE in forward) + place) for place in range(len(program.statistics))]
    first = (STATE in forward) + len(batch)
    saved = {name: (_STEP, first + place) for place, name in enumerate(program.saved)}
    heads = {name: (_HEAD, number) for number, name in program.heads.items()}
    repeated = {name: batch[number - len(program.outputs)] for name, number in program.repeated.items()}
    backward = forward | saved | repeated | heads
    moved = [(forward[one.name], place, one.momentum, [trained.index(name) for name in one.of])
             for one, (_, place) in zip(program.statistics, batch, strict=True)]
    return _core.RecordedCalls(
        program.forward.native, program.backward.native, [forward[name] for name in program.forward.inputs],
        [backward[name] for name in program.backward.inputs], len(program.outputs),
        [*batch, *(forward[name] for name in program.gammas), *saved.values()], [forward[name] for name in trained],
        [array.handle.value for array in parameters.values()], [array.handle.value for array in ones], moved)
