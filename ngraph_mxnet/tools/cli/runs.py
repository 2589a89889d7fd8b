"""`runs`: what was recorded, listed, shown, compared, drawn and exported; and `bench`: a model's latency.

It is measured in one process or several, recorded if wanted, and beside a recorded run.
"""

from __future__ import annotations

import json
import shlex
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from ngraph_mxnet.base import config
from ngraph_mxnet.base.errors import ConfigError
from ngraph_mxnet.base.rendered import facts_table, numbered, progress, table, view
from ngraph_mxnet.frontends.model import Model
from ngraph_mxnet.program.executable import Executable
from ngraph_mxnet.program.feeds import fitting_inputs, named_shapes
from ngraph_mxnet.tools.cli import options
from ngraph_mxnet.tools.cli.commands import ARGUMENTS
from ngraph_mxnet.tools.cli.models import compiled_model
from ngraph_mxnet.tools.cli.options import Shapes, write_whole
from ngraph_mxnet.tools.experiments import comparison
from ngraph_mxnet.tools.experiments.comparison import CONFIDENCE, SLOWER, compare_runs
from ngraph_mxnet.tools.experiments.store import (
    LATENCY,
    SAMPLES,
    Run,
    Store,
    add_runs,
    busy_processes,
    collect,
    default_path,
    differences,
    measured,
    plain,
)

if TYPE_CHECKING:
    from rich.table import Table

_DIGITS = 8
"""Of an id in a table."""
_RERUN = 10
"""Processes of each run that is measured anew."""

_series_option = click.option("--of", "series", default=LATENCY, show_default=True, metavar="SERIES",
                              help="Which samples; `runs show` says which a run has.")


def recorded_store(record: bool | None) -> Store | None:
    """Where to record, if that is wanted: by --record, or by NGRAPH_RUNS."""
    wanted = record if record is not None else bool(config.get("NGRAPH_RUNS"))
    return Store(default_path()) if wanted else None


def repeatable(run: Run) -> Run:
    """Raises ConfigError if it is none of `bench`, which measures in several processes."""
    if run.kind != "bench":
        raise ConfigError(f"run {run.id} is of {run.kind}, expected one of bench: scripts/reproduce.py repeats others")
    return run


@click.group()
def runs() -> None:
    """Runs that were recorded: list, show, compare, plot or export them.

    A RUN is the beginning of its id, last, or last~1 for the one before.
    """


@runs.command("list")
@click.option("--kind", help="Only runs of this program: bench, quantize, bench_peers, ...")
@click.option("--name", help="Only runs whose name contains this.")
@click.option("--limit", type=click.IntRange(1), help="Only so many, the newest.")
@options.takes("store", "json")
def list_(kind: str | None, name: str | None, limit: int | None, store: Path | None, as_json: bool) -> None:
    """List runs, the oldest first."""
    found = Store(store or default_path()).runs(kind, name)
    found = found[-limit:] if limit else found
    rows: list[dict[str, Any]] = [
        {"run": run.id, "started": run.started, "kind": run.kind, "name": run.name, "status": run.status,
         "threads": run.facts.get("threads"), **_size(run), "median_ms": run.median(),
         "commit": _commit(run)} for run in found]
    options.tell(as_json, rows, view(
        ({**row, "each": row["samples"] / max(row["blocks"], 1)} for row in rows), f"run {{run:.{_DIGITS}}}",
        "started {started:.19}", "kind {kind}", "name {name}", "status {status}", "threads {threads}",
        "samples {blocks} x {each:g}", "median ms {median_ms:.3f}", "commit {commit}"))


def _size(run: Run) -> dict[str, int]:
    blocks = run.samples.get(LATENCY) or next(iter(run.samples.values()), ())
    return {"blocks": len(blocks), "samples": sum(map(len, blocks))}


def _commit(run: Run) -> str | None:
    source = run.facts.get("source")
    return source["commit"][:_DIGITS] + "+" * source["dirty"] if source else None


@runs.command()
@click.argument("run")
@options.takes("store", "json")
def show(run: str, store: Path | None, as_json: bool) -> None:
    """Show all of a RUN: settings, metrics, samples, and what it depends on.

    A + behind a commit says that files were changed since.
    """
    found = Store(store or default_path()).find(run)
    if as_json:
        click.echo(comparison.to_json([found]), nl=False)
        return
    command = shlex.join(["python", *found.facts["command"]]) if "command" in found.facts else "-"
    rows = [("run", found.id), ("session", found.session), ("kind", found.kind), ("name", found.name),
            ("started", f"{found.started}, {found.seconds:.1f} s, {found.status}"), ("command", command),
            ("commit", _commit(found))]
    rows += [(f"setting {name}", _text(value)) for name, value in found.settings.items()]
    rows += [(f"metric {name}", f"{steps[-1][1]:.6g}" + f", the last of {len(steps)}" * (len(steps) > 1))
             for name, steps in found.metrics.items()]
    for series, blocks in found.samples.items():
        count = sum(map(len, blocks))
        rows.append((f"samples {series}", f"median {found.median(series):.3f} of {count} in {len(blocks)} blocks, a "
                                          f"{found.blocks} each"))
    rows += [(name, _text(value)) for name, value in found.facts.items() if name not in ("command", "source")]
    options.say(facts_table(rows))


@runs.command()
@click.argument("base")
@click.argument("new")
@_series_option
@click.option("--confidence", type=click.FloatRange(0.5, 0.9999), default=CONFIDENCE, show_default=True,
              help="Of the interval, beyond which the ratio must be 1 to be told from it.")
@click.option("--fail-if-slower", type=click.FloatRange(1), metavar="RATIO",
              help="Exit status 1 if NEW is slower, and its median more than RATIO times BASE's.")
@click.option("--rerun", is_flag=True, help="Measure both anew, in turns, record them, and compare these: what the "
                                            "machine did between two recordings is in neither then. Runs of bench.")
@click.option("--processes", type=click.IntRange(1), default=_RERUN, show_default=True, help="For --rerun, of each.")
@options.takes("store", "json")
def compare(base: str, new: str, series: str, confidence: float, fail_if_slower: float | None, rerun: bool,
            processes: int, store: Path | None, as_json: bool) -> None:
    """Say whether the run NEW is faster or slower than BASE, or that it can't be told.

    The ratio is of their medians: above 1 NEW is slower. docs/experiments.md says how it is judged.
    """
    place = Store(store or default_path())
    pair = [place.find(base), place.find(new)]
    if rerun:
        with progress("measuring", 2 * processes) as advance:
            pair = measured([repeatable(run) for run in pair], processes, advance)
        pair = add_runs(place, pair)
    found = compared(pair[0], pair[1], series, confidence)
    options.tell(as_json, found, comparison_table(found), (found["differences"] and table(
        "what differs", "base", "new", rows=((name, *map(_text, values))
                                             for name, values in found["differences"].items()))) or None)
    if fail_if_slower is not None and found["verdict"] == SLOWER and found["ratio"] > fail_if_slower:
        click.echo(f"Error: {found['new']} takes {found['ratio']:.3f} of the time of {found['base']}, "
                   f"{fail_if_slower:g} was allowed", err=True)
        sys.exit(1)


def compared(base: Run, new: Run, series: str, confidence: float = CONFIDENCE) -> dict[str, Any]:
    """What `compare` prints as JSON."""
    return {"base": base.id, "new": new.id, "series": series, "base_median": base.median(series),
            "new_median": new.median(series), **asdict(compare_runs(base, new, series, confidence)),
            "differences": differences(*({"settings": run.settings, **run.facts} for run in (base, new)))}


def comparison_table(found: Mapping[str, Any]) -> Table | None:
    series, id_ = found["series"], f":.{_DIGITS}}}"
    told = {"interval": None if found["low"] is None else f"{found['low']:.3f} to {found['high']:.3f}",
            "recorded": "in turns" if found["paired"] else "apart",
            "verdict": found["verdict"] + (f": {found['reason']}" if found["reason"] else "")}
    return view([{**found, **told}], "base {base" + id_, "new {new" + id_, f"base {series} {{base_median:.3f}}",
                f"new {series} {{new_median:.3f}}", "ratio {ratio:.3f}",
                f"{found['confidence']:.4g} interval {{interval}}", "recorded {recorded}", "verdict {verdict}")


@runs.command()
@click.argument("wanted", nargs=-1, required=True, metavar="RUN...")
@click.option("-o", "--output", type=options.NEW_FILE, required=True, metavar="FILE",
              help="The picture: .svg, .png or .pdf.")
@_series_option
@options.takes("store", "json")
def plot(wanted: tuple[str, ...], output: Path, series: str, store: Path | None, as_json: bool) -> None:
    """Draw the samples of runs, in their order and as boxes, with matplotlib."""
    place = Store(store or default_path())
    found = [place.find(one) for one in wanted]
    try:
        comparison.plot(found, series, output)
    except OSError as error:
        raise options.file_error(error, output) from None
    options.tell(as_json, {"file": str(output), "runs": [run.id for run in found]}, f"{output}")


@runs.command()
@click.argument("wanted", nargs=-1, metavar="[RUN]...")
@click.option("--mlflow", type=click.Path(file_okay=False, path_type=Path), metavar="FOLDER",
              help="Add them to MLflow's file store there, usually mlruns.")
@click.option("--csv", "csv_file", type=options.NEW_FILE, metavar="FILE",
              help="Write a row for each sample and metric.")
@options.takes("store", "json")
def export(wanted: tuple[str, ...], mlflow: Path | None, csv_file: Path | None, store: Path | None,
           as_json: bool) -> None:
    """Export runs, all if none are named, for other programs: as JSON or CSV, or to MLflow."""
    if (mlflow is not None) + (csv_file is not None) + as_json != 1:
        raise click.UsageError("say one of --mlflow FOLDER, --csv FILE and --json")
    place = Store(store or default_path())
    found = [place.find(one) for one in wanted] if wanted else place.runs()
    if as_json:
        click.echo(comparison.to_json(found), nl=False)
    elif csv_file is not None:
        write_whole(csv_file, comparison.to_csv(found))
        click.echo(f"{csv_file}: {len(found)} runs")
    elif mlflow is not None:
        try:
            written = comparison.write_mlflow(found, mlflow)
        except OSError as error:
            raise options.file_error(error) from None
        click.echo(f"{mlflow}: {len(written)} runs added, {len(found) - len(written)} were there")


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name}={_text(inner)}" for name, inner in value.items()) or "-"
    if isinstance(value, (list, tuple)):
        return " ".join(map(_text, value)) or "-"
    return "-" if value is None else str(value)


CPU_TIME, THROUGHPUT = "cpu_ms", "calls_per_second"
_RECORDED = 10
"""Processes of a run that is recorded, if no other number is asked for."""
_WARM_UP = 5


@click.command()
@options.runnable_argument
@options.takes("input", "model")
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
@options.one_model
def bench(context: click.Context, model: Model, shapes: Shapes, arrays: dict[str, np.ndarray], backend: str | None,
          settings: dict[str, Any], rounds: int, callers: int, pause: float, busy: int, processes: int | None,
          record: bool | None, against: str | None, samples_only: bool, as_json: bool) -> None:
    """Measure a model's latency, on random inputs if none are given: such as the model is made for (positions in its
    tables, lengths, masks), else normal ones, or integers 0 and 1.

    A symbol's weights are random too without --params. Beside other frameworks: scripts/bench_peers.py.
    """
    if against is not None and record is False:
        raise click.UsageError("--against records both runs: leave --no-record away")
    store = Store(default_path()) if against is not None else recorded_store(record)
    threads = settings.get("threads") or config.threads()
    precision = settings.get("precision") or config.get("NGRAPH_PRECISION")
    if not samples_only and (store is not None or (processes or 1) > 1):
        asked = plain({name: context.params[name] for name in (
            "model", "shapes", "dtypes", "params", "backend", "threads", "precision", "recipe", *_LOAD)})
        wanted = Run("bench", model.title, settings=asked, facts={
            **collect(own_command(context)), "threads": threads})
        base = repeatable(store.find(against)) if store is not None and against is not None else None
        _in_processes(wanted, base, processes or _RECORDED, store, as_json)
        return
    sizes = {**named_shapes(arrays), **shapes}
    model = model.fed(arrays)
    draws = model.draws(sizes)
    start = time.perf_counter()
    exe = compiled_model(model, sizes, backend, settings)
    inputs = fitting_inputs(exe.inputs, arrays, shapes, draws=draws)
    precision = exe.precision if isinstance(exe, Executable) else precision
    exe(inputs)
    compiled = (time.perf_counter() - start) * 1e3
    with busy_processes(busy):
        samples, per_second = _timed(exe, inputs, rounds, callers, pause / 1e3)
    if samples_only:
        click.echo(json.dumps({"samples": samples, "metrics": {"first_result_ms": compiled, THROUGHPUT: per_second}}))
        return
    _show({"model": model.title, "inputs": _types(inputs), "precision": precision, "threads": threads,
           "rounds": rounds, "callers": callers, "pause_ms": pause, "busy": busy, "first_result_ms": compiled,
           **_summary(samples), "per_second": per_second}, as_json)


def _types(inputs: Mapping[str, Any]) -> dict[str, str]:
    return {name: f"{array.dtype}[{','.join(map(str, array.shape))}]" for name, array in inputs.items()
            if isinstance(array, np.ndarray)}


_LOAD = {"rounds": None, "callers": 1, "pause": 0.0, "busy": 0}
"""What a run's settings may lack, with what that means."""


def own_command(context: click.Context) -> list[str]:
    """What runs this command again, with a Python in front."""
    return ["-m", "ngraph_mxnet", *context.meta[ARGUMENTS]]


def _in_processes(wanted: Run, base: Run | None, processes: int, store: Store | None, as_json: bool) -> None:
    runs = [wanted] if base is None else [base, wanted]
    with progress("measuring", processes * len(runs)) as advance:
        runs = measured(runs, processes, advance)
    if store is not None:
        runs = add_runs(store, runs)
    run = runs[-1]
    samples = {name: [sample for block in run.samples[name] for sample in block] for name in (LATENCY, CPU_TIME)}
    medians = {name: statistics.median(value for _, value in steps) for name, steps in run.metrics.items()}
    load = {**_LOAD, **run.settings}
    shapes = {name: f"[{','.join(map(str, shape))}]" for name, shape in load.get("shapes", {}).items()}
    found = {"model": run.name, "inputs": shapes,
             "precision": load.get("precision") or config.get("NGRAPH_PRECISION"),
             "threads": run.facts["threads"], "rounds": load["rounds"], "callers": load["callers"],
             "pause_ms": load["pause"], "busy": load["busy"], "processes": processes,
             "run": run.id if store is not None else None, "first_result_ms": medians["first_result_ms"],
             **_summary(samples), "per_second": medians[THROUGHPUT]}
    if base is not None:
        found["comparison"] = compared(runs[0], run, LATENCY)
    _show(found, as_json)


def _summary(samples: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    ordered = sorted(samples[LATENCY])
    return {"min_ms": ordered[0], "median_ms": statistics.median(ordered),
            **{f"p{share}_ms": ordered[-(-share * len(ordered) // 100) - 1] for share in (90, 99)},
            CPU_TIME: statistics.median(samples[CPU_TIME])}


def _show(found: dict[str, Any], as_json: bool) -> None:
    load = [numbered(found["threads"], "thread"), numbered(found["callers"], "caller")]
    load += [f"{found['pause_ms']:g} ms of pause"] * bool(found["pause_ms"])
    load += [f"beside {numbered(found['busy'], 'busy thread')}"] * bool(found["busy"])
    inputs = "".join(f", {name} {kind}" for name, kind in found["inputs"].items())
    options.tell(
        as_json, found, f"{found['model']}{inputs}, {found['precision']}: {', '.join(load)}", view(
            [found], ">first result {first_result_ms:.3f}", ">min {min_ms:.3f}", ">median {median_ms:.3f}",
            ">p90 {p90_ms:.3f}", ">p99 {p99_ms:.3f}", f">CPU {{{CPU_TIME}:.3f}}", ">a second {per_second:rate}",
            title="Milliseconds"),
        f"recorded as run {found['run']}" if found.get("run") else None,
        comparison_table(found["comparison"]) if "comparison" in found else None)


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
