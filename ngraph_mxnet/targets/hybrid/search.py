"""The placement problem as plain data, and the best placement: on two devices for serial execution a minimum cut.

Items are to be computed, tensors lie between them, and each costs something on some devices. Device 0 is the host: what
the graph is given lies there, and its results must end there. On more than two devices the placement is one that no two
of them better.

Vertices are the items, the source stands for the first device, the sink for the second; an item is placed on the device
on whose side of the cut it is. Each term of `Problem.serial_seconds` is the capacity of the edges that its case cuts:
* an item on a device: an edge from or to the terminal of the *other* device;
* a tensor brought to a device, once for all its readers there: an edge between its producer and a vertex of its own,
  which edges without limit keep on the side of those readers. One reader is that vertex itself;
* the launch of a device in use: the same, with the items for readers and the other terminal for producer.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from operator import mul
from typing import Literal

import networkx
from networkx.utils import UnionFind

HOST = 0
"""The device that has the graph's inputs, and gets its results."""

Seconds = tuple[float, ...]
"""A time for each device."""


@dataclass(frozen=True)
class Item:
    """One node. `seconds` on each device; infinite where it can't run, or must not."""

    name: str
    seconds: Seconds


@dataclass(frozen=True)
class Tensor:
    """A value that items read. `producer` is an item, or None for an input of the graph, which the host has.

    `crossing`: seconds to bring it to each device, and `leaving`, if any, those to bring it out of each before; once
    brought somewhere, all readers there have it. `memories`: a number for the memory of each device, each its own if
    empty; between devices that address one memory neither is spent. `result`: the host must have it in the end.
    """

    name: str
    producer: int | None
    readers: tuple[int, ...]
    bytes: int
    crossing: Seconds
    result: bool = False
    leaving: Seconds = ()
    memories: tuple[int, ...] = ()

    def made_on(self, placement: Sequence[int]) -> int:
        """The device that has it first."""
        return HOST if self.producer is None else placement[self.producer]

    def copy_seconds(self, here: int, to: int) -> float:
        """From device `here` to device `to`, if it must be copied."""
        return (self.leaving[here] if self.leaving else 0.0) + self.crossing[to]

    def seconds(self, here: int, to: int) -> float:
        """From device `here` to device `to`."""
        together = bool(self.memories) and self.memories[here] == self.memories[to]
        return 0.0 if together else self.copy_seconds(here, to)


@dataclass(frozen=True)
class Crossing:
    """Tensor number `tensor` is brought from device `here` to device `to`."""

    tensor: int
    here: int
    to: int


@dataclass(frozen=True)
class Problem:
    """Items in topological order, and the tensors between them. `launch`: seconds to start a region on each device.
    Raises ValueError: an item reads a later one, or a time is negative."""

    items: tuple[Item, ...]
    tensors: tuple[Tensor, ...]
    launch: Seconds = (0.0, 0.0)
    devices: tuple[str, ...] = ("host", "device")

    def __post_init__(self) -> None:
        for tensor in self.tensors:
            first = -1 if tensor.producer is None else tensor.producer
            if any(not first < reader < len(self.items) for reader in tensor.readers):
                raise ValueError(f"tensor {tensor.name} of item {tensor.producer}: found readers {tensor.readers}, "
                                 f"expected later ones of {len(self.items)} items")
        times = [*self.launch, *(t for item in self.items for t in item.seconds),
                 *(t for tensor in self.tensors for t in (*tensor.crossing, *tensor.leaving))]
        if any(not time >= 0 for time in times):
            raise ValueError("a time is negative, or not a number")

    @cached_property
    def sources(self) -> list[list[int]]:
        """The items that each item reads, in ascending order, each once."""
        found: list[set[int]] = [set() for _ in self.items]
        for tensor in self.tensors:
            if tensor.producer is not None:
                for reader in tensor.readers:
                    found[reader].add(tensor.producer)
        return [sorted(items) for items in found]

    @cached_property
    def by_producer(self) -> list[int]:
        """The numbers of the tensors in the order of what makes them."""
        producers = [-1 if tensor.producer is None else tensor.producer for tensor in self.tensors]
        return sorted(range(len(producers)), key=producers.__getitem__)

    def crossings(self, placement: Sequence[int]) -> list[Crossing]:
        """The tensors that are brought from one device to another, each at most once to each."""
        found = []
        for number, tensor in enumerate(self.tensors):
            here = tensor.made_on(placement)
            wanted = {placement[reader] for reader in tensor.readers} | ({HOST} if tensor.result else set())
            found += [Crossing(number, here, to) for to in sorted(wanted - {here})]
        return found

    def crossing_seconds(self, crossing: Crossing) -> float:
        return self.tensors[crossing.tensor].seconds(crossing.here, crossing.to)

    def serial_seconds(self, placement: Sequence[int]) -> float:
        """Return the seconds of `placement` when nothing overlaps: its items, its crossings, one launch of each device
        in use."""
        return math.fsum([
            *(item.seconds[device] for item, device in zip(self.items, placement, strict=True)),
            *map(self.crossing_seconds, self.crossings(placement)),
            *(self.launch[device] for device in set(placement)),
        ])

    def allowed(self, placement: Sequence[int]) -> bool:
        """True if each item can run where it is placed."""
        return all(math.isfinite(item.seconds[device]) for item, device in zip(self.items, placement, strict=True))

    def choices(self, item: int) -> list[int]:
        """The devices that can run it."""
        return [device for device, seconds in enumerate(self.items[item].seconds) if math.isfinite(seconds)]

    def free(self) -> list[int]:
        """The items that more than one device can run."""
        return [item for item in range(len(self.items)) if len(self.choices(item)) > 1]


_UNITS = 1e15
"""Capacities are integers, of femtoseconds: sums of them are exact, and the algorithm ends."""

_TERMINALS = ("source", "sink")
"""Which stand for the first device, the host, and the second."""

_ROUNDING = 1 - 1e-12
"""The ratio to the least time so far, below which a time counts as less. A smaller gain counts as none."""


def serial_placement(problem: Problem, weights: Seconds | None = None) -> list[int]:
    """The device of each item, so that `problem.serial_seconds` is least, to a femtosecond a term; what is equal
    stays with the host. Of more than two devices: so that no change between two of them alone makes it less.

    Args:
        weights: factors of the items' seconds on each device. Others than 1 move the balance between the devices:
            starting points for a search that counts with all working at once.

    Raises:
        ValueError: no device can run some item.
    """
    count = len(problem.launch)
    weights = weights or (1.0,) * count
    for number, item in enumerate(problem.items):
        if not problem.choices(number):
            raise ValueError(f"no device can run {item.name}")
    best = [problem.choices(number)[0] for number in range(len(problem.items))]
    weighed = replace(problem, items=tuple(
        replace(item, seconds=tuple(map(mul, item.seconds, weights))) for item in problem.items))
    least, improved = math.inf, True
    while improved:
        improved = False
        for pair in itertools.combinations(range(count), 2):
            placement = _between(weighed, best, pair)
            seconds = weighed.serial_seconds(placement)
            if seconds < least * _ROUNDING:
                best, least, improved = placement, seconds, count > 2
    return best


def _between(problem: Problem, placement: Sequence[int], pair: tuple[int, int]) -> list[int]:
    """The best placement in which items of the two devices may be on either of them, and the others stay."""
    edges = _Edges()
    mine = [number for number, device in enumerate(placement) if device in pair]
    for number in mine:
        for side in (0, 1):
            edges.charge(number, _TERMINALS[1 - side], side, problem.items[number].seconds[pair[side]])
    for name, tensor in enumerate(problem.tensors):
        _charge_tensor(edges, name, tensor, placement, pair)
    for side in (0, 1):
        edges.charge_any(("launch", side), mine, _TERMINALS[1 - side], side, problem.launch[pair[side]])
    far = edges.far_side()
    return [pair[number in far] if device in pair else device for number, device in enumerate(placement)]


def _charge_tensor(edges: _Edges, name: int, tensor: Tensor, placement: Sequence[int], pair: tuple[int, int]) -> None:
    """Add the cost of bringing the tensor to where it is read. Readers on other devices than these two stay there."""
    here = tensor.made_on(placement)
    fixed = {placement[reader] for reader in tensor.readers if placement[reader] not in pair}
    if tensor.result and HOST not in pair:
        fixed.add(HOST)
    producer: Hashable = tensor.producer
    if tensor.producer is None and here in pair:
        producer = _TERMINALS[pair.index(here)]
    for side in (0, 1):
        readers: list[Hashable] = [reader for reader in tensor.readers if placement[reader] in pair]
        if tensor.result and pair[side] == HOST:
            readers = [_TERMINALS[side]]
        other = producer if here in pair else _TERMINALS[1 - side]
        source = pair[1 - side] if here in pair else here
        edges.charge_any(("tensor", name, side), readers, other, side, tensor.seconds(source, pair[side]))
        if here in pair:
            edges.charge(producer, _TERMINALS[1 - side], side, sum(tensor.seconds(pair[side], to) for to in fixed))


class _Edges:
    """The graph to cut."""

    def __init__(self) -> None:
        self._graph = networkx.DiGraph()
        self._graph.add_nodes_from(_TERMINALS)

    def charge(self, vertex: Hashable, other: Hashable, device: int, seconds: float) -> None:
        """`seconds` if `vertex` is on the side of `device`, and `other` on the other one."""
        ends = (vertex, other) if device == 0 else (other, vertex)
        if ends[0] == ends[1] or seconds == 0:
            return
        if math.isinf(seconds):
            self._graph.add_edge(*ends)  # an edge without a capacity has no limit
            self._graph.edges[ends].pop("capacity", None)
            return
        edge = self._graph.get_edge_data(*ends)
        if edge is None:
            self._graph.add_edge(*ends, capacity=round(seconds * _UNITS))
        elif "capacity" in edge:
            edge["capacity"] += round(seconds * _UNITS)

    def charge_any(self, name: Hashable, vertices: Iterable[Hashable], other: Hashable, device: int,
                   seconds: float) -> None:
        """`seconds`, once, if any of `vertices` is on the side of `device`, and `other` on the other one."""
        vertices = list(vertices)
        if len(vertices) == 1:
            self.charge(vertices[0], other, device, seconds)
        elif vertices and seconds:
            self.charge(name, other, device, seconds)
            for vertex in vertices:
                self.charge(vertex, name, device, math.inf)

    def far_side(self) -> set[Hashable]:
        """The sink's side of a minimum cut: of several cuts the one with the fewest vertices there."""
        _, (_, far) = networkx.minimum_cut(self._graph, *_TERMINALS)
        return far


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
    """`regions` in the order of their begins, or in that in which they were compiled: one after the other, that is an
    order in which they can run.

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
    joined = UnionFind(range(len(placement)))
    phases = list(zip(placement, behind, ahead, strict=True))
    for item, read in enumerate(sources):
        joined.union(item, *(source for source in read if phases[source] == phases[item]))
    return _numbered([joined[item] for item in range(len(placement))])


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
class Task:
    """A region or a crossing. `rank`: seconds from its begin to the end of all that follows from it, at least."""

    what: int | Crossing
    resource: str
    seconds: float
    needs: list[int]
    followers: list[int]
    rank: float = 0.0


def schedule(problem: Problem, placement: Sequence[int], forming: Forming, *, overlap: bool = True) -> Schedule:
    """The list schedule of the placement's regions: see `scheduled`."""
    return scheduled(problem, placement, form_regions(problem, placement, forming), overlap=overlap)


def scheduled(problem: Problem, placement: Sequence[int], numbers: Sequence[int], *, overlap: bool = True) -> Schedule:
    """The list schedule of regions: `numbers` has the region of each item, as `form_regions` numbers them.

    A device computes one region at a time; the link carries one tensor at a time in each direction. Whatever is free
    takes, of what is ready, that with the longest way to the end. Without `overlap` all of them are one resource.
    Nothing idles while something is ready, so it never takes longer than one after the other.
    """
    tasks = tasks_of(problem, placement, numbers, overlap=overlap)
    rank(tasks)
    return _finished(problem, placement, numbers, tasks, list_schedule(tasks))


def rank(tasks: Sequence[Task]) -> None:
    """Give each task its rank."""
    for task in reversed(_in_order(tasks)):
        tasks[task].rank = tasks[task].seconds + max((tasks[f].rank for f in tasks[task].followers), default=0.0)


def list_schedule(tasks: Sequence[Task]) -> list[tuple[float, float, int]]:
    """Begin, end and number of each task, in the order of the begins, if each resource takes what is ready of highest
    rank."""
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
    return spans


def tasks_of(problem: Problem, placement: Sequence[int], numbers: Sequence[int], *, overlap: bool = True) -> list[Task]:
    """The regions by their numbers, which are in the order of first items, then the crossings."""
    tasks: list[Task] = []
    for item, number in enumerate(numbers):
        device = placement[item]
        if number == len(tasks):
            resource = f"device {device}" if overlap else "all"
            tasks.append(Task(number, resource, problem.launch[device], [], []))
        tasks[number].seconds += problem.items[item].seconds[device]
    crossings: dict[int, list[Crossing]] = {}
    for crossing in problem.crossings(placement):
        crossings.setdefault(crossing.tensor, []).append(crossing)
    for number, tensor in enumerate(problem.tensors):
        here = tensor.made_on(placement)
        source = [] if tensor.producer is None else [numbers[tensor.producer]]
        there = {here: source}
        for found in crossings.get(number, ()):
            resource = f"link to {found.to}" if overlap else "all"
            tasks.append(Task(found, resource, problem.crossing_seconds(found), source, []))
            there[found.to] = [len(tasks) - 1]
        for reader in tensor.readers:
            tasks[numbers[reader]].needs += there[placement[reader]]
    for number, task in enumerate(tasks):
        task.needs = sorted(set(task.needs) - {number})
        for need in task.needs:
            tasks[need].followers.append(number)
    return tasks


def _in_order(tasks: Sequence[Task]) -> list[int]:
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


def _finished(problem: Problem, placement: Sequence[int], numbers: Sequence[int], tasks: Sequence[Task],
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


MOST_ENUMERATED = 1 << 12
"""Placements that are all tried, as of 12 items that either of two devices can run."""

_TRIALS = 600
"""Schedules that a local search computes at most."""

_BALANCES = (0.02, 0.1, 0.25, 0.4, 0.6, 0.75, 0.9, 0.98)
"""Weights of the host's seconds in cuts that begin a search."""


@dataclass(frozen=True)
class Found:
    """A placement and its schedule."""

    placement: tuple[int, ...]
    schedule: Schedule

    @property
    def seconds(self) -> float:
        return self.schedule.seconds


def predict(problem: Problem, placement: Sequence[int], *, overlap: bool = True) -> Found:
    """The placement with as few regions as can be or, where that is faster, with one for each phase."""
    found = schedule(problem, placement, "fewest", overlap=overlap)
    if overlap:
        found = min(found, schedule(problem, placement, "phases"), key=lambda s: s.seconds)
    return Found(tuple(placement), found)


def enumerate_all(problem: Problem, start: Found) -> Found:
    """The placement with the least `predict(...).seconds` of all; `start` if none is better."""
    best = start
    free = problem.free()
    placement = [item.seconds.index(min(item.seconds)) for item in problem.items]
    for devices in itertools.product(*map(problem.choices, free)):
        for item, device in zip(free, devices, strict=True):
            placement[item] = device
        if least_seconds(problem, placement) < best.seconds:
            best = _better(best, problem, placement)
    return best


def search(problem: Problem, start: Found) -> Found:
    """`start`, or a better placement.

    It begins at `start` and at cuts that weigh the devices' seconds differently, moves chains of items, then items,
    to other devices as long as that helps, and ends after a fixed number of trials.
    """
    best = start
    trials, count = _TRIALS, len(problem.launch)
    for host in _BALANCES:
        best = _better(best, problem, serial_placement(problem, (2 * host, *[2 - 2 * host] * (count - 1))))
    free = set(problem.free())
    moves = [move for move in _moves(problem) if free.issuperset(move)]
    improved = True
    while improved and trials > 0:
        improved = False
        for move, step in itertools.product(moves, range(1, count)):
            placement = list(best.placement)
            for item in move:
                placement[item] = (placement[item] + step) % count
            if trials > 0 and least_seconds(problem, placement) < best.seconds:
                trials -= 1
                found = _better(best, problem, placement)
                improved |= found is not best
                best = found
    return best


def least_seconds(problem: Problem, placement: Sequence[int]) -> float:
    """A bound below what the placement can take: the load of each device, with a launch, and of each direction, and the
    longest way from inputs to results."""
    loads, links = [0.0] * len(problem.launch), [0.0] * len(problem.launch)
    for item, device in zip(problem.items, placement, strict=True):
        loads[device] += item.seconds[device]
    for device in set(placement):
        loads[device] += problem.launch[device]
    there = [0.0] * len(problem.items)  # when an item's inputs can be there, at the soonest
    late: dict[tuple[int, int], float] = {}
    for crossing in problem.crossings(placement):
        late[crossing.tensor, crossing.to] = seconds = problem.crossing_seconds(crossing)
        links[crossing.to] += seconds
    longest = 0.0
    for number in problem.by_producer:
        tensor = problem.tensors[number]
        made = 0.0
        if tensor.producer is not None:
            made = there[tensor.producer] + problem.items[tensor.producer].seconds[placement[tensor.producer]]
        for reader in tensor.readers:
            there[reader] = max(there[reader], made + late.get((number, placement[reader]), 0.0))
        longest = max(longest, made + (late.get((number, HOST), 0.0) if tensor.result else 0.0))
    return max(*loads, *links, longest) * _ROUNDING


def _better(best: Found, problem: Problem, placement: Sequence[int]) -> Found:
    found = predict(problem, placement)
    return found if found.seconds < best.seconds else best


def _moves(problem: Problem) -> Iterable[tuple[int, ...]]:
    """Chains, then single items. In a chain each item alone reads the one before, and reads no other."""
    sources = problem.sources
    readers: list[list[int]] = [[] for _ in problem.items]
    for item, read in enumerate(sources):
        for source in read:
            readers[source].append(item)
    chain_of: dict[int, list[int]] = {}
    chains = []
    for item, read in enumerate(sources):
        if len(read) == 1 and len(readers[read[0]]) == 1:
            chain_of[item] = chain_of[read[0]]
            chain_of[item].append(item)
        else:
            chain_of[item] = [item]
            chains.append(chain_of[item])
    yield from (tuple(chain) for chain in chains if len(chain) > 1)
    yield from ((item,) for item in range(len(problem.items)))


Method = Literal["minimum cut", "all placements tried", "local search", "simulation of what was compiled"]


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

    @property
    def region_of(self) -> list[int]:
        """The region of each item, by its place in `regions`."""
        found = {item: number for number, region in enumerate(self.regions) for item in region.items}
        return [found[item] for item in range(len(found))]


def numbers_of(placement: Placement) -> list[int]:
    """The region of each item, numbered in the order of first items."""
    numbers: dict[int, int] = {}
    return [numbers.setdefault(region, len(numbers)) for region in placement.region_of]


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
