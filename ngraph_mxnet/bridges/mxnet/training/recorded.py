"""Training steps whose arrays come with each call, as those of a block under `autograd.record` do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from weakref import WeakSet

import mxnet as mx
from mxnet import autograd
from mxnet.ndarray import NDArray

from ngraph_mxnet.bridges.mxnet.training.program import TrainingProgram
from ngraph_mxnet.bridges.mxnet.training.rules import STATE
from ngraph_mxnet.bridges.mxnet.training.step import Arrays, RandomState
from ngraph_mxnet.errors import UnsupportedError
from ngraph_mxnet.forks import ForkSafeLock

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

    def call(self, handles: Sequence[int], checked: bool = False) -> list[NDArray] | None:
        """The outputs, recorded; None: nothing was done, for all steps wait for their backward pass, the profiler is
        on, or an argument is not as expected.

        Args:
            handles: of the arguments.
            checked: whether to look for arguments that are trained but not recorded, or the other way round.
        """
        native = self._native
        while (step := native.take()) is None:
            if not self._add():
                return None
        if self._draws:
            self._random[step.number].draw()
        outputs: list[NDArray] | None = native.call(step, checked, *handles)
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
