#!/usr/bin/env python3
"""Examine other people's models: regions, what is left and why, agreement with MXNet, speed beside MKLDNN.

Each model has random weights and downloads nothing; crashes and hangs are its own. Finished results are kept, so an
interrupted run goes on where it was, and another may add steps. A model with the graph of an earlier one is not run
again. scripts/model_matrix.sh makes the environments first, which hold the libraries.
Exit status: 0; 1 when a model crashed, failed or differs; 2 for a wrong command line or environment.
"""

from __future__ import annotations

import datetime
import fnmatch
import json
import re
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import click
from matrix import driver
from matrix.report import (
    fails_as_file,
    is_right,
    is_same_as_file,
    is_slow,
    is_whole,
    ranking,
    resolved,
    traced,
    write_page,
)
from matrix.worker import LIBRARIES, STEPS
from peers.machine import describe
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

ROOT = Path(__file__).resolve().parents[1]
RUNTIME = "libngraph_runtime.so"
#: Where scripts/model_matrix.sh puts the environment of each library.
ENVIRONMENTS = {"gluon_zoo": "gluoncv", "gluoncv_models": "gluoncv", "gluonnlp_models": "gluonnlp",
                "gluonts_models": "gluonts"}


def _pythons(given: tuple[str, ...]) -> dict[str, str]:
    found = {name: str(ROOT / f".venv-matrix-{name}" / "bin" / "python") for name in set(ENVIRONMENTS.values())}
    for text in given:
        name, separator, path = text.partition("=")
        if not separator or name not in found:
            raise click.UsageError(f"found --python {text!r}, expected one of {', '.join(sorted(found))}, = and a path")
        found[name] = path
    return {library: found[name] for library, name in ENVIRONMENTS.items()}


def _chosen(entries: list[driver.Entry], genres: str | None, only: str | None) -> list[driver.Entry]:
    known = {entry.genre for entry in entries}
    wanted = {name.strip() for name in genres.split(",")} if genres else known
    if not wanted <= known:
        raise click.UsageError(f"found genre {min(wanted - known)!r}, expected some of {', '.join(sorted(known))}")
    patterns = [f"*{part.strip()}*" for part in (only or "").split(",")]
    return [entry for entry in entries
            if entry.genre in wanted and any(fnmatch.fnmatch(entry.name, pattern) for pattern in patterns)]


def _examine(plan: driver.Plan, entries: list[driver.Entry], everything: list[driver.Entry], again: bool,
             jobs: int) -> list[dict[str, Any]]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    known: dict[str, dict[str, str]] = {library: {} for library in LIBRARIES}
    examiner = driver.Examiner(plan)

    def note(found: dict[str, Any]) -> None:
        if "digest" in found and "same_as" not in found and "failure" not in found:
            known[found["library"]][found["digest"]] = found["model"]

    for entry in () if again else everything:
        if (found := driver.kept(plan, entry)) is not None:
            note(found)
    with Progress(*columns, console=Console(stderr=True, soft_wrap=True), auto_refresh=False) as progress:
        task = progress.add_task("", total=len(entries))

        def one(entry: driver.Entry) -> dict[str, Any]:
            found = None if again else driver.kept(plan, entry)
            if found is None:
                found = examiner.examine(entry, known[entry.library])
                note(found)
                progress.console.print(_line(found), markup=False, highlight=False)
            progress.update(task, description=entry.name)
            progress.advance(task)
            progress.refresh()  # only now: nothing else may run while a model is timed
            return found

        try:
            with ThreadPoolExecutor(jobs) as pool:
                return list(pool.map(one, entries))
        finally:
            examiner.close()


def _line(result: dict[str, Any]) -> str:
    """A result in a line."""
    name = f"{result['genre']}: {result['model']}"
    if "left_out" in result:
        return f"{name}: left out, {result['left_out']}"
    if "same_as" in result:
        return f"{name}: graph of {result['same_as']}"
    parts = [f"{result['regions']} regions, {sum(row[2] for row in result['left'])} nodes left"
             if "regions" in result else ""]
    figures = ("error", "block_error", "stage_error", "stage_boxes", "mkldnn_error", "ratio")
    parts += [f"{key} {result[key]:.2g}" for key in figures if key in result]
    parts += [f"as a file: {result['file']} {result.get('file_reason', '')}".strip()] if "file" in result else []
    parts += [f"{key} {result[key]:.0e}" if isinstance(result[key], float) else f"{key}: {result[key]}"
              for key in ("onnx", "onnx_openvino", "mxnet_onnx") if key in result]
    parts += [f"FAILED at {result['step']}: {result['failure']}"] if "failure" in result else []
    return f"{name}: {', '.join(filter(None, parts))}"


def _this_run() -> dict[str, str]:
    """What is kept with each figure: the day, the commit, the machine."""
    machine = describe()
    asked = subprocess.run(["git", "-C", ROOT, "describe", "--always", "--dirty"], capture_output=True, text=True,
                           check=False)
    return {"when": datetime.date.today().isoformat(), "commit": asked.stdout.strip() or "no checkout",
            "machine": f"{machine['cpu']}, {machine['cpus']} CPUs"}


_HEADER = """Generated by `scripts/model_matrix.py`; don't edit. The command was `{command}`.

{done} of {known} models were examined. Weights are random, and batch normalizations have the statistics of the data.
The batch is 1 unless the input says otherwise. R-CNNs have 60 regions. A model whose graph equals another's, except
for names and the number of classes, is not run again.

* *nodes* are the nodes that run in regions; *left* are those that stay with MXNet.
* *error* is the largest norm-wise relative difference of an output from MXNet's without a backend. For detectors it
  is the share of boxes without a counterpart (class, score and corners within 1e-3). For sampling nets it is the
  difference between the samples' means.
* *at most* is the error up to which a model is right. Where boxes differ, the model's stages must be right.
* *as a block* is the same error as a hybridized Gluon block.
* *file* is the size in megabytes of the file that `ngraph_mxnet.export` writes of the whole model, for the machine's
  own instruction set. A process with `ngraph_runtime`, without MXNet and this package, got the outputs of
  `ngraph_mxnet.compile` from it, bit by bit, on as many threads. Otherwise the column tells the failure. A model that
  draws random numbers draws its own outside MXNet: there the means of the samples agree, within 5 standard errors.
* *threads* is the number of threads of either backend during timing.
* *ratio* is our latency over that of MXNet's MKLDNN, the median over rounds in turns. Below 1, ours is faster. Ratios
  of one thread and of two are not mixed.
* *runs* names the runs below that found the figures.
* *MKLDNN's own error* means that MXNet's MKLDNN backend differs from MXNet without it by as much.

Where boxes differ, the graph is cut before each operator that orders its input (suppression, sorting), and MXNet gets
our input of each. If the stages then agree, scores tie except for their last bits."""


def _header(done: int, known: int) -> str:
    # Paths of this machine say nothing to a reader.
    command = re.sub(r" --(python|results|page|runtime) \S+", "",
                     shlex.join(["scripts/model_matrix.sh", *sys.argv[1:]]))
    return _HEADER.format(command=command, done=done, known=known)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--library", "libraries", multiple=True, type=click.Choice(LIBRARIES), help="Default: all.")
@click.option("--genre", help="Genres with commas between them. Default: all.")
@click.option("--only", metavar="PATTERN,...", help="Models whose name contains one of these; * and ? are wild.")
@click.option("--steps", default=",".join(STEPS), show_default=True,
              help="What to find out: regions, run (compare outputs), block (of a Gluon block too), file (whether it "
                   "runs without MXNet), time.")
@click.option("--threads", default=2, show_default=True, type=click.IntRange(1), help="Threads of either backend.")
@click.option("--jobs", default=1, show_default=True, type=click.IntRange(1), help="Models at once; 1 for times.")
@click.option("--timeout", default=600.0, show_default=True, type=click.FloatRange(1), help="Seconds for one model.")
@click.option("--python", "pythons", multiple=True, metavar="ENVIRONMENT=PATH",
              help="Another interpreter for gluoncv, gluonnlp or gluonts.")
@click.option("--runtime", default=ROOT / "build" / "runtime" / RUNTIME,
              type=click.Path(dir_okay=False, path_type=Path),
              help=f"Runs files. Default: build/runtime/{RUNTIME} in the checkout.")
@click.option("--results", default=ROOT / "build" / "model-matrix", type=click.Path(file_okay=False, path_type=Path),
              help="Where results are kept. Default: build/model-matrix in the checkout.")
@click.option("--again", is_flag=True, help="Examine anew what an earlier run has finished.")
@click.option("--kept", "kept_only", is_flag=True, help="Examine nothing: only what earlier runs have finished.")
@click.option("--page", type=click.Path(dir_okay=False, path_type=Path),
              help="Write this page, such as docs/models.md.")
@click.option("--ranking", "ranked", is_flag=True, help="Print what is left by the number of models that it breaks.")
@click.option("--json", "as_json", is_flag=True, help="Print the results as JSON.")
def main(libraries: tuple[str, ...], genre: str | None, only: str | None, steps: str, threads: int, jobs: int,
         timeout: float, pythons: tuple[str, ...], runtime: Path, results: Path, again: bool, kept_only: bool,
         page: Path | None, ranked: bool, as_json: bool) -> None:
    """Examine other people's models under NGRAPH."""
    wanted = tuple(step.strip() for step in steps.split(","))
    if not set(wanted) <= set(STEPS):
        raise click.UsageError(f"found --steps {steps!r}, expected some of {', '.join(STEPS)}")
    if "time" in wanted and jobs > 1:
        raise click.UsageError("times mean nothing with --jobs above 1")
    if "file" in wanted and not kept_only and not runtime.exists():
        raise click.UsageError(f"there is no {runtime}, which runs files: scripts/model_matrix.sh builds it")
    plan = driver.Plan(_pythons(pythons), wanted, threads, timeout, results.resolve(), _this_run(),
                       runtime.resolve())
    plan.folder.mkdir(parents=True, exist_ok=True)
    try:
        entries = [entry for library in libraries or LIBRARIES for entry in driver.list_models(plan, library)]
    except driver.MatrixError as error:
        raise click.UsageError(str(error)) from None
    chosen = _chosen(entries, genre, only)
    if kept_only:
        found = [result for entry in chosen if (result := driver.kept(plan, entry)) is not None]
    else:
        found = _examine(plan, chosen, entries, again, jobs)
    found = resolved(found)
    if page is not None:
        page.write_text(write_page(found, _header(len(found), len(chosen))))
    if as_json:
        click.echo(json.dumps(found))
    seen = traced(found)
    if ranked:
        click.echo(ranking(seen, lambda reason: reason))
    if not as_json:
        run = [result for result in seen if "error" in result]
        click.echo(f"{len(seen)} models traced, {sum(map(is_whole, seen))} one region with nothing left; "
                   f"{len(run)} run, {sum(map(is_right, run))} right, {sum(map(is_slow, run))} more than 10 % slower; "
                   f"{sum('file' in result for result in seen)} tried as a file, "
                   f"{sum(map(is_same_as_file, seen))} gave the same bits")
    bad = [result for result in seen if "failure" in result or fails_as_file(result)
           or ("error" in result and not is_right(result))]
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
