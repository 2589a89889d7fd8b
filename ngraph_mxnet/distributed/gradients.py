"""Sums of gradients over all ranks, in buckets, while the backward pass that makes them goes on."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ngraph_mxnet.distributed.plan import buffer_bytes, make_plan, summed_dtype
from ngraph_mxnet.distributed.reduction import Agreement, Reduction, Round, part
from ngraph_mxnet.distributed.wire import PAUSE
from ngraph_mxnet.distributed.world import World
from ngraph_mxnet.errors import DistributedError

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
        """All gradients are final, and nothing is under way on them.

        Raises:
            DistributedError: the sums will never be there; the text says why.
        """
        with self._changed:
            self._check()
            if self._round is None:
                self._round = self._new_round(announced=False)
            self._round.finish([each.written() for each in self._sources])
        self._watch.wake()

    def wait(self, bucket: int) -> None:
        """Until the sums of a bucket are there.

        Raises:
            DistributedError: they never will be; the text says why.
        """
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
