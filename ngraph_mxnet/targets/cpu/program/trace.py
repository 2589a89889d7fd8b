"""The executor's spans: raw, and as events of a Chrome trace."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np

from ngraph_mxnet.base import config
from ngraph_mxnet.program.trace import Event, recorder

LEAST_PER_THREAD = 4096


@dataclass(frozen=True)
class Label:
    """The data that a span shows: see `csrc/core/trace.h`."""

    name: str
    category: str
    origin: str
    operations: float
    bytes: float
    tasks: int

    @property
    def kernel(self) -> str:
        """The name without the symbol's prefix and instruction set."""
        return kernel_name(self.name)


def kernel_name(symbol: str) -> str:
    """`ng_max_pool_blocked__avx2` to `max_pool_blocked`."""
    return symbol.removeprefix("ng_").split("__")[0]


@dataclass(frozen=True)
class Spans:
    """`events` has the fields of `csrc/core/trace.h`'s Event; times in nanoseconds of the steady clock."""

    labels: list[Label]
    events: np.ndarray
    dropped: int

    @staticmethod
    def take() -> Spans:
        """Return what the executor recorded, which is then forgotten."""
        from ngraph_mxnet import _core

        labels, events, dropped = _core.trace_take()
        return Spans([Label(*label) for label in labels], events, dropped)

    def chrome_events(self) -> list[Event]:
        """Convert the spans to events of a Chrome trace."""
        pid = os.getpid()
        return [_chrome(self.labels[event["label"]], event, pid) for event in self.events]


class ExecutorTrace:
    """The executor as a `runtime.trace.Source`."""

    def start(self, most: int) -> None:
        from ngraph_mxnet import _core

        _core.trace_start(max(most // config.threads(), LEAST_PER_THREAD))

    def take(self) -> tuple[list[Event], int]:
        spans = Spans.take()
        return spans.chrome_events(), spans.dropped


def trace_executor() -> None:
    """Record the executor's spans if NGRAPH_PROFILE is set."""
    active = recorder()
    if active is not None:
        active.add_source(ExecutorTrace())


def _chrome(label: Label, event: Any, pid: int) -> Event:
    """One span; of a kernel's operations and bytes it has its share of the tasks."""
    nanoseconds = int(event["end"] - event["begin"])
    args: dict[str, Any] = {"call": int(event["call"])}
    if label.category == "kernel":
        share = int(event["tasks"]) / label.tasks
        args |= {"origin": label.origin, "tasks": int(event["tasks"]), "bytes": round(label.bytes * share)}
        if label.operations:
            operations = label.operations * share
            args |= {"GFLOP": operations / 1e9, "GFLOP/s": round(operations / max(nanoseconds, 1), 2)}
    return {"name": label.kernel, "cat": label.category, "ph": "X", "ts": int(event["begin"]) / 1e3,
            "dur": nanoseconds / 1e3, "pid": pid, "tid": int(event["thread"]), "args": args}
