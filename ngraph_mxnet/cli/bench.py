"""`bench`: a model's latency, in one process or several, recorded if wanted, and beside a recorded run."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.table import Table

from ngraph_mxnet import config
from ngraph_mxnet.cli import options
from ngraph_mxnet.cli.commands import ARGUMENTS
from ngraph_mxnet.cli.loading import Shapes, draws_for, load_model
from ngraph_mxnet.cli.models import console, settings_of
from ngraph_mxnet.cli.runs import compared, comparison_table, recorded_store, repeatable
from ngraph_mxnet.experiments import facts
from ngraph_mxnet.experiments.processes import SAMPLES, busy_processes, measured
from ngraph_mxnet.experiments.recording import add_runs, plain
from ngraph_mxnet.experiments.store import LATENCY, Run, Store, default_path
from ngraph_mxnet.progress import progress
from ngraph_mxnet.runtime.feeds import fitting_inputs, named_shapes

CPU_TIME, THROUGHPUT = "cpu_ms", "calls_per_second"
_RECORDED = 10
"""Processes of a run that is recorded, if no other number is asked for."""
_WARM_UP = 5


@click.command()
@options.runnable_argument
@options.shape_option
@options.input_option
@options.params_option
@options.backend_option
@options.threads_option
@options.precision_option
@click.option("--rounds", type=click.IntRange(1), default=50, show_default=True,
              help="Calls to measure, of each caller in a process.")
@click.option("--callers", type=click.IntRange(1), default=1, show_default=True,
              help="Threads that call the model at once, as a server's do: latencies and calls a second are those of "
                   "all.")
@click.option("--pause", type=click.FloatRange(0), default=0.0, show_default=True, metavar="MS",
              help="Milliseconds that each caller rests between its calls, as requests of a server come.")
@click.option("--busy", type=click.IntRange(0), default=0, show_default=True,
              help="Processes that compute all the time beside the calls.")
@click.option("--processes", type=click.IntRange(1),
              help=f"Measure in so many new processes; runs are compared by them. By default in this one, or, of what "
                   f"is recorded, in {_RECORDED}.")
@options.record_option
@click.option("--against", metavar="RUN", help="Measure the `bench` of that run, too, in turns; record both, and "
                                               "compare them.")
@click.option(SAMPLES, "samples_only", is_flag=True, hidden=True)
@options.json_option
@click.pass_context
def bench(context: click.Context, model: str, shapes: Shapes, arrays: dict[str, np.ndarray], params: str | None,
          backend: str | None, threads: int | None, precision: str | None, rounds: int, callers: int,
          pause: float, busy: int, processes: int | None, record: bool | None, against: str | None, samples_only: bool,
          as_json: bool) -> None:
    """Measure a model's latency, on random inputs if none are given: such as the model is made for (positions in its
    tables, lengths, masks), else normal ones, or integers 0 and 1.

    A symbol's weights are random too without --params. Beside other frameworks: scripts/bench_peers.py.
    """
    if against is not None and record is False:
        raise click.UsageError("--against records both runs: leave --no-record away")
    store = Store(default_path()) if against is not None else recorded_store(record)
    if not samples_only and (store is not None or (processes or 1) > 1):
        settings = plain({name: value for name, value in context.params.items() if name in (
            "model", "shapes", "params", "backend", "threads", "precision", "rounds", "callers", "pause",
            "busy")})
        command = ["-m", "ngraph_mxnet", *context.meta[ARGUMENTS]]
        wanted = Run("bench", Path(model).name, settings=settings, facts={
            **facts.collect(command), "threads": threads or config.threads()})
        base = repeatable(store.find(against)) if store is not None and against is not None else None
        _in_processes(wanted, base, processes or _RECORDED, store, as_json)
        return
    sizes = {**named_shapes(arrays), **shapes}
    draws = draws_for(model, sizes)
    start = time.perf_counter()
    exe = load_model(model, sizes, params, backend, settings_of(threads, precision))
    inputs = fitting_inputs(exe.inputs, arrays, shapes, draws=draws)
    exe(inputs)
    compiled = (time.perf_counter() - start) * 1e3
    with busy_processes(busy):
        samples, per_second = _timed(exe, inputs, rounds, callers, pause / 1e3)
    if samples_only:
        click.echo(json.dumps({"samples": samples, "metrics": {"first_result_ms": compiled, THROUGHPUT: per_second}}))
        return
    _show({"model": Path(model).name, "threads": threads or config.threads(), "rounds": rounds, "callers": callers,
           "pause_ms": pause, "busy": busy, "first_result_ms": compiled, **_figures(samples), "per_second": per_second},
          as_json)


def _in_processes(wanted: Run, base: Run | None, processes: int, store: Store | None, as_json: bool) -> None:
    runs = [wanted] if base is None else [base, wanted]
    with progress("measuring", processes * len(runs)) as advance:
        runs = measured(runs, processes, advance)
    if store is not None:
        runs = add_runs(store, runs)
    run = runs[-1]
    samples = {name: [sample for block in run.samples[name] for sample in block] for name in (LATENCY, CPU_TIME)}
    medians = {name: statistics.median(value for _, value in steps) for name, steps in run.metrics.items()}
    found = {"model": run.name, "threads": run.facts["threads"], "rounds": run.settings["rounds"],
             "callers": run.settings.get("callers", 1), "pause_ms": run.settings.get("pause", 0.0),
             "busy": run.settings.get("busy", 0), "processes": processes,
             "run": run.id if store is not None else None, "first_result_ms": medians["first_result_ms"],
             **_figures(samples), "per_second": medians[THROUGHPUT]}
    if base is not None:
        found["comparison"] = compared(runs[0], run, LATENCY)
    _show(found, as_json)


def _figures(samples: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    ordered = sorted(samples[LATENCY])
    return {"min_ms": ordered[0], "median_ms": statistics.median(ordered),
            **{f"p{share}_ms": ordered[-(-share * len(ordered) // 100) - 1] for share in (90, 99)},
            CPU_TIME: statistics.median(samples[CPU_TIME])}


def _show(found: dict[str, Any], as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    table = Table("model", "threads", "callers", "pause ms", "busy", "first result ms", "min ms", "median ms", "p90 ms",
                  "p99 ms", "CPU ms", "a second")
    table.add_row(str(found["model"]), str(found["threads"]), str(found["callers"]), f"{found['pause_ms']:g}",
                  str(found["busy"]),
                  *(f"{found[key]:.3f}" for key in ("first_result_ms", "min_ms", "median_ms", "p90_ms", "p99_ms",
                                                    CPU_TIME)),
                  f"{found['per_second']:.1f}")
    shown = console()
    shown.print(table)
    if found.get("run"):
        shown.print(f"recorded as run {found['run']}", highlight=False, soft_wrap=True)
    if "comparison" in found:
        shown.print(comparison_table(found["comparison"]))


def _timed(exe: Any, inputs: Mapping[str, np.ndarray], rounds: int, callers: int,
           pause: float) -> tuple[dict[str, list[float]], float]:
    """Milliseconds of each call of all callers, after a few that do not count; of CPU time of all threads for a call;
    calls a second. Each caller rests for `pause` seconds behind a call."""
    def timed(count: int) -> list[float]:
        found = []
        for _ in range(count):
            start = time.perf_counter()
            exe(inputs)
            found.append((time.perf_counter() - start) * 1e3)
            if pause:
                time.sleep(pause)
        return found

    with ThreadPoolExecutor(callers) as pool:
        each = pool.map if callers > 1 else map
        list(each(timed, [_WARM_UP] * callers))
        start, cpu_start = time.perf_counter(), time.process_time()
        latencies = [sample for one in each(timed, [rounds] * callers) for sample in one]
        seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu_start
    return {LATENCY: latencies, CPU_TIME: [cpu_seconds * 1e3 / len(latencies)]}, len(latencies) / seconds
