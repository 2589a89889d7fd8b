"""How a trial runs: on us, on the interpreter, and by a judge that is not ours."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fuzzing.values.closeness import EXACT, WrongError
from fuzzing.values.interpretation import Moved, Run, TooLargeError, bounded, nudging
from fuzzing.values.trials import Trial
from ngraph_mxnet.base.errors import NGraphError, UnsupportedError


class NoJudgeError(Exception):
    """The judge does not run it."""


@dataclass(frozen=True)
class Kind:
    """`judge` raises NoJudgeError for what it does not run, and so may `ours` for what fails without us as well; None
    where there is none. `moved` gives the results of the reference, or of what stands for it, with operands that are
    off by a rounding."""

    ours: Run
    reference: Run | None
    judge: Run | None
    judge_name: str = ""
    moved: Moved | None = None


KINDS: dict[str, Kind] = {}
NO_KERNEL = "no CPU kernel"
"""What a refusal says that is no mistake."""
_DRAWS = 8
"""Of roundings: a value between two steps goes the same way in all of them once in 128 times."""


def check(trial: Trial, judging: Callable[[], None] = lambda: None) -> str:
    """Compare all; how it went: `right`, `unjudged`, `refused`, `too large` for the interpreter; `moves with
    rounding` or `unspecified` (NaN as an integer), where results differ so. `judging` is called before the judge runs.

    Raises:
        WrongError: results differ, or we refuse what the interpreter runs.
        Exception: any other that is no answer.
    """
    kind = KINDS[trial.kind]
    refusal: NGraphError | None = None
    found: list[list[Any]] = []
    try:
        found = _ours(trial, kind)
    except NoJudgeError:
        return "unjudged"
    except UnsupportedError as error:
        refusal = error
    expected = None
    if kind.reference is not None:
        try:
            with np.errstate(all="ignore"), bounded() as seen:
                expected = kind.reference(trial)
        except UnsupportedError:
            return "refused"
        except TooLargeError:
            return "too large"
        if refusal is not None:
            if NO_KERNEL in str(refusal):
                return "refused"
            raise WrongError("the interpreter", f"refused: {refusal}") from refusal
        try:
            if _moves(trial, kind, "the interpreter", found, expected):
                return _MOVES
        except WrongError:
            if seen.unspecified:
                return "unspecified"
            raise
    elif refusal is not None:
        return "refused"
    if kind.judge is None:
        return "right"
    judging()
    try:
        judged = kind.judge(trial)
    except NoJudgeError:
        return "unjudged"
    if _moves(trial, kind, kind.judge_name, found if expected is None else expected, judged):
        return _MOVES
    return "right"


_MOVES = "moves with rounding"


def _ours(trial: Trial, kind: Kind) -> list[list[Any]]:
    with trial.setup.applied():
        if not trial.setup.cache:
            return kind.ours(trial)
        with tempfile.TemporaryDirectory() as folder, _cache_in(folder):
            first = kind.ours(trial)
            second = kind.ours(trial)
    for one, other in zip(first, second, strict=True):
        trial.closeness.check("what was compiled, from the cache", other, one)
    return second


def _cache_in(folder: str) -> Any:
    from unittest import mock

    return mock.patch.dict("os.environ", {"NGRAPH_CACHE_DIR": folder})


def _moves(trial: Trial, kind: Kind, against: str, found: list[list[Any]], expected: list[list[Any]]) -> bool:
    """Compare the results of all calls; whether they differ by no more than what rounding moves.

    A sum that lies between two steps of a quantisation, or is nearly zero in front of a ReLU that is gone back through,
    has results far from each other, of which none is wrong.

    Raises:
        WrongError: they differ by more.
    """
    try:
        _compare(trial, against, found, expected, [])
    except WrongError:
        moved = kind.moved or (nudging(kind.reference) if kind.reference else None)
        if moved is None or trial.closeness == EXACT:
            raise
        with np.errstate(all="ignore"):
            runs = [moved(trial, number) for number in range(_DRAWS)]
        _compare(trial, against, found, expected, runs)
        return True
    return False


def _compare(trial: Trial, against: str, found: list[list[Any]], expected: list[list[Any]],
             moved: list[list[list[Any]]]) -> None:
    is_rounded = trial.setup.options.get("precision") == "bf16"
    closeness = trial.closeness.of_bf16() if is_rounded else trial.closeness
    for number, (one, other) in enumerate(zip(found, expected, strict=True)):
        try:
            closeness.check(against, one, other, [run[number] for run in moved])
        except WrongError as error:
            raise WrongError(against, f"call {number + 1} of {len(found)}: {error.detail}") from None
