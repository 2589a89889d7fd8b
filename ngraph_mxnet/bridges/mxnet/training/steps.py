"""Steps that calls take turns with: what a step saves belongs to a call until that can't be gone back through."""

from __future__ import annotations

from collections.abc import Sequence

from mxnet.ndarray import NDArray

from ngraph_mxnet.bridges.mxnet.training import tape
from ngraph_mxnet.bridges.mxnet.training.program import TrainingProgram
from ngraph_mxnet.bridges.mxnet.training.recorded import RecordedStep
from ngraph_mxnet.bridges.mxnet.training.step import Arrays
from ngraph_mxnet.forks import ForkSafeLock

MOST_STEPS = 8
"""Of one program: so many calls may wait for their backward."""


class Steps:
    """Of a program that was made with all `apart`, with these arrays of parameters."""

    def __init__(self, program: TrainingProgram, parameters: Arrays) -> None:
        self._program, self._parameters = program, parameters
        self._lock, self.made = ForkSafeLock(), 0
        self._free: list[RecordedStep] = []

    def _take(self) -> RecordedStep | None:
        with self._lock:
            if self._free:
                return self._free.pop()
            if self.made >= MOST_STEPS:
                return None
            self.made += 1
        try:
            return RecordedStep(self._program, self._parameters)
        except BaseException:
            with self._lock:
                self.made -= 1
            raise

    def _give_back(self, step: RecordedStep) -> None:
        with self._lock:
            self._free.append(step)

    def run(self, inputs: Arrays, trained: Sequence[NDArray]) -> list[NDArray] | None:
        """The outputs, recorded to come from these arrays, in the order of the program's wanted ones; None: nothing was
        done, for all steps are in use or the profiler is on.

        Raises:
            UnsupportedError: an input is none of MXNet's plain arrays.
        """
        step = self._take()
        if step is None:
            return None
        outputs = None
        try:
            outputs = step.forward(inputs)
        finally:
            if outputs is None:
                self._give_back(step)
        if outputs is not None:
            tape.record(trained, outputs, step.backward, lambda: self._give_back(step))
        return outputs
