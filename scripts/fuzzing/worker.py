"""`python -m fuzzing.worker TARGET FOLDER RUNS SEED MIB LIMIT SECONDS FILES...`: try mutants in bounds.

With FUZZ_GUIDED in the environment atheris makes the mutants of those that led to new code before, else each is one of
the seeds or of a mutant that was taken. A mutant may take LIMIT seconds of the CPU, and no further one is begun after
SECONDS.

FOLDER gets `error-*` for each kind of exception that is no answer, a mutant and a traceback. `current` is the mutant in
hand, for whoever finds this process dead, and `tried` the number of mutants so far. `corpus` holds the seeds, FILES
among them, and the mutants that led to new code.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
import time
import traceback
import zlib
from pathlib import Path
from random import Random
from types import TracebackType

_IS_GUIDED = "FUZZ_GUIDED" in os.environ
_READERS = [
    "ngraph_mxnet.frontends.mxnet",
    "ngraph_mxnet.frontends.onnx",
    "ngraph_mxnet.program.cache",
    "ngraph_mxnet.program",
    "ngraph_mxnet.targets.cpu.program",
]
if _IS_GUIDED:
    import atheris

    with atheris.instrument_imports(include=_READERS):
        import ngraph_mxnet.frontends.mxnet.model
        import ngraph_mxnet.frontends.onnx.importer
        import ngraph_mxnet.frontends.onnx.rules  # noqa: F401  (all are imported late, and would not be measured)

from fuzzing.targets import TARGETS, Target  # noqa: E402  (it imports what is measured)

_DIGITS = 12
_WALL_FACTOR = 100
"""The limit of real time over that of the CPU's: what waits for ever takes none, and a busy machine gives few."""
_MOST_TAKEN = 1 << 10


class Trials:
    """The mutants that this process tries, one after the other."""

    def __init__(self, target: Target, folder: Path, runs: int, seconds: float, limit: int) -> None:
        self._target, self._folder, self._limit = target, folder, limit
        self._counting = os.open(folder / "tried", os.O_RDWR | os.O_CREAT, 0o600)
        self._tried = int(os.pread(self._counting, _DIGITS, 0) or 0)
        self._last, self._deadline = self._tried + runs, time.monotonic() + seconds

    def attempt(self, content: bytes, *, counts: bool = True) -> bool:
        """Try a mutant, and tell whether it was taken. Ends the process behind the last one."""
        (self._folder / "current").write_bytes(content)
        self._tried += counts
        os.pwrite(self._counting, b"%*d" % (_DIGITS, self._tried), 0)
        signal.setitimer(signal.ITIMER_PROF, self._limit)
        taken = False
        try:
            taken = self._target.attempt(content)
        except Exception as error:  # all but the answers, which the target knows
            _record(self._folder, content, error)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        if self._tried >= self._last or time.monotonic() > self._deadline:
            os._exit(0)  # libFuzzer would count what it reads of the corpus, too
        return taken


def main(name: str, folder: Path, runs: int, seed: int, mib: int, limit: int, seconds: float, files: list[str]) -> None:
    target, corpus = TARGETS[name], folder / "corpus"
    if not corpus.exists():
        corpus.mkdir(parents=True)
        for number, content in enumerate([*target.seeds(), *(Path(file).read_bytes() for file in files)]):
            (corpus / f"seed{number}").write_bytes(content)
    seeds = [path.read_bytes() for path in sorted(corpus.glob("seed*"))]
    trials = Trials(target, folder, runs, seconds, limit)  # from here on its time counts
    signal.signal(signal.SIGPROF, signal.SIG_DFL)  # ends the process, in native code too
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + (mib << 20)
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    if _IS_GUIDED:
        _guided(target, trials, seeds, seed, limit, corpus)
    else:
        _blind(target, trials, seeds, Random(seed))


def _blind(target: Target, trials: Trials, seeds: list[bytes], random: Random) -> None:
    taken: list[bytes] = []
    while True:
        content = random.choice(taken if taken and random.random() < 0.25 else seeds)
        mutant = target.mutate(content, seeds, random)[:target.most_bytes]
        if trials.attempt(mutant):
            place = random.randrange(_MOST_TAKEN)
            taken[place:place + 1] = [mutant]


def _guided(target: Target, trials: Trials, seeds: list[bytes], seed: int, limit: int, corpus: Path) -> None:
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
        nonlocal mutated
        counts, mutated = mutated, False
        trials.attempt(content, counts=counts)

    bound = [f"-seed={seed}", f"-max_len={target.most_bytes}", f"-timeout={limit * _WALL_FACTOR}", "-rss_limit_mb=0",
             f"-report_slow_units={limit * _WALL_FACTOR}", "-exact_artifact_path=/dev/null", "-reload=0",
             "-handle_segv=0", "-handle_abrt=0", "-handle_bus=0", "-handle_fpe=0", "-handle_ill=0"]
    atheris.Setup([sys.argv[0], *bound, str(corpus)], attempt, custom_mutator=mutator)
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
    main(sys.argv[1], Path(sys.argv[2]), *map(int, sys.argv[3:7]), float(sys.argv[7]), sys.argv[8:])
