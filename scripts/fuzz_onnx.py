#!/usr/bin/env python3
"""Try mutants of ONNX models, of what the cache keeps and of compiled models; keep those that break something.

`fuzz_onnx.py model FOLDER --runs 200000`. Needs `pip install '.[fuzz]'`, and for compiled models ngraph-runtime or its
library in NGRAPH_RUNTIME_LIBRARY. A process that dies is started anew, with the
mutants that it found so far. FOLDER gets `error-*` (an exception that is none of ours, with its traceback), and
`killed-*` (a crash; SIGPROF: more than the seconds allowed); `corpus` in it is read again by the next run.
Exit status: 0; 1 when there is a finding; 2 for a wrong command line.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import click

_SCRIPTS = Path(__file__).resolve().parent


@click.command(help=(__doc__ or "").partition("\n")[0])
@click.argument("target", type=click.Choice(["model", "package", "store", "artefact"]))
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path, resolve_path=True))
@click.option("--runs", default=200_000, show_default=True, help="Mutants to try.")
@click.option("--seconds", default=10, show_default=True, help="Of the CPU, for one mutant.")
@click.option("--memory", default=1024, show_default=True, help="MiB, beyond what the process has before the first.")
@click.option("--seed", default=1, show_default=True, help="Of the first process; later ones count on.")
def main(target: str, folder: Path, runs: int, seconds: int, memory: int, seed: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    counter, start = folder / "tried", time.monotonic()
    first = _count(counter)
    starts = 0
    while _count(counter) - first < runs:
        left = runs - (_count(counter) - first)
        numbers = map(str, (left, seed + starts, memory, seconds))
        with (folder / "log").open("wb") as log:
            done = subprocess.run([sys.executable, "-m", "fuzzing.worker", target, folder, *numbers], cwd=_SCRIPTS,
                                  stdout=log, stderr=subprocess.STDOUT, env={**os.environ, **_settings(target, folder)},
                                  check=False)
        starts += 1
        if done.returncode:
            if not (folder / "current").exists():
                raise click.ClickException(f"the worker failed; {folder / 'log'} says why")
            code = done.returncode
            name = signal.Signals(-code).name if code < 0 else f"exit{code}"
            os.replace(folder / "current", folder / f"killed-{name}-{_count(counter)}")
    found = sorted(path.name for kind in ("error", "killed") for path in folder.glob(f"{kind}-*") if not path.suffix)
    print(f"{_count(counter) - first} mutants in {time.monotonic() - start:.0f} s, {starts} processes, "
          f"{len(found)} findings")
    print(*found[:20], sep="\n")
    sys.exit(bool(found))


def _count(counter: Path) -> int:
    return int(counter.read_text() or 0) if counter.exists() else 0


def _settings(target: str, folder: Path) -> dict[str, str]:
    """Only the store is to be written to; one thread, as mutants are small."""
    cache = str(folder / "cache") if target == "store" else "off"
    return {"NGRAPH_CACHE_DIR": cache, "OMP_NUM_THREADS": "1", "NGRAPH_LOG_LEVEL": "error"}


if __name__ == "__main__":
    main()
