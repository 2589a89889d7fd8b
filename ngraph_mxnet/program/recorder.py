"""What an audit records of a graph: its tensors by name, the layer before the compiled graph, and the file of rows.

The file is one SQLite database for all processes, in which rows are only added: on a thread of its own, and at the end.
Whatever goes wrong there is a warning: a program runs audited as it does otherwise, but for bounds.
"""

from __future__ import annotations

import atexit
import hashlib
import itertools
import json
import os
import platform
import socket
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import chain
from multiprocessing import util
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ngraph_mxnet.base import config
from ngraph_mxnet.base.append_only import Format
from ngraph_mxnet.base.errors import AuditError
from ngraph_mxnet.base.forks import ForkSafeLock
from ngraph_mxnet.base.installation import versions_of
from ngraph_mxnet.base.variables import Bounds, Calls
from ngraph_mxnet.base.version import __version__
from ngraph_mxnet.ir.graph import Graph, Node, Value, print_graph
from ngraph_mxnet.ir.types import TensorType, element_type

WEIGHT, INPUT, VALUE, RESULT = KINDS = ("weight", "input", "value", "result")
"""In the order in which a call meets them."""
FIRST_CONSTANT, FIRST_VALUE = 1 << 20, 1 << 21
"""Places of weights that are constants, and of values: a graph's inputs are numbered from 0 on, then its results."""


@dataclass(frozen=True)
class Tensor:
    """One of a graph's: `node` is the framework's name of the node that makes it; of an input or weight, of the first
    that reads it."""

    place: int
    kind: str
    name: str
    node: str
    element: str
    shape: tuple[int, ...]


@dataclass
class Described:
    """A graph before any pass. `constants`: the weights that the caller gave as such, by their places."""

    name: str
    backend: str
    digest: str
    nodes: int
    tensors: list[Tensor]
    constants: dict[int, np.ndarray]
    _values: dict[tuple[Node, int], Tensor] = field(default_factory=dict)
    _names: dict[str, int] = field(default_factory=dict)
    _lock: ForkSafeLock = field(default_factory=ForkSafeLock)

    @property
    def weights(self) -> list[int]:
        return [each.place for each in self.tensors if each.kind == WEIGHT and each.place < FIRST_CONSTANT]

    def at(self, place: int) -> Tensor:
        return self.tensors[place]

    def value(self, node: Node, index: int) -> Tensor:
        """The tensor of a node's output; they are numbered as they are first asked for."""
        with self._lock:
            found = self._values.get((node, index))
            if found is None:
                name = named(node) + (f" output {index}" if len(node.outputs) > 1 else "")
                count = self._names[name] = self._names.get(name, 0) + 1
                type_ = node.outputs[index].type
                found = Tensor(FIRST_VALUE + len(self._values), VALUE, name if count == 1 else f"{name} #{count}",
                               named(node), type_.element.name, type_.shape)
                self._values[node, index] = found
                self.tensors.append(found)
            return found


def phrase(tensor: Tensor) -> str:
    """For messages: what it is, with its node."""
    of = {WEIGHT: f", which {tensor.node} reads", INPUT: "", VALUE: "", RESULT: f" of {tensor.node}"}[tensor.kind]
    return f"{tensor.kind} {tensor.name}{of}, {tensor.element}[{','.join(map(str, tensor.shape))}],"


def named(node: Node) -> str:
    """By the framework's name; by its op where it has none."""
    return node.origin or node.op.name


def describe(graph: Graph, weights: Mapping[str, Any], backend: str) -> Described:
    """`weights`: arrays by the names of the parameters that become constants, as `compile` takes them."""
    readers = graph.readers()
    inputs = [value for value in graph.parameters if value.name not in weights]
    tensors = [_parameter(value, place, readers[value]) for place, value in enumerate(inputs)]
    for place, result in enumerate(graph.results, len(inputs)):
        tensors.append(Tensor(place, RESULT, f"result {place - len(inputs)}", _maker(result), result.type.element.name,
                              result.shape))
    constants = {}
    for place, value in enumerate((v for v in graph.parameters if v.name in weights), FIRST_CONSTANT):
        tensors.append(_parameter(value, place, readers[value], WEIGHT))
        constants[place] = weights[value.name]
    return Described(graph.name, backend, digest(graph), len(graph.nodes), tensors, constants)


def _parameter(value: Value, place: int, readers: Iterable[tuple[Node, int]], kind: str = "") -> Tensor:
    node = next((named(reader) for reader, _ in readers), "")
    kind = kind or (WEIGHT if value.is_weight else INPUT)
    return Tensor(place, kind, value.name, node, value.type.element.name, value.shape)


def _maker(result: Value) -> str:
    """Behind what only passes a value on."""
    while result.node is not None and not result.node.origin and result.node.inputs:
        result = result.node.inputs[0]
    return named(result.node) if result.node is not None else result.name


def digest(graph: Graph) -> str:
    """Return the SHA-256 digest, in hexadecimal, of all that the graph computes, names and constants included."""
    hasher = hashlib.sha256(print_graph(graph, elide=True).encode())
    for node in graph.nodes:
        if node.op.name == "constant":
            hasher.update(np.ascontiguousarray(node.attrs["value"]).tobytes())
    return hasher.hexdigest()


NAME = "audit.sqlite"
HASH = "hash"
"""In a run's versions, that of its hashes: they are compared with those of the same version. Without one it is 1."""
_FORMAT = Format("rows of an audit", {
    "runs": "id INTEGER PRIMARY KEY, started REAL, host TEXT, process INTEGER, parent INTEGER, command TEXT, "
            "settings TEXT, versions TEXT",
    "graphs": "run INTEGER, id INTEGER, name TEXT, backend TEXT, digest TEXT, nodes INTEGER, constants INTEGER, "
              "prepared INTEGER, prepared_bytes INTEGER, peak_before INTEGER, PRIMARY KEY (run, id)",
    "tensors": "run INTEGER, graph INTEGER, place INTEGER, kind TEXT, name TEXT, node TEXT, element TEXT, shape TEXT, "
               "PRIMARY KEY (run, graph, place)",
    "calls": "run INTEGER, id INTEGER, graph INTEGER, number INTEGER, weights INTEGER, begin REAL, seconds REAL, "
             "thread INTEGER, PRIMARY KEY (run, id)",
    "checkpoints": "run INTEGER, id INTEGER, graph INTEGER, begin REAL, digest TEXT, tensors INTEGER, bytes INTEGER, "
                   "resident INTEGER, peak INTEGER, PRIMARY KEY (run, id)",
    "statistics": "run INTEGER, owner INTEGER, place INTEGER, min, max, mean REAL, norm REAL, nan INTEGER, "
                  "infinite INTEGER, zeros INTEGER, denormals INTEGER, hash BLOB, PRIMARY KEY (run, owner, place)",
    "losses": "run INTEGER, calls INTEGER",
}, application=0x6E674175, version=1)
"""`owner` is a call or a checkpoint: their ids are one sequence. `calls.weights`, `graphs.constants` are checkpoints.
"""


def location(path: str | Path) -> Path:
    """The file, of that or of its folder. Raises AuditError: there is none."""
    found = Path(path).expanduser()
    found = found / NAME if found.is_dir() else found
    if not found.is_file():
        raise AuditError(f"there is no audit at {path}: expected a folder that NGRAPH_AUDIT named, or its {NAME}")
    return found


BATCH = 256 if sqlite3.sqlite_version_info >= (3, 32) else 64
"""Rows that one statement adds. Other threads of Python get their turn at each: beside a busy one, rows that are added
one by one take ten times as long. SQLite before 3.32 takes 999 values at most."""


def append(path: Path, rows: Mapping[str, Sequence[Sequence[Any]]],
           batches: Iterable[tuple[str, list[Any]]] = ()) -> None:
    """Add rows by table, all or none. `batches`: further rows of a table, at most BATCH, as values one after the other.
    Raises sqlite3.Error: the file can't be written to, or is none of ours."""
    with _FORMAT.adding(path) as database:
        for table, added in rows.items():
            for begin in range(0, len(added), BATCH):
                _insert(database, table, list(chain.from_iterable(added[begin:begin + BATCH])))
        for table, values in batches:
            _insert(database, table, values)


def new_run(path: Path, row: Sequence[Any]) -> int:
    """Add a run, without its id, which is returned. Raises as `append`."""
    with _FORMAT.adding(path) as database:
        marks = ", ".join("?" * len(row))
        run = database.execute(f"INSERT INTO runs VALUES (NULL, {marks})", row).lastrowid
    assert run is not None
    return run


def _insert(database: sqlite3.Connection, table: str, values: list[Any]) -> None:
    if values:
        database.execute(_insertion(table, len(values)), values)


@cache
def _insertion(table: str, values: int) -> str:
    columns = len(_FORMAT.tables[table].partition(", PRIMARY KEY (")[0].split(", "))
    row = f"({', '.join('?' * columns)})"
    return f"INSERT INTO {table} VALUES {', '.join([row] * (values // columns))}"


class Reader:
    """Rows of a file, as mappings by column."""

    def __init__(self, path: Path) -> None:
        """Raises AuditError: it is no audit of this format."""
        self.path = path
        with self._reading():
            pass

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        try:
            with _FORMAT.reading(self.path) as database:
                yield database
        except sqlite3.Error as error:
            raise AuditError(f"{self.path} is no audit of this package: {error}") from None

    def rows(self, table: str, where: Mapping[str, Any], order: str = "rowid") -> list[dict[str, Any]]:
        """Return the rows of `table` whose columns have the values in `where`, ordered by `order`."""
        conditions = " AND ".join(f"{column} = ?" for column in where) or "1"
        with self._reading() as database:
            database.row_factory = sqlite3.Row
            found: Iterable[sqlite3.Row] = database.execute(
                f"SELECT * FROM {table} WHERE {conditions} ORDER BY {order}", tuple(where.values()))
            return [dict(row) for row in found]

    def runs(self) -> list[dict[str, Any]]:
        """All, the first one first; settings and versions by name."""
        found = self.rows("runs", {}, "id")
        for row in found:
            row["settings"], row["versions"] = json.loads(row["settings"]), json.loads(row["versions"])
        return found


PERIOD = 0.2
"""Seconds between two transactions."""
_DISTRIBUTIONS = ("mxnet", "numpy", "onnx")

Call = tuple[Any, ...]
"""(id, graph, number, id of the weights or 0, begin, seconds, thread, resident, peak, whether it is weights): as
`_core.TakenObservations` has those of weights."""
Observed = tuple[int, int, tuple[Any, ...], bytes]
"""(id of the call, place, statistics, hash), likewise."""


class Recorder:
    """Writes for one process. A forked child begins a run of its own."""

    def __init__(self, folder: Path, settings: Mapping[str, str]) -> None:
        """Raises OSError: the folder can't be made."""
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / NAME
        self._settings = dict(settings)
        self._graphs: list[_Graph] = []
        self._writing = ForkSafeLock()
        self._start()
        os.register_at_fork(before=self._writing.acquire, after_in_parent=self._writing.release,
                            after_in_child=self._after_fork)
        atexit.register(self.close)
        util.register_after_fork(self, lambda forked: util.Finalize(None, forked.close, exitpriority=0))

    def _start(self) -> None:
        self._started, self._run = time.time(), 0
        self._known: dict[int, int] = {}
        """How many tensors have rows, of each graph that has."""
        self._waiting: tuple[list[Call], list[Observed]] = [], []
        self._closed = threading.Event()
        threading.Thread(target=self._write_by_and_by, args=(self._closed,), name="ngraph-audit", daemon=True).start()

    def _after_fork(self) -> None:
        self._writing.release()
        if not self._closed.is_set():
            self._start()

    def add_graph(self, described: Described) -> int:
        """Before it is compiled; the number by which calls name it."""
        with self._writing:
            self._graphs.append(_Graph(described, memory("VmHWM")))
            return len(self._graphs) - 1

    def add_compiled(self, graph: int, constants: tuple[Call, list[Observed]] | None, prepared: int,
                     prepared_bytes: int) -> None:
        """When it is: the checkpoint of its constants, and how many weights are prepared."""
        with self._writing:
            self._graphs[graph].constants, self._graphs[graph].prepared = constants, (prepared, prepared_bytes)

    def add(self, call: Call, observed: list[Observed]) -> None:
        """Record a call, or weights, that was run in Python."""
        with self._writing:
            self._waiting[0].append(call)
            self._waiting[1].extend(observed)

    def close(self) -> None:
        """Write what is left, and nothing from then on."""
        self.write()
        self._closed.set()

    def _write_by_and_by(self, closed: threading.Event) -> None:
        while not closed.wait(PERIOD):
            self.write()

    def write(self) -> None:
        import ngraph_mxnet._core as _core

        with self._writing:
            if self._closed.is_set():
                return  # what there is now is another audit's
            taken = _core.TakenObservations()
            calls, observed = self._waiting
            self._waiting = [], []
            if not (calls or taken.calls or taken.dropped):
                return
            try:
                if not self._run:
                    self._run = new_run(self.path, self._run_row())
                append(self.path, self._rows(calls, observed, taken), self._batches(taken))
            except (sqlite3.Error, OSError) as error:
                self._closed.set()
                config.logger(__name__).warning("the audit ends: %s can't be written to: %s", self.path, error)

    def _run_row(self) -> tuple[Any, ...]:
        import ngraph_mxnet._core as _core

        found = {"ngraph_mxnet": __version__, HASH: _core.comparable_hash_version,
                 "python": platform.python_version(), "sqlite": sqlite3.sqlite_version, **versions_of(_DISTRIBUTIONS)}
        command = json.dumps(sys.orig_argv)
        settings = {**self._settings, "settings": config.compile_settings()}
        return (self._started, socket.gethostname(), os.getpid(), os.getppid(), command, json.dumps(settings),
                json.dumps(found))

    def _batches(self, taken: Any) -> Iterator[tuple[str, list[Any]]]:
        """Yield the rows that native code recorded, each batch with its table's name. Rows become Python objects a
        batch at a time, so that other threads do not wait long."""
        for table, count, values in (("calls", taken.calls, taken.call_values),
                                     ("statistics", taken.tensors, taken.tensor_values)):
            for begin in range(0, count, BATCH):
                yield table, values(self._run, begin, begin + BATCH)

    def _rows(self, calls: list[Call], observed: list[Observed], taken: Any) -> dict[str, list[tuple[Any, ...]]]:
        """All but `_batches`."""
        run, graphs, tensors = self._run, list[tuple[Any, ...]](), list[tuple[Any, ...]]()
        for number in sorted({*taken.graphs, *(call[1] for call in calls)}):
            graph, known = self._graphs[number], self._known.get(number)
            if known is None:
                graphs.append((run, number, *graph.columns()))
                if graph.constants is not None:
                    calls.append(graph.constants[0])
                    observed += graph.constants[1]
            described = graph.described.tensors
            tensors += [(run, number, each.place, each.kind, each.name, each.node, each.element, json.dumps(each.shape))
                        for each in described[known or 0:]]
            self._known[number] = len(described)
        by_owner: dict[int, list[Observed]] = {}
        for each in observed:
            by_owner.setdefault(each[0], []).append(each)
        return {
            "graphs": graphs,
            "tensors": tensors,
            "checkpoints": [self._checkpoint(call, of_weights) for call, of_weights in (
                *taken.weights(), *((call, by_owner[call[0]]) for call in calls if call[-1]))],
            "calls": [(run, *call[:7]) for call in calls if not call[-1]],
            "statistics": [(run, owner, place, *numbers, content) for owner, place, numbers, content in observed],
            "losses": [(run, taken.dropped)] if taken.dropped else [],
        }

    def _checkpoint(self, call: Call, weights: list[Observed]) -> tuple[Any, ...]:
        owner, graph, _, _, begin, _, _, resident, peak, _ = call
        tensors = {each.place: each for each in self._graphs[graph].described.tensors}
        hasher, size = hashlib.sha256(), 0
        for each, content in sorted(((tensors[place], content) for _, place, _, content in weights),
                                    key=lambda pair: (pair[0].name, pair[0].place)):
            hasher.update(repr((each.name, each.element, each.shape)).encode() + content)
            size += TensorType(element_type(each.element), each.shape).bytes
        return (self._run, owner, graph, begin, hasher.hexdigest(), len(weights), size, resident, peak)


@dataclass
class _Graph:
    """`peak_before`: the process's memory before it was compiled."""

    described: Described
    peak_before: int
    constants: tuple[Call, list[Observed]] | None = None
    prepared: tuple[int, int] = 0, 0

    def columns(self) -> tuple[Any, ...]:
        """Return the graph's columns in the table `graphs` that follow the graph's number."""
        of = self.described
        constants = self.constants[0][0] if self.constants is not None else 0
        return of.name, of.backend, of.digest, of.nodes, constants, *self.prepared, self.peak_before


def memory(line: str) -> int:
    """Bytes, of a line of this process's status: `VmRSS`, or `VmHWM`, the most that it ever had; 0 if not known."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(text.split()[1]) * 1024 for text in lines if text.startswith(f"{line}:")), 0)


Numbers = tuple[Any, ...]
"""(min, max, mean, norm, NaN, infinite, zeros, denormals), as `_core.statistics_and_hash` gives them."""
Observer = Callable[[Node, int, np.ndarray], None]
"""Called with what a node computed, by the number of its output; the array is valid during the call."""


class Values(Protocol):
    """A runner of a compiled graph that shows each value in the graph to an observer."""

    def run(self, native: Any, arrays: Sequence[np.ndarray], observe: Observer) -> list[np.ndarray]:
        """The results. `native` is the `_core.Executable`, where there is one; `arrays` are as `Executable.run` takes
        them."""


class Watch:
    def __init__(self, described: Described, recorder: Recorder | None, calls: Calls, every_value: bool,
                 within: Bounds | None) -> None:
        self._described, self._recorder, self._chosen, self._within = described, recorder, calls, within
        self._every_value = every_value
        self._number = recorder.add_graph(described) if recorder is not None else 0
        self._calls, self._lock = itertools.count(), ForkSafeLock()
        self._checkpoints: dict[tuple[int, bytes], int] = {}
        """By process and content."""
        self._values: Values | None = None
        self._observer: Any = None

    def attach(self, executable: Any) -> None:
        """From now on calls of this `runtime.Executable`, made of the graph, are recorded, and keep to the bounds."""
        import ngraph_mxnet._core as _core

        native = getattr(executable, "native", None)
        if self._every_value or self._within is not None:
            self._values = executable.values
        if self._recorder is not None:
            self._recorder.add_compiled(self._number, self._constants(), *executable.prepared)
        if native is not None:
            low, high, infinite = self._within or Bounds(0, 0, False)
            first, every = self._chosen if self._recorder is not None else Calls(0, 0)
            self._observer = _core.Observer(self._number, self._described.weights, first, every, low, high, infinite,
                                            self._explain if self._within else None, config.threads())
            _core.observe(native, self._observer)
        if native is None or (self._every_value and self._values is not None):
            executable.watch = self
        if self._every_value and self._values is None:
            config.logger(__name__).warning(
                "the audit has no values of graph %s but its inputs, weights and results: the backend %s does not show "
                "others", self._described.name, self._described.backend)

    def stop(self) -> None:
        self._recorder, self._within = None, None
        if self._observer is not None:
            self._observer.stop()

    def run(self, native: Any, run: Callable[[list[np.ndarray]], list[np.ndarray]],
            arrays: list[np.ndarray]) -> list[np.ndarray]:
        """A call in Python. `run` computes it where there is no `native`, a `_core.Executable`. Raises AuditError:
        numbers are out of the bounds."""
        recorder, number, within = self._recorder, next(self._calls), self._within
        chosen = recorder is not None and self._chosen.has(number)
        if native is not None:
            run = partial(self._run_native, native)
        if not chosen and within is None:
            return run(arrays)
        seen = _Seen(self._described, within, [(place, *observed(array, self._described.at(place).element))
                                               for place, array in enumerate(arrays)] if chosen else [])
        begin, clock = time.time(), time.perf_counter()
        if self._every_value and self._values is not None:
            results = self._values.run(native, arrays, seen.observe)
        else:
            results = run(arrays)
        seconds = time.perf_counter() - clock
        for place, result in enumerate(results, len(arrays)):
            seen.add(self._described.at(place), result)
        if recorder is not None and chosen:
            weights = set(self._described.weights)
            of_weights = [each for each in seen.found if each[0] in weights]
            checkpoint = self._checkpoint(recorder, of_weights) if of_weights else 0
            self._put(recorder, number, checkpoint, begin, seconds, [e for e in seen.found if e[0] not in weights])
        if seen.is_outside:
            raise AuditError(self._located(native, seen, arrays))
        return results

    def _run_native(self, native: Any, arrays: list[np.ndarray]) -> list[np.ndarray]:
        """Past the observer, which is for calls that do not come by way of Python."""
        import ngraph_mxnet._core as _core

        results = [np.empty(each.shape, element_type(each.element).numpy) for each in self._described.tensors
                   if each.kind == RESULT]
        _core.run_unobserved(native, arrays, results)
        return results

    def _explain(self, native: Any, arrays: list[np.ndarray], output: int, numbers: Numbers) -> str:
        """The error for a result that is out of the bounds."""
        seen = _Seen(self._described, self._within, [])
        seen.check(self._described.at(len(arrays) + output), numbers)
        return self._located(native, seen, arrays)

    def _located(self, native: Any, seen: _Seen, arrays: Sequence[np.ndarray]) -> str:
        """The error, with the node where it began: unless each value was seen, another run finds it."""
        if self._values is not None and not self._every_value:
            again = _Seen(self._described, self._within, [])
            self._values.run(native, arrays, again.observe)
            seen = again if again.is_outside else seen
        return seen.error(arrays)

    def _constants(self) -> tuple[Call, list[Observed]] | None:
        """The checkpoint of weights that were given to be constants."""
        elements = {each.place: each.element for each in self._described.tensors if each.place >= FIRST_CONSTANT}
        seen = [(place, *observed(np.asarray(array), elements[place]))
                for place, array in self._described.constants.items()]
        self._described.constants.clear()
        return self._weights(seen) if seen else None

    def _checkpoint(self, recorder: Recorder, seen: list[tuple[int, Numbers, bytes]]) -> int:
        """The number of the weights, which are recorded once for each content."""
        key = os.getpid(), b"".join(content for _, _, content in seen)
        with self._lock:
            if key not in self._checkpoints:
                call, found = self._weights(seen)
                recorder.add(call, found)
                self._checkpoints[key] = call[0]
            return self._checkpoints[key]

    def _weights(self, seen: list[tuple[int, Numbers, bytes]]) -> tuple[Call, list[Observed]]:
        import ngraph_mxnet._core as _core

        owner = _core.new_observation()
        call = (owner, self._number, 0, 0, time.time(), 0.0, threading.get_native_id(), memory("VmRSS"),
                memory("VmHWM"), True)
        return call, [(owner, *each) for each in seen]

    def _put(self, recorder: Recorder, number: int, checkpoint: int, begin: float, seconds: float,
             seen: list[tuple[int, Numbers, bytes]]) -> None:
        import ngraph_mxnet._core as _core

        owner = _core.new_observation()
        call = (owner, self._number, number, checkpoint, begin, seconds, threading.get_native_id(), 0, 0, False)
        recorder.add(call, [(owner, *each) for each in seen])


def observed(array: np.ndarray, element: str) -> tuple[Numbers, bytes]:
    """Statistics and hash of an array whose elements have this name."""
    import ngraph_mxnet._core as _core

    found: tuple[Numbers, bytes] = _core.statistics_and_hash(np.ascontiguousarray(array), element)
    return found


class _Seen:
    """The tensors seen in one call. `found`: tuples (place, statistics, hash)."""

    def __init__(self, described: Described, within: Bounds | None, found: list[tuple[int, Numbers, bytes]]) -> None:
        self._described, self._within, self.found = described, within, found
        self._outside: tuple[Tensor, Numbers] | None = None

    def observe(self, node: Node, index: int, array: np.ndarray) -> None:
        self.add(self._described.value(node, index), array)

    def add(self, tensor: Tensor, array: np.ndarray) -> None:
        numbers, content = observed(array, tensor.element)
        self.found.append((tensor.place, numbers, content))
        self.check(tensor, numbers)

    def check(self, tensor: Tensor, numbers: Numbers) -> None:
        """The first tensor that is out of the bounds counts."""
        if self._within is None or self._outside is not None or not tensor.element.startswith("f"):
            return
        low, high, _, _, nan, infinite, *_ = numbers
        if nan or (infinite and not self._within.infinite) or low < self._within.low or high > self._within.high:
            self._outside = tensor, numbers

    @property
    def is_outside(self) -> bool:
        return self._outside is not None

    def error(self, arrays: Sequence[np.ndarray]) -> str:
        """Return the message about the tensor that is out of the bounds, in a call with these inputs."""
        assert self._outside is not None
        tensor, (low, high, _, _, nan, infinite, *_) = self._outside
        text = (f"graph {self._described.name}: {phrase(tensor)} has {nan} NaN and {infinite} infinite numbers, the "
                f"others from {low:g} to {high:g}; the guard is {self._within}")
        odd = [self._described.at(place).name for place, array in enumerate(arrays)
               if array.dtype.kind == "f" and not np.isfinite(array).all()]
        return text + (f". NaN or infinite numbers were given in {', '.join(odd)}" if odd else "")
