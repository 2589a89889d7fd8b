"""The placement problem as plain data: items to be computed, tensors between them, and what each costs on some devices.

Device 0 is the host: what the graph is given lies there, and its results must end there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

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
    brought somewhere, all readers there have it. `shared`: all devices address the memory that it lies in, so that
    neither is spent. `result`: the host must have it in the end.
    """

    name: str
    producer: int | None
    readers: tuple[int, ...]
    bytes: int
    crossing: Seconds
    result: bool = False
    leaving: Seconds = ()
    shared: bool = False

    def copy_seconds(self, here: int, to: int) -> float:
        """From device `here` to device `to`, if it must be copied."""
        return (self.leaving[here] if self.leaving else 0.0) + self.crossing[to]

    def seconds(self, here: int, to: int) -> float:
        """From device `here` to device `to`."""
        return 0.0 if self.shared else self.copy_seconds(here, to)


@dataclass(frozen=True)
class Crossing:
    """Tensor number `tensor` is brought from device `here` to device `to`."""

    tensor: int
    here: int
    to: int


@dataclass(frozen=True)
class Problem:
    """Items in topological order, and the tensors between them. `launch`: seconds to start a region on each device.

    Raises:
        ValueError: an item reads a later one, or a time is negative.
    """

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
            here = HOST if tensor.producer is None else placement[tensor.producer]
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
