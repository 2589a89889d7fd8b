"""What the commands of the benchmarks share: their options, measuring with a bar of progress, what they print."""

from __future__ import annotations

import compileall
import datetime
import json
import os
import shlex
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeVar

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from ngraph_mxnet.program.cache import PACKAGE
from peers import driver, machine, spec
from peers.process import PeerError

T = TypeVar("T")
Report = dict[str, Any]
"""What was measured, and where: as JSON has it."""


def parsed(parse: Callable[[str], T]) -> Callable[[click.Context, click.Parameter, str], T]:
    """The callback of an option whose text `parse` reads."""

    def callback(context: click.Context, parameter: click.Parameter, value: str) -> T:
        try:
            return parse(value)
        except spec.SpecError as error:
            raise click.BadParameter(str(error)) from None

    return callback


def parse_cpus(context: click.Context, parameter: click.Parameter, value: str | None) -> list[int]:
    """CPU numbers, such as 0,2,4-7; all that this process may use when not given."""
    allowed = os.sched_getaffinity(0)
    if value is None:
        return sorted(allowed)
    cpus: list[int] = []
    for part in value.split(","):
        first, _, last = part.partition("-")
        if not (first.isdecimal() and (last or first).isdecimal()):
            raise click.BadParameter(f"found {value!r}, expected CPU numbers such as 0,2,4-7")
        cpus.extend(range(int(first), int(last or first) + 1))
    if not set(cpus) <= allowed:
        raise click.BadParameter(f"found {value!r}, expected some of {sorted(allowed)}")
    return cpus


def surroundings(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of how calls come, and beside what."""
    command = click.option("--busy", "busies", default="0", show_default=True, callback=parsed(spec.parse_counts),
                           help="Processes that compute beside the calls, on their CPUs; numbers with commas between "
                                "them.")(command)
    return click.option("--pause", "pauses", default="0", show_default=True, callback=parsed(spec.parse_counts),
                        help="Milliseconds of rest behind each call, as a server has them; numbers with commas between "
                             "them.")(command)


def cases(models: list[str], batches: list[int], threads: list[int], cpus: list[int], pauses: Sequence[int] = (0,),
          busies: Sequence[int] = (0,)) -> list[driver.Case]:
    """Each model with each batch size and number of threads, on some of the CPUs, with each pause and number of busy
    processes."""
    try:
        chosen = {count: tuple(machine.choose_cpus(count, cpus)) for count in threads}
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    return [driver.Case(model, batch, count, chosen[count], pause, busy)
            for model in models for batch in batches for count in threads for pause in pauses for busy in busies]


def measured(script: str, cases: Sequence[driver.Case], plan: driver.Plan, work: Path | None,
             save: Path | None) -> Report:
    """Measure case by case; one that fails is noted, and the next one comes.

    Args:
        work: a folder that keeps the models' files; without one they are there while a model is measured.
        save: a file that has the report after each case, so that an interrupted run leaves its results.
    """
    report: Report = {
        "machine": machine.describe(), "date": datetime.date.today().isoformat(),
        "command": shlex.join(["python", f"scripts/{script}", *sys.argv[1:]]),
        "rounds": plan.rounds, "burst": plan.burst, "cases": [], "failures": [],
    }
    if work is not None:
        work = work.resolve()
        work.mkdir(parents=True, exist_ok=True)
    # As an installation leaves them. A process that may not write bytecode would compile each module that it imports.
    compileall.compile_dir(PACKAGE, quiet=2)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), auto_refresh=False) as progress:
        _measure(cases, plan, work, save, progress, report)
    return report


def show(report: Report, as_json: bool, width: int, print_tables: Callable[[Report, Console], None]) -> None:
    """Print JSON, or tables of at least that width where there is no terminal."""
    if as_json:
        click.echo(json.dumps(report))
        return
    console = Console()
    if not console.is_terminal:
        console.width = width
    print_tables(report, console)


def _measure(cases: Sequence[driver.Case], plan: driver.Plan, work: Path | None, save: Path | None,
             progress: Progress, report: Report) -> None:
    """The same, into the report."""
    task = progress.add_task("", total=len(cases) * plan.steps())

    def advance(what: str) -> None:
        progress.update(task, description=what)
        progress.refresh()  # only now: nothing else may run while a peer does
        progress.advance(task)

    with ExitStack() as stack:
        models, model = work, ""
        for index, case in enumerate(cases):
            if work is None and case.model != model:  # one model's files at a time: the zoo's are 3 GB
                stack.close()
                model, models = case.model, Path(stack.enter_context(tempfile.TemporaryDirectory()))
            assert models is not None
            with tempfile.TemporaryDirectory() as scratch:
                try:
                    report["cases"].append(driver.measure(case, plan, models, Path(scratch), advance))
                except PeerError as error:
                    report["failures"].append({"model": str(case), "reason": str(error)})
                    progress.console.print(f"failed: {case}: {error}", markup=False)
            if save is not None:
                save.write_text(json.dumps(report, indent=1) + "\n")
            progress.update(task, completed=(index + 1) * plan.steps())
        progress.refresh()
