"""The processes of an MPI job, its ranks: which they are, that they do the same, and that all are there."""

from __future__ import annotations

import atexit
import functools
import hashlib
import os
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ngraph_mxnet import config
from ngraph_mxnet.distributed.peer_watch import PeerWatch
from ngraph_mxnet.distributed.process_end import ProcessEnd
from ngraph_mxnet.distributed.rank_facts import RankFacts, describe_mismatch
from ngraph_mxnet.distributed.wire import PAUSE, exact, wait
from ngraph_mxnet.errors import DistributedError


class World:
    """All ranks of a job. Its methods are called by all of them, in the same order, from the main thread.

    Attributes:
        comm: of all ranks.
        rank: this process's number, from 0.
        size: how many processes there are.
        local: of the ranks of this host, which share memory.
        leaders: of the first rank of each host; None in the others.
        hosts: how many hosts there are.
    """

    def __init__(self, comm: Any) -> None:
        from mpi4py import MPI

        self.comm = comm.Dup()
        self.rank, self.size = self.comm.Get_rank(), self.comm.Get_size()
        shares = config.get("NGRAPH_KVSTORE_SHARED_MEMORY")
        self.local = (self.comm.Split_type(MPI.COMM_TYPE_SHARED, key=self.rank) if shares
                      else self.comm.Split(color=self.rank))
        is_leader = self.local.Get_rank() == 0
        leaders = self.comm.Split(color=0 if is_leader else MPI.UNDEFINED, key=self.rank)
        self.leaders = leaders if is_leader else None
        self.hosts = self.comm.allreduce(int(is_leader))
        self._watch = PeerWatch(self.rank, self.size, self.comm.allgather) if self.size > 1 else None
        self._operations = 0

    @property
    def name(self) -> str:
        """For messages."""
        return f"rank {self.rank} of {self.size} ({socket.gethostname()})"

    def check(self) -> None:
        """Raises DistributedError: a rank has failed, or has left while this one waits for it."""
        if self._watch is not None:
            self._watch.check()

    def begin(self, *key: bytes, facts: Callable[[], RankFacts]) -> None:
        """The next operation; returns when all ranks have come to it.

        Args:
            key: stands for all of the facts but for `rank`: not the same on all ranks if these are not.
            facts: to tell where the ranks differ.

        Raises:
            DistributedError: they differ, and the text says where; or see `check`.
        """
        from mpi4py import MPI

        if self._watch is None:
            return
        self._operations += 1
        self._watch.step(self._operations, True)
        digest = int.from_bytes(hashlib.blake2b(b"\0".join(key), digest_size=7).digest(), "little")
        least = np.array([digest, -digest], np.int64)
        self.wait(self.comm.Iallreduce(MPI.IN_PLACE, least, MPI.MIN))
        if least[0] != -least[1]:
            mine, *others = map(RankFacts.from_json, self._mine_first(facts().to_json()))
            problem = describe_mismatch(mine, others)
            raise DistributedError(problem or "the ranks differ in a way that they can't tell")
        self._watch.step(self._operations, False)

    def _mine_first(self, text: str) -> list[str]:
        everyone = self.comm.allgather(text)
        return [everyone.pop(self.rank), *everyone]

    def sum(self, data: np.ndarray) -> None:
        """In place, over all ranks, of float32 or float64 numbers; `begin` comes before.

        Raises:
            DistributedError: see `check`.
        """
        self._go_through(exact(self.comm, data))

    def broadcast(self, data: np.ndarray) -> None:
        """In place, rank 0's to all ranks, whatever the dtype; `begin` comes before.

        Raises:
            DistributedError: see `check`.
        """
        self.wait(self.comm.Ibcast(data.reshape(-1).view(np.uint8), root=0))

    def wait(self, request: Any) -> None:
        """Until a request of MPI's is done.

        Raises:
            DistributedError: see `check`.
        """
        self._go_through(wait(request))

    def _go_through(self, steps: Iterator[None]) -> None:
        for _ in steps:
            self.check()
            time.sleep(PAUSE)

    def guard_end(self) -> None:
        """From now on the other ranks know of the end of this process."""
        from mpi4py import MPI

        if self._watch is not None:
            ProcessEnd(self._watch, MPI.Finalize, lambda: MPI.COMM_WORLD.Abort(1)).install()


def prepare_mpi() -> None:
    """Settings of Open MPI's that are set before MPI is imported, where nobody else has set them."""
    # Its one-sided transport is not used, and in some builds prints an error when it is looked at.
    os.environ.setdefault("OMPI_MCA_osc", "^ucx")
    # Over TCP large messages go in fragments: past one that is put as a whole no answer gets to the other, who waits.
    os.environ.setdefault("OMPI_MCA_btl_tcp_flags", "send,inplace")


@functools.cache
def world() -> World:
    """Of the job that this process belongs to; started without `mpirun`, one of this process alone.

    Raises:
        DistributedError: mpi4py, or an MPI library, is not there; the text says what to do.
    """
    prepare_mpi()
    try:
        import mpi4py

        mpi4py.rc.finalize = False  # it would wait for ranks that are gone
        from mpi4py import MPI
    except ImportError as error:
        raise DistributedError(f"training on several processes needs mpi4py: {error}; install ngraph-mxnet-backend[mpi]"
                               ) from error
    except RuntimeError as error:
        raise DistributedError(f"mpi4py finds no MPI library: {error}; install ngraph-mxnet-backend[mpi], or the "
                               "system's OpenMPI or MPICH") from error
    if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
        raise DistributedError("the MPI library does not let several threads call it (MPI_THREAD_MULTIPLE): install "
                               "one that does, or set nothing that lowers mpi4py.rc.thread_level")
    found = World(MPI.COMM_WORLD)
    found.guard_end()
    if found.size == 1:
        atexit.register(MPI.Finalize)
    return found
