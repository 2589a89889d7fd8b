"""One sum of all gradients: what each rank knows of it, and what all have to agree on.

A rank that sees gradients become final can't know whether all others do, or whether its script will change them before
it asks for the sums. So ranks agree twice. At the start: whether all have announcements; if not, each begins when its
script asks. At the end, which buckets have been sent too early in any rank; these are sent again. Both are small
messages that travel beside the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from ngraph_mxnet.distributed.plan import Bucket
from ngraph_mxnet.distributed.reduction import Reduction
from ngraph_mxnet.distributed.wire import Sum, wait
from ngraph_mxnet.distributed.world import World

_NEVER = -2
"""Writes before the last one, of a gradient that has been written to more often than announced once."""


class Agreement:
    """The messages of all rounds of a set of gradients."""

    def __init__(self, world: World) -> None:
        self._start, self._end = world.comm.Dup(), world.comm.Dup()

    def least(self, data: np.ndarray) -> Sum:
        """In place, over all ranks; the message of the start."""
        from mpi4py import MPI

        yield from wait(self._start.Iallreduce(MPI.IN_PLACE, data, MPI.MIN))

    def most(self, data: np.ndarray) -> Sum:
        """In place, over all ranks; the message of the end."""
        from mpi4py import MPI

        yield from wait(self._end.Iallreduce(MPI.IN_PLACE, data, MPI.MAX))


class Round:
    """Attributes:
        announced: gradients that have become final, in that order, and when, as `time.monotonic`.
        spoilt: how many buckets were sent again.
        overlaps: whether sums are made before `finish`; None: not agreed yet.
        speaks: whether a message to other ranks is under way, so that `steps` has to be asked again without a reason.
        lags: whether buckets become final faster than this rank sums them between hosts.

    Args:
        buckets: to sum.
        reduction: sums them.
        agreement: of all ranks.
        is_announced: whether this rank opens the round with an announcement, not with `finish`.

    Where no thread is named, the caller holds a lock; `steps` is gone through by one thread.
    """

    def __init__(self, buckets: Sequence[Bucket], reduction: Reduction, agreement: Agreement,
                 is_announced: bool) -> None:
        self._buckets, self._reduction, self._agreement = buckets, reduction, agreement
        self._is_announced = is_announced
        self.announced: dict[int, float] = {}
        self.spoilt = 0
        self._writes: dict[int, int] = {}
        self.overlaps: bool | None = None
        self.speaks = True
        self.lags = False
        self._filled: set[int] = set()
        self._written: set[int] = set()
        self._finished = False
        self._done = [False] * len(buckets)
        self._early: set[int] = set()
        self._certain = False

    def announce(self, events: Iterable[tuple[int, float, int]]) -> None:
        """Gradients are final, or so it seems: number, time, and how many writes to it were counted."""
        for gradient, time, writes in events:
            self._writes[gradient] = _NEVER if gradient in self.announced else writes
            self.announced[gradient] = time

    def forget(self) -> None:
        """What was announced lies elsewhere now."""
        self._writes = dict.fromkeys(self.announced, _NEVER)

    def finish(self, writes: Sequence[int]) -> None:
        """All are final, after so many writes to each: one is the end of what has announced it, others came later."""
        self._written = {gradient for gradient, before in self._writes.items() if writes[gradient] != before + 1}
        self._finished = True

    def is_done(self, bucket: int) -> bool:
        """Whether its sums are final."""
        return self._certain and self._done[bucket] and bucket not in self._early

    def steps(self) -> Iterator[bool]:
        """Goes on with each `next`: whether another bucket may be done."""
        everyone = np.array([self._is_announced], np.uint8)
        yield from map(bool, self._agreement.least(everyone))
        self.overlaps = bool(everyone[0])
        if not self.overlaps:
            while not self._finished:
                self.speaks = False
                yield False
            self.speaks = True
            self._certain = True
        yield from self._sum(range(len(self._buckets)))
        if self._early:
            again = sorted(self._early)
            self.spoilt = len(again)
            for number in again:
                self._filled.difference_update(slot.gradient for slot in self._buckets[number].slots)
                self._done[number] = False
            self._early.clear()
            yield from self._sum(again)
        self.speaks = False
        yield True

    def _sum(self, numbers: Sequence[int]) -> Iterator[bool]:
        """These buckets; the first time the ranks agree meanwhile on which are to be summed again."""
        self._reduction.begin()
        waiting = dict(enumerate(numbers))
        running: dict[int, Iterator[None]] = {}
        end: Iterator[None] | None = iter(()) if self._certain else None
        while True:
            if end is None and self._finished:
                end = self._agree_on_end()
            agreed = end is not None and next(end, end) is end
            started = [place for place, number in waiting.items() if self._fill_bucket(self._buckets[number])]
            for place in started:
                running[place] = self._reduction.steps(self._buckets[waiting.pop(place)], place)
            over = [place for place, steps in running.items() if next(steps, steps) is steps]
            for place in over:
                del running[place]
                self._done[numbers[place]] = True
            self.speaks = bool(running) or (end is not None and not agreed)
            self.lags = self._reduction.crosses and len(running) > 1
            if agreed and not waiting and not running:
                return
            yield bool(over)

    def _fill_bucket(self, bucket: Bucket) -> bool:
        """What is final and was not copied; whether all is now."""
        whole = True
        for slot in bucket.slots:
            if slot.gradient in self._filled:
                continue
            if not (self._finished or slot.gradient in self.announced):
                whole = False
                continue
            self._reduction.fill(bucket, slot)
            self._filled.add(slot.gradient)
        return whole

    def _agree_on_end(self) -> Iterator[None]:
        """Which buckets hold what has been copied too early; from then on the others are certain."""
        early = np.array([any(slot.gradient in self._filled & self._written for slot in bucket.slots)
                          for bucket in self._buckets], np.uint8)
        yield from self._agreement.most(early)
        self._early = {number for number, each in enumerate(early) if each}
        self._certain = True
