"""A plug-in of pytest for MXNet's own unit tests: keeps a log, and compares compiled inference with MXNet's operators.

`mxnet_tests.py` loads it. Each test adds two lines of JSON to the file that NGRAPH_TESTS_LOG names, one at its start:
so the log tells which test was running when a process died. With NGRAPH_TESTS_COMPARE=1 each compiled forward of an
executor and of a Gluon block is run by MXNet's own operators too, on the same arrays. A test in which they differ
fails with `InferenceMismatchError`, whatever it asserts itself. Not compared are graphs that draw random numbers, write
their inputs or call Python, since a second run would change what the test sees.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

#: What a second run would disturb: random numbers, updates in place, Python's side effects.
_DRAWS = "bernoulli|choice|exponential|gamma|gumbel|laplace|logistic|normal|pareto|powerd|rayleigh|uniform|weibull"
_NOT_TWICE = re.compile(r'"op": "([^"]*(?:random|sample|shuffle|multinomial|_update)[^"]*|Custom\w*|'
                        rf'_npi_(?:{_DRAWS})\w*)"|"mode": "(always)"')
#: Greatest difference: of its own size, of the greatest element, and whatever the sizes: terms may cancel.
_TOLERANCES = {"float16": (2e-2, 1e-2, 1e-3), "float32": (1e-4, 2e-5, 1e-5), "float64": (1e-6, 1e-8, 1e-9)}


class InferenceMismatchError(AssertionError):
    """Compiled inference gave what MXNet's own operators do not give."""


class Recorder:
    """Comparisons of the running test."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        self.compared = 0
        self.left_out = 0
        self.mismatches: list[str] = []

    def compare(self, what: str, found: Sequence[Any], reference: Callable[[], Sequence[Any]]) -> None:
        """`found`: the compiled outputs, perhaps still to be computed; `reference` computes MXNet's.

        An error of the compiled run is raised here, where a test would meet it later.
        """
        self.compared += 1
        expected, problem = _values(reference)
        try:
            values = [array.asnumpy() for array in found]
        except Exception as error:
            if problem is None:
                self.mismatches.append(f"{what}: the compiled graph raised {_line(error)}, MXNet's own does not")
            raise
        if problem is not None:
            self.mismatches.append(f"{what}: MXNet's own raised {problem}, the compiled graph gave a result")
        elif len(values) != len(expected):
            self.mismatches.append(f"{what}: found {len(values)} outputs, expected {len(expected)}")
        else:
            differences = (difference(*pair) for pair in zip(values, expected, strict=True))
            self.mismatches += [f"{what}, output {number}: {text}" for number, text in enumerate(differences) if text]


def _values(reference: Callable[[], Sequence[Any]]) -> tuple[list[np.ndarray], str | None]:
    from mxnet import autograd

    try:
        with autograd.pause(train_mode=False):
            return [array.asnumpy() for array in reference()], None
    except Exception as error:
        return [], _line(error)


def _line(error: BaseException) -> str:
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


def _repeatable(symbol: Any) -> bool:
    return _NOT_TWICE.search(symbol.tojson()) is None


# ---- the comparisons --------------------------------------------------------------------------------------

def watch_executors(recorder: Recorder) -> None:
    """Compare each inference forward of a compiled executor."""
    from ngraph_mxnet.bridges.mxnet.binding import compiled_bind, environment
    from ngraph_mxnet.bridges.mxnet.binding.executor import NGraphExecutor

    own_forward = NGraphExecutor.forward

    def reference(executor: Any) -> Any:
        """MXNet's executor over the same arrays, or False if the graph can't run twice."""
        kept = executor.__dict__.get("_reference")
        if kept is None:
            kept = _repeatable(executor._symbol)
            if kept:
                kept = environment.as_written(lambda: compiled_bind.stock_bind(
                    executor._symbol, executor._ctx, executor.arg_arrays, None, "null", executor.aux_arrays))
            executor.__dict__["_reference"] = kept
        return kept

    def forward(self: Any, is_train: bool = False, **kwargs: Any) -> Any:
        outputs = own_forward(self, is_train, **kwargs)
        if is_train or self._refused or self.monitor is not None:
            return outputs
        native = reference(self)
        if native:
            recorder.compare(f"executor of {self._symbol.name}", outputs, lambda: native.forward(is_train=False))
        else:
            recorder.left_out += 1
        return outputs

    NGraphExecutor.forward = forward  # type: ignore[method-assign]


def watch_blocks(recorder: Recorder) -> None:
    """Compare each call of a Gluon block that a compiled body serves."""
    from mxnet.gluon.block import HybridBlock, _flatten

    from ngraph_mxnet.bridges.mxnet.binding import gluon_patch, quick_call

    stock, own_call = gluon_patch.stock_call_cached_op, HybridBlock._call_cached_op
    ran: list[Any] = []

    def run(body: Any, *args: Any) -> Any:
        result = stock(body, *args)
        if isinstance(body, gluon_patch.OfBody):
            ran.append(body)
        return result

    def repeatable(block: Any) -> bool:
        cached_op, answer = block.__dict__.get("_ngraph_repeatable", (None, False))
        if cached_op is not block._cached_op:
            answer = _repeatable(block._cached_graph[1])
            block.__dict__["_ngraph_repeatable"] = block._cached_op, answer
        return answer

    def call(self: Any, *args: Any) -> Any:
        ran.clear()
        result = own_call(self, *args)
        if not ran:
            return result
        if repeatable(self):
            recorder.compare(f"block {self.name}", _flatten(result, "output")[0],
                             lambda: _flatten(stock(self, *args), "output")[0])
        else:
            recorder.left_out += 1
        return result

    quick_call.remember = lambda *_: None  # every call comes here
    gluon_patch.stock_call_cached_op = run
    HybridBlock._call_cached_op = call


# ---- pytest -----------------------------------------------------------------------------------------------

RECORDER = Recorder()


def pytest_configure() -> None:
    if np.lib.NumpyVersion(np.__version__) >= "1.24.0":
        import ngraph_mxnet  # noqa: F401  # MXNet 1.9.1 does not import beside such a NumPy by itself
    import mxnet  # noqa: F401  # before the tests put the checkout's own, which has no library, first on the path

    if os.environ.get("NGRAPH_TESTS_COMPARE") == "1":
        watch_executors(RECORDER)
        watch_blocks(RECORDER)


def _log(**entry: Any) -> None:
    with open(os.environ["NGRAPH_TESTS_LOG"], "a", encoding="utf-8") as file:
        file.write(json.dumps(entry) + "\n")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    name = item.nodeid.partition("::")[2]
    _log(test=name)
    RECORDER.begin()
    start, outcomes = time.perf_counter(), item.stash.setdefault(_OUTCOMES, [])
    result = yield
    kind, message = max(outcomes, key=lambda pair: _SEVERITY.index(pair[0]), default=("error", "no report"))
    _log(test=name, outcome=kind, message=message, seconds=time.perf_counter() - start,
         compared=RECORDER.compared, left_out=RECORDER.left_out, mismatches=RECORDER.mismatches)
    return result


_OUTCOMES = pytest.StashKey[list[tuple[str, str]]]()
_SEVERITY = ("skipped", "passed", "mismatch", "failed", "error")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Iterator[None]:
    result = yield
    if RECORDER.mismatches:
        raise InferenceMismatchError("\n".join(RECORDER.mismatches))
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[pytest.TestReport]:
    report = yield
    if call.when == "call" or report.outcome != "passed":
        kind, message = report.outcome, ""
        if call.excinfo is not None and report.outcome == "failed":
            mismatch = isinstance(call.excinfo.value, InferenceMismatchError)
            kind = "mismatch" if mismatch else "failed" if call.when == "call" else "error"
            message = _line(call.excinfo.value)
        item.stash.setdefault(_OUTCOMES, []).append((kind, message))
    return report
