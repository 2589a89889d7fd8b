"""The comparison of what is compiled with MXNet's own operators, for `mxnet_tests_plugin.py`."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

#: What a second run would disturb: random numbers, updates in place, Python's side effects.
_DRAWS = "bernoulli|choice|exponential|gamma|gumbel|laplace|logistic|normal|pareto|powerd|rayleigh|uniform|weibull"
_NOT_TWICE = re.compile(r'"op": "([^"]*(?:random|sample|shuffle|multinomial|_update)[^"]*|Custom\w*|'
                        rf'_npi_(?:{_DRAWS})\w*)"|"mode": "(always)"')
#: What draws in training, beside these.
_DROPS = re.compile(r'"op": "Dropout"|"p": "(?!0(\.0*)?")|"act_type": "rrelu"')
#: Greatest difference: of its own size, of the greatest element, and whatever the sizes: terms may cancel.
_TOLERANCES = {"float16": (2e-2, 1e-2, 1e-3), "float32": (1e-4, 2e-5, 1e-5), "float64": (1e-6, 1e-8, 1e-9)}


class MismatchError(AssertionError):
    """What is compiled gave what MXNet's own operators do not give."""


class Recorder:
    """Comparisons of the running test."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        self.compared = 0
        self.left_out = 0
        self.mismatches: list[str] = []

    def compare(self, what: str, found: Sequence[Any], reference: Callable[[], Sequence[Any]],
                names: Sequence[str] = (), exact: Sequence[Callable[[], Sequence[Any]]] = ()) -> None:
        """`found`: what is compiled gave, perhaps still to be computed; `reference` computes MXNet's. `names`: of the
        last of them; those before are outputs. `exact` compute them in float64: a tensor that agrees with one of these
        is right.

        An error of the compiled run is raised here, where a test would meet it later.
        """
        self.compared += 1
        expected, problem = _values(reference)
        try:
            values = [array.asnumpy() for array in found]
        except Exception as error:
            if problem is None:
                self.mismatches.append(f"{what}: the compiled graph raised {one_line(error)}, MXNet's own does not")
            raise
        if problem is not None:
            self.mismatches.append(f"{what}: MXNet's own raised {problem}, the compiled graph gave a result")
        elif len(values) != len(expected):
            self.mismatches.append(f"{what}: found {len(values)} results, expected {len(expected)}")
        else:
            titles = [*(f"output {number}" for number in range(len(values) - len(names))), *names]
            differences = [difference(*pair) for pair in zip(values, expected, strict=True)]
            for run in exact:
                if any(differences):
                    differences = _left(differences, values, run)
            told = zip(titles, differences, strict=True)
            self.mismatches += [f"{what}, {title}: {text}" for title, text in told if text]


def _left(differences: list[str | None], values: Sequence[np.ndarray],
          run: Callable[[], Sequence[Any]]) -> list[str | None]:
    """The differences that this run does not explain."""
    wide, problem = _values(run)
    if problem is not None:
        return differences
    return [text if text is None or difference(value, truth.astype(value.dtype)) else None
            for text, value, truth in zip(differences, values, wide, strict=True)]


def _values(reference: Callable[[], Sequence[Any]]) -> tuple[list[np.ndarray], str | None]:
    from mxnet import autograd

    try:
        with autograd.pause(train_mode=False):
            return [array.asnumpy() for array in reference()], None
    except Exception as error:
        return [], one_line(error)


def one_line(error: BaseException) -> str:
    """An error in a line: MXNet's end with what matters, others begin with it."""
    lines = str(error).strip().splitlines() or [""]
    line = lines[-1] if type(error).__name__ == "MXNetError" else lines[0]
    return f"{type(error).__name__}: {line[:300]}"


def difference(found: np.ndarray, expected: np.ndarray) -> str | None:
    """How two outputs differ beyond rounding; None if they don't."""
    if found.shape != expected.shape or found.dtype != expected.dtype:
        return f"found {found.dtype}{list(found.shape)}, expected {expected.dtype}{list(expected.shape)}"
    if found.dtype.kind != "f":
        wrong = found != expected
    else:
        relative, of_largest, least = _TOLERANCES[found.dtype.name]
        finite = expected[np.isfinite(expected)]
        largest = float(np.abs(finite).max()) if finite.size else 0.0
        wrong = ~np.isclose(found, expected, relative, max(of_largest * largest, least), equal_nan=True)
    if not wrong.any():
        return None
    first = tuple(int(i) for i in np.argwhere(wrong)[0])
    return (f"{int(wrong.sum())} of {wrong.size} elements of {found.dtype}{list(found.shape)} differ, the first at "
            f"{list(first)}: found {found[first]!r}, expected {expected[first]!r}")


def repeatable(text: str) -> bool:
    return _NOT_TWICE.search(text) is None


def repeatable_step(text: str) -> bool:
    return repeatable(text) and _DROPS.search(text) is None
