"""A training step whose arrays come with each call, as those of a block under `autograd.record` do."""

from __future__ import annotations

from collections.abc import Sequence

import mxnet as mx
from mxnet import autograd
from mxnet.ndarray import NDArray

from ngraph_mxnet.bridges.mxnet.training.program import TrainingProgram, new
from ngraph_mxnet.bridges.mxnet.training.step import Arrays, RandomState
from ngraph_mxnet.bridges.mxnet.training.tape import ADD, NOTHING
from ngraph_mxnet.errors import UnsupportedError


class RecordedStep:
    """Keeps what a call saves until it is gone back through; arrays of inputs and results are the caller's.

    Args:
        program: made with all arguments and states `apart`.
        parameters: arrays of these, by name; the states among them are written by each call.
    """

    def __init__(self, program: TrainingProgram, parameters: Arrays) -> None:
        self._program, self._parameters = program, parameters
        self._saved = program.new_saved()
        self._states = [(new_like(parameters[name]), parameters[name]) for name in program.updated]
        self._random = RandomState(program, mx.cpu())

    def forward(self, inputs: Arrays) -> list[NDArray] | None:
        """New arrays of the outputs; None: nothing was done.

        Raises:
            UnsupportedError: an input is none of MXNet's plain arrays.
        """
        outputs = [new(type_) for type_ in self._program.outputs]
        bound = self._program.forward.bound({**self._parameters, **inputs, **self._random.arrays}, [
            *outputs, *(source for source, _ in self._states), *self._saved.values()])
        self._random.draw()
        if not bound.run():
            return None
        with autograd.pause():
            for source, target in self._states:
                source.copyto(target)
        return outputs

    def backward(self, heads: Sequence[NDArray], gradients: Sequence[NDArray], requests: Sequence[int]) -> None:
        """Write the gradients, as requested, where they are wanted. It runs on a thread of MXNet's, which may have been
        asked since to write what the call has read: nothing of that is read here.

        Args:
            heads: gradients of the outputs.
            gradients: arrays in the order of the program's `wanted`.
            requests: of each, see `tape`.

        Raises:
            UnsupportedError: the profiler is on.
        """
        targets = [array if request not in (NOTHING, ADD) else new_like(array)
                   for array, request in zip(gradients, requests, strict=True)]
        given = {name: heads[number] for number, name in self._program.heads.items()}
        if not self._program.backward.bound({**self._saved, **self._random.arrays, **given}, targets).run(here=True):
            raise UnsupportedError("the backward pass can't run while the profiler is on; turn it on between steps")
        with autograd.pause():
            for target, array, request in zip(targets, gradients, requests, strict=True):
                if request == ADD:
                    array += target


def new_like(array: NDArray) -> NDArray:
    """An array of the same shape and type."""
    made: NDArray = mx.nd.empty(array.shape, dtype=array.dtype)
    return made
