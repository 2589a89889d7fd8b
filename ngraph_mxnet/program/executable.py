"""The compiled graph, its lowered form for pictures and reports, and sessions of several graphs."""

from __future__ import annotations

import json
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from ngraph_mxnet.base.errors import ConfigError, NGraphError, PackageError, listed
from ngraph_mxnet.base.forks import ForkSafeLock, ForkSafePool
from ngraph_mxnet.base.registry import loaded
from ngraph_mxnet.ir.graph import Graph
from ngraph_mxnet.ir.module import Flow, result_names
from ngraph_mxnet.ir.types import RANDOM_STATE, TensorType
from ngraph_mxnet.program.artefact import DEFAULT_ISAS, Meta, write_artefact
from ngraph_mxnet.program.package import Package
from ngraph_mxnet.program.program import IsaProgram, ProgramSet
from ngraph_mxnet.program.trace import Event

if TYPE_CHECKING:
    from ngraph_mxnet.program.recorder import Values, Watch

@dataclass(frozen=True)
class Port:
    """One input or output of an executable. An output without a name of its own is called `output<i>`."""

    name: str
    type: TensorType

    def __str__(self) -> str:
        return f"{self.name}: {self.type}"


def input_ports(graph: Graph) -> list[Port]:
    return [Port(parameter.name, parameter.type) for parameter in graph.parameters]


def output_ports(graph: Graph) -> list[Port]:
    return [Port(name, value.type) for name, value in zip(result_names(graph), graph.results, strict=True)]


def ports_of(flow: Flow) -> tuple[list[Port], list[Port]]:
    """The inputs and the outputs."""
    return ([Port(value.name, value.type) for value in flow.inputs],
            [Port(name, value.type) for name, value in zip(flow.names, flow.results, strict=True)])


@dataclass(frozen=True)
class Usage:
    """The time that a call takes, and the memory that it needs.

    Attributes:
        seconds: the time in kernels, by the origin of the node that the kernels are for.
        weight_bytes: the bytes of weights as kernels read them, tables included, for all calls together.
        arena_bytes: the bytes of the arena of each call that runs at once.
    """

    seconds: Mapping[str, float]
    weight_bytes: int
    arena_bytes: int


class InputError(NGraphError, ValueError):
    """The arrays given to an executable do not fit its inputs; the text names the input."""


class Submitting:
    """`run_async`, of what is called with arrays: one thread for each object in each process, started when it is first
    asked for."""

    _pool: ForkSafePool | None = None
    _starting = ForkSafeLock()

    def run_async(self, /, *arrays: Any, **named: Any) -> Future[list[np.ndarray]]:
        """A call on another thread, after those asked for before. The arrays must not change until the result is
        there; what the call raises, the future's `result()` raises."""
        with self._starting:
            if self._pool is None:
                self._pool = ForkSafePool("ngraph", threads=1)
        return self._pool.submit(partial(self, **named) if named else self, *arrays)  # type: ignore[operator,misc,arg-type]


def in_order(inputs: Sequence[Any], arrays: tuple[Any, ...], named: Mapping[str, Any] | None = None) -> tuple[Any, ...]:
    """Return the arrays of a call, given as arrays, by name or as one mapping, one for each port, in order. The arrays
    are not checked.

    Raises:
        InputError: the number of arrays, or their names, are not those of the inputs.
    """
    if named and len(arrays) <= len(inputs):
        mapping = len(arrays) == 1 and isinstance(arrays[0], Mapping)
        first = arrays[0] if mapping else dict(zip([port.name for port in inputs], arrays, strict=False))
        twice = [name for name in first if name in named]
        if twice:
            raise InputError(f"{listed(twice)}: found two arrays, expected one for each input")
        arrays = ({**first, **named},)
    if len(arrays) == 1 and isinstance(arrays[0], Mapping):
        by_name, names = arrays[0], [port.name for port in inputs]
        found = tuple([by_name[name] for name in names if name in by_name])
        if len(found) == len(names) == len(by_name):
            return found
        unknown, missing = sorted(set(by_name) - set(names)), [name for name in names if name not in by_name]
        raise InputError(f"inputs by name: unknown {listed(unknown) or 'none'}, missing "
                         f"{listed(missing) or 'none'}; the inputs: {listed(names)}")
    if len(arrays) != len(inputs):
        wanted = listed(map(str, inputs)) or "none"
        raise InputError(f"found {len(arrays)} inputs, expected {len(inputs)}: {wanted}")
    return arrays


def described(executable: Any) -> str:
    """Describe an object with `inputs` and `outputs`, for people: `<CPUExecutable x: f32[2,3] -> y: f32[2]>`."""
    inputs, outputs = (listed(map(str, ports)) or "nothing" for ports in (executable.inputs, executable.outputs))
    return f"<{type(executable).__name__} {inputs} -> {outputs}>"


_MOST_SEED = (1 << 64) - 1
_Seeded = TypeVar("_Seeded", bound="Seeded")


class Seeded:
    """What is called with arrays, and draws random numbers if one of its inputs is the state of these
    (`ops/random.py`).

    Attributes:
        ports: all inputs.
        inputs: those that callers give. The state is not among them once `hide_state` was called.
    """

    inputs: tuple[Any, ...]
    ports: tuple[Any, ...]
    _state: int | None = None
    """The place of the hidden state among `ports`."""
    _steps: tuple[int, Iterator[int]] = 0, count()

    def hide_state(self: _Seeded) -> _Seeded:
        """Let each call of one that draws make its own state, of the seed 0 at first."""
        places = [place for place, port in enumerate(self.ports) if port.name == RANDOM_STATE]
        if places:
            (self._state,) = places
            self.inputs = (*self.ports[:self._state], *self.ports[self._state + 1:])
            self.seed(0)
        return self

    def seed(self, seed: int) -> None:
        """Seed what draws random numbers: the same calls after the same seed give the same results. The seed is 0 at
        first, so processes that must differ need other seeds. It does nothing for what draws none.

        Args:
            seed: an integer, of which the lower 64 bits count.
        """
        self._steps = operator.index(seed) & _MOST_SEED, count()

    def with_state(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The arrays of a call for all of `ports`, with the call's state. Any threads may ask at once."""
        found = list(arrays)
        if self._state is not None:
            key, steps = self._steps
            found.insert(self._state, np.array([key, next(steps)], np.uint64).view(np.int32))
        return found


class Executable(Submitting, Seeded, ABC):
    """A compiled graph, called with arrays. What every one of them keeps, edge cases first:

    * A result never shares memory with an input, a constant, another result or an earlier call's result, even
      where the graph returns a parameter or one value twice; the caller may write to it.
    * Inputs are never written to and not kept after the call.
    * An input in any strides, byte order or alignment is taken, a DLPack tensor or MXNet's NDArray too, by a copy where
      it has to be. One of another shape or dtype, a list or a number is refused, never converted: that would hide a
      mistake.
    * A graph without parameters is called with nothing, one without results returns an empty list.
    * Calls from several threads at once are safe, and each gives what it gives alone, bit for bit.
    * Results come in the order of `outputs`, C-contiguous.

    A backend implements `run`, `measured`, `usage` and `traced` if it has kernels whose time it can tell, `listing` and
    `lowered` if it has instructions to show, and sets `values` if it can show what nodes compute.
    """

    def __init__(self, inputs: Sequence[Port], outputs: Sequence[Port]) -> None:
        self.inputs = self.ports = tuple(inputs)
        self.outputs = tuple(outputs)

    def package(self) -> Package:
        """Return the package that `runtime.backend.load` makes this executable from, in this process or another one.

        Raises:
            PackageError: the executable can't be kept; the text says why.
        """
        raise PackageError("what this backend compiles can't be kept, as it does not say how")

    def artefact_programs(self, isas: Sequence[str] = ()) -> Iterator[IsaProgram]:
        """Return the programs that the runtime runs for this executable: see `Backend.artefact_programs`.

        Raises:
            PackageError: there are no such programs; the text says why.
        """
        raise PackageError("it can't be saved for the runtime: only what the backend CPU compiled in this process can, "
                           "and not what was loaded")

    def save(self, path: str | Path, *, isas: Sequence[str] = (), metadata: Mapping[str, str] | None = None) -> None:
        """Write the file that the runtime runs, for these instruction sets; for all but amx and avx_vnni if none.

        Raises:
            PackageError: weights are still inputs (give `compile` their content), or it can't be saved at all.
            ConfigError: there is no such instruction set.
            OSError: it can't be written.
        """
        meta = Meta(Path(path).stem, self.precision, metadata or {})
        inputs, outputs = ([(port.name, port.type) for port in ports] for ports in (self.ports, self.outputs))
        sets = (ProgramSet.of(made, 0, inputs, outputs) for made in self.artefact_programs(isas))
        write_artefact(path, meta, sets, len(set(isas) or DEFAULT_ISAS))

    precision = "f32"
    """In what its convolutions and matrix products compute."""
    quantised: str | None = None
    """A phrase that says how many of a recipe's convolutions and matrix products are in 8 bits."""
    fit: Any = None
    """The part of a recipe that was applied (`quantisation.apply`), where the graph was compiled in this process with a
    recipe."""

    @abstractmethod
    def run(self, arrays: list[np.ndarray]) -> list[np.ndarray]:
        """Compute the results; `arrays` fit `ports` exactly and are C-contiguous."""

    watch: Watch | None = None
    """The watch that audits the executable's calls, where their border is in Python."""
    values: Values | None = None
    """The runner that lets each value in the graph be seen; None if there is no such runner."""

    @property
    def threads(self) -> int | None:
        """The number of threads that a call asks for; None if there is no team of threads. For short calls the number
        depends on what was faster lately."""
        return None

    @property
    def prepared(self) -> tuple[int, int]:
        """How many weights are rearranged or computed anew for kernels, and how many bytes they take."""
        return 0, 0

    def __call__(self, /, *arrays: Any, **named: Any) -> list[np.ndarray]:
        """Run on arrays in the order of `inputs`, on arrays by name (the first ones may be in order), or on one dict.

        Raises:
            InputError: one is missing, unknown, no array, or of the wrong shape or dtype.
            AuditError: NGRAPH_AUDIT_GUARD is set, and numbers are out of its bounds.
        """
        checked = self.checked(self.in_order(arrays, named) if named else arrays)
        if self.watch is not None:
            return self.watch.run(getattr(self, "native", None), self.run, checked)
        return self.run(checked)

    def profile(self, *arrays: Any, rounds: int = 20) -> Any:
        """Run `rounds` times, after a few that do not count, and tell where the time goes, kernel by kernel.

        Returns:
            What prints as tables; `to_dict()` is for programs. It takes some time more, as the machine's peak is
            measured too, and what other threads run meanwhile is in it.

        Raises:
            InputError: as for a call.
            ConfigError: the backend has no kernels to tell of.
        """
        return self.measured(self.checked(arrays), rounds)

    def measured(self, arrays: list[np.ndarray], rounds: int) -> Any:
        """Measure the calls for `profile`, and return its report; `arrays` are as those of `run`."""
        raise ConfigError("profiles tell of kernels, which only the backend CPU has")

    def usage(self, arrays: list[np.ndarray], rounds: int) -> Usage:
        """The medians of so many calls, after a few that do not count; `arrays` are as those of `run`.

        Raises:
            ConfigError: the backend has no kernels to tell of, or NGRAPH_PROFILE is set.
        """
        raise ConfigError("the usage of kernels is measured of those of the backend CPU alone")

    def listing(self) -> str:
        """The instructions as text, for people.

        Raises:
            ConfigError: the backend has none.
        """
        raise ConfigError("the backend has no instructions to show; CPU, NNP and HYBRID have")

    def simulated_trace(self) -> str:
        """A call on the simulated device as a Chrome trace (chrome://tracing, ui.perfetto.dev).

        Raises:
            ConfigError: the device is real, or what it does is not known before the first call.
        """
        raise ConfigError("the backend simulates nothing; NNP does, and NGRAPH_PROFILE traces what really runs")

    def traced(self, arrays: list[np.ndarray]) -> list[Event]:
        """Trace what runs when in a call, as events of a Chrome trace. The events of a simulated device are in
        simulated time. `arrays` are as those of `run`.

        Raises:
            ConfigError: the backend has nothing to tell, or NGRAPH_PROFILE is set.
        """
        events: list[Event] = json.loads(self.simulated_trace())["traceEvents"]
        return events

    def lowered(self) -> Lowered | None:
        """The kernel calls, the memory plan and the layouts; None where the backend has none to tell of."""
        return None

    rough = False
    """True if results are rounded to less than their types hold, so that nothing is to be calibrated on them."""

    def calibrate(self, samples: Sequence[Sequence[np.ndarray]]) -> None:
        """Take what must be known of data, such as scales for 8-bit numbers, from `samples`, each an array for each
        input, unless it is known already."""

    def simulated_seconds(self) -> float | None:
        """Return the seconds that a call takes on the device that this machine simulates; None where the device is
        real.

        Raises:
            ConfigError: the time is not known before the first call.
        """
        return None

    def simulated_engines(self) -> Sequence[Any]:
        """Return where the time of a call went on each engine of a simulated device: a row each, with the `engine` and
        parts that add up to 1. There are none where the device is real.

        Raises:
            ConfigError: the time is not known before the first call.
        """
        return ()

    def checked(self, arrays: tuple[Any, ...]) -> list[np.ndarray]:
        """Return the arrays of a call as `run` takes them, each unchanged where possible. Raises InputError as a call
        does."""
        return self.with_state([checked_array(port, array)
                                for port, array in zip(self.inputs, self.in_order(arrays), strict=True)])

    def in_order(self, arrays: tuple[Any, ...], named: Mapping[str, Any] | None = None) -> tuple[Any, ...]:
        """See the function `in_order`."""
        return in_order(self.inputs, arrays, named)

    def __repr__(self) -> str:
        return described(self)


@dataclass(frozen=True)
class Meanwhile:
    """A step of a call that runs elsewhere than the parts (`Parts`), and takes `seconds`.

    It runs before part number `part`, on `lane`, one step at a time. `reads` and `makes` are names of values, some of
    them results and inputs of parts. `after` are the earlier steps that it waits for, by number.
    """

    part: int
    lane: int
    seconds: float
    reads: tuple[str, ...] = ()
    makes: tuple[str, ...] = ()
    after: tuple[int, ...] = ()


Times = tuple[float, float]
"""Begin and end, in seconds from the begin of the call."""


@dataclass(frozen=True)
class PartTimes:
    """A simulated call: its seconds, when each part runs and each step meanwhile, and a Chrome trace."""

    seconds: float
    parts: tuple[Times, ...]
    meanwhile: tuple[Times, ...]
    trace: Callable[[], str]


class Parts(ABC):
    """The steps of a call that one device runs, while others run what is between them: see `Backend.compile_parts`.

    A value that one part makes and only other parts read stays in the device: in its place a part gives an empty array,
    and parts do not look at it. The caller runs one call at a time: `begin`, then all parts in order.
    """

    executables: Mapping[str, Executable]
    """By the names of the graphs."""

    @property
    def calibrated(self) -> bool:
        """False if all parts must get `Executable.calibrate` before the first call."""
        return True

    @abstractmethod
    def begin(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Begin a call, whose weights are among these inputs by name."""

    @abstractmethod
    def package(self) -> Package:
        """Return the package that `Backend.load_parts` makes the parts from. Raises PackageError as for an executable.
        """

    @abstractmethod
    def simulate(self, steps: Sequence[Meanwhile], *, overlap: bool = True) -> PartTimes:
        """Simulate a call, in which these steps run on other devices.

        Args:
            overlap: the device works while a step runs.

        Raises:
            ConfigError: the times are not known before the parts are calibrated.
        """


class NativeExecutable(Executable):
    """`native` computes: what takes arrays for the inputs and arrays to write the outputs to."""

    def __init__(self, inputs: Sequence[Port], outputs: Sequence[Port], native: Any) -> None:
        super().__init__(inputs, outputs)
        self.native = native

    def __call__(self, /, *arrays: Any, **named: Any) -> list[np.ndarray]:
        arrays = self.in_order(arrays, named)
        results: list[np.ndarray] | None = (
            self.native.call(*arrays) if self.watch is None and self._state is None else None)
        return super().__call__(*arrays) if results is None else results

    @property
    def threads(self) -> int | None:
        return int(self.native.threads)

    def package(self) -> Package:
        raise PackageError("what was loaded from a package holds none, to save memory: keep the package itself")

    def run(self, arrays: list[np.ndarray]) -> list[np.ndarray]:
        outputs = [np.empty(port.type.shape, port.type.element.numpy) for port in self.outputs]
        self.native.run(arrays, outputs)
        return outputs


SETTLED = "ngraph_mxnet.plugin.arrays:settled"
"""What copies MXNet's arrays, whose elements an operator may be moving meanwhile."""


def as_array(value: Any, what: str) -> np.ndarray:
    """A NumPy array of any other: DLPack tensors without a copy where they lie on a CPU, MXNet's NDArrays and what else
    has `__array__` by one. Lists and numbers are none: their dtype would be a guess, and to read them all takes long.

    Args:
        what: for the message.

    Raises:
        InputError: it is no array, or can't be brought here.
    """
    if isinstance(value, np.ndarray):
        return value
    has = type(value)
    if hasattr(has, "__dlpack__") and not hasattr(has, "asnumpy"):
        try:
            return np.from_dlpack(value)
        except (BufferError, TypeError, RuntimeError):
            pass  # a read-only array of an older NumPy, a tensor of a GPU: then by a copy
    copied = loaded(SETTLED) if has.__module__.startswith("mxnet.") else (
        getattr(has, "asnumpy", None) or getattr(has, "__array__", None))
    if copied is None:
        raise InputError(f"{what}: found {_kind(value)}, expected an array: NumPy's, MXNet's, or what has __dlpack__ "
                         "or __array__")
    try:
        return np.asarray(copied(value))
    except Exception as error:  # whatever another framework raises
        raise InputError(f"{what}: found {_kind(value)}, which gives no array: {error}") from error


def _kind(value: Any) -> str:
    """Its type, and of a list or tuple that of its first element, too."""
    name = f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
    return f"{name} of {_kind(value[0])}" if isinstance(value, (list, tuple)) and value else name


def checked_array(port: Port, value: Any, *, what: str = "input") -> np.ndarray:
    """`value` as a C-contiguous array of exactly the port's type.

    Raises:
        InputError: it is no array, or its shape or dtype differs.
    """
    array = as_array(value, f"{what} {port.name!r}")
    wanted = port.type.element.numpy
    if array.dtype.newbyteorder("=") != wanted:
        raise InputError(f"{what} {port.name!r}: found dtype {array.dtype}, expected {wanted} ({port.type})")
    if array.shape != port.type.shape:
        raise InputError(
            f"{what} {port.name!r}: found shape {array.shape}, expected {port.type.shape} ({port.type})"
        )
    return np.require(np.asarray(array, dtype=wanted, order="C"), requirements="A")


@dataclass(frozen=True)
class KernelCall:
    """An instruction, for the node at the place `node` of the graph's nodes. `operations` count a multiply-add as two;
    `bytes` are those of the tensors read and written."""

    kernel: str
    node: int
    level: int
    tasks: int
    operations: float
    bytes: int


@dataclass(frozen=True)
class PlannedBuffer:
    """`bytes` of the arena from `offset` on, in use from level `first` to level `last`, both included. `node` is the
    place of that for which it is written first."""

    offset: int
    bytes: int
    first: int
    last: int
    node: int


@dataclass(frozen=True)
class Lowered:
    """`graph`: as it was lowered. `layouts`: for each of its nodes how its first output is stored, for people; empty
    where it is not stored."""

    graph: Graph
    calls: tuple[KernelCall, ...]
    buffers: tuple[PlannedBuffer, ...]
    layouts: tuple[str, ...]
    levels: int
    arena_bytes: int


MOST_LANES = 16
"""The most devices that may share a graph."""


@dataclass(frozen=True)
class Call:
    """One step. `inputs` and `outputs` are places of a call's table of values; `lane` is where it runs."""

    lane: int
    executable: Executable
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


class Session:
    """A step's results are the next ones' inputs as they are: nothing is copied on the way.

    Steps run one after the other; with `at_once`, those of one lane do, and lanes at the same time, each step when what
    it reads is there.
    """

    def __init__(self, flow: Flow, executables: Mapping[str, Executable], lanes: Sequence[int] | None = None, *,
                 at_once: bool = False) -> None:
        """
        Args:
            executables: by the names of the graphs.
            lanes: of each step, below MOST_LANES.

        Raises:
            PackageError: an executable does not fit its step.
        """
        places = {value: place for place, value in enumerate(flow.values())}
        calls = []
        for step, lane in zip(flow.steps, lanes or [0] * len(flow.steps), strict=True):
            executable = executables[step.graph]
            for kind, values, ports in (("inputs", step.inputs, executable.ports),
                                        ("outputs", step.outputs, executable.outputs)):
                if [value.type for value in values] != [port.type for port in ports]:
                    raise PackageError(f"step {step.graph}: found {kind} {', '.join(map(str, values))}, and what it "
                                       f"calls has {', '.join(map(str, ports))}")
            calls.append(Call(lane, executable, tuple(places[v] for v in step.inputs),
                              tuple(places[v] for v in step.outputs)))
        self.calls = tuple(calls)
        self.results = tuple(places[value] for value in flow.results)
        """Their places in the table."""
        self._count = len(places)
        self._lanes = sorted({call.lane for call in calls})
        self._pool = ForkSafePool("ngraph-session", 2 * MOST_LANES) if at_once and len(self._lanes) > 1 else None
        self._submitting = ForkSafeLock()

    def table(self, arrays: Sequence[np.ndarray]) -> list[Any]:
        """The values of a call: the inputs, and room for what the steps make."""
        return [*arrays, *[None] * (self._count - len(arrays))]

    def run(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The results; none shares memory with an input or another result."""
        table = self.table(arrays)
        if self._pool is None:
            for call in self.calls:
                _run(call, table)
        else:
            self._run_at_once(table, self._pool)
        seen = set(range(len(arrays)))
        results = []
        for place in self.results:
            # An array that is returned twice, or was given, is not the caller's own.
            results.append(table[place].copy() if place in seen else table[place])
            seen.add(place)
        return results

    def _run_at_once(self, table: list[Any], pool: ForkSafePool) -> None:
        makers: dict[int, Future[None]] = {}
        done: dict[Call, Future[None]] = {}
        for call in self.calls:
            done[call] = Future()
            makers.update(dict.fromkeys(call.outputs, done[call]))

        def work(lane: int) -> None:
            failed: BaseException | None = None
            for call in self.calls:
                if call.lane != lane:
                    continue
                try:
                    if failed is not None:
                        raise failed
                    for place in call.inputs:
                        if place in makers:
                            makers[place].result()
                    _run(call, table)
                except BaseException as error:  # the other lanes must not wait for ever
                    failed = error
                    done[call].set_exception(error)
                else:
                    done[call].set_result(None)
            if failed is not None:
                raise failed

        first, *rest = self._lanes
        with self._submitting:  # or two calls could each wait for a thread that works for the other
            others = [pool.submit(work, lane) for lane in rest]
        try:
            work(first)
        finally:
            for other in others:
                other.exception()  # it has ended, so the inputs are the caller's again
        for other in others:
            other.result()


def _run(call: Call, table: list[Any]) -> None:
    results = call.executable.run([table[place] for place in call.inputs])
    for place, result in zip(call.outputs, results, strict=True):
        table[place] = result
