"""Localised costs: what is placed is compiled and simulated, and the search goes on with the times of its regions.

A node by itself costs other than as a part of a region: values stay in engines' memories, and transfers take turns. So
the items of a region that was compiled get its time, each in proportion to what it costs by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import fsum, inf, isfinite
from typing import Any

from ngraph_mxnet.targets.hybrid.search import (
    Method,
    Placement,
    Problem,
    Seconds,
    numbers_of,
    place,
    predict,
    scheduled,
)

MOST_ROUNDS = 5
"""Placements that are compiled one after the other, each with what those before it told."""

SIMULATED: Method = "simulation of what was compiled"

Key = frozenset[tuple[int, tuple[int, ...]]]
"""The regions of a placement: device and items of each."""

Times = Mapping[int, float]
"""Seconds of regions, by number, as they were compiled: with their transfers, without their launch. Those of others are
not known."""


@dataclass(frozen=True)
class Judged:
    """A placement with `seconds` of a call as it was compiled, and of its regions."""

    placement: Placement
    times: Times
    seconds: float


Judge = Callable[[Placement], Judged]
"""Compiles a placement, and simulates it."""


def key_of(placement: Placement) -> Key:
    return frozenset((region.device, region.items) for region in placement.regions)


def _put(seconds: Sequence[float], device: int, value: float) -> tuple[float, ...]:
    return (*seconds[:device], value, *seconds[device + 1:])


def localised(alone: Problem, latest: Problem, placement: Placement, times: Times) -> Problem:
    """`latest` with the costs of what is in regions with a time: those of `alone`, of nodes and transfers by
    themselves, times the ratio of the region's time to their sum."""
    moved = _moved(alone, placement)
    items = list(latest.items)
    ratios: dict[tuple[int, str, int], list[float]] = {}
    for number, seconds in times.items():
        region = placement.regions[number]
        own = [alone.items[item].seconds[region.device] for item in region.items]
        predicted = fsum([*own, *(_side(alone, *side) for side in moved[number])])
        for item, cost in zip(region.items, own, strict=True):
            share = cost * seconds / predicted if predicted else seconds / len(own)
            items[item] = replace(items[item], seconds=_put(items[item].seconds, region.device, share))
        for side in moved[number]:
            ratios.setdefault(side, []).append(seconds / predicted if predicted else 0.0)
    tensors = list(latest.tensors)
    for (tensor, way, device), found in ratios.items():
        value = _side(alone, tensor, way, device) * fsum(found) / len(found)
        changed: dict[str, Any] = {way: _put(getattr(tensors[tensor], way), device, value)}
        tensors[tensor] = replace(tensors[tensor], **changed)
    return replace(latest, items=tuple(items), tensors=tuple(tensors))


def _side(problem: Problem, tensor: int, way: str, device: int) -> float:
    seconds: tuple[float, ...] = getattr(problem.tensors[tensor], way)
    return seconds[device]


def _moved(problem: Problem, placement: Placement) -> dict[int, set[tuple[int, str, int]]]:
    """By region the tensors that it takes in and gives out, as (tensor, `crossing` or `leaving`, device)."""
    region_of = placement.region_of
    found: dict[int, set[tuple[int, str, int]]] = {number: set() for number in range(len(placement.regions))}
    for crossing in problem.crossings(placement.devices):
        tensor = problem.tensors[crossing.tensor]
        if not problem.crossing_seconds(crossing):  # the devices share a memory
            continue
        if tensor.producer is not None and tensor.leaving:
            found[region_of[tensor.producer]].add((crossing.tensor, "leaving", crossing.here))
        for reader in tensor.readers:
            if placement.devices[reader] == crossing.to:
                found[region_of[reader]].add((crossing.tensor, "crossing", crossing.to))
    return found


@dataclass(frozen=True)
class Best:
    """The best of what was judged, with the costs that its own times tell. `seconds`: of a call as compiled; None where
    no device tells the time of what is compiled."""

    placement: Placement
    problem: Problem
    times: Times
    seconds: float | None


def best_of_rounds(problem: Problem, judge: Judge | None, *, overlap: bool) -> Best:
    """Place, compile and simulate, and place again with the times of the regions, until nothing changes or MOST_ROUNDS.
    The placement with the shortest call as compiled is best, everything on one device among them. `judge`: None where
    no device tells the time of what is compiled."""
    latest, first = problem, place(problem, overlap=overlap)
    if not problem.items or judge is None:
        return Best(first, problem, {}, None)
    judged: dict[Key, Judged] = {}
    everywhere = {device: _everywhere(problem, device, first, overlap=overlap)
                  for device, seconds in enumerate(first.alone) if isfinite(seconds)}
    for number in range(MOST_ROUNDS):
        placement = first if not number else place(latest, overlap=overlap)
        if key_of(placement) in judged:
            break
        waiting = [placement]
        if not number:
            waiting += everywhere.values()
        for each in waiting:
            least = min((one.seconds for one in judged.values()), default=inf)
            if key_of(each) not in judged and _bound(problem, each) < least:
                judged[key_of(each)] = found = judge(each)
                latest = localised(problem, latest, each, found.times)
    best = min(judged.values(), key=lambda one: one.seconds)
    alone = list(first.alone)
    for device, everything in everywhere.items():
        one = judged.get(key_of(everything))
        alone[device] = one.seconds if one is not None else max(alone[device], _bound(problem, everything))
    return _finished(localised(problem, latest, best.placement, best.times), best, first, tuple(alone),
                     overlap=overlap)


def _everywhere(problem: Problem, device: int, like: Placement, *, overlap: bool) -> Placement:
    """Everything on one device."""
    found = predict(problem, [device] * len(problem.items), overlap=overlap)
    return replace(like, devices=found.placement, schedule=found.schedule)


def _bound(problem: Problem, placement: Placement) -> float:
    """A bound below a call as compiled: a launch, and the transfers in one direction; 0 on several devices."""
    if len(set(placement.devices)) > 1:
        return 0.0
    ways = [0.0] * len(problem.launch)
    for crossing in problem.crossings(placement.devices):
        ways[crossing.to] += problem.crossing_seconds(crossing)
    return problem.launch[placement.devices[0]] + max(ways)


def _finished(known: Problem, found: Judged, first: Placement, alone: Seconds, *,
              overlap: bool) -> Best:
    """With the schedule that the costs `known` give; the regions stay in the order in which they were compiled."""
    devices, regions = found.placement.devices, found.placement.regions
    schedule = scheduled(known, devices, numbers_of(found.placement), overlap=overlap)
    compiled = {region.items: number for number, region in enumerate(regions)}
    order = [compiled[region.items] for region in schedule.regions]
    spans = tuple(replace(span, what=order[span.what]) if isinstance(span.what, int) else span
                  for span in schedule.spans)
    schedule = replace(schedule, regions=tuple(schedule.regions[order.index(number)] for number in range(len(order))),
                       spans=spans)
    method = SIMULATED if overlap and key_of(found.placement) != key_of(first) else first.method
    return Best(Placement(devices, schedule, method, alone, first.serial), known, found.times, found.seconds)
