"""A plug-in of pytest for MXNet's own unit tests: keeps a log, and compares what is compiled with MXNet's operators.

`mxnet_tests.py` loads it. Each test adds two lines of JSON to the file that NGRAPH_TESTS_LOG names, one at its start:
so the log tells which test was running when a process died. With NGRAPH_TESTS_COMPARE=1 each compiled forward of an
executor and of a Gluon block is run by MXNet's own operators too, on the same arrays; where training is compiled, each
step is, on copies. A test in which they differ fails with `MismatchError`, whatever it asserts itself. Not compared are
graphs that draw random numbers, write their inputs or call Python, since a second run would change what the test sees.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from mxnet_tests_comparison import MismatchError, Recorder, one_line, repeatable
from mxnet_tests_steps import watch_executor_steps, watch_recorded_steps

# ---- the comparisons --------------------------------------------------------------------------------------

def watch_executors(recorder: Recorder) -> None:
    """Compare each inference forward of a compiled executor."""
    from ngraph_mxnet.plugin.binding import compiled_bind, environment
    from ngraph_mxnet.plugin.binding.executor import NGraphExecutor

    own_forward = NGraphExecutor.forward

    def reference(executor: Any) -> Any:
        """MXNet's executor over the same arrays, or False if the graph can't run twice."""
        kept = executor.__dict__.get("_reference")
        if kept is None:
            kept = repeatable(executor._symbol.tojson())
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

    from ngraph_mxnet.plugin.binding import gluon_blocks, gluon_patch

    stock, own_call = gluon_patch.stock_call_cached_op, HybridBlock._call_cached_op
    ran: list[Any] = []

    def run(body: Any, *args: Any) -> Any:
        result = stock(body, *args)
        if isinstance(body, gluon_patch.OfBody):
            ran.append(body)
        return result

    def is_repeatable(block: Any) -> bool:
        cached_op, answer = block.__dict__.get("_ngraph_repeatable", (None, False))
        if cached_op is not block._cached_op:
            answer = repeatable(block._cached_graph[1].tojson())
            block.__dict__["_ngraph_repeatable"] = block._cached_op, answer
        return answer

    def call(self: Any, *args: Any) -> Any:
        ran.clear()
        result = own_call(self, *args)
        if not ran:
            return result
        if is_repeatable(self):
            recorder.compare(f"block {self.name}", _flatten(result, "output")[0],
                             lambda: _flatten(stock(self, *args), "output")[0])
        else:
            recorder.left_out += 1
        return result

    gluon_blocks.remember_call = lambda *_: None  # every call comes here
    gluon_patch.stock_call_cached_op = run
    HybridBlock._call_cached_op = gluon_blocks.ours = call


# ---- pytest -----------------------------------------------------------------------------------------------

RECORDER = Recorder()


def pytest_configure() -> None:
    if np.lib.NumpyVersion(np.__version__) >= "1.24.0":
        import ngraph_mxnet  # noqa: F401  # MXNet 1.9.1 does not import beside such a NumPy by itself
    import mxnet  # noqa: F401  # before the tests put the checkout's own, which has no library, first on the path

    if os.environ.get("NGRAPH_TESTS_COMPARE") == "1":
        watch_executors(RECORDER)
        watch_blocks(RECORDER)
        watch_executor_steps(RECORDER)
        watch_recorded_steps(RECORDER)


def _log(**entry: Any) -> None:
    with open(os.environ["NGRAPH_TESTS_LOG"], "a", encoding="utf-8") as file:
        file.write(json.dumps(entry) + "\n")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Not the tests that an earlier process has run; `--deselect` takes all that begin with a name."""
    done = set(json.loads(os.environ["NGRAPH_TESTS_DONE"]))
    items[:] = [item for item in items if item.nodeid.partition("::")[2] not in done]


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
        raise MismatchError("\n".join(RECORDER.mismatches))
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[pytest.TestReport]:
    report = yield
    if call.when == "call" or report.outcome != "passed":
        kind, message = report.outcome, ""
        if call.excinfo is not None and report.outcome == "failed":
            mismatch = isinstance(call.excinfo.value, MismatchError)
            kind = "mismatch" if mismatch else "failed" if call.when == "call" else "error"
            message = one_line(call.excinfo.value)
        item.stash.setdefault(_OUTCOMES, []).append((kind, message))
    return report
