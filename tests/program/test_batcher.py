"""`Batcher`: every caller gets its own rows, of the batch that they ran in, and its own errors."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import re
import signal
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_core import F32, forked

import ngraph_mxnet
from ngraph_mxnet import Batcher, NGraphError
from ngraph_mxnet.base.errors import ConfigError, UnsupportedError
from ngraph_mxnet.ir import Builder
from ngraph_mxnet.program.batching import BatcherError
from ngraph_mxnet.program.executable import InputError

LONG_MS = 60_000
"""Nobody waits for that long: whoever would, the test times out."""
WEIGHT = np.random.default_rng(0).normal(size=(5, 7)).astype(F32)


def rows(*numbers: float) -> np.ndarray:
    """One for each number, which it begins with."""
    return np.array([[number, 1, 2, 3, 4] for number in numbers], F32)


class Recorder:
    """A model that notes its batches; it fails where a row begins with a negative number."""

    def __init__(self) -> None:
        self.batches: list[tuple[np.ndarray, np.ndarray]] = []
        self.running = 0

    def __call__(self, x: np.ndarray) -> np.ndarray:
        self.running += 1
        assert self.running == 1, "one thread at a time"
        try:
            if (x[:, 0] < 0).any():
                raise ArithmeticError(f"rows {x[:, 0].tolist()}")
            self.batches.append((x.copy(), x @ WEIGHT))
            return self.batches[-1][1]
        finally:
            self.running -= 1

    @property
    def sizes(self) -> list[int]:
        return [len(given) for given, _ in self.batches]


class Gate(Recorder):
    """A Recorder whose batches wait for `open`."""

    def __init__(self) -> None:
        super().__init__()
        self.entered, self.open = threading.Event(), threading.Event()

    def __call__(self, x: np.ndarray) -> np.ndarray:
        self.entered.set()
        assert self.open.wait(30)
        return super().__call__(x)


@contextlib.contextmanager
def threads(count: int):
    with ThreadPoolExecutor(count) as pool:
        yield pool


def behind(gate: Gate, batcher: Batcher, pool: ThreadPoolExecutor, calls: list[np.ndarray]) -> list[Future[Any]]:
    """The calls, of which the first is in the model and the others came after it, in this order."""
    made = [pool.submit(batcher, calls[0])]
    assert gate.entered.wait(30)
    for call in calls[1:]:
        made.append(pool.submit(batcher, call))
        time.sleep(0.02)
    return made


@st.composite
def traffic(draw: st.DrawFn) -> tuple[list[int], float, list[list[list[int]]]]:
    """Sizes, wait_ms, and for each thread the rows of its calls; a negative number is one that fails."""
    sizes = draw(st.lists(st.integers(1, 6), min_size=1, max_size=3, unique=True))
    call = st.lists(st.integers(-1, 20).map(lambda n: n or -1), min_size=1, max_size=9)
    return sizes, draw(st.sampled_from([0, 0.5, 3])), draw(st.lists(st.lists(call, max_size=5), min_size=1, max_size=9))


@given(traffic())
def test_rows_go_to_their_callers(drawn: tuple[list[int], float, list[list[list[int]]]]) -> None:
    sizes, wait_ms, by_thread = drawn
    model = Recorder()
    batcher = Batcher(model, sizes, wait_ms)
    found: list[tuple[np.ndarray, np.ndarray | Exception]] = []

    def client(place: int, calls: list[list[int]]) -> None:
        for number, call in enumerate(calls):
            x = rows(*(n if n < 0 else place * 1000 + number * 100 + i for i, n in enumerate(call)))
            try:
                found.append((x, batcher(x)))
            except Exception as error:
                found.append((x, error))

    with threads(len(by_thread)) as pool:
        list(pool.map(client, range(len(by_thread)), by_thread))
    assert set(model.sizes) <= set(sizes) and len(found) == sum(map(len, by_thread))
    made = {row[0]: result[at] for x, result in model.batches for at, row in reversed(list(enumerate(x)))}
    for x, result in found:
        if isinstance(result, Exception):
            assert isinstance(result, ArithmeticError)
            failed = {float(number) for number in re.findall(r"-?\d+\.\d+", str(result))}
            assert failed & set(x[:, 0].tolist()) and -1 in failed, "a row of this call was in the batch that failed"
            assert len(by_thread) > 1 or (x[:, 0] < 0).any(), "nobody else was there to fail"
        else:
            assert (x[:, 0] >= 0).all() and result.shape == (len(x), 7)
            np.testing.assert_array_equal(result, [made[row[0]] for row in x])
            np.testing.assert_allclose(result, x @ WEIGHT, rtol=1e-4, atol=1e-4)


def test_a_lone_caller_never_waits():
    model = Recorder()
    batcher = Batcher(model, wait_ms=LONG_MS)
    for count in (1, 3, 20, 1, 8):
        np.testing.assert_allclose(batcher(rows(*range(count))), rows(*range(count)) @ WEIGHT, rtol=1e-5)
    assert model.sizes == [1, 4, 8, 8, 4, 1, 8]


def test_what_is_left_over_are_copies_of_the_last_row():
    model = Recorder()
    Batcher(model, (4,))(rows(5, 6))
    np.testing.assert_array_equal(model.batches[0][0], rows(5, 6, 6, 6))


def test_who_came_meanwhile_runs_together_in_the_order_of_coming():
    gate = Gate()
    batcher = Batcher(gate)
    with threads(4) as pool:
        made = behind(gate, batcher, pool, [rows(0), rows(1, 2), rows(3), rows(*range(4, 10))])
        gate.open.set()
        assert [len(call.result(30)) for call in made] == [1, 2, 1, 6]
    # The last one has no room beside the two before it.
    assert [x[:, 0].tolist() for x, _ in gate.batches] == [[0], [1, 2, 3, 3], [*range(4, 10), 9, 9]]


def test_a_full_batch_runs_at_once_and_any_other_within_wait_ms():
    gate = Gate()
    batcher = Batcher(gate, (1, 2), wait_ms=300)
    with threads(3) as pool:
        made = behind(gate, batcher, pool, [rows(0), rows(1), rows(2)])
        gate.open.set()
        for call in made:
            call.result(30)
        assert gate.sizes == [1, 2]
        begin = time.monotonic()
        batcher(rows(3))
        alone = time.monotonic() - begin
        assert 0.29 < alone < 20, "two were there at the end of the last batch"
        begin = time.monotonic()
        batcher(rows(4))
        assert time.monotonic() - begin < 0.25, "one was"


def test_errors_reach_those_in_the_batch_and_nobody_else():
    gate = Gate()
    batcher = Batcher(gate, (1, 2))
    with threads(4) as pool:
        made = behind(gate, batcher, pool, [rows(0), rows(1), rows(-1), rows(2)])
        with pytest.raises(InputError, match=r"\(0, 5\)"):
            batcher(rows(1)[:0])
        gate.open.set()
        assert [type(call.exception(30)) for call in made] == [type(None), ArithmeticError, ArithmeticError, type(None)]
    with pytest.raises(ArithmeticError):
        batcher(rows(1, 2, -3, 4, 5))
    np.testing.assert_array_equal(batcher(rows(7)), rows(7) @ WEIGHT)


@pytest.mark.parametrize(("arrays", "text"), [
    ((), "at least one input"),
    ((np.float32(3),), "found numpy.float32|at least one"),
    ((rows(1)[:0],), r"\(0, 5\)"),
    ((rows(1), rows(1, 2)), "same number of rows"),
    (([1, 2],), "found list of int"),
])  # fmt: skip
def test_what_is_no_rows_is_refused(arrays: tuple[Any, ...], text: str) -> None:
    model = Recorder()
    with pytest.raises(InputError, match=text):
        Batcher(model)(*arrays)
    assert not model.batches


def test_an_example_runs_in_every_size_and_says_what_rows_are_like():
    model = Recorder()
    batcher = Batcher(model, (8, 2), example=rows(1))
    assert model.sizes == [2, 8] and batcher.sizes == (2, 8)
    for wrong in (rows(1).astype(np.float64), rows(1)[:, :4]):
        with pytest.raises(InputError, match=r"expected float32\[5\], as in example="):
            batcher(wrong)
    assert batcher(rows(1)).shape == (1, 7)
    with pytest.raises(InputError, match="found 2 rows, expected one"):
        Batcher(model, example=rows(1, 2))


def test_rows_of_different_shapes_share_no_batch():
    gate = Gate()
    batcher = Batcher(lambda x: gate(x[:, :5]), (1, 4))
    with threads(4) as pool:
        made = behind(gate, batcher, pool, [rows(0), rows(1), np.full((1, 6), 7, F32), rows(2)])
        gate.open.set()
        assert all(call.result(30).shape == (1, 7) for call in made)
    assert [x[:, 0].tolist() for x, _ in gate.batches] == [[0], [1, 2, 2, 2], [7]]


def test_several_inputs_and_results_that_are_the_callers_own():
    memory = np.zeros((4, 5), F32)

    def model(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        memory[:] = x + y
        return memory, x

    batcher = Batcher(model, (4,))
    x = rows(1, 2, 3, 4, 5, 6)
    found = batcher(x, x)
    batcher(x * 9, x)
    assert isinstance(found, list)
    np.testing.assert_array_equal(found[0], x * 2)
    np.testing.assert_array_equal(found[1], x)
    found[1][:] = 0
    assert x.all()


def test_a_result_without_rows_is_refused():
    with pytest.raises(UnsupportedError, match=r"result 1 of the model has shape \(5,\) for a batch of 2"):
        Batcher(lambda x: [x, x[0]], (2,))(rows(1))


@pytest.mark.parametrize(("arguments", "text"), [
    ({"model": "model.onnx"}, "str, which can't be called"),
    ({"model": len, "sizes": ()}, "expected whole numbers"),
    ({"model": len, "sizes": (0, 1)}, "expected whole numbers"),
    ({"model": len, "sizes": (1.5,)}, "expected whole numbers"),
    ({"model": len, "wait_ms": -1}, "wait_ms=-1"),
    ({"model": len, "wait_ms": float("nan")}, "wait_ms=nan"),
    ({"model": {1: len}, "sizes": (1, 2)}, r"found models for \[1\]"),
    ({"model": {}}, "at least one"),
])  # fmt: skip
def test_arguments_that_are_refused(arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        Batcher(**arguments)


def test_close_lets_those_who_called_finish_and_refuses_others():
    gate = Gate()
    with threads(4) as pool, Batcher(gate, wait_ms=LONG_MS) as batcher:
        made = behind(gate, batcher, pool, [rows(0), rows(1)])
        closed = pool.submit(batcher.close)
        time.sleep(0.05)
        with pytest.raises(BatcherError, match="closed"):
            batcher(rows(2))
        assert not closed.done()
        gate.open.set()
        closed.result(30)
        assert len(gate.batches) == 2
        assert [len(call.result(30)) for call in made] == [1, 1]
    with pytest.raises(RuntimeError, match="closed"):
        batcher(rows(2))


def test_the_model_can_not_call_it():
    batcher: Batcher = Batcher(lambda x: batcher(x))
    with pytest.raises(BatcherError, match="wait for itself"):
        batcher(rows(1))
    batcher = Batcher(lambda x: batcher.close())
    with pytest.raises(BatcherError, match="wait for itself"):
        batcher(rows(1))
    assert issubclass(BatcherError, NGraphError)


def test_an_interrupt_in_the_model_is_for_its_thread_alone():
    gate = Gate()
    interrupted = threading.Event()

    def model(x: np.ndarray) -> np.ndarray:
        result = gate(x)
        if (x[:, 0] == 2).any() and not interrupted.is_set():
            interrupted.set()
            raise KeyboardInterrupt
        return result

    with threads(4) as pool:
        batcher = Batcher(model, wait_ms=20)
        made = behind(gate, batcher, pool, [rows(0), rows(1), rows(2), rows(3)])
        gate.open.set()
        errors = [call.exception(30) for call in made]
    assert sorted(type(error).__name__ for error in errors) == ["KeyboardInterrupt", *["NoneType"] * 3]
    for call, x in zip(made, range(4), strict=True):
        if call.exception() is None:
            np.testing.assert_allclose(call.result(), rows(x) @ WEIGHT, rtol=1e-5)


class AlarmError(Exception):
    pass


@contextlib.contextmanager
def alarms():
    def ring(*_: object) -> None:
        raise AlarmError

    before = signal.signal(signal.SIGALRM, ring)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_a_caller_that_is_interrupted_while_it_waits_is_no_loss_to_others():
    gate = Gate()
    batcher = Batcher(gate, wait_ms=LONG_MS)
    with threads(2) as pool, alarms():
        made = behind(gate, batcher, pool, [rows(0)])
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(AlarmError):
            batcher(rows(1))
        gate.open.set()
        assert len(made[0].result(30)) == len(batcher(rows(2))) == 1
    assert not any((x[:, 0] == 1).any() for x, _ in gate.batches)


def test_interrupts_at_any_moment_leave_nobody_waiting():
    batcher = Batcher(lambda x: x @ WEIGHT, wait_ms=0.2)
    stop = threading.Event()

    def client(number: int) -> int:
        count = 0
        while not stop.is_set():
            # In the model, in the main thread, it is an Exception like others, and reaches all in the batch.
            with contextlib.suppress(AlarmError):
                np.testing.assert_allclose(batcher(rows(number)), rows(number) @ WEIGHT, rtol=1e-4)
            count += 1
        return count

    with threads(3) as pool, alarms():
        counts = [pool.submit(client, number) for number in (1, 2, 3)]
        for round_ in range(300):
            with contextlib.suppress(AlarmError):
                signal.setitimer(signal.ITIMER_REAL, 2e-4 + 1e-6 * (round_ % 60))
                while True:
                    batcher(rows(9))
        stop.set()
        assert all(count.result(30) for count in counts)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_has_none_of_the_parents_callers():
    gate = Gate()
    batcher = Batcher(gate)
    with threads(3) as pool:
        made = behind(gate, batcher, pool, [rows(0), rows(1)])

        def right() -> bool:
            gate.open.set()
            gate.running = 0
            return bool(np.allclose(batcher(rows(5)), rows(5) @ WEIGHT)) and gate.sizes == [1]

        assert forked(right) == 0
        gate.open.set()
        assert [len(call.result(30)) for call in made] == [1, 1]


def test_from_asyncio():
    async def run() -> list[np.ndarray]:
        batcher = Batcher(Recorder())
        return await asyncio.gather(*(asyncio.to_thread(batcher, rows(n)) for n in range(30)))

    for n, result in enumerate(asyncio.run(run())):
        np.testing.assert_allclose(result, rows(n) @ WEIGHT, rtol=1e-5)


def test_nothing_is_left_of_a_call():
    def model(x: np.ndarray) -> np.ndarray:
        if x[0, 0] < 0:
            raise ArithmeticError
        return x

    batcher = Batcher(model)

    def call(number: int) -> weakref.ref[np.ndarray]:
        x = rows(number)
        with contextlib.suppress(ArithmeticError):
            batcher(x)
        return weakref.ref(x)

    gc.disable()
    try:
        assert call(1)() is None
        assert call(-1)() is None
    finally:
        gc.enable()


def onnx_relu(axis: str | int) -> onnx.ModelProto:
    node = onnx.helper.make_node("Relu", ["x"], ["y"])
    x, y = (onnx.helper.make_tensor_value_info(name, 1, [axis, 5]) for name in "xy")
    return onnx.helper.make_model(onnx.helper.make_graph([node], "g", [x], [y]))


def graph(count: int) -> ngraph_mxnet.Graph:
    b = Builder()
    return b.results(b.relu(b.parameter("x", (count, 5), "f32")))


@pytest.mark.parametrize("make", [
    lambda: ngraph_mxnet.compile(onnx_relu("n"), "INTERPRETER"),
    lambda: {count: ngraph_mxnet.compile(graph(count), "INTERPRETER") for count in (4, 1)},
    lambda: {count: ngraph_mxnet.compile(onnx_relu(count), "INTERPRETER") for count in (1, 4)},
])  # fmt: skip
def test_what_compile_makes(make: Callable[[], Any]) -> None:
    batcher = Batcher(make(), example=rows(0))
    with threads(8) as pool:
        for n, (found,) in enumerate(pool.map(batcher, [rows(n, -n) for n in range(40)])):
            np.testing.assert_array_equal(found, np.maximum(rows(n, -n), 0))
