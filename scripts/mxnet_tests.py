#!/usr/bin/env python3
"""Run MXNet 1.9.1's own unit tests with and without NGRAPH, and print a table of files and every difference.

CHECKOUT is any clone of apache/mxnet at 1.9.1; nothing is written into it. Each file runs five times in processes of
its own: on MXNet alone; under NGRAPH; with training compiled, too; under NGRAPH with each compiled inference compared
with MXNet's operators; with training compiled and each step compared, too (mxnet_tests_plugin.py). All but the last two
give outcomes and CPU seconds. A process that dies costs the test that it ran; a further one runs the others.
scripts/mxnet_tests.sh makes the environment first.
Exit status: 0; 1 when a test passes without NGRAPH and not with it, or a result differs; 2 for a wrong command line.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import click

SCRIPTS = Path(__file__).resolve().parent
FILES = ("test_operator test_gluon test_gluon_rnn test_gluon_contrib test_gluon_model_zoo test_gluon_save test_module "
         "test_symbol test_executor test_loss test_rnn test_contrib_control_flow test_contrib_operator test_subgraph "
         "test_subgraph_op test_numpy_gluon test_numpy_op test_higher_order_grad").split()
WAYS = {"alone": {}, "ngraph": {"MXNET_SUBGRAPH_BACKEND": "NGRAPH", "NGRAPH_TRAINING": "0"},
        "trained": {"MXNET_SUBGRAPH_BACKEND": "NGRAPH", "NGRAPH_TRAINING": "1"},
        "compared": {"MXNET_SUBGRAPH_BACKEND": "NGRAPH", "NGRAPH_TRAINING": "0", "NGRAPH_TESTS_COMPARE": "1"},
        "stepped": {"MXNET_SUBGRAPH_BACKEND": "NGRAPH", "NGRAPH_TRAINING": "1", "NGRAPH_TESTS_COMPARE": "1"}}
BAD = ("mismatch", "failed", "error", "died", "timed out")


@dataclass
class Run:
    """One file, one way. `tests`: the log's last entry of each; `cpu`: seconds, of all processes that it started."""

    file: str
    way: str
    tests: dict[str, dict[str, Any]] = field(default_factory=dict)
    cpu: float = 0.0
    problem: str | None = None

    def outcome(self, test: str) -> str:
        return self.tests[test]["outcome"] if test in self.tests else "not run"

    def count(self, *outcomes: str) -> int:
        return sum(test["outcome"] in outcomes for test in self.tests.values())


def run_file(checkout: Path, file: str, way: str, limit: float, seed: int, scratch: Path, only: str | None) -> Run:
    """Run the tests of one file until all have an outcome, or the time is over."""
    run, end = Run(file, way), time.monotonic() + limit
    before = _children_cpu()
    while True:
        log = scratch / "log"
        log.unlink(missing_ok=True)
        status, output = _pytest(checkout, file, way, end - time.monotonic(), seed, log, list(run.tests), only)
        running = _read(log, run)
        if running is None:  # it came to its end, or never to a test
            if status not in (0, 1, 5):
                run.problem = f"pytest ended with {_status(status)}: {' | '.join(output.splitlines()[-3:])}"
            break
        late = time.monotonic() >= end
        run.tests[running] = {"outcome": "timed out" if late else "died", "message": _status(status), "mismatches": []}
        if late:
            run.problem = f"stopped after {limit:.0f} s, in {running}"
            break
    run.cpu = _children_cpu() - before
    return run


def _pytest(checkout: Path, file: str, way: str, seconds: float, seed: int, log: Path, done: list[str],
            only: str | None) -> tuple[int | None, str]:
    """The exit status, None if the time was over, and the output."""
    tests = checkout / "tests" / "python" / "unittest"
    line = [sys.executable, "-m", "pytest", "-p", "mxnet_tests_plugin", "-p", "no:cacheprovider", "-q", "--tb=line",
            "-c", os.devnull, "--rootdir", str(tests), str(tests / f"{file}.py")]
    line += ["-k", only] if only else []
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MXNET_", "NGRAPH_"))}
    environment |= {"PYTHONPATH": str(SCRIPTS), "PYTHONDONTWRITEBYTECODE": "1", "NGRAPH_TESTS_LOG": str(log),
                    "NGRAPH_TESTS_DONE": json.dumps(done),
                    "NGRAPH_CACHE_DIR": str(log.parent / "cache"), "MXNET_TEST_SEED": str(seed),
                    "MXNET_MODULE_SEED": str(seed), **WAYS[way]}
    work = log.parent / "work"
    work.mkdir(exist_ok=True)
    with (log.parent / "output").open("w+") as output:
        process = subprocess.Popen(line, cwd=work, env=environment, stdout=output, stderr=output,
                                   start_new_session=True)
        try:
            status: int | None = process.wait(max(seconds, 1))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            status = None
        output.seek(0)
        return status, output.read()


def _read(log: Path, run: Run) -> str | None:
    """Add the log's outcomes to the run; returns the test that was begun and not ended."""
    running = None
    for line in log.read_text().splitlines() if log.exists() else ():
        entry = json.loads(line)
        running = None if "outcome" in entry else entry["test"]
        if running is None:
            run.tests[entry["test"]] = entry
    return running


def _status(status: int | None) -> str:
    if status is None:
        return "the time limit"
    return signal.Signals(-status).name if status < 0 else f"exit status {status}"


def _children_cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


# ---- the report -------------------------------------------------------------------------------------------

def table(runs: dict[str, dict[str, Run]]) -> str:
    """A row a file, as Markdown."""
    lines = ["| file | alone: passed, failed, errors | CPU s | NGRAPH: passed, failed, errors | CPU s | ratio | "
             "trained: passed, failed, errors | CPU s | compared calls | tests that differ | compared, with steps | "
             "tests that differ |",
             "|---|---|---|---|---|---|---|---|---|---|---|---|"]
    for file, ways in runs.items():
        alone, ngraph, trained, *compared = (ways.get(way) for way in WAYS)
        ratio = f"{ngraph.cpu / alone.cpu:.2f}" if alone and ngraph and alone.cpu else "-"
        lines.append(f"| {file} | {_counts(alone)} | {_counts(ngraph)} | {ratio} | {_counts(trained)} | "
                     f"{' | '.join(map(_compared, compared))} |")
    return "\n".join(lines)


def _counts(run: Run | None) -> str:
    if run is None:
        return "- | -"
    failed, errors = run.count("failed", "mismatch"), run.count("error", "died", "timed out")
    return f"{run.count('passed')}, {failed}, {errors}{' (stopped)' if run.problem else ''} | {run.cpu:.0f}"


def _compared(run: Run | None) -> str:
    if run is None:
        return "- | -"
    tests = run.tests.values()
    return f"{sum(test.get('compared', 0) for test in tests)} | {sum(bool(test['mismatches']) for test in tests)}"


def differences(runs: dict[str, dict[str, Run]]) -> tuple[list[str], bool]:
    """Every difference as a line, and whether one of them is against NGRAPH."""
    lines, worse = [], False
    for file, ways in runs.items():
        lines += [f"{file}, {run.way}: {run.problem}" for run in ways.values() if run.problem]
        alone = ways.get("alone")
        for way, run in ways.items():
            for test, entry in run.tests.items():
                before = alone.outcome(test) if alone else "passed"
                if way != "alone" and entry["outcome"] != before and not entry["mismatches"]:
                    lines.append(f"{file}::{test}, {way}: {entry['outcome']}, alone {before}; {entry['message']}")
                    worse |= before == "passed" and entry["outcome"] in BAD
                texts = Counter(entry["mismatches"])
                lines += [f"{file}::{test}, {way}: {text}" + (f" ({count} times)" if count > 1 else "")
                          for text, count in texts.items()]
                worse |= bool(texts)
    return lines, worse


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("checkout", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--files", default=",".join(FILES), help="Names of test files, separated by commas.  [default: all]")
@click.option("--ways", default=",".join(WAYS), show_default=True, help="Some of them.")
@click.option("--limit", type=click.FloatRange(1), default=3600, show_default=True, help="Seconds for a file and way.")
@click.option("--seed", type=int, default=7, show_default=True, help="Of MXNet's tests, the same every way.")
@click.option("-k", "only", metavar="EXPRESSION", help="Only tests that it names, as pytest's -k.")
@click.option("--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), help="Write all outcomes there.")
def main(checkout: Path, files: str, ways: str, limit: float, seed: int, only: str | None,
         json_file: Path | None) -> None:
    """Run the unit tests of CHECKOUT, a clone of apache/mxnet at 1.9.1, with and without NGRAPH."""
    wanted, names = files.split(","), ways.split(",")
    if unknown := set(names) - set(WAYS):
        raise click.UsageError(f"found way {min(unknown)!r}, expected some of {', '.join(WAYS)}")
    for file in wanted:
        if not (checkout / "tests" / "python" / "unittest" / f"{file}.py").is_file():
            raise click.UsageError(f"{checkout} has no tests/python/unittest/{file}.py: is it a clone of apache/mxnet?")
    runs: dict[str, dict[str, Run]] = {}
    with tempfile.TemporaryDirectory(prefix="mxnet-tests-") as scratch:
        for file in wanted:
            for way in names:
                run = run_file(checkout.resolve(), file, way, limit, seed, Path(scratch), only)
                runs.setdefault(file, {})[way] = run
                click.echo(f"{file}, {way}: {dict(Counter(t['outcome'] for t in run.tests.values()))}, "
                           f"{run.cpu:.0f} s of CPU", err=True)
                if json_file is not None:
                    json_file.write_text(json.dumps([asdict(r) for by in runs.values() for r in by.values()], indent=1))
    lines, worse = differences(runs)
    click.echo("\n\n".join([table(runs), *(["\n".join(f"* {line}" for line in lines)] if lines else [])]))
    sys.exit(int(worse))


if __name__ == "__main__":
    main()
