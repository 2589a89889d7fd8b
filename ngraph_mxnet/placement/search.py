"""Placements for all devices at work at once: by enumeration of small problems, by a local search of larger ones."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ngraph_mxnet.placement.cut import serial_placement
from ngraph_mxnet.placement.problem import HOST, Problem
from ngraph_mxnet.placement.schedule import Schedule, schedule

MOST_ENUMERATED = 1 << 12
"""Placements that are all tried, as of 12 items that either of two devices can run."""

_TRIALS = 600
"""Schedules that a local search computes at most."""

_ROUNDING = 1 - 1e-12
"""Sums in another order may come out larger by so much."""

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
        here, made = HOST, 0.0
        if tensor.producer is not None:
            here = placement[tensor.producer]
            made = there[tensor.producer] + problem.items[tensor.producer].seconds[here]
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
