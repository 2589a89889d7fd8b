"""`runs`: what was recorded, listed, shown, compared, drawn and exported."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich.markup import escape
from rich.table import Table

from ngraph_mxnet import config
from ngraph_mxnet.cli import options
from ngraph_mxnet.cli.models import console
from ngraph_mxnet.cli.writing import write_whole
from ngraph_mxnet.errors import ConfigError
from ngraph_mxnet.experiments import export as drawing
from ngraph_mxnet.experiments import export as exporting
from ngraph_mxnet.experiments.comparison import CONFIDENCE, SLOWER, compare_runs
from ngraph_mxnet.experiments.facts import differences
from ngraph_mxnet.experiments.processes import measured
from ngraph_mxnet.experiments.recording import add_runs
from ngraph_mxnet.experiments.store import LATENCY, Run, Store, default_path
from ngraph_mxnet.progress import progress

_DIGITS = 8
"""Of an id in a table."""
_RERUN = 10
"""Processes of each run that is measured anew."""
_SHOWN = 60
"""Characters of a value in a table of differences."""

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
@options.store_option
@options.json_option
def list_(kind: str | None, name: str | None, limit: int | None, store: Path | None, as_json: bool) -> None:
    """List runs, the oldest first."""
    found = Store(store or default_path()).runs(kind, name)
    found = found[-limit:] if limit else found
    rows: list[dict[str, Any]] = [
        {"run": run.id, "started": run.started, "kind": run.kind, "name": run.name, "status": run.status,
         "threads": run.facts.get("threads"), **_size(run), "median_ms": run.median(),
         "commit": _commit(run)} for run in found]
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    table = Table("run", "started", "kind", "name", "status", "threads", "samples", "median ms", "commit")
    for row in rows:
        median = row["median_ms"]
        table.add_row(row["run"][:_DIGITS], row["started"][:19], row["kind"], escape(row["name"]), row["status"],
                      str(row["threads"] or "-"), f"{row['blocks']} x {row['samples'] / max(row['blocks'], 1):g}",
                      "-" if median is None else f"{median:.3f}", row["commit"] or "-")
    console().print(table)


def _size(run: Run) -> dict[str, int]:
    blocks = run.samples.get(LATENCY) or next(iter(run.samples.values()), ())
    return {"blocks": len(blocks), "samples": sum(map(len, blocks))}


def _commit(run: Run) -> str | None:
    source = run.facts.get("source")
    return source["commit"][:_DIGITS] + "+" * source["dirty"] if source else None


@runs.command()
@click.argument("run")
@options.store_option
@options.json_option
def show(run: str, store: Path | None, as_json: bool) -> None:
    """Show all of a RUN: settings, metrics, samples, and what it depends on.

    A + behind a commit says that files were changed since.
    """
    found = Store(store or default_path()).find(run)
    if as_json:
        click.echo(exporting.to_json([found]), nl=False)
        return
    table = Table(show_header=False)
    command = shlex.join(["python", *found.facts["command"]]) if "command" in found.facts else "-"
    for name, value in (("run", found.id), ("session", found.session), ("kind", found.kind), ("name", found.name),
                        ("started", f"{found.started}, {found.seconds:.1f} s, {found.status}"), ("command", command),
                        ("commit", _commit(found) or "-")):
        table.add_row(name, escape(value))
    for name, value in found.settings.items():
        table.add_row(f"setting {name}", escape(_text(value)))
    for name, steps in found.metrics.items():
        table.add_row(f"metric {name}", f"{steps[-1][1]:.6g}" + f", the last of {len(steps)}" * (len(steps) > 1))
    for series, blocks in found.samples.items():
        count = sum(map(len, blocks))
        table.add_row(f"samples {series}", f"median {found.median(series):.3f} of {count} in {len(blocks)} blocks, "
                                           f"a {found.blocks} each")
    for name, value in found.facts.items():
        if name not in ("command", "source"):
            table.add_row(name, escape(_text(value)))
    console().print(table)


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
@options.store_option
@options.json_option
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
    if as_json:
        click.echo(json.dumps(found, indent=2))
    else:
        console().print(comparison_table(found))
        _print_differences(found["differences"])
    if fail_if_slower is not None and found["verdict"] == SLOWER and found["ratio"] > fail_if_slower:
        click.echo(f"Error: {found['new']} takes {found['ratio']:.3f} of the time of {found['base']}, "
                   f"{fail_if_slower:g} was allowed", err=True)
        sys.exit(1)


def compared(base: Run, new: Run, series: str, confidence: float = CONFIDENCE) -> dict[str, Any]:
    """What `compare` prints as JSON."""
    return {"base": base.id, "new": new.id, "series": series, "base_median": base.median(series),
            "new_median": new.median(series), **asdict(compare_runs(base, new, series, confidence)),
            "differences": differences(*({"settings": run.settings, **run.facts} for run in (base, new)))}


def comparison_table(found: Mapping[str, Any]) -> Table:
    table = Table("base", "new", f"base {found['series']}", f"new {found['series']}", "ratio",
                  f"{found['confidence']:.4g} interval", "recorded", "verdict")
    interval = "-" if found["low"] is None else f"{found['low']:.3f} to {found['high']:.3f}"
    verdict = found["verdict"] + (f": {found['reason']}" if found["reason"] else "")
    table.add_row(found["base"][:_DIGITS], found["new"][:_DIGITS], f"{found['base_median']:.3f}",
                  f"{found['new_median']:.3f}", f"{found['ratio']:.3f}", interval,
                  "in turns" if found["paired"] else "apart", verdict)
    return table


def _print_differences(found: Mapping[str, tuple[Any, Any]]) -> None:
    if not found:
        return
    table = Table("what differs", "base", "new")
    for name, values in found.items():
        table.add_row(name, *(escape(_text(value)[:_SHOWN]) for value in values))
    console().print(table)


@runs.command()
@click.argument("wanted", nargs=-1, required=True, metavar="RUN...")
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), required=True, metavar="FILE",
              help="The picture: .svg, .png or .pdf.")
@_series_option
@options.store_option
@options.json_option
def plot(wanted: tuple[str, ...], output: Path, series: str, store: Path | None, as_json: bool) -> None:
    """Draw the samples of runs, in their order and as boxes, with matplotlib."""
    place = Store(store or default_path())
    found = [place.find(one) for one in wanted]
    try:
        drawing.plot(found, series, output)
    except OSError as error:
        raise click.ClickException(f"{output}: {error.strerror}") from None
    click.echo(json.dumps({"file": str(output), "runs": [run.id for run in found]}) if as_json else f"{output}")


@runs.command()
@click.argument("wanted", nargs=-1, metavar="[RUN]...")
@click.option("--mlflow", type=click.Path(file_okay=False, path_type=Path), metavar="FOLDER",
              help="Add them to MLflow's file store there, usually mlruns.")
@click.option("--csv", "csv_file", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
              help="Write a row for each sample and metric.")
@options.store_option
@options.json_option
def export(wanted: tuple[str, ...], mlflow: Path | None, csv_file: Path | None, store: Path | None,
           as_json: bool) -> None:
    """Export runs, all if none are named, for other programs: as JSON or CSV, or to MLflow."""
    if (mlflow is not None) + (csv_file is not None) + as_json != 1:
        raise click.UsageError("say one of --mlflow FOLDER, --csv FILE and --json")
    place = Store(store or default_path())
    found = [place.find(one) for one in wanted] if wanted else place.runs()
    if as_json:
        click.echo(exporting.to_json(found), nl=False)
    elif csv_file is not None:
        write_whole(csv_file, exporting.to_csv(found))
        click.echo(f"{csv_file}: {len(found)} runs")
    elif mlflow is not None:
        try:
            written = exporting.write_mlflow(found, mlflow)
        except OSError as error:
            raise click.ClickException(f"{error.filename}: {error.strerror}") from None
        click.echo(f"{mlflow}: {len(written)} runs added, {len(found) - len(written)} were there")


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name}={_text(inner)}" for name, inner in value.items()) or "-"
    if isinstance(value, (list, tuple)):
        return " ".join(map(_text, value)) or "-"
    return "-" if value is None else str(value)
