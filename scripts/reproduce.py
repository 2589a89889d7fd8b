#!/usr/bin/env python3
"""Run again what was recorded, with its command, environment variables, threads and CPUs, and compare.

RUN is the beginning of its id, last, or last~1 for the one before. If CPU, versions or commit are others now, it warns
first. The new run is recorded in the same store.
Exit status: 0; 1 when the program failed or recorded nothing, or with --fail-if-slower; 2 for a wrong command line.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import click

from ngraph_mxnet.base.errors import NGraphError
from ngraph_mxnet.tools.cli import options
from ngraph_mxnet.tools.cli.runs import compared, comparison_table
from ngraph_mxnet.tools.experiments.comparison import SLOWER
from ngraph_mxnet.tools.experiments.store import (
    LATENCY,
    ProgramError,
    Run,
    Store,
    add_runs,
    collect,
    default_path,
    differences,
    environment_of,
    measured,
    pinned,
)

IN_PROCESSES = "bench"
"""The kind whose processes are started one by one; all others run their command as a whole."""


def warnings(run: Run) -> list[str]:
    """What is other now than when it was recorded, and can't be set."""
    now = collect(run.facts["command"])
    fixed = ("machine", "packages", "python", "source")
    found = differences(*({name: one.get(name) for name in fixed} for one in (run.facts, now)))
    texts = [f"{name} was {was}, is {is_}" for name, (was, is_) in found.items() if name != "source.dirty"]
    if (run.facts.get("source") or {}).get("dirty"):
        texts.append("files were changed since the commit, which is not recorded")
    missing = sorted(set(run.facts["affinity"]) - os.sched_getaffinity(0))
    return [*texts, *([f"CPUs {missing} can't be used here"] if missing else [])]


def run_again(run: Run, store: Store) -> Run:
    """The new run, which is in the store.

    Raises:
        ProgramError: the program failed, or has recorded no such run.
    """
    if run.kind == IN_PROCESSES:
        blocks = max(map(len, run.samples.values()), default=1)
        return add_runs(store, measured([run], blocks))[0]
    if not Path(run.facts["folder"]).is_dir():
        raise ProgramError(f"it ran in {run.facts['folder']}, which is not there")
    before = {one.id for one in store.runs()}
    environment = {**environment_of(run.facts), "NGRAPH_RUNS": str(store.path.absolute())}
    done = subprocess.run(pinned(run.facts["command"], run.facts), cwd=run.facts["folder"], env=environment,
                          stdout=sys.stderr)
    found = [one for one in store.runs(run.kind, run.name)
             if one.id not in before and one.name == run.name and one.settings == run.settings]
    if done.returncode or not found:
        raise ProgramError(f"{shlex.join(run.facts['command'])} ended with status {done.returncode}, and recorded "
                           f"{len(found)} runs of {run.name}")
    return found[-1]


@click.command(help=__doc__.partition("\nExit")[0])
@click.argument("run")
@options.store_option
@click.option("--fail-if-slower", type=click.FloatRange(1), metavar="RATIO",
              help="Exit status 1 if it is slower now, and its median more than RATIO times the recorded one.")
@options.json_option
def main(run: str, store: Path | None, fail_if_slower: float | None, as_json: bool) -> None:
    place = Store(store or default_path())
    try:
        wanted = place.find(run)
        texts = warnings(wanted)
        for text in texts:
            click.echo(f"warning: {text}", err=True)
        new = run_again(wanted, place)
        found = compared(wanted, new, LATENCY) if LATENCY in wanted.samples else None
    except NGraphError as error:
        raise click.ClickException(str(error)) from None
    metrics = {name: (steps[-1][1], dict(new.metrics).get(name, [(0, None)])[-1][1])
               for name, steps in wanted.metrics.items()}
    if as_json:
        click.echo(json.dumps({"base": wanted.id, "new": new.id, "warnings": texts, "metrics": metrics,
                               "comparison": found}, indent=2))
    else:
        click.echo(f"recorded as run {new.id}")
        for name, (was, is_) in metrics.items():
            click.echo(f"{name}: was {was}, is {is_}")
        if found is not None:
            options.say(comparison_table(found))
    if found and fail_if_slower is not None and found["verdict"] == SLOWER and found["ratio"] > fail_if_slower:
        sys.exit(1)


if __name__ == "__main__":
    main()
