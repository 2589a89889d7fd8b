"""How a trial runs: on us, on the interpreter, and by a judge that is not ours."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fuzzing.values.closeness import WrongError
from fuzzing.values.trials import Trial
from ngraph_mxnet.errors import NGraphError, UnsupportedError

Run = Callable[[Trial], "list[list[Any]]"]
"""The results of each call."""


class NoJudgeError(Exception):
    """The judge does not run it."""


@dataclass(frozen=True)
class Kind:
    """`judge` raises NoJudgeError for what it does not run; None where there is none."""

    ours: Run
    reference: Run | None
    judge: Run | None
    judge_name: str = ""


KINDS: dict[str, Kind] = {}
NO_KERNEL = "no CPU kernel"
"""What a refusal says that is no mistake."""


def check(trial: Trial, judging: Callable[[], None] = lambda: None) -> str:
    """Compare all; how it went: `right`, `unjudged`, or `refused`. `judging` is called before the judge runs.

    Raises:
        WrongError: results differ, or we refuse what the interpreter runs.
        Exception: any other that is no answer.
    """
    kind = KINDS[trial.kind]
    refusal: NGraphError | None = None
    found: list[list[Any]] = []
    try:
        found = _ours(trial, kind)
    except UnsupportedError as error:
        refusal = error
    expected = None
    if kind.reference is not None:
        try:
            with np.errstate(all="ignore"):
                expected = kind.reference(trial)
        except UnsupportedError:
            return "refused"
        if refusal is not None:
            if NO_KERNEL in str(refusal):
                return "refused"
            raise WrongError("the interpreter", f"refused: {refusal}") from refusal
        _compare(trial, "the interpreter", found, expected)
    elif refusal is not None:
        return "refused"
    if kind.judge is None:
        return "right"
    judging()
    try:
        judged = kind.judge(trial)
    except NoJudgeError:
        return "unjudged"
    _compare(trial, kind.judge_name, found if expected is None else expected, judged)
    return "right"


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


def _compare(trial: Trial, against: str, found: list[list[Any]], expected: list[list[Any]]) -> None:
    is_rounded = trial.setup.options.get("precision") == "bf16"
    closeness = trial.closeness.of_bf16() if is_rounded else trial.closeness
    for number, (one, other) in enumerate(zip(found, expected, strict=True)):
        try:
            closeness.check(against, one, other)
        except WrongError as error:
            raise WrongError(against, f"call {number + 1} of {len(found)}: {error.detail}") from None
