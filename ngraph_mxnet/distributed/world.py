"""The processes of an MPI job, and how those of one host share memory."""

from __future__ import annotations

import functools
import os
import socket
from typing import Any

from ngraph_mxnet import config
from ngraph_mxnet.errors import DistributedError


class World:
    """All ranks of a job. Its methods are called by all of them, in the same order, from one thread each.

    Attributes:
        comm: of all ranks, for those who call from the thread that made it.
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

    @property
    def name(self) -> str:
        """For messages."""
        return f"rank {self.rank} of {self.size} ({socket.gethostname()})"

    def gather(self, mine: Any) -> list[Any]:
        """What each rank gives, which is pickled."""
        return list(self.comm.allgather(mine))

    def barrier(self) -> None:
        """Returns when all ranks have called it."""
        self.comm.Barrier()


@functools.cache
def world() -> World:
    """Of the job that this process belongs to; started without `mpirun`, one of this process alone.

    Raises:
        DistributedError: mpi4py, or an MPI library, is not there; the text says what to do.
    """
    # Its one-sided transport is not used, and in some builds prints an error when it is looked at.
    os.environ.setdefault("OMPI_MCA_osc", "^ucx")
    try:
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
    return World(MPI.COMM_WORLD)
