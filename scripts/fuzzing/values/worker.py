"""`python -m fuzzing.values.worker FOLDER RUNS SEED SECONDS FAMILY...` tries trials, one after the other.

FOLDER gets `wrong-*`, a folder for each kind of failure, with the shrunk trial. `current` says which trial is in hand,
for whoever finds this process dead; `--crash FILE` makes that trial small, in processes of their own, unless it was too
slow: then it stays as it is. `--judge FILE` has the judge alone run it. `tried` is the number of trials so far,
`tally.json` what came of them, `coverage.json` what ran.
"""

from __future__ import annotations

import json
import signal
import sys
import time
import traceback
from collections import Counter
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Any

from fuzzing.values import coverage, departures, findings
from fuzzing.values.kinds import KINDS, check
from fuzzing.values.shrinking import Drawn, isolated
from fuzzing.values.trials import FAMILIES, Trial

_DIGITS = 12
_KEPT_EVERY = 20
_SHRINKING = 30.0
"""Seconds for one finding."""
_MOST_OF_A_KIND = 3
"""After so many failures that look alike, others like them are only counted."""


class Session:
    """Trials in one process, and the files in which it keeps what came of them."""

    def __init__(self, folder: Path, seed: int, families: list[str]) -> None:
        self.folder, self.seed = folder, seed
        self.families = [FAMILIES[name] for name in families or FAMILIES]
        self.outcomes: Counter[str] = Counter()
        self.drawn = {family.name: Drawn(family, self._attempt) for family in self.families}
        self._outcome = ""
        self._in_hand: dict[str, str] = {}
        self._alike: Counter[str] = Counter()

    def _attempt(self, trial: Trial) -> None:
        self._note_in_hand(judging=False)
        self._outcome = check(trial, lambda: self._note_in_hand(judging=True))

    def _note_in_hand(self, *, judging: bool) -> None:
        """What is in hand, and whether a judge has it: MXNet ends the process behind some pools."""
        (self.folder / "current").write_text(json.dumps({**self._in_hand, "judging": judging}))

    def run(self, runs: int, seconds: float) -> None:
        end, counter = time.monotonic() + seconds, self.folder / "tried"
        tried = int(counter.read_text() or 0) if counter.exists() else 0
        for number in range(tried, tried + runs):
            if time.monotonic() > end:
                break
            counter.write_text(f"{number + 1:{_DIGITS}}")
            self.one(number, end)
            if (number + 1) % _KEPT_EVERY == 0:
                self.keep()
        self.keep()

    def one(self, number: int, end: float) -> None:
        random = Random(f"{self.seed} {number}")
        family = random.choices(self.families, [each.weight for each in self.families])[0]
        seed = f"{self.seed} {family.name} {number}"
        self._in_hand = {"family": family.name, "seed": seed}
        self._note_in_hand(judging=True)  # a family may run one to draw
        signal.setitimer(signal.ITIMER_PROF, family.seconds)
        drawn = self.drawn[family.name]
        self._outcome = "not drawn"
        try:
            drawn.try_one(seed)
        except Exception as error:
            signal.setitimer(signal.ITIMER_PROF, 0)
            if drawn.best is None:
                self._outcome = "badly drawn"  # by the family, which the log tells
                print(f"{seed}:\n{''.join(traceback.format_exception(error)[-4:])}", flush=True)
            else:
                self._outcome = "wrong"
                self._found(family.name, seed, error, min(_SHRINKING, max(2.0, end - time.monotonic())))
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        (self.folder / "current").unlink(missing_ok=True)
        self.outcomes[f"{family.name}: {self._outcome}"] += 1

    def _found(self, family: str, seed: str, error: Exception, seconds: float) -> None:
        drawn = self.drawn[family]
        assert drawn.best is not None
        known = departures.known(*drawn.best)
        if known is None:
            ops = set(drawn.best[0].ops)
            raw = findings.signature(error, family) + (ops.pop() if len(ops) == 1 else "")
            self._alike[raw] += 1
            if self._alike[raw] > _MOST_OF_A_KIND:
                self._outcome = "wrong, as others"
                return
            known = departures.known(*drawn.shrink(seconds))
        if known is not None:
            self._outcome = f"known: {known}"
            return
        record(self.folder, family, seed, *drawn.best)

    def keep(self) -> None:
        path = self.folder / "tally.json"
        known = Counter(json.loads(path.read_text())) if path.exists() else Counter()
        path.write_text(json.dumps(known + self.outcomes, indent=0))
        self.outcomes.clear()
        coverage.add_to(self.folder / "coverage.json")


def record(folder: Path, family: str, seed: str, trial: Trial, error: BaseException) -> Path:
    """Keep a finding, unless there is one of its kind."""
    text = findings.signature(error, family) + " " + " ".join(sorted(set(trial.ops)))
    place = folder / findings.folder_name(text)
    if not place.exists():
        findings.save(trial, place)
        script = Path(__file__).resolve().parents[2] / "fuzz_values.py"
        (place / "why.txt").write_text(
            f"{family}, seed {seed!r}\n{trial.setup.data()}\n{error}\n\n{findings.described(trial)}\n\n"
            f"python {script} --replay {place}\n\n{''.join(_own_lines(error))}")
    return place


def _own_lines(error: BaseException) -> list[str]:
    """The traceback without what is not of this repository, and its causes in a line each."""
    frames = [each for each in traceback.extract_tb(error.__traceback__) if "site-packages" not in each.filename]
    causes, cause = [], error.__cause__ or error.__context__
    while cause is not None:
        causes.append(f"from {type(cause).__name__}: {cause}\n")
        cause = cause.__cause__ or cause.__context__
    return [*traceback.format_list(frames[-8:]), f"{type(error).__name__}: {error}\n", *causes[:3]]


def shrink_crash(path: Path, seconds: float) -> None:
    """Make the trial small in which a process died, each try in a process of its own; one that took too long, which the
    name of the file tells, is kept as it was drawn."""
    said: dict[str, Any] = json.loads(path.read_text())
    family = FAMILIES[said["family"]]
    is_slow = path.name.startswith(("killed-SIGPROF", "killed-SIGALRM"))

    def attempt(trial: Trial) -> None:
        check(trial)

    def refuse(trial: Trial) -> None:
        raise RuntimeError(f"too slow: more than {family.seconds} s of the CPU's time, or no end at all")

    drawn = Drawn(family, refuse if is_slow else isolated(attempt, family.seconds))
    try:
        drawn.try_one(said["seed"])
    except RuntimeError:
        assert drawn.best is not None
        record(path.parent, said["family"], said["seed"], *(drawn.best if is_slow else drawn.shrink(seconds)))
        return
    print(f"{path.name} does not die again by itself: {said}")


def run_judge(path: Path) -> None:
    """Have the judge alone run the trial in which a process died."""
    said: dict[str, Any] = json.loads(path.read_text())

    def judge(trial: Trial) -> None:
        judging = KINDS[trial.kind].judge
        if judging is not None:
            judging(trial)

    with suppress(Exception):  # whether it ends the process is what is asked
        Drawn(FAMILIES[said["family"]], judge).try_one(said["seed"])


def load_families() -> None:
    """And the kinds of trials, and what counts the rules of both frontends."""
    for kind in ("onnx_kind", "graph_kind", "mxnet_kinds", "training_kind"):
        import_module(f"fuzzing.values.{kind}")
    for path in sorted((Path(__file__).parent / "families").glob("[!_]*.py")):
        import_module(f"fuzzing.values.families.{path.stem}")


def main(arguments: list[str]) -> None:
    load_families()
    if arguments[0] == "--crash":
        shrink_crash(Path(arguments[1]), 4 * _SHRINKING)
        return
    if arguments[0] == "--judge":
        run_judge(Path(arguments[1]))
        return
    folder, (runs, seed) = Path(arguments[0]), map(int, arguments[1:3])
    coverage.watch()
    coverage.watch_mxnet()
    signal.signal(signal.SIGPROF, signal.SIG_DFL)  # ends the process, in native code too
    Session(folder, seed, arguments[4:]).run(runs, float(arguments[3]))


if __name__ == "__main__":
    main(sys.argv[1:])
