"""Takes what was recorded in this process to the audit's file: on a thread of its own, and at the end.

Whatever goes wrong here is a warning: a program runs audited as it does otherwise, but for bounds.
"""

from __future__ import annotations

import atexit
import hashlib
import json
import os
import platform
import socket
import sqlite3
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from multiprocessing import util
from pathlib import Path
from typing import Any

from ngraph_mxnet import config
from ngraph_mxnet.auditing import database
from ngraph_mxnet.auditing.database import HASH
from ngraph_mxnet.auditing.tensors import Described
from ngraph_mxnet.forks import ForkSafeLock
from ngraph_mxnet.installation import versions_of
from ngraph_mxnet.ir.types import TensorType, element_type
from ngraph_mxnet.version import __version__

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
        self.path = folder / database.NAME
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
        """Write what was recorded until now."""
        from ngraph_mxnet import _core

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
                    self._run = database.new_run(self.path, self._run_row())
                database.append(self.path, self._rows(calls, observed, taken), self._batches(taken))
            except (sqlite3.Error, OSError) as error:
                self._closed.set()
                config.logger(__name__).warning("the audit ends: %s can't be written to: %s", self.path, error)

    def _run_row(self) -> tuple[Any, ...]:
        from ngraph_mxnet import _core

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
            for begin in range(0, count, database.BATCH):
                yield table, values(self._run, begin, begin + database.BATCH)

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
