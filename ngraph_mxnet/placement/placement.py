"""Where each item of a problem goes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from ngraph_mxnet.placement.cut import serial_placement
from ngraph_mxnet.placement.problem import Problem, Seconds
from ngraph_mxnet.placement.schedule import Region, Schedule
from ngraph_mxnet.placement.search import MOST_ENUMERATED, Found, enumerate_all, predict, search

Method = Literal["minimum cut", "all placements tried", "local search"]


@dataclass(frozen=True)
class Placement:
    """The device of each item, and the predicted schedule.

    `method`: the last that was asked for something better; what each guarantees is in docs/hybrid.md.
    `alone`: the predicted seconds with everything on each device, infinite where that is not possible.
    `serial`: those of the serial optimum if nothing overlapped.
    """

    devices: tuple[int, ...]
    schedule: Schedule
    method: Method
    alone: Seconds
    serial: float

    @property
    def seconds(self) -> float:
        """Predicted for a call."""
        return self.schedule.seconds

    @property
    def regions(self) -> tuple[Region, ...]:
        return self.schedule.regions


def place(problem: Problem, *, overlap: bool = True) -> Placement:
    """The best placement that is found: never slower than the serial optimum's schedule, nor than any device alone.

    Args:
        overlap: the devices may work at once.

    Raises:
        ValueError: no device can run some item.
    """
    cut = serial_placement(problem)
    best = predict(problem, cut, overlap=overlap)
    alone: list[float] = []
    for device in range(len(problem.launch)):
        everywhere = [device] * len(problem.items)
        found = predict(problem, everywhere, overlap=overlap) if problem.allowed(everywhere) else None
        alone.append(found.seconds if found else math.inf)
        if found and found.seconds < best.seconds:
            best = found
    method: Method = "minimum cut"
    if overlap:
        best, method = _overlapped(problem, best)
    return Placement(best.placement, best.schedule, method, tuple(alone), problem.serial_seconds(cut))


def _overlapped(problem: Problem, start: Found) -> tuple[Found, Method]:
    if math.prod(len(problem.choices(item)) for item in problem.free()) <= MOST_ENUMERATED:
        return enumerate_all(problem, start), "all placements tried"
    return search(problem, start), "local search"
