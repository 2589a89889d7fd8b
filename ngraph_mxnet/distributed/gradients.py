"""Sums of gradients over all ranks, in buckets, while the backward pass that makes them goes on.

Neighbours in the order in which they come share a bucket, so that few, large messages go out early. A bucket is summed
through memory that the ranks of a host share, and by MPI between hosts. Of arrays that are 0 but for some rows, as
embeddings' gradients are, only these rows travel.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ngraph_mxnet.base import config
from ngraph_mxnet.base.errors import DistributedError
from ngraph_mxnet.distributed.world import CHUNK, PAUSE, WIRES, Sum, World, wait

ALIGNMENT = 64
"""Bytes: each gradient's sum begins at a multiple, as kernels' vectors want it."""
MOST_BUCKETS = 24
USUAL_BUCKETS, LEAST_USUAL, MOST_USUAL = 16, 4 << 20, 25 << 20
"""How many buckets there are, and how small and large they are, where nothing else is asked for."""


@dataclass(frozen=True)
class Slot:
    """The place of a gradient's sum in the buffer of all sums: from byte `begin`, in `dtype`."""

    gradient: int
    begin: int
    elements: int
    dtype: np.dtype

    @property
    def bytes(self) -> int:
        return self.elements * self.dtype.itemsize


@dataclass(frozen=True)
class Bucket:
    """Slots of one dtype that lie together: bytes `begin` to `end` of the buffer."""

    slots: tuple[Slot, ...]
    begin: int
    end: int

    @property
    def dtype(self) -> np.dtype:
        return self.slots[0].dtype

    @property
    def elements(self) -> int:
        """With those between the slots."""
        return (self.end - self.begin) // self.dtype.itemsize


def summed_dtype(dtype: np.dtype) -> np.dtype:
    """The dtype that gradients of this one are summed in. Raises TypeError: they are no floating-point numbers."""
    if dtype == np.float64:
        return np.dtype(np.float64)
    if dtype in (np.float32, np.float16):
        return np.dtype(np.float32)
    raise TypeError(f"gradients of {dtype} can't be summed over processes: expected float16, float32 or float64")


def bucket_bytes() -> int | None:
    """Return the bytes of a bucket for `make_plan`, from NGRAPH_KVSTORE_BUCKET; None where it has no value."""
    megabytes = config.get("NGRAPH_KVSTORE_BUCKET")
    return None if megabytes is None else megabytes << 20


def make_plan(sizes: Sequence[int], dtypes: Sequence[np.dtype], order: Sequence[int],
              full_bytes: int | None) -> list[Bucket]:
    """Buckets in the order in which they are sent.

    Args:
        sizes: elements of each gradient.
        dtypes: of each gradient.
        order: numbers of the gradients, the one that comes first at first.
        full_bytes: a bucket of so many bytes is full. Of more than `MOST_BUCKETS` there are fewer, larger ones.
            None: a sixteenth of all, but 4 to 25 MiB: messages are large, yet the last, which nothing hides, is a
            small part.

    Raises:
        TypeError: see `summed_dtype`.
    """
    total = sum(size * summed_dtype(dtype).itemsize for size, dtype in zip(sizes, dtypes, strict=True))
    if full_bytes is None:
        full_bytes = min(max(total // USUAL_BUCKETS, LEAST_USUAL), MOST_USUAL)
    full = max(full_bytes, -(-total // MOST_BUCKETS))
    buckets: list[Bucket] = []
    slots: list[Slot] = []
    begin = 0
    for gradient in order:
        dtype = summed_dtype(dtypes[gradient])
        if slots and (slots[0].dtype != dtype or begin - slots[0].begin >= full):
            buckets.append(_bucket(slots))
            slots = []
        slots.append(Slot(gradient, begin, sizes[gradient], dtype))
        begin += _aligned(slots[-1].bytes)
    return [*buckets, _bucket(slots)] if slots else buckets


def buffer_bytes(sizes: Sequence[int], dtypes: Sequence[np.dtype]) -> int:
    """Return the bytes of the buffer of all sums, whatever the order of the gradients."""
    return sum(_aligned(size * summed_dtype(dtype).itemsize) for size, dtype in zip(sizes, dtypes, strict=True))


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def _bucket(slots: Sequence[Slot]) -> Bucket:
    return Bucket(tuple(slots), slots[0].begin, slots[-1].begin + slots[-1].bytes)


_GRAIN = 16
"""Elements: parts of a bucket begin at multiples, so that no two ranks write to one line of the cache."""


class Buffers:
    """For each rank of the host memory of `size` bytes, which all of them reach. `own` is this rank's; the sums are in
    the first's, `total`. Raises DistributedError: there is no such memory."""

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
        for gradient, when, writes in events:
            self._writes[gradient] = _NEVER if gradient in self.announced else writes
            self.announced[gradient] = when

    def forget(self) -> None:
        """Forget the counted writes: the announced gradients lie elsewhere now."""
        self._writes = dict.fromkeys(self.announced, _NEVER)

    def finish(self, writes: Sequence[int]) -> None:
        """All are final, after so many writes to each: one is the end of what has announced it, others came later."""
        self._written = {gradient for gradient, before in self._writes.items() if writes[gradient] != before + 1}
        self._finished = True

    def is_done(self, bucket: int) -> bool:
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


_IDLE, _LAZY, _BUSY = 0.5, 2e-3, 5e-4
"""Seconds between looks at what is under way: when nothing is, while the backward pass needs the cores, and while its
gradients come faster than they are summed: MPI passes on only so many bytes at a look."""


@dataclass(frozen=True)
class Source:
    """A gradient.

    Attributes:
        memory: its elements where they lie, flat.
        writes: the address of a 64-bit number that rises by one with every write, also when the run that announces the
            gradient ends; 0: nobody counts, so the sum is begun when it is asked for.
    """

    memory: np.ndarray
    writes: int = 0

    @property
    def address(self) -> int:
        return int(self.memory.__array_interface__["data"][0])

    def written(self) -> int:
        return ctypes.c_uint64.from_address(self.writes).value if self.writes else 0


class GradientSet:
    """The gradients that one optimizer updates, of all ranks alike.

    A round is: gradients become final, `finish`, `wait` for each bucket, `close`. The first of them that is announced
    (`csrc/core/result_watch.h`) opens it, so that most of the sum is made when `finish` is called; without
    announcements `finish` opens it. Rounds in which a rank has no announcement, or has written to a gradient that was
    announced, give the same sums later.

    Attributes:
        buckets: in the order in which they are sent.
        rounds: how many have been closed.
        waited: seconds that `wait` took in all rounds.
        overlapped: whether the sums of the last round were begun before `finish`, in all ranks.
        spoilt: how many of its buckets were sent again, for a rank had written to a gradient that was announced.
        order: numbers of the gradients as they were last announced, all of them; None before.

    Args:
        world: the job.
        sources: the gradients, whose memory stays.
        full_bytes: of a bucket, see `make_plan`.
        wire: what travels between hosts, of `WIRES`.
        before_writing: waits until nobody reads the sums of the last round any more.
        watches: whether announcements open rounds.

    Raises:
        TypeError: gradients that can't be summed.
        DistributedError: see `Buffers`.
    """

    def __init__(self, world: World, sources: Sequence[Source], *, full_bytes: int | None, wire: str = "f32",
                 before_writing: Callable[[], None] = lambda: None, watches: bool = True) -> None:
        self._world, self._full_bytes = world, full_bytes
        self._before_writing, self.watches = before_writing, watches
        self._sizes, self._dtypes = zip(*((each.memory.size, each.memory.dtype) for each in sources), strict=True)
        for dtype in self._dtypes:
            summed_dtype(dtype)
        self._reduction = Reduction(world, buffer_bytes(self._sizes, self._dtypes), wire,
                                    lambda gradient: self._sources[gradient].memory)
        self._agreement = Agreement(world)
        self.rounds, self.waited, self.overlapped, self.spoilt = 0, 0.0, False, 0
        self.order: list[int] | None = None
        self._changed = threading.Condition()
        self._round: Round | None = None
        self._error: BaseException | None = None
        self._stopping = self._waiting = False
        self.replan(list(reversed(range(len(sources)))))
        self.move(sources)
        self._thread = threading.Thread(target=self._run, name="ngraph-gradients", daemon=True)
        self._thread.start()

    def move(self, sources: Sequence[Source]) -> None:
        """From now on the gradients, of the same sizes and dtypes, are here; before `finish`."""
        from ngraph_mxnet import _core

        with self._changed:
            self._sources = list(sources)
            if self._round is not None:
                self._round.forget()
        self._watch = _core.ResultWatch([(each.address, each.writes) for each in sources])

    def replan(self, order: Sequence[int]) -> None:
        """Buckets for gradients that come in this order; by all ranks with the same, between two rounds."""
        self.buckets = make_plan(self._sizes, self._dtypes, order, self._full_bytes)
        self._slots = {slot.gradient: slot for bucket in self.buckets for slot in bucket.slots}

    def total(self, gradient: int) -> np.ndarray:
        """Return the flat array in which the sum of a gradient is made. It is valid until `replan`."""
        return part(self._reduction.buffers.total, self._slots[gradient])

    def finish(self) -> None:
        """All gradients are final, and nothing is under way on them. Raises DistributedError: the sums will never be
        there; the text says why."""
        with self._changed:
            self._check()
            if self._round is None:
                self._round = self._new_round(announced=False)
            self._round.finish([each.written() for each in self._sources])
        self._watch.wake()

    def wait(self, bucket: int) -> None:
        """Until the sums of a bucket are there. Raises DistributedError: they never will be; the text says why."""
        begin = time.monotonic()
        with self._changed:
            found = self._round
            assert found is not None, "finish comes first"
            self._waiting = True
            self._watch.wake()
            while not found.is_done(bucket):
                self._check()
                self._world.check()
                self._changed.wait(0.2)
            self._waiting = False
        self.waited += time.monotonic() - begin

    def close(self) -> None:
        """All buckets were waited for, and what reads the sums is on its way."""
        with self._changed:
            assert self._round is not None
            self.overlapped = self._round.overlaps is True
            self.spoilt = self._round.spoilt
            if len(self._round.announced) == len(self._sources):
                self.order = list(self._round.announced)
            self._round = None
            self.rounds += 1

    def stop(self) -> None:
        """Ends the thread; no method may be called afterwards."""
        self._stopping = True
        self._watch.wake()
        self._thread.join(5)

    def fail(self, error: BaseException) -> None:
        """Whoever waits, or will, gets a DistributedError of this text."""
        with self._changed:
            self._error = error
            self._changed.notify_all()

    def _check(self) -> None:
        if self._error is not None:
            raise DistributedError(str(self._error)) from self._error

    def _new_round(self, announced: bool) -> Round:
        return Round(self.buckets, self._reduction, self._agreement, announced)

    def _run(self) -> None:
        steps: Iterator[bool] | None = None
        current: Round | None = None
        try:
            while not self._stopping:
                events = self._watch.take(self._pause())
                with self._changed:
                    if self._round is None and events and self.watches:
                        self._round = self._new_round(announced=True)
                    if self._round is not current:
                        current = self._round
                        steps = None
                    if current is not None:
                        current.announce(events)
                if current is None:
                    continue
                if steps is None:
                    self._before_writing()
                    steps = current.steps()
                if next(steps, False):
                    with self._changed:
                        self._changed.notify_all()
        except BaseException as error:
            self.fail(error)

    def _pause(self) -> float:
        current = self._round
        if current is None or not current.speaks:
            return _IDLE  # an announcement, or who waits, wakes
        if self._waiting:
            return PAUSE
        return _BUSY if current.lags else _LAZY


class Rows(NamedTuple):
    """Attributes:
        ids: which rows of the array these are, int64, rising.
        values: float16, float32 or float64, (rows, elements of a row), without gaps.
    """

    ids: np.ndarray
    values: np.ndarray


def sum_rows(world: World, mine: Sequence[Rows]) -> list[Rows]:
    """Return, for each array, the sums of all rows that any rank has. All ranks get the same bits: values are added in
    the order of the ranks, in `summed_dtype`. Call `World.begin` before. All ranks give the same arrays, with rows of
    the same size and dtype. Raises DistributedError: see `World.check`."""
    own = np.array([len(each.ids) for each in mine], np.int64)
    counts = np.empty((world.size, len(mine)), np.int64)
    world.wait(world.comm.Iallgather(own, counts))
    gathered = [(_gather_rows(world, each.ids, counts[:, number]), _gather_rows(world, each.values, counts[:, number]))
                for number, each in enumerate(mine)]
    sums = []
    for number, ((ids, ids_come), (values, values_come)) in enumerate(gathered):
        world.wait(ids_come)
        world.wait(values_come)
        ends = np.cumsum(counts[:, number])[:-1]
        sums.append(_sum_of_rows(list(map(Rows, np.split(ids, ends), np.split(values, ends)))))
    return sums


def broadcast_rows(world: World, mine: Rows) -> Rows:
    """Rank 0's; `World.begin` comes before, the others' have rows of the same size and dtype. Raises DistributedError:
    see `World.check`."""
    count = np.array([len(mine.ids)], np.int64)
    world.broadcast(count)
    sent = mine if world.rank == 0 else Rows(*(np.empty((count[0], *part.shape[1:]), part.dtype) for part in mine))
    for part in sent:
        world.broadcast(part)
    return sent


def _gather_rows(world: World, part: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, Any]:
    """Start to gather the rows of all ranks, one rank behind the other. Return the array for the rows, and the request:
    the array is filled when the request is done."""
    received = np.empty((counts.sum(), *part.shape[1:]), part.dtype)
    element = np.uint16 if part.dtype == np.float16 else part.dtype  # MPI has no float16
    elements = counts * int(np.prod(part.shape[1:]))
    return received, world.comm.Iallgatherv(part.view(element), [received.view(element), elements.tolist()])


def _sum_of_rows(parts: Sequence[Rows]) -> Rows:
    """Add the rows of the ranks, in the order of the ranks."""
    ids = np.unique(np.concatenate([part.ids for part in parts]))
    total = np.zeros((len(ids), *parts[0].values.shape[1:]), summed_dtype(parts[0].values.dtype))
    with np.errstate(all="ignore"):  # of a net that diverges
        for part in parts:
            total[np.searchsorted(ids, part.ids)] += part.values
    return Rows(ids, total)
