#!/usr/bin/env python3
"""Try mutants of the files that the package reads, of others' models and of its own; keep those that break something.

`fuzz_files.py params FOLDER --runs 200000`. Needs `pip install '.[fuzz]'`, or with `--blind` no more than the package;
for symbols also the extra `test`, and for compiled models ngraph-runtime or its library in NGRAPH_RUNTIME_LIBRARY. A
process that dies is started anew, with the mutants that it found so far. FOLDER gets `error-*` (an exception that is
none of ours, with its traceback), and `killed-*` (a crash; SIGPROF: more than the seconds allowed). `corpus` in it is
read again by the next run.
Exit status: 0; 1 when there is a finding; 2 for a wrong command line.
"""

from __future__ import annotations

import sys
from pathlib import Path

import click
from fuzzing import frame


@click.command(help=(__doc__ or "").partition("\n")[0])
@click.argument("target", type=click.Choice(["params", "symbol", "text", "model", "package", "store", "artefact"]))
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path, resolve_path=True))
@click.option("--runs", default=200_000, show_default=True, help="Mutants to try.")
@click.option("--seconds", default=float("inf"), help="Until when further ones are begun.  [default: no limit]")
@click.option("--limit", default=10, show_default=True, help="Seconds of the CPU, for one mutant.")
@click.option("--memory", default=1024, show_default=True, help="MiB, beyond what the process has before the first.")
@click.option("--seed", default=1, show_default=True, help="Of the first process; later ones count on.")
@click.option("--blind", is_flag=True, help="Draw mutants by chance, without atheris: many more a second.")
@click.option("--file", "files", multiple=True, type=click.Path(exists=True, dir_okay=False, resolve_path=True),
              help="One more to make mutants of; may be given again.")
def main(target: str, folder: Path, runs: int, seconds: float, limit: int, memory: int, seed: int,
         blind: bool, files: tuple[str, ...]) -> None:
    def arguments(left: int, starts: int, rest: float) -> list[object]:
        return [target, folder, left, seed + starts, memory, limit, rest, *files]

    try:
        tally = frame.drive("fuzzing.worker", folder, runs, arguments, _settings(target, folder, blind), seconds)
    except frame.WorkerError as error:
        raise click.ClickException(str(error)) from None
    found = sorted(path.name for kind in ("error", "killed") for path in folder.glob(f"{kind}-*") if not path.suffix)
    print(f"{tally.tried} mutants in {tally.seconds:.0f} s, {tally.starts} processes, {len(found)} findings")
    print(*(folder / name for name in found[:20]), sep="\n")
    sys.exit(bool(found))


def _settings(target: str, folder: Path, blind: bool) -> dict[str, str]:
    """Only the store is to be written to; one thread, as mutants are small."""
    cache = str(folder / "cache") if target == "store" else "off"
    guided = {} if blind else {"FUZZ_GUIDED": "1"}
    return {"NGRAPH_CACHE_DIR": cache, "OMP_NUM_THREADS": "1", "NGRAPH_LOG_LEVEL": "error", **guided}


if __name__ == "__main__":
    main()
