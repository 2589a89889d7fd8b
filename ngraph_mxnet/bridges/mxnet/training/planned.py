"""The memory of compiled training steps, for `ngraph_mxnet.report()`."""

from __future__ import annotations

from dataclasses import dataclass
from weakref import WeakSet


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
    """What has such memory."""

    def __init__(self, name: str, forward: int, backward: int, saved: int) -> None:
        self._name, self._bytes = name, (forward, backward, saved)
        self.times = 0
        _all.add(self)

    def step(self) -> PlannedStep:
        return PlannedStep(self._name, *self._bytes, self.times)


_all: WeakSet[Planned] = WeakSet()


def planned_steps() -> tuple[PlannedStep, ...]:
    """Of the steps that there are, the largest first."""
    return tuple(sorted((planned.step() for planned in list(_all)), key=lambda step: (-step.total, step.name)))
