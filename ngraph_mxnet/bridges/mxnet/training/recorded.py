"""Training steps whose arrays come with each call, as those of a block under `autograd.record` do."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import mxnet as mx
from mxnet import autograd
from mxnet.ndarray import NDArray

from ngraph_mxnet.bridges.mxnet.training.dropping import STATE
from ngraph_mxnet.bridges.mxnet.training.program import TrainingProgram
from ngraph_mxnet.bridges.mxnet.training.step import Arrays, RandomState
from ngraph_mxnet.errors import UnsupportedError
from ngraph_mxnet.forks import ForkSafeLock

MOST_STEPS = 8
"""Of one program: so many calls may wait for their backward."""

_PARAMETER, _ARGUMENT, _STEP, _HEAD = range(4)
"""Kinds of sources: see csrc/recorded_steps.h."""


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
        UnsupportedError: an output or a parameter is none of MXNet's plain arrays.
    """

    def __init__(self, program: TrainingProgram, arguments: Sequence[str], parameters: Arrays,
                 trained: Sequence[str]) -> None:
        if not all(type_.shape for type_ in program.outputs):
            raise UnsupportedError("an output has no dimensions")
        self._program, self._parameters = program, parameters
        self.made = 0
        self._lock = ForkSafeLock()
        self._states: list[list[tuple[NDArray, NDArray]]] = []
        self._random: list[RandomState] = []
        with autograd.pause():
            ones = [mx.nd.ones(type_.shape, dtype=type_.element.numpy) for type_ in program.outputs]
        self._native = _native(program, arguments, parameters, trained, ones)
        self._is_plain = not program.updated and STATE not in program.forward.inputs

    def call(self, handles: Sequence[int], checked: bool = False) -> list[NDArray] | None:
        """The outputs, recorded; None: nothing was done, for all steps wait for their backward pass, the profiler is
        on, or an argument is not as expected.

        Args:
            handles: of the arguments.
            checked: whether to look for arguments that are trained but not recorded, or the other way round.
        """
        native = self._native
        while (step := native.take()) < 0:
            if not self._add():
                return None
        if self._is_plain:
            outputs = native.call(step, checked, *handles)
        else:
            outputs = self._call(step, checked, handles)
        return None if outputs is None else [NDArray(ctypes.c_void_p(handle)) for handle in outputs]

    def _call(self, step: int, checked: bool, handles: Sequence[int]) -> Any:
        """With random numbers before it and moving statistics behind it."""
        try:
            self._random[step].draw()
        except BaseException:
            self._native.give_back(step)
            raise
        outputs = self._native.call(step, checked, *handles)
        if outputs is not None:
            with autograd.pause():
                for source, target in self._states[step]:
                    source.copyto(target)
        return outputs

    def _add(self) -> bool:
        """Whether there is a step more."""
        with self._lock:
            if self.made >= MOST_STEPS:
                return False
            program = self._program
            with autograd.pause():
                random = RandomState(program, mx.cpu())
                states = [new_like(self._parameters[name]) for name in program.updated]
                saved = program.new_saved().values()
            arrays = [*random.arrays.values(), *states, *saved]
            del self._random[self.made:], self._states[self.made:]
            self._random.append(random)
            self._states.append(list(zip(states, (self._parameters[name] for name in program.updated), strict=True)))
            if not self._native.add([array.handle.value for array in arrays]):
                raise UnsupportedError("what a step keeps is none of MXNet's plain arrays")
            self.made += 1
        return True


def _native(program: TrainingProgram, arguments: Sequence[str], parameters: Arrays, trained: Sequence[str],
            ones: Sequence[NDArray]) -> Any:
    """A `_core.RecordedCalls`. A step's arrays: the random state, the states after the step, what is saved."""
    from ngraph_mxnet import _core

    random = [STATE] if STATE in program.forward.inputs else []
    given = {name: (_ARGUMENT, place) for place, name in enumerate(arguments)}
    given |= {name: (_PARAMETER, place) for place, name in enumerate(parameters)}
    step = {name: (_STEP, place) for place, name in enumerate(random)}
    first = len(random) + len(program.updated)
    saved = {name: (_STEP, first + place) for place, name in enumerate(program.saved)}
    heads = {name: (_HEAD, number) for number, name in program.heads.items()}
    forward, backward = given | step, given | step | saved | heads
    return _core.RecordedCalls(
        program.forward.native, program.backward.native, [forward[name] for name in program.forward.inputs],
        [backward[name] for name in program.backward.inputs], len(program.outputs),
        list(range(len(random), first + len(saved))), [given[name] for name in trained],
        [array.handle.value for array in parameters.values()], [array.handle.value for array in ones])


def new_like(array: NDArray) -> NDArray:
    """An array of the same shape and type."""
    made: NDArray = mx.nd.empty(array.shape, dtype=array.dtype)
    return made
