"""How the ranks of a job find each other, where they run, and how they sum over hosts.

Rank 0 listens, and hands an invitation to the others. Processes that share a host run each on cores of its own, with
one team of threads. Sums over hosts are in the gradients' own dtype, or with half of the traffic.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import hashlib
import json
import os
import secrets
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np

from ngraph_mxnet.base import config
from ngraph_mxnet.base.errors import DistributedError

SMALL = 1 << 16
"""Bytes: latency is most of the time of what is smaller."""
CHUNK = 1 << 16
"""Elements that are added, rounded or widened at a time: they stay in the cache."""
PAUSE = 2e-5
"""Seconds between two steps of a sum that somebody waits for."""
Sum = Iterator[None]
"""Goes on with each `next`, and ends when the sum is there."""


def wait(*requests: Any) -> Sum:
    for request in requests:
        while not request.Test():
            yield


def exact(comm: Any, data: np.ndarray, tag: int = 0) -> Sum:
    """In place, over all ranks of `comm`, in `data.dtype`; the messages have this tag.

    A ring: each rank sums a part, which goes around once to be added to and once to be told. MPI's own non-blocking
    sum uses a link one way at a time (Open MPI 4 and 5), so that it takes twice as long; it is as good where messages
    are small.
    """
    from mpi4py import MPI

    if data.nbytes <= SMALL:
        yield from wait(comm.Iallreduce(MPI.IN_PLACE, data))
        return
    ranks, rank = comm.Get_size(), comm.Get_rank()
    parts = np.array_split(data, ranks)
    received = np.empty_like(parts[0])

    def pass_on(sent: int, into: np.ndarray) -> Sum:
        yield from wait(comm.Irecv(into, (rank - 1) % ranks, tag), comm.Isend(parts[sent], (rank + 1) % ranks, tag))

    for step in range(ranks - 1):
        part = parts[(rank - step - 1) % ranks]
        yield from pass_on((rank - step) % ranks, received[:part.size])
        with np.errstate(all="ignore"):  # of a net that diverges
            np.add(part, received[:part.size], out=part)
    for step in range(ranks - 1):
        yield from pass_on((rank - step + 1) % ranks, parts[(rank - step) % ranks])


def bf16(comm: Any, data: np.ndarray, tag: int = 0) -> Sum:
    """Sum in place as `exact` does, but send bf16 numbers, rounded to nearest. Each rank sums its part of all ranks'
    data in float32. The rounded sum goes to all ranks, so that all have the same bits. Data in float64 is not
    rounded."""
    if data.dtype != np.float32:
        yield from exact(comm, data, tag)
        return
    ranks, rank = comm.Get_size(), comm.Get_rank()
    parts = np.array_split(data, ranks)
    others = [other for other in range(ranks) if other != rank]
    sent = [rounded(part) for part in parts]
    received = [np.empty_like(sent[rank]) for _ in range(ranks)]
    received[rank] = sent[rank]

    def exchange(gives: Sequence[np.ndarray], takes: Sequence[np.ndarray]) -> Sum:
        requests = [comm.Irecv(takes[other].view(np.uint8), other, tag) for other in others]
        requests += [comm.Isend(gives[other].view(np.uint8), other, tag) for other in others]
        yield from wait(*requests)

    yield from exchange(sent, received)
    total = parts[rank]
    widen(received[0], total)
    for other in received[1:]:
        widen(other, total, add=True)
    sent[rank] = rounded(total)
    yield from exchange([sent[rank]] * ranks, sent)
    for bits, part in zip(sent, parts, strict=True):
        widen(bits, part)


def rounded(values: np.ndarray) -> np.ndarray:
    """float32 as the bits of bf16, to nearest, ties to even; NaN stays one."""
    found = np.empty(values.shape, np.uint16)
    for begin in range(0, values.size, CHUNK):
        chunk = values[begin:begin + CHUNK]
        bits = chunk.view(np.uint32)
        upper = bits >> 16
        upper &= 1
        upper += 0x7FFF
        upper += bits
        upper >>= 16
        to = found[begin:begin + CHUNK]
        to[...] = upper
        to[np.isnan(chunk)] = 0x7FC0
    return found


def widen(bits: np.ndarray, into: np.ndarray, add: bool = False) -> None:
    """Writes the float32 numbers of these bits of bf16, or adds them to what is there."""
    for begin in range(0, bits.size, CHUNK):
        wide = bits[begin:begin + CHUNK].astype(np.uint32)
        wide <<= 16
        to, values = into[begin:begin + CHUNK], wide.view(np.float32)
        with np.errstate(all="ignore"):  # of a net that diverges
            np.add(to, values, out=to) if add else np.copyto(to, values)


WIRES = {"f32": exact, "bf16": bf16}


_LAUNCHERS = (("OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"), ("MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
              ("SLURM_LOCALID", "SLURM_NTASKS_PER_NODE"))
"""Variables of OpenMPI, MPICH and Slurm: the number of this process on its host, and the count of processes there."""


@dataclass(frozen=True)
class Placement:
    """The placement of this process on its host's CPUs.

    Attributes:
        cpus: those that it may use.
        pinned: whether it was this module that chose them.
        text: a sentence for people.
    """

    cpus: tuple[int, ...]
    pinned: bool
    text: str


def local_place(environ: Mapping[str, str] = os.environ) -> tuple[int, int] | None:
    """Which of its host's processes this is, and how many these are, as the launcher says; None: it doesn't."""
    for rank, size in _LAUNCHERS:
        found = environ.get(rank, ""), environ.get(size, "")
        if all(text.isdecimal() for text in found) and int(found[0]) < int(found[1]):
            return int(found[0]), int(found[1])
    return None


def share(cpus_of_cores: Sequence[Sequence[int]], rank: int, size: int) -> list[int]:
    """The CPUs of this rank's cores, neighbours; none where there are more ranks than cores."""
    count = len(cpus_of_cores)
    if size > count:
        return []
    return sorted(cpu for core in cpus_of_cores[count * rank // size:count * (rank + 1) // size] for cpu in core)


def place(environ: Mapping[str, str] = os.environ, root: Path = config.ROOT) -> Placement:
    """Gives this process its share of the host's cores, unless the launcher, or the user, has bound it already.

    All its threads move. To be called before the first graph is compiled: the threads of a graph are counted then.
    """
    allowed = sorted(os.sched_getaffinity(0))
    found = local_place(environ)
    if found is None or found[1] == 1:
        return Placement(tuple(allowed), False, f"alone on its host, on CPUs {allowed}")
    rank, size = found
    who = f"process {rank} of {size} on its host"
    if len(allowed) < (os.cpu_count() or 1):
        return Placement(tuple(allowed), False, f"{who}: bound to CPUs {allowed} before")
    mine = share(config.cpus_of_cores(root), rank, size)
    if not mine:
        return Placement(tuple(allowed), False, f"{who}: not pinned, for there are more processes than cores, which "
                                                "will wait for each other")
    for thread in os.listdir("/proc/self/task"):
        with contextlib.suppress(ProcessLookupError):  # it has ended meanwhile
            os.sched_setaffinity(int(thread), mine)
    return Placement(tuple(mine), True, f"{who}: pinned to CPUs {mine}")


_SECONDS = 3.0
"""For each address that a connection is tried to."""


class Invitation(NamedTuple):
    """The addresses where rank 0 listens, and the token that a rank presents to be one of the job. `problem`: why rank
    0 doesn't listen, else empty."""

    addresses: list[str]
    port: int
    token: str
    problem: str = ""

    def to_text(self) -> str:
        return json.dumps(self)

    @staticmethod
    def from_text(text: str) -> Invitation:
        return Invitation(*json.loads(text))


def listen(hosts: Sequence[str]) -> tuple[socket.socket | None, Invitation]:
    """A listening socket on this host, rank 0's, for ranks on these: from outside it can be reached only if one is
    elsewhere. None where that fails, which the invitation says."""
    others = sorted({*hosts} - {hosts[0]})
    try:
        if not others:
            listening, addresses = socket.create_server(("127.0.0.1", 0), backlog=len(hosts)), ["127.0.0.1"]
        else:
            dual = socket.has_dualstack_ipv6()
            listening = socket.create_server(("", 0), family=socket.AF_INET6 if dual else socket.AF_INET,
                                             backlog=len(hosts), dualstack_ipv6=dual)
            addresses = [*_addresses_towards(others), hosts[0]]
    except OSError as error:
        return None, Invitation([], 0, "", f"rank 0 ({hosts[0]}) can't listen for the other ranks: {error}")
    return listening, Invitation(addresses, listening.getsockname()[1], secrets.token_hex(16))


def _addresses_towards(hosts: Sequence[str]) -> list[str]:
    """This host's addresses from which the system would send to these, as far as their names are known."""
    found: dict[str, None] = {}
    for host in hosts:
        try:
            options = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)
        except OSError:
            continue
        for family, kind, protocol, _, address in options:
            try:
                with socket.socket(family, kind, protocol) as probe:
                    probe.connect(address)  # which for datagrams sends nothing
                    found[str(probe.getsockname()[0])] = None
            except OSError:
                continue
    return list(found)


def connect(invitation: Invitation) -> socket.socket:
    """A connection to rank 0. Raises ConnectionError: none of its addresses answers; the text says what was tried."""
    tried = []
    for address in invitation.addresses:
        try:
            connected = socket.create_connection((address, invitation.port), timeout=_SECONDS)
        except OSError as error:
            tried.append(f"{address}: {error}")
        else:
            connected.settimeout(None)
            return connected
    raise ConnectionError(f"rank 0 can't be reached at port {invitation.port}: {'; '.join(tried)}")


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
        import ngraph_mxnet._core as _core

        self.rank, self.size = rank, size
        self.hosts = list(allgather(socket.gethostname()))
        listening, invitation = listen(self.hosts) if rank == 0 else (None, None)
        invitation = Invitation.from_text(allgather(invitation.to_text() if invitation else "")[0])
        if invitation.problem:
            raise DistributedError(invitation.problem)
        try:
            connection = listening if listening is not None else connect(invitation)
        except ConnectionError as error:
            raise DistributedError(f"rank {rank} ({self.hosts[rank]}) can't join the job: {error}") from None
        silence = config.get("NGRAPH_KVSTORE_TIMEOUT") if silence is None else silence
        self.native: Any = _core.PeerWatch(rank, self.hosts, invitation.token, connection.detach(), silence, grace)
        self._await_start()

    def _await_start(self) -> None:
        end = time.monotonic() + _START_WITHIN
        while not self.native.wait_for_start(_SLICE):
            self.check()
            if self.rank == 0 and time.monotonic() > end:
                self.fail(f"ranks {', '.join(map(str, self.native.missing()))} have not connected within "
                          f"{_START_WITHIN:g} s: look at their output")
                self.check()

    @property
    def is_inherited(self) -> bool:
        """True if this process is a forked child of the rank."""
        return bool(self.native.is_inherited)

    @property
    def failure_descriptor(self) -> int:
        """A file descriptor that becomes readable at a failure, for `select` and the like; not to be read or closed."""
        return int(self.native.failure_descriptor)

    def failure(self) -> Failure | None:
        """The failure that this rank knows of; costs next to nothing while there is none."""
        return Failure(*self.native.failure()) if self.native.has_failed else None

    def check(self) -> None:
        """To be called from the program's own thread, which then has the failure: the process is not ended by force.
        Raises DistributedError: there is a failure."""
        found = self.failure()
        if found is not None:
            self.native.take_failure()
            raise DistributedError(found.text)

    def wait(self, seconds: float) -> bool:
        """Wait, without the GIL, for a failure, and say whether there is one."""
        return bool(self.native.wait(seconds))

    def fail(self, text: str) -> None:
        """All ranks fail: this one has `text`, why and what to do, to say of itself. Nothing if there is a failure."""
        self.native.fail(text.encode("utf-8", "replace").decode())

    def step(self, number: int, waits: bool) -> None:
        """This rank is in step `number`, counted from 1, and now waits for the others in it, or does not.

        If it waits, and another rank has left after fewer steps, that is a failure.
        """
        self.native.step(number, waits)

    def leave(self, steps: int | None = None) -> None:
        """This rank has ended well, after `steps`, or the last one in which it waited."""
        self.native.leave(steps)

    def wait_for_all(self, seconds: float | None = None) -> bool:
        """Wait, without the GIL, until all ranks have left or there is a failure, and say whether all have left."""
        end = float("inf") if seconds is None else time.monotonic() + seconds
        while not self.native.wait_for_all(_SLICE):
            if self.native.has_failed or time.monotonic() > end:
                return False
        return True

    def limit_end(self) -> None:
        """After a failure, at the program's end: from now on the process has `grace` seconds to end by itself."""
        self.native.limit_end()


_LAST_WORDS = 0.3
"""Seconds for the others to print the failure, before `abort` ends them."""


class _Exit(SystemExit):
    """The exception that `sys.exit` raises here. It tells an exit that ends the process from one that is caught. When
    the process ends, the interpreter asks for the status, with no frame of Python's below."""

    final: Any = None
    """The status with which the process ends."""

    def __getattribute__(self, name: str) -> Any:
        value = super().__getattribute__(name)
        if name == "code" and sys._getframe(0).f_back is None:
            _Exit.final = value
        return value


class ProcessEnd:
    """The end of a rank's process is known to the other ranks from `install` to `remove`."""

    def __init__(self, watch: PeerWatch, finalize: Callable[[], None] | None = None,
                 abort: Callable[[], None] | None = None) -> None:
        """At the process's end one of these is called: `finalize` when all ranks have ended well, `abort` after a
        failure, where finalizing MPI would wait for ranks that are gone."""
        self._watch, self._finalize, self._abort = watch, finalize, abort
        self._stock_hook, self._stock_exit = sys.excepthook, sys.exit

    def install(self) -> None:
        import ngraph_mxnet._core as _core

        self._stock_hook, self._stock_exit = sys.excepthook, sys.exit
        sys.excepthook, sys.exit = self._on_exception, self._on_exit  # type: ignore[assignment]
        atexit.register(self._at_exit)
        _core.guard_process(self._watch.native)

    def remove(self) -> None:
        """Until now. A hook that another has put in front of this one stays."""
        import ngraph_mxnet._core as _core

        if sys.excepthook == self._on_exception:
            sys.excepthook = self._stock_hook
        if sys.exit == self._on_exit:
            sys.exit = self._stock_exit
        atexit.unregister(self._at_exit)
        _core.unguard_process()

    def _on_exception(self, kind: type[BaseException], value: BaseException, trace: TracebackType | None) -> Any:
        self._watch.fail("".join(traceback.format_exception_only(kind, value)).strip())
        return self._stock_hook(kind, value, trace)

    def _on_exit(self, status: Any = None, /) -> None:
        try:
            self._stock_exit(status)
        except SystemExit as error:
            if threading.current_thread() is not threading.main_thread():  # which prints what is not exactly SystemExit
                raise
            raise _Exit(*error.args) from None

    def _at_exit(self) -> None:
        import ngraph_mxnet._core as _core

        watch = self._watch
        if watch.is_inherited:
            return
        if _Exit.final not in (None, 0):
            watch.fail(f"it ended by sys.exit({_Exit.final!r}); see its output")
        try:
            if watch.failure() is None:
                watch.leave()
                watch.wait_for_all()
        except KeyboardInterrupt:
            watch.fail("KeyboardInterrupt while it waited for the others to end")
        if watch.failure() is None:
            if self._finalize is not None:
                self._finalize()
            return
        _core.forbid_success()
        watch.limit_end()
        if self._abort is not None:
            time.sleep(_LAST_WORDS)
            self._abort()


class Tensor(NamedTuple):
    """An array that ranks exchange, by its key; `element` is its NumPy dtype's name, `storage` MXNet's for how it is
    stored: default, which is dense, or row_sparse."""

    key: str
    shape: tuple[int, ...]
    element: str
    storage: str = "default"


@dataclass(frozen=True)
class RankFacts:
    """Facts about one rank, as plain data. `tensors` are in the order in which the ranks exchange them."""

    rank: int
    versions: Mapping[str, str] = field(default_factory=dict)
    """By package."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Settings that change what is computed or exchanged, by variable."""
    operation: str = ""
    """The operation that the rank asks of the others: broadcast, pushpull, barrier."""
    tensors: Sequence[Tensor] = ()
    optimizer: str = ""
    hyperparameters: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> RankFacts:
        fields = json.loads(text)
        tensors = tuple(Tensor(key, tuple(shape), *others) for key, shape, *others in fields.pop("tensors"))
        return RankFacts(tensors=tensors, **fields)


_Values = dict[int, Any]
"""By rank; None where a rank has none."""


def describe_mismatch(mine: RankFacts, others: Iterable[RankFacts]) -> str | None:
    """Describe where these ranks differ first, which ranks are on each side, and what to do. Return None where they
    agree.

    All ranks get the same sentence. What differs for one reason is compared first: versions, settings, what is asked,
    then keys, shapes, dtypes, storage types and order of the arrays, and the optimizer.
    """
    everyone = sorted([mine, *others], key=lambda facts: facts.rank)
    for what, values, advice in _compared(everyone):
        sides: dict[Any, list[int]] = {}
        for rank, value in values.items():
            sides.setdefault(json.dumps(value), []).append(rank)
        if len(sides) > 1:
            found = ", ".join(f"{_text(json.loads(value))} on {_ranks(ranks)}" for value, ranks in sides.items())
            return f"{what} is not the same on all ranks: {found}; {advice}"
    return None


def _compared(everyone: Sequence[RankFacts]) -> Iterator[tuple[str, _Values, str]]:
    """Yield each fact that is compared: its description, its values by rank, and what to do if the values differ."""
    for name, values in _by_name(everyone, lambda facts: facts.versions):
        yield f"the version of {name}", values, "install the same on all machines"
    for name, values in _by_name(everyone, lambda facts: facts.settings):
        yield f"the setting {name}", values, "give all ranks the same environment (OpenMPI: mpirun -x NAME)"
    yield ("what the store is asked for", {facts.rank: facts.operation for facts in everyone},
           "all ranks have to run the same script, with calls of the store in the same order")
    advice = "build the same model on all ranks, from the same arguments"
    shapes = _by_name(everyone, lambda facts: {tensor.key: list(tensor.shape) for tensor in facts.tensors})
    elements = _by_name(everyone, lambda facts: {tensor.key: tensor.element for tensor in facts.tensors})
    storages = _by_name(everyone, lambda facts: {tensor.key: tensor.storage for tensor in facts.tensors})
    for what, found in (("shape", shapes), ("dtype", elements), ("storage type", storages)):
        for key, values in found:
            yield f"the {what} of {key}", values, advice
    yield ("the order of parameters", {facts.rank: [tensor.key for tensor in facts.tensors] for facts in everyone},
           f"{advice}, and create its layers in the same order")
    yield "the optimizer", {facts.rank: facts.optimizer for facts in everyone}, "give all ranks the same optimizer"
    for name, values in _by_name(everyone, lambda facts: facts.hyperparameters):
        yield f"the optimizer's {name}", values, "give all ranks the same optimizer, with the same arguments"


def _by_name(everyone: Sequence[RankFacts],
             of: Callable[[RankFacts], Mapping[str, Any]]) -> Iterator[tuple[str, _Values]]:
    named = {facts.rank: of(facts) for facts in everyone}
    for name in dict.fromkeys(name for values in named.values() for name in values):
        yield name, {rank: values.get(name) for rank, values in named.items()}


def _text(value: Any) -> str:
    if isinstance(value, list):
        return f"({', '.join(map(str, value))})"
    return "nothing" if value is None else str(value)


def _ranks(ranks: Sequence[int]) -> str:
    """`rank 1`, `ranks 0, 2 and 3`."""
    names = [str(rank) for rank in ranks]
    return f"rank {names[0]}" if len(names) == 1 else f"ranks {', '.join(names[:-1])} and {names[-1]}"


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
            others = self.comm.allgather(facts().to_json())
            mine = RankFacts.from_json(others.pop(self.rank))
            problem = describe_mismatch(mine, map(RankFacts.from_json, others))
            raise DistributedError(problem or "the ranks differ in a way that they can't tell")
        self._watch.step(self._operations, False)

    def sum(self, data: np.ndarray) -> None:
        """In place, over all ranks, of float32 or float64 numbers; `begin` comes before. Raises as `check`."""
        self._go_through(exact(self.comm, data))

    def broadcast(self, data: np.ndarray) -> None:
        """In place, rank 0's to all ranks, whatever the dtype; `begin` comes before. Raises as `check`."""
        self.wait(self.comm.Ibcast(data.reshape(-1).view(np.uint8), root=0))

    def wait(self, request: Any) -> None:
        """Until a request of MPI's is done. Raises as `check`."""
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
    """Return the world of the job that this process belongs to. Without `mpirun` it is a world of this process alone.
    Raises DistributedError: mpi4py, or an MPI library, is not there; the text says what to do."""
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
