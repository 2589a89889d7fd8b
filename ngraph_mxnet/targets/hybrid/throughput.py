"""How many requests a second a placed graph serves, if requests follow each other through the devices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from ngraph_mxnet.base.rendered import Facts
from ngraph_mxnet.targets.hybrid.search import (
    HOST,
    Crossing,
    Placement,
    Problem,
    Task,
    list_schedule,
    numbers_of,
    rank,
    tasks_of,
)

_FILLING, _MEASURED, _EMPTYING = 4, 12, 4
"""So many times the requests in flight: the rate is that of those in the middle. Where requests end in groups, such a
group is of as many as are in flight."""


@dataclass(frozen=True)
class Stage:
    """A device, or the link to one, that works for requests: its seconds for each, and the part of the time that it is
    busy."""

    name: str
    seconds: float
    busy: float


@dataclass(frozen=True)
class Throughput(Facts):
    """Simulated: `rate` in requests a second with `in_flight` requests at once, and `latency` in seconds of a request
    that is alone. `bound` is the rate at which the bottleneck is always busy."""

    rate: float
    latency: float
    bound: float
    bottleneck: str
    in_flight: int
    stages: tuple[Stage, ...]

    renamed: ClassVar[Mapping[str, str | None]] = {"rate": "requests_per_second", "latency": "latency_seconds",
                                                   "bound": "bound_per_second"}


def throughput(problem: Problem, placement: Placement, simulated: Mapping[int, float]) -> Throughput | None:
    """The rate of requests that are all there from the beginning, by a list schedule of their regions and transfers;
    None where nothing takes time.

    `simulated` has the seconds of regions, by their numbers in `placement.regions`, with the transfers of their inputs
    and results. Other regions and transfers take what is predicted. A device runs one region at a time, and a link
    carries one tensor at a time. As many requests are in flight as there are regions and transfers, and one more.
    """
    tasks = _tasks(problem, placement, simulated)
    if not any(task.seconds for task in tasks):
        return None
    in_flight = sum(task.seconds > 0 for task in tasks) + 1
    ends = _ends(tasks, (_FILLING + _MEASURED + _EMPTYING) * in_flight, in_flight)
    begin, measured = _FILLING * in_flight, _MEASURED * in_flight
    seconds: dict[str, float] = {}
    for task in tasks:
        seconds[task.resource] = seconds.get(task.resource, 0.0) + task.seconds
    bound = 1 / max(seconds.values())
    rate = min(measured / (ends[begin + measured] - ends[begin]), bound)  # a group may end a little early
    stages = tuple(Stage(_told(name, problem.devices), each, min(each * rate, 1.0))
                   for name, each in seconds.items() if each)
    busiest = max(stages, key=lambda stage: stage.seconds)
    return Throughput(rate, _ends(tasks, 1, 1)[0], bound, busiest.name, in_flight, stages)


def _tasks(problem: Problem, placement: Placement, simulated: Mapping[int, float]) -> list[Task]:
    """Those of one request, with simulated seconds; a transfer of a simulated region's device is among the region's."""
    regions = list(dict.fromkeys(placement.region_of))
    tasks = tasks_of(problem, placement.devices, numbers_of(placement))
    devices = {placement.regions[region].device for region in simulated} - {HOST}
    for task in tasks:
        if isinstance(task.what, Crossing):
            if {task.what.here, task.what.to} & devices:
                task.seconds = 0.0
        else:
            task.seconds = simulated.get(regions[task.what], task.seconds)
    rank(tasks)
    return tasks


def _ends(tasks: Sequence[Task], requests: int, in_flight: int) -> list[float]:
    """When each request has ended. The oldest goes first."""
    count, all_seconds = len(tasks), sum(task.seconds for task in tasks)
    last = [number for number, task in enumerate(tasks) if not task.followers]
    first = [number for number, task in enumerate(tasks) if not task.needs]
    copies = [replace(task, needs=[need + request * count for need in task.needs],
                      followers=[follower + request * count for follower in task.followers],
                      rank=task.rank - request * all_seconds)
              for request in range(requests) for task in tasks]
    for request in range(in_flight, requests):
        for one in last:
            for begin in first:
                before, after = one + (request - in_flight) * count, begin + request * count
                copies[before].followers.append(after)
                copies[after].needs.append(before)
    ends = [0.0] * requests
    for _, end, number in list_schedule(copies):
        ends[number // count] = max(ends[number // count], end)
    return sorted(ends)


def _told(resource: str, devices: Sequence[str]) -> str:
    kind, _, number = resource.rpartition(" ")
    return devices[int(number)] if kind == "device" else f"{kind} {devices[int(number)]}"
