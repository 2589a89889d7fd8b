#!/usr/bin/env python3
"""Measure training steps with NGRAPH beside MXNet's own backends, TensorFlow and torch.compile.

A step is forward, backward and update, until the weights are written; docs/training.md says what of. Each peer is a
process of its own, stopped between its turns. Losses of the first steps and gradients are compared first. A peer that
isn't installed is left out with a notice.
Exit status: 0; 1 when a model failed or its losses or gradients are off; 2 for a wrong command line.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path

import click
import numpy as np
from peers import command, driver, spec, stats
from peers.process import PeerError
from peers.recording import record_cases
from peers.report import COMPARED, Result, print_report
from rich.console import Console
from training_peers.spec import NETS, TRAININGS, parse_models, training_of
from training_peers.worker import COMPARED as LOSSES
from workers import SCRIPTS, absolute_path

from ngraph_mxnet.tools.cli import options

WIDTH = 150
DEFAULT = "none,mkldnn,tensorflow,torch,ngraph"
TOLERANCES = {"loss": 1e-5, "later": 1e-3, "gradient": 1e-3}
"""Of the first loss; of those after a step; of gradients' norms, of the largest."""
TOLERANCE = 1e-4
"""What all of them together are held to, as `PeerSpec.tolerance`."""
ROUNDINGS = 5.0
"""So many times as far as MXNet's own by weights that are 1e-6 apart may results be off: nets with many batch norms
magnify roundings."""
NOTES = """\
ours/it: ratio of the medians over all rounds; paired: median over the rounds of the ratio in the same round. Below 1, \
NGRAPH is faster.
CPU: median CPU time of a step, all threads together, waiting in a spin included.
error: the largest difference of the first step's loss, the next two and the gradients' norms from MXNet's, scaled \
so that 1e-4 is what is tolerated: 1e-5, 1e-3 and 1e-3, or five times as far as MXNet's own move with weights that \
are 1e-6 apart.
compile: from bind to the end of the first step in a new process, after imports and with the weights there; warm: the \
same in another process that finds the disk cache filled.
peak: largest resident memory of the process, imports included; +imports: that of the imports alone."""


def compared(cases: dict[str, Callable[[Result], float | None]]) -> dict[str, Callable[[Result], float | None]]:
    """The figures of training among those of inference, under their own names."""
    names = {"median latency": "median step", "compile to first result": "bind and first step",
             "compile to first result, disk cache filled": "bind and first step, disk cache filled",
             "CPU time": "CPU time of a step", "peak resident memory": "peak resident memory"}
    return {theirs: cases[name] for name, theirs in names.items()}


def error(found: np.ndarray, expected: np.ndarray) -> float:
    """Of losses and of gradients' norms, in the proportion of what is tolerated of each; NaN where there is one."""
    parts = {"loss": slice(1), "later": slice(1, LOSSES), "gradient": slice(LOSSES, None)}
    found, nudged = np.split(found, 2)[0], np.split(expected, 2)[1]
    expected = np.split(expected, 2)[0]
    return TOLERANCE * float(np.max([
        stats.relative_error(found[part], expected[part])
        / max(TOLERANCES[name], ROUNDINGS * stats.relative_error(nudged[part], expected[part]))
        for name, part in parts.items()]))


def export(model: str, batch: int, folder: Path) -> str:
    """Write weights and batches unless they are there; the prefix of their names.

    Raises:
        PeerError: the export failed.
    """
    if not (folder / f"{model}-batches.npz").exists():
        environment = {**os.environ, **absolute_path(), "MXNET_SUBGRAPH_BACKEND": "NONE"}
        exporting = [sys.executable, "-m", "training_peers.export", model, str(folder)]
        done = subprocess.run(exporting, cwd=SCRIPTS, env=environment, capture_output=True, text=True)
        if done.returncode:
            raise PeerError(f"{model} can't be exported: {(done.stderr.strip() or 'no message').splitlines()[-1]}")
    return str(folder / model)


@cache
def has(python: str, module: str) -> bool:
    """Whether that Python finds the module."""
    code = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({module!r}) is None)"
    return subprocess.run([python, "-c", code]).returncode == 0


def python_of(peer: spec.PeerSpec, foreign: str) -> str:
    """The Python that has the peer: TensorFlow and PyTorch may have another, for they want other versions of NumPy."""
    return foreign if peer.module in ("tensorflow", "torch") else sys.executable


def program(peer: spec.PeerSpec, foreign: str) -> Sequence[str]:
    """Ours trains, whatever the default is."""
    training = peer.variables.get("NGRAPH_TRAINING", "1")
    return "env", f"NGRAPH_TRAINING={training}", python_of(peer, foreign), "-m", "training_peers.worker"


def installed(peers: Sequence[spec.PeerSpec], foreign: str) -> list[spec.PeerSpec]:
    """Those that can run; a notice for each other one."""
    found = []
    for peer in peers:
        if has(python_of(peer, foreign), peer.module):
            found.append(peer)
        else:
            click.echo(f"{peer.label} left out: {peer.module} is not installed in {python_of(peer, foreign)}", err=True)
    if not found:
        raise click.UsageError("none of the peers is installed")
    return found


def _print(report: command.Report, console: Console) -> None:
    """Tables, and what MXNet was left of our peers' models."""
    print_report(report, console, "steps", NOTES, compared(COMPARED))
    for case in report["cases"]:
        for result in case["results"]:
            if result["peer"].startswith("ngraph") and result["detail"]:
                what = f"{case['model']}, {result['label']}"
                console.print(f"{what}, left to MXNet: {result['detail']}", markup=False)


@click.command(context_settings={"help_option_names": ["-h", "--help"]}, epilog=(
    f"Models: {', '.join(TRAININGS)}; nets of other kinds (nets), which only MXNet's peers have: {', '.join(NETS)}. "
    f"Peers: {', '.join(spec.TRAIN)}; those of MXNet are Gluon blocks with a Trainer, "
    "with -module a Module. Environment variables for one peer stand in brackets: ngraph[VAR=VALUE,...]; "
    "ratios have the first of ngraph's on top."))
@click.option("--models", default="all", show_default=True, callback=command.parsed(parse_models),
              help="Models with commas between them.")
@click.option("--peers", default=DEFAULT, show_default=True,
              callback=command.parsed(partial(spec.parse_peers, kinds=spec.TRAIN)),
              help="Peers with commas between them.")
@click.option("--python", "foreign", default=sys.executable, metavar="PATH",
              help="The Python that has TensorFlow and PyTorch. Default: this one.")
@click.option("--threads", default="1", show_default=True, callback=command.parsed(spec.parse_numbers),
              help="Numbers of threads with commas between them.")
@click.option("--cpus", callback=command.parse_cpus, metavar="0,2,4-7",
              help="The CPUs to choose from, one for each thread, physical cores first. Default: all allowed.")
@command.surroundings
@click.option("--rounds", default=7, show_default=True, type=click.IntRange(1), help="Turns of each peer.")
@click.option("--burst", default=2, show_default=True, type=click.IntRange(1), help="Steps a turn.")
@click.option("--timeout", default=900.0, show_default=True, type=click.FloatRange(1),
              help="Seconds that one command to a peer may take.")
@click.option("--work", type=click.Path(file_okay=False, path_type=Path),
              help="A folder that keeps weights and batches for the next run. Default: none is kept.")
@options.record_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")
@click.option("--save", type=click.Path(dir_okay=False, path_type=Path), help="Write the JSON to a file too.")
def main(models: list[str], peers: list[spec.PeerSpec], foreign: str, threads: list[int], cpus: list[int],
         pauses: list[int], busies: list[int], rounds: int, burst: int, timeout: float, work: Path | None,
         record: bool | None, as_json: bool, save: Path | None) -> None:
    """Measure NGRAPH's training steps beside its peers'."""
    peers = installed(peers, foreign)
    cases = [driver.Case(case.model, training_of(case.model).samples, case.threads, case.cpus, case.pause, case.busy)
             for case in command.cases(models, [1], threads, cpus, pauses, busies)]
    plan = driver.Plan(tuple(peers), rounds, burst, 1, timeout, 1, export, partial(program, foreign=foreign), error)
    report = command.measured("bench_training.py", cases, plan, work, save)
    record_cases("bench_training", report, record)
    command.show(report, as_json, WIDTH, _print)
    sys.exit(1 if report["failures"] else 0)


if __name__ == "__main__":
    main()
