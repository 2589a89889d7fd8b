"""What each rank of a job knows of the others: which are there, which have ended well, and which has failed."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ngraph_mxnet import config
from ngraph_mxnet.distributed import rendezvous
from ngraph_mxnet.distributed.rendezvous import Invitation
from ngraph_mxnet.errors import DistributedError

_START_WITHIN = 15.0
"""Seconds from the invitation until all ranks are connected."""
_SLICE = 0.2
"""Seconds between two looks at Python's signals, for Ctrl-C."""


class Failure(NamedTuple):
    """The first failure of a job. `text` is a sentence: which rank, on which host, what, and what to do."""

    rank: int
    host: str
    text: str


class PeerWatch:
    """A rank's watch on all others, by connections of its own and a native thread that needs no GIL.

    All ranks know of a failure at once where a process ends or says so, else when it was silent for `silence` seconds.
    Each prints it to stderr when it learns it, and is ended by force, with status 1, if `grace` seconds later its
    program has not met it in `check`.

    In a forked child there is never a failure, and what is told goes nowhere. All methods are thread-safe.
    """

    def __init__(self, rank: int, size: int, allgather: Callable[[str], Sequence[str]], *,
                 silence: float | None = None, grace: float = 2.0) -> None:
        """Connect with the other ranks: all have to come here at the same time.

        `allgather` exchanges texts among all ranks, by rank. `silence` is NGRAPH_KVSTORE_TIMEOUT unless it is given.

        Raises:
            DistributedError: rank 0 can't be reached, or a rank does not come.
        """
        from ngraph_mxnet import _core

        self.rank, self.size = rank, size
        self.hosts = list(allgather(socket.gethostname()))
        listening, invitation = rendezvous.listen(self.hosts) if rank == 0 else (None, None)
        invitation = Invitation.from_text(allgather(invitation.to_text() if invitation else "")[0])
        if invitation.problem:
            raise DistributedError(invitation.problem)
        try:
            connection = listening if listening is not None else rendezvous.connect(invitation)
        except ConnectionError as error:
            raise DistributedError(f"rank {rank} ({self.hosts[rank]}) can't join the job: {error}") from None
        silence = config.get("NGRAPH_KVSTORE_TIMEOUT") if silence is None else silence
        self._native: Any = _core.PeerWatch(rank, self.hosts, invitation.token, connection.detach(), silence, grace)
        self._await_start()

    def _await_start(self) -> None:
        end = time.monotonic() + _START_WITHIN
        while not self._native.wait_for_start(_SLICE):
            self.check()
            if self.rank == 0 and time.monotonic() > end:
                self.fail(f"ranks {', '.join(map(str, self._native.missing()))} have not connected within "
                          f"{_START_WITHIN:g} s: look at their output")
                self.check()

    @property
    def native(self) -> Any:
        """The `_core.PeerWatch`."""
        return self._native

    @property
    def is_inherited(self) -> bool:
        """Whether this process is a forked child of the rank."""
        return bool(self._native.is_inherited)

    @property
    def failure_descriptor(self) -> int:
        """A file descriptor that becomes readable at a failure, for `select` and the like; not to be read or closed."""
        return int(self._native.failure_descriptor)

    def failure(self) -> Failure | None:
        """The failure that this rank knows of; costs next to nothing while there is none."""
        return Failure(*self._native.failure()) if self._native.has_failed else None

    def check(self) -> None:
        """To be called from the program's own thread, which then has the failure: the process is not ended by force.

        Raises:
            DistributedError: there is a failure.
        """
        found = self.failure()
        if found is not None:
            self._native.take_failure()
            raise DistributedError(found.text)

    def wait(self, seconds: float) -> bool:
        """Wait, without the GIL, for a failure, and say whether there is one."""
        return bool(self._native.wait(seconds))

    def fail(self, text: str) -> None:
        """All ranks fail: this one has `text`, why and what to do, to say of itself. Nothing if there is a failure."""
        self._native.fail(text.encode("utf-8", "replace").decode())

    def step(self, number: int, waits: bool) -> None:
        """This rank is in step `number`, counted from 1, and now waits for the others in it, or does not.

        If it waits, and another rank has left after fewer steps, that is a failure.
        """
        self._native.step(number, waits)

    def leave(self, steps: int | None = None) -> None:
        """This rank has ended well, after `steps`, or the last one in which it waited."""
        self._native.leave(steps)

    def wait_for_all(self, seconds: float | None = None) -> bool:
        """Wait, without the GIL, until all ranks have left or there is a failure, and say whether all have left."""
        end = float("inf") if seconds is None else time.monotonic() + seconds
        while not self._native.wait_for_all(_SLICE):
            if self._native.has_failed or time.monotonic() > end:
                return False
        return True

    def limit_end(self) -> None:
        """After a failure, at the program's end: from now on the process has `grace` seconds to end by itself."""
        self._native.limit_end()
