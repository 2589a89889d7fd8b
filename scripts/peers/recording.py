"""Adds what was measured to the store of runs: a run for each peer of each case."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from ngraph_mxnet.tools.cli.runs import recorded_store
from ngraph_mxnet.tools.experiments.store import ROUND, Run, StoreError, add_runs, collect, own_command


def record_cases(kind: str, report: dict[str, Any], record: bool | None) -> None:
    """If that is wanted, by --record or NGRAPH_RUNS. What was measured is still to be shown: so an error is printed."""
    store = recorded_store(record)
    if store is None:
        return
    try:
        added = add_runs(store, list(runs_of(kind, report)))
        print(f"{len(added)} runs recorded in {store.path}", file=sys.stderr)
    except StoreError as error:
        print(f"error: nothing is recorded: {error}", file=sys.stderr)


def runs_of(kind: str, report: dict[str, Any]) -> Iterator[Run]:
    """The figures of each peer are its metrics."""
    found = collect(own_command())
    for case in report["cases"]:
        about = {name: case[name] for name in ("model", "batch", "threads", "cpus", "pause", "busy")}
        for result in case["results"]:
            metrics = {name: [(0, float(value))] for name, value in result.items() if isinstance(value, (int, float))}
            yield Run(kind, f"{case['model']}, {result['label']}", blocks=ROUND, samples=result["samples"],
                      settings={**about, "peer": result["peer"], "rounds": report["rounds"], "burst": report["burst"]},
                      metrics=metrics, facts={**found, "threads": case["threads"], "affinity": case["cpus"]})
