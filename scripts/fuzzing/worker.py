"""`python -m fuzzing.worker TARGET FOLDER RUNS SEED MIB SECONDS`: atheris makes mutants and tries them, in bounds.

FOLDER gets `error-*` for each kind of exception that is no answer, a mutant and a traceback. `current` is the mutant in
hand, for whoever finds this process dead, and `tried` the number of mutants so far. `corpus` holds the seeds, and the
mutants that led to new code.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
import traceback
import zlib
from pathlib import Path
from random import Random
from types import TracebackType

import atheris

_READERS = [
    "ngraph_mxnet.frontends.onnx",
    "ngraph_mxnet.program.cache",
    "ngraph_mxnet.program",
    "ngraph_mxnet.targets.cpu.program",
]
with atheris.instrument_imports(include=_READERS):
    import ngraph_mxnet.frontends.onnx.importer
    import ngraph_mxnet.frontends.onnx.rules  # noqa: F401  (both are imported late, and would not be measured)
    from fuzzing.targets import TARGETS

_DIGITS = 12
_WALL_FACTOR = 100
"""The limit of real time over that of the CPU's: what waits for ever takes none, and a busy machine gives few."""


def main(name: str, folder: Path, runs: int, seed: int, mib: int, seconds: int) -> None:
    target = TARGETS[name]
    corpus = folder / "corpus"
    if not corpus.exists():
        corpus.mkdir(parents=True)
        for number, content in enumerate(target.seeds()):
            (corpus / f"seed{number}").write_bytes(content)
    seeds = [path.read_bytes() for path in sorted(corpus.glob("seed*"))]
    current, counter = folder / "current", folder / "tried"
    counting = os.open(counter, os.O_RDWR | os.O_CREAT, 0o600)
    tried = int(os.pread(counting, _DIGITS, 0) or 0)
    last = tried + runs
    mutated = False

    def mutator(content: bytes, most: int, number: int) -> bytes:
        nonlocal mutated
        mutated = True
        try:
            return target.mutate(content, seeds, Random(number))[:most]
        except Exception:  # out of here it would leave a process that waits for ever
            traceback.print_exc()
            os._exit(2)

    def attempt(content: bytes) -> None:
        nonlocal mutated, tried
        current.write_bytes(content)
        tried += mutated
        os.pwrite(counting, b"%*d" % (_DIGITS, tried), 0)
        mutated = False
        signal.setitimer(signal.ITIMER_PROF, seconds)
        try:
            target.attempt(content)
        except Exception as error:  # all but the answers, which the target knows
            _record(folder, content, error)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        if tried >= last:
            os._exit(0)  # libFuzzer would count what it reads of the corpus, too

    bound = [f"-seed={seed}", f"-max_len={target.most_bytes}", f"-timeout={seconds * _WALL_FACTOR}", "-rss_limit_mb=0",
             f"-report_slow_units={seconds * _WALL_FACTOR}", "-exact_artifact_path=/dev/null", "-reload=0",
             "-handle_segv=0", "-handle_abrt=0", "-handle_bus=0", "-handle_fpe=0", "-handle_ill=0"]
    atheris.Setup([sys.argv[0], *bound, str(corpus)], attempt, custom_mutator=mutator)
    signal.signal(signal.SIGPROF, signal.SIG_DFL)  # ends the process, in native code too
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + (mib << 20)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    atheris.Fuzz()


def _record(folder: Path, content: bytes, error: Exception) -> None:
    """One file for each kind: the type of the error and the innermost lines of the package."""
    kind = zlib.crc32("\n".join([type(error).__name__, *_lines(error.__traceback__)]).encode())
    path = folder / f"error-{kind:08x}"
    if not path.exists():
        path.write_bytes(content)
        path.with_suffix(".txt").write_text("".join(traceback.format_exception(error)))


def _lines(found: TracebackType | None) -> list[str]:
    frames = [frame for frame in traceback.extract_tb(found) if "ngraph_mxnet" in frame.filename]
    return [f"{frame.filename}:{frame.lineno}" for frame in frames[-2:]]


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), *(int(number) for number in sys.argv[3:7]))
