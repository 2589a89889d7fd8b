#!/usr/bin/env python3
"""Try random models in random configurations; keep those whose results differ from the interpreter's and a judge's.

`fuzz_values.py FOLDER --runs 200000`. The judges are ONNX Runtime and native MXNet: `pip install '.[test,judge]'`. A
process that dies is started anew; where a judge had the trial in hand, or dies of it alone, that is counted, and no
finding. FOLDER gets `wrong-*`, each a folder with a model made small, what it was called by, and `why.txt`, whose
command runs it again: `fuzz_values.py --replay FOLDER/wrong-*`. Where a judge is wrong,
scripts/fuzzing/values/departures.py says so. Exit status: 0; 1 when there is a finding; 2 for a wrong command line.
"""

from __future__ import annotations

import json
import subprocess
import sys
import traceback
from collections import Counter
from pathlib import Path

import click
from fuzzing import frame

_WORKER = "fuzzing.values.worker"
_SETTINGS = {"NGRAPH_CACHE_DIR": "off", "OMP_NUM_THREADS": "2", "NGRAPH_LOG_LEVEL": "error",
             "MXNET_SUBGRAPH_BACKEND": "NONE", "MXNET_SUBGRAPH_VERBOSE": "0"}
_PATIENCE = 300.0
"""Seconds by the clock that one trial may take, with what makes it small: families limit those of the CPU."""
_OF_MXNETS_HANDLER = 255
"""The exit status behind a signal that MXNet's own handler has told."""


@click.command(help=(__doc__ or "").partition("\n")[0])
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path, resolve_path=True))
@click.option("--runs", default=200_000, show_default=True, help="Trials.")
@click.option("--seconds", default=float("inf"), help="Until when further ones are begun.  [default: no limit]")
@click.option("--seed", default=1, show_default=True, help="Of all trials.")
@click.option("--family", "families", multiple=True, help="Only trials of this family; may be given again.")
@click.option("--bf16", "emulation", flag_value="bf16", help="On a CPU without AVX512_BF16, run its kernels on AVX2.")
@click.option("--amx", "emulation", flag_value="amx", help="On a CPU with AVX512_BF16, emulate AMX's tiles.")
@click.option("--replay", is_flag=True, help="Run the finding in FOLDER again.")
@click.option("--coverage", "shows_coverage", is_flag=True, help="Say what ran, and what never did.")
def main(folder: Path, runs: int, seconds: float, seed: int, families: tuple[str, ...], emulation: str | None,
         replay: bool, shows_coverage: bool) -> None:
    if replay:
        sys.exit(_replay(folder))
    try:
        tally = frame.drive(_WORKER, folder, runs, lambda left, starts, rest: [folder, left, seed, rest, *families],
                            {**_SETTINGS, "FUZZ_EMULATION": emulation or ""}, seconds, _PATIENCE)
    except frame.WorkerError as error:
        raise click.ClickException(str(error)) from None
    for path in tally.killed:
        if json.loads(path.read_text())["judging"] or _judge_dies(path):
            path.rename(path.with_name(path.name.replace("killed", "judge")))
        else:
            subprocess.run([sys.executable, "-m", _WORKER, "--crash", path], cwd=frame.SCRIPTS, check=False)
    found = sorted(path.name for kind in ("wrong", "killed") for path in folder.glob(f"{kind}-*"))
    path = folder / "tally.json"
    outcomes = Counter(json.loads(path.read_text()) if path.exists() else {})
    outcomes["the judge ended the process"] = len(list(folder.glob("judge-*")))
    for name in sorted(outcomes):
        print(f"  {outcomes[name]:7} {name}")
    if shows_coverage:
        from fuzzing.values import coverage

        print(coverage.report(folder / "coverage.json"))
    print(f"{tally.tried} trials of seed {seed} in {tally.seconds:.0f} s, {tally.starts} processes, "
          f"{len(found)} findings")
    for name in found[:20]:
        why = folder / name / "why.txt"
        print(folder / name, *(why.read_text().splitlines()[:3] if why.exists() else []), sep="\n  ")
    sys.exit(bool(found))


def _judge_dies(path: Path) -> bool:
    """Whether the judge alone ends a process, too: what we leave to MXNet, MXNet runs."""
    try:
        status = subprocess.run([sys.executable, "-m", _WORKER, "--judge", path], cwd=frame.SCRIPTS, check=False,
                                timeout=_PATIENCE).returncode
    except subprocess.TimeoutExpired:
        return False
    return status < 0 or status == _OF_MXNETS_HANDLER


def _replay(folder: Path) -> int:
    from fuzzing.values import findings, worker
    from fuzzing.values.kinds import check

    worker.load_families()
    try:
        print(check(findings.load(folder)))
    except Exception:
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    main()
