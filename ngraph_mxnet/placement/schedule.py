"""What a placement comes to in time: its regions, and a list schedule of them and of the transfers between them."""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Literal

from ngraph_mxnet.placement.problem import HOST, Crossing, Problem

Forming = Literal["fewest", "phases"]


@dataclass(frozen=True)
class Region:
    """Items that run as one on `device`, in ascending order; `seconds` with the launch."""

    device: int
    items: tuple[int, ...]
    seconds: float


@dataclass(frozen=True)
class Span:
    """A region, by its number, or a crossing, from `begin` to `end` in seconds."""

    what: int | Crossing
    begin: float
    end: float


@dataclass(frozen=True)
class Schedule:
    """`regions` in the order of their begins: one after the other, that is an order in which they can run.

    `spans` are in the order of their begins, too. `seconds`: when the last one ends.
    """

    regions: tuple[Region, ...]
    spans: tuple[Span, ...]
    seconds: float


def form_regions(problem: Problem, placement: Sequence[int], forming: Forming) -> list[int]:
    """The region of each item, numbered in the order of first items. Taken as one, regions make no cycle.

    `fewest`: all that can run until something of another device is needed is one region, so that the devices take
    turns. No path changes devices less often than these turns do, so there are no fewer regions.
    `phases`: what is connected, of one device, and of one phase: the most changes of device on a way from the
    graph's inputs, and on one to its results. A larger region would wait for what only its later items read, or keep
    the other device waiting for what its first ones make. Along an edge the first number never falls, the second
    never rises, and between devices one of them changes: a cycle of regions would be of one phase and device.
    """
    sources = problem.sources
    if forming == "fewest":
        starts = [list(zip(_turns(sources, placement, first), placement, strict=True))
                  for first in range(len(problem.launch))]
        return _numbered(min(starts, key=lambda turns: len(set(turns))))
    behind, ahead = _turns(sources, placement, None), [0] * len(placement)
    for item in range(len(placement) - 1, -1, -1):
        for source in sources[item]:
            ahead[source] = max(ahead[source], ahead[item] + (placement[source] != placement[item]))
    joined = list(range(len(placement)))

    def root(item: int) -> int:
        while joined[item] != item:
            joined[item] = joined[joined[item]]
            item = joined[item]
        return item

    phases = list(zip(placement, behind, ahead, strict=True))
    for item, read in enumerate(sources):
        for source in read:
            if phases[source] == phases[item]:
                joined[max(root(source), root(item))] = min(root(source), root(item))
    return _numbered([root(item) for item in range(len(placement))])


def _turns(sources: Sequence[Sequence[int]], placement: Sequence[int], first: int | None) -> list[int]:
    """The most changes of device on a way to each item; where device `first` begins, one more for the other."""
    turns: list[int] = []
    for item, read in enumerate(sources):
        least = int(first is not None and placement[item] != first)
        turns.append(max([least, *(turns[s] + (placement[s] != placement[item]) for s in read)]))
    return turns


def _numbered(groups: Sequence[Hashable]) -> list[int]:
    numbers: dict[Hashable, int] = {}
    return [numbers.setdefault(group, len(numbers)) for group in groups]


@dataclass
class _Task:
    """A region or a crossing. `rank`: seconds from its begin to the end of all that follows from it, at least."""

    what: int | Crossing
    resource: str
    seconds: float
    needs: list[int]
    followers: list[int]
    rank: float = 0.0


def schedule(problem: Problem, placement: Sequence[int], forming: Forming, *, overlap: bool = True) -> Schedule:
    """The list schedule of the placement's regions.

    A device computes one region at a time; the link carries one tensor at a time in each direction. Whatever is free
    takes, of what is ready, that with the longest way to the end. Without `overlap` all of them are one resource.
    Nothing idles while something is ready, so it never takes longer than one after the other.
    """
    numbers = form_regions(problem, placement, forming)
    tasks = _tasks(problem, placement, numbers, overlap)
    for task in reversed(_in_order(tasks)):
        tasks[task].rank = tasks[task].seconds + max((tasks[f].rank for f in tasks[task].followers), default=0.0)
    spans: list[tuple[float, float, int]] = []
    waiting = [len(task.needs) for task in tasks]
    ready: dict[str, list[tuple[float, int]]] = {}
    running: list[tuple[float, int]] = []
    busy: set[str] = set()
    freed = [number for number, count in enumerate(waiting) if not count]
    now = 0.0
    while True:
        for number in freed:
            heapq.heappush(ready.setdefault(tasks[number].resource, []), (-tasks[number].rank, number))
        for resource, queue in ready.items():
            if queue and resource not in busy:
                _, number = heapq.heappop(queue)
                busy.add(resource)
                spans.append((now, now + tasks[number].seconds, number))
                heapq.heappush(running, (now + tasks[number].seconds, number))
        if not running:
            break
        now, _ = running[0]
        freed = []
        while running and running[0][0] == now:
            _, number = heapq.heappop(running)
            busy.discard(tasks[number].resource)
            for follower in tasks[number].followers:
                waiting[follower] -= 1
                if not waiting[follower]:
                    freed.append(follower)
    return _finished(problem, placement, numbers, tasks, spans)


def _tasks(problem: Problem, placement: Sequence[int], numbers: Sequence[int], overlap: bool) -> list[_Task]:
    """The regions by their numbers, then the crossings."""
    tasks: list[_Task] = []
    for item, number in enumerate(numbers):
        device = placement[item]
        if number == len(tasks):
            resource = f"device {device}" if overlap else "all"
            tasks.append(_Task(number, resource, problem.launch[device], [], []))
        tasks[number].seconds += problem.items[item].seconds[device]
    crossings: dict[int, list[Crossing]] = {}
    for crossing in problem.crossings(placement):
        crossings.setdefault(crossing.tensor, []).append(crossing)
    for number, tensor in enumerate(problem.tensors):
        here = HOST if tensor.producer is None else placement[tensor.producer]
        source = [] if tensor.producer is None else [numbers[tensor.producer]]
        there = {here: source}
        for found in crossings.get(number, ()):
            resource = f"link to {found.to}" if overlap else "all"
            tasks.append(_Task(found, resource, problem.crossing_seconds(found), source, []))
            there[found.to] = [len(tasks) - 1]
        for reader in tensor.readers:
            tasks[numbers[reader]].needs += there[placement[reader]]
    for number, task in enumerate(tasks):
        task.needs = sorted(set(task.needs) - {number})
        for need in task.needs:
            tasks[need].followers.append(number)
    return tasks


def _in_order(tasks: Sequence[_Task]) -> list[int]:
    """Each after what it needs."""
    waiting = [len(task.needs) for task in tasks]
    order = [number for number, count in enumerate(waiting) if not count]
    for number in order:
        for follower in tasks[number].followers:
            waiting[follower] -= 1
            if not waiting[follower]:
                order.append(follower)
    assert len(order) == len(tasks), "the regions make a cycle"
    return order


def _finished(problem: Problem, placement: Sequence[int], numbers: Sequence[int], tasks: Sequence[_Task],
              spans: list[tuple[float, float, int]]) -> Schedule:
    """With the regions renumbered in the order in which they begin."""
    members: dict[int, list[int]] = {}
    for item, number in enumerate(numbers):
        members.setdefault(number, []).append(item)
    renumbered = {number: place for place, number in enumerate(n for _, _, n in spans if n in members)}
    regions = [Region(placement[members[n][0]], tuple(members[n]), tasks[n].seconds) for n in renumbered]
    found = []
    for begin, end, number in spans:
        what = tasks[number].what
        found.append(Span(renumbered[what] if isinstance(what, int) else what, begin, end))
    return Schedule(tuple(regions), tuple(found), max((end for _, end, _ in spans), default=0.0))
