"""Records what a program measures: `record` for scripts and trainings."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from ngraph_mxnet.experiments import facts
from ngraph_mxnet.experiments.store import Run, Store, default_path


class Recording:
    """Collects metrics and samples of a run in this process."""

    def __init__(self) -> None:
        self.metrics: dict[str, list[tuple[int, float]]] = {}
        self.samples: dict[str, list[float]] = {}

    def metric(self, name: str, value: float) -> None:
        """The next value of a metric, as an epoch's loss."""
        steps = self.metrics.setdefault(name, [])
        steps.append((len(steps), float(value)))

    def sample(self, series: str, value: float) -> None:
        """One more measurement of a series, as `latency_ms`."""
        self.samples.setdefault(series, []).append(float(value))


@contextmanager
def record(kind: str, name: str, settings: Mapping[str, Any], store: str | Path | None = None) -> Iterator[Recording]:
    """Record what happens within as a run, with status failed if it raises.

    Args:
        kind: the program, as `train_digits`.
        name: what it measures.
        settings: what JSON can hold; other values become text.
        store: the file; by default that of NGRAPH_RUNS, or the user's.

    Raises:
        StoreError: it can't be written.
    """
    found = facts.collect(facts.own_command())
    run = Run(kind, name, settings=plain(settings), facts=found)
    recording, status, start = Recording(), "failed", time.perf_counter()
    try:
        yield recording
        status = "finished"
    finally:
        Store(Path(store) if store is not None else default_path()).add(replace(
            run, seconds=time.perf_counter() - start, status=status, metrics=recording.metrics,
            samples={series: [block] for series, block in recording.samples.items()}))


def add_runs(store: Store, runs: Sequence[Run]) -> list[Run]:
    """Add runs of one session, of one call of a program. Returns them as they are in the store."""
    session = uuid.uuid4().hex
    added = [replace(run, session=session, settings=plain(run.settings)) for run in runs]
    for run in added:
        store.add(run)
    return added


def plain(settings: Mapping[str, Any]) -> dict[str, Any]:
    """With texts for what JSON can't hold; without what was not given."""
    return {name: _plain(value) for name, value in settings.items() if value not in (None, (), {})}


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)
