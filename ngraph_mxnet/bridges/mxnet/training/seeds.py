"""What random numbers of training steps follow from: `mx.random.seed`, and how many steps were taken since.

As in MXNet, each device has a state of its own, a seed for all devices gives each another one, and without a call the
seed is 0. The numbers are others than MXNet's own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ngraph_mxnet.forks import ForkSafeLock

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
