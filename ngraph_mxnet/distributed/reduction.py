"""The sum of a bucket over all ranks: through memory that the ranks of a host share, and MPI between hosts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from ngraph_mxnet.distributed.plan import Bucket, Slot
from ngraph_mxnet.distributed.wire import CHUNK, WIRES, Sum, wait
from ngraph_mxnet.distributed.world import World
from ngraph_mxnet.errors import DistributedError

_GRAIN = 16
"""Elements: parts of a bucket begin at multiples, so that no two ranks write to one line of the cache."""


class Buffers:
    """For each rank of the host memory of `size` bytes, which all of them reach. `own` is this rank's; the sums are
    in the first's, `total`.

    Raises:
        DistributedError: there is no such memory.
    """

    def __init__(self, world: World, size: int) -> None:
        from mpi4py import MPI

        try:
            self._window = MPI.Win.Allocate_shared(size, 1, comm=world.local)
        except MPI.Exception as error:
            raise DistributedError(
                f"{world.name}: found no {size / 1e6:.0f} MB of memory that the ranks of this host share ({error}); "
                "give /dev/shm more, or set NGRAPH_KVSTORE_SHARED_MEMORY=0") from error
        self.all = [np.asarray(self._window.Shared_query(rank)[0], np.uint8)[:size]
                    for rank in range(world.local.Get_size())]
        self.own, self.total = self.all[world.local.Get_rank()], self.all[0]
        self.own[:] = 0  # the system gives the pages now
        world.local.Barrier()

    def free(self) -> None:
        """By all ranks of the host; nobody may use the memory any more."""
        self.all = []
        self.own = self.total = np.empty(0, np.uint8)
        self._window.Free()


class _Channel:
    """Collective calls of one kind, which all ranks have to make in the same order: that of the buckets of a pass."""

    def __init__(self, comm: Any) -> None:
        self._comm = comm.Dup()
        self._next = 0

    def begin(self) -> None:
        self._next = 0

    def call(self, place: int, post: Callable[[Any], Sum]) -> Sum:
        """`post`, which makes its call at its first step, when it is the turn of the bucket at this place."""
        while self._next != place:
            yield
        steps = post(self._comm)
        ended = next(steps, self) is self
        self._next += 1
        if not ended:
            yield
            yield from steps


class Reduction:
    """Sums buckets. All ranks of the job sum the same buckets in the same order.

    Each rank of a host sums a share of a bucket. Of its own gradients it copies what others sum; its share it reads
    where the gradients lie.

    Attributes:
        crosses: whether this rank's sums go to other hosts.

    Args:
        world: the job.
        size: bytes of the buffer that buckets lie in.
        wire: what travels between hosts, of `WIRES`.
        gradient: where this rank's gradient of a number lies, flat.
    """

    def __init__(self, world: World, size: int, wire: str, gradient: Callable[[int], np.ndarray]) -> None:
        self.buffers = Buffers(world, size)
        self._gradient = gradient
        self._local_rank, self._local_size = world.local.Get_rank(), world.local.Get_size()
        self._filled, self._summed, self._done = (_Channel(world.local) for _ in range(3))
        self._across = _Channel(world.leaders) if world.leaders is not None and world.hosts > 1 else None
        self._hosts = world.hosts
        self.crosses = self._across is not None
        self._sum_across = WIRES[wire]

    def begin(self) -> None:
        """Before the buckets of a pass."""
        for channel in (self._filled, self._summed, self._done, self._across):
            if channel is not None:
                channel.begin()

    def fill(self, bucket: Bucket, slot: Slot) -> None:
        """Puts this rank's gradient of the slot into `own`, but for what this rank sums."""
        own, gradient = part(self.buffers.own, slot), self._gradient(slot.gradient)
        share = self._share(bucket, slot)
        for piece in (slice(share.start), slice(share.stop, None)):
            np.copyto(own[piece], gradient[piece], casting="same_kind")

    def steps(self, bucket: Bucket, place: int) -> Iterator[None]:
        """Sums the filled bucket of all ranks into `total`; it is the pass's so-many-th.

        Ends when nobody writes to `total`, or reads this rank's gradients, any more.
        """
        if self._local_size > 1:
            yield from self._filled.call(place, _barrier)
            self._sum_share(bucket)
            if self._hosts > 1:
                yield from self._summed.call(place, _barrier)
        if self._across is not None:
            data = self.buffers.total[bucket.begin:bucket.end].view(bucket.dtype)
            yield from self._across.call(place, lambda comm: self._sum_across(comm, data, place))
        if self._local_size > 1:
            yield from self._done.call(place, _barrier)

    def _share(self, bucket: Bucket, slot: Slot) -> slice:
        """Return the slot's elements that this rank sums; an empty slice where the rank is alone on its host."""
        if self._local_size == 1:
            return slice(0, 0)
        grains = -(-bucket.elements // _GRAIN)
        before = (slot.begin - bucket.begin) // slot.dtype.itemsize
        first, last = (min(max(grains * rank // self._local_size * _GRAIN - before, 0), slot.elements)
                       for rank in (self._local_rank, self._local_rank + 1))
        return slice(first, last)

    def _sum_share(self, bucket: Bucket) -> None:
        """This rank's part of the bucket, of all ranks of the host in their order."""
        with np.errstate(all="ignore"):  # of a net that diverges
            for slot in bucket.slots:
                share = self._share(bucket, slot)
                parts = [part(each, slot) for each in self.buffers.all]
                total = parts[0]
                parts[self._local_rank] = self._gradient(slot.gradient)
                for begin in range(share.start, share.stop, CHUNK):
                    chunk = slice(begin, min(begin + CHUNK, share.stop))
                    np.add(parts[0][chunk], parts[1][chunk], out=total[chunk])
                    for other in parts[2:]:
                        np.add(total[chunk], other[chunk], out=total[chunk])


def part(buffer: np.ndarray, slot: Slot) -> np.ndarray:
    """The slot's elements, flat."""
    found: np.ndarray = buffer[slot.begin:slot.begin + slot.bytes].view(slot.dtype)
    return found


def _barrier(comm: Any) -> Sum:
    yield from wait(comm.Ibarrier())


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
        """Forget the counted writes: the announced gradients lie elsewhere now."""
        self._writes = dict.fromkeys(self.announced, _NEVER)

    def finish(self, writes: Sequence[int]) -> None:
        """All are final, after so many writes to each: one is the end of what has announced it, others came later."""
        self._written = {gradient for gradient, before in self._writes.items() if writes[gradient] != before + 1}
        self._finished = True

    def is_done(self, bucket: int) -> bool:
        """True if the bucket's sums are final."""
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
        """Copy the bucket's final gradients that were not copied yet. Return True if all are copied now."""
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
