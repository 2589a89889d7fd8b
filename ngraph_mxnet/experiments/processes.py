"""Measures in several processes: of two programs in turns, so that what else the machine does is in both."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from ngraph_mxnet.environment import without_settings
from ngraph_mxnet.errors import NGraphError
from ngraph_mxnet.experiments import facts
from ngraph_mxnet.experiments.store import PROCESS, Run, now

SAMPLES = "--samples"
"""The option by which a program measures in its own process alone and prints `samples` and `metrics` as JSON."""
_LINES = 5
"""The most lines shown of what a process printed before it failed."""


class ProgramError(NGraphError):
    """A program that was to be measured failed."""


def measured(wanted: Sequence[Run], processes: int, advance: Callable[[], None] = lambda: None) -> list[Run]:
    """Each of these runs anew, in so many processes: with its command, variables and affinity.

    The processes of one run come in turns with those of the others, each first equally often.

    Args:
        advance: called after each process.

    Raises:
        ProgramError: a process failed.
    """
    started, start = now(), time.perf_counter()
    answers: list[list[Mapping[str, Any]]] = [[] for _ in wanted]
    environments = [environment_of(run.facts) for run in wanted]
    for turn in range(processes):
        order = range(len(wanted)) if turn % 2 == 0 else reversed(range(len(wanted)))
        for index in order:
            answers[index].append(_answer(wanted[index].facts, environments[index]))
            advance()
    seconds = time.perf_counter() - start
    return [replace(Run(run.kind, run.name), started=started, seconds=seconds, blocks=PROCESS, settings=run.settings,
                    facts=_facts_now(run.facts), **_joined(found)) for run, found in zip(wanted, answers, strict=True)]


def environment_of(recorded: Mapping[str, Any]) -> dict[str, str]:
    """This process's environment, with a run's variables and none others of their kind."""
    return {**without_settings(os.environ), **recorded["variables"]}


def affinity_of(recorded: Mapping[str, Any]) -> set[int]:
    """The run's CPUs, where this process may use them all; else its own."""
    wanted, allowed = set(recorded["affinity"]), os.sched_getaffinity(0)
    return wanted if wanted <= allowed else allowed


def pinned(command: Sequence[str], recorded: Mapping[str, Any]) -> list[str]:
    """This Python with the command, on the run's CPUs."""
    code = ("import os, sys; os.sched_setaffinity(0, map(int, sys.argv[1].split(','))); "
            "os.execv(sys.argv[2], sys.argv[2:])")
    cpus = ",".join(map(str, sorted(affinity_of(recorded))))
    return [sys.executable, "-I", "-S", "-c", code, cpus, sys.executable, *command]


def _answer(recorded: Mapping[str, Any], environment: Mapping[str, str]) -> Mapping[str, Any]:
    command = [*recorded["command"], SAMPLES]
    if not Path(recorded["folder"]).is_dir():
        raise ProgramError(f"{' '.join(command)} ran in {recorded['folder']}, which is not there")
    done = subprocess.run(pinned(command, recorded), cwd=recorded["folder"], env=environment, capture_output=True,
                          text=True)
    if done.returncode:
        said = "\n".join((done.stderr.strip() or "it printed nothing").splitlines()[-_LINES:])
        raise ProgramError(f"{' '.join(command)} ended with status {done.returncode}: {said}")
    try:
        answer: Mapping[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
        return {"samples": dict(answer["samples"]), "metrics": dict(answer["metrics"])}
    except (IndexError, KeyError, TypeError, ValueError):
        raise ProgramError(f"{' '.join(command)} printed {done.stdout[-200:]!r}, expected samples as JSON") from None


def _joined(answers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """A block for each process, and a step of each metric."""
    return {"samples": {series: [answer["samples"][series] for answer in answers] for series in answers[0]["samples"]},
            "metrics": {name: [(step, answer["metrics"][name]) for step, answer in enumerate(answers)]
                        for name in answers[0]["metrics"]}}


def _facts_now(recorded: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts of a run that was made anew. Command, folder, variables and threads are those recorded, and the
    affinity follows the recorded one. All else is collected now, since the recorded facts are of another time and
    another source."""
    kept = {name: recorded[name] for name in ("command", "folder", "variables", "threads")}
    return {**facts.collect(recorded["command"]), **kept, "affinity": sorted(affinity_of(recorded))}


_BUSY = "print(flush=True)\nwhile True: pass"


@contextmanager
def busy_processes(count: int, cpus: Iterable[int] | None = None) -> Iterator[None]:
    """So many processes that compute all the time, on these CPUs, or those of this process. They have begun when the
    block does."""
    chosen = None if cpus is None else set(cpus)
    started: list[subprocess.Popen[bytes]] = []
    try:
        for _ in range(count):
            started.append(subprocess.Popen([sys.executable, "-S", "-c", _BUSY], stdout=subprocess.PIPE))
        for process in started:
            if chosen is not None:
                os.sched_setaffinity(process.pid, chosen)
            assert process.stdout is not None
            process.stdout.readline()
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()
