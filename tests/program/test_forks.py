"""Forks at bad moments: another thread holds a lock, compiles, prepares weights, or has the parent's pool."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from test_core import F32, forked, run

import ngraph_mxnet
from ngraph_mxnet import _core
from ngraph_mxnet.base.forks import ForkSafeLock, ForkSafePool, collector_paused
from ngraph_mxnet.ir import Builder
from ngraph_mxnet.targets.cpu.codegen import generator

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")

ROOT = Path(ngraph_mxnet.__file__).parents[1]
SIZE = 4000


class Holding:
    """A thread that is in `context` from the entry to the exit of this object; or in what `within` decorates."""

    def __init__(self, context: object = None, within: Callable[..., Callable[[], None]] | None = None) -> None:
        self._context, self._entered, self._leave = context, threading.Event(), threading.Event()
        self._thread = threading.Thread(target=within(self._wait) if within is not None else self._body)

    def _body(self) -> None:
        with self._context:
            self._wait()

    def _wait(self) -> None:
        self._entered.set()
        self._leave.wait()

    def __enter__(self) -> None:
        self._thread.start()
        self._entered.wait()

    def __exit__(self, *_: object) -> None:
        self._leave.set()
        self._thread.join()


def relu() -> ngraph_mxnet.Graph:
    b = Builder()
    return b.results(b.relu(b.parameter("x", (SIZE,), "f32")))


def acquired(lock: ForkSafeLock) -> bool:
    with lock:
        return True


def test_locks_of_other_threads_are_free_and_those_of_its_own_are_not():
    lock = ForkSafeLock()
    with Holding(lock):
        assert forked(lambda: acquired(lock)) == 0
    with lock:
        assert forked(lock._is_owned) == 0
    assert acquired(lock)


@pytest.mark.parametrize("lock", [generator._lock, "model"])
def test_the_locks_under_which_we_compile(lock: object) -> None:
    model = None
    if lock == "model":
        node = onnx.helper.make_node("Relu", ["x"], ["y"])
        x, y = (onnx.helper.make_tensor_value_info(name, 1, ["n"]) for name in "xy")
        model = ngraph_mxnet.compile(onnx.helper.make_model(onnx.helper.make_graph([node], "g", [x], [y])))
        lock = model._lock
    with Holding(lock):
        assert forked(lambda: model is None or (model(np.ones(3, F32))[0] == 1).all()) == 0
        assert forked(lambda: acquired(lock)) == 0


@pytest.mark.parametrize("backend", ["CPU", "INTERPRETER"])
def test_run_async_in_the_parent_and_then_in_the_child(backend: str) -> None:
    executable, data = ngraph_mxnet.compile(relu(), backend), np.arange(SIZE, dtype=F32)

    def right() -> bool:
        return np.array_equal(executable.run_async(data).result(60)[0], data)

    assert right()
    assert forked(right) == 0
    assert forked(lambda: right() and forked(right) == 0) == 0
    assert right()


def test_a_pool_with_an_idle_thread() -> None:
    pool = ForkSafePool("test")
    assert pool.submit(int, "3").result() == 3
    time.sleep(0.05)
    assert forked(lambda: pool.submit(int, "4").result(60) == 4) == 0


def test_the_collector_is_on_unless_the_forking_thread_compiles() -> None:
    assert gc.isenabled()
    with Holding(within=collector_paused):
        assert not gc.isenabled()
        assert forked(gc.isenabled) == 0
        assert collector_paused(lambda: forked(lambda: not gc.isenabled()))() == 0
        assert not gc.isenabled(), "the other thread is still in it"
    assert gc.isenabled()


OTHER_LIBRARY = """
import ctypes, os, signal, sys
import numpy as np
from ngraph_mxnet import _core
gomp, libc = ctypes.CDLL("libgomp.so.1"), ctypes.CDLL(None)
gomp.GOMP_parallel(libc.free, None, 4, 0)  # this thread has a pool, and never called us
import ngraph_mxnet
from ngraph_mxnet.ir import Builder
b = Builder()
executable = ngraph_mxnet.compile(b.results(b.relu(b.parameter("x", (1 << 20,), "f32"))), "CPU", threads=4)
pid = os.fork()
if pid == 0:
    signal.alarm(60)
    data = np.ones(1 << 20, "f")
    os._exit(0 if (executable(data)[0] == 1).all() else 1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


def test_a_thread_whose_pool_another_library_made() -> None:
    done = subprocess.run([sys.executable, "-c", OTHER_LIBRARY], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def waiting(body: Callable[[], None]) -> int:
    """The address of a kernel that copies its first operand to its second after `body`."""

    tensors_type = ctypes.POINTER(ctypes.POINTER(ctypes.c_float))

    @ctypes.CFUNCTYPE(None, tensors_type, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
    def kernel(tensors, ints, floats, begin, end):
        body()
        for i in range(begin, end):
            tensors[1][i] = tensors[0][i]

    waiting.kept = [*getattr(waiting, "kept", []), kernel]
    return ctypes.cast(kernel, ctypes.c_void_p).value


def test_while_another_thread_prepares_weights() -> None:
    entered, leave, parent = threading.Event(), threading.Event(), os.getpid()

    def body() -> None:
        if os.getpid() == parent:
            entered.set()
            leave.wait()

    copy = waiting(body)
    prepare = _core.BoundProgram([[("copy", copy, [(1, 0, 0), (4, 0, 0)], [], [], 3)]], 0, [])
    main = _core.BoundProgram([[("copy", waiting(lambda: None), [(4, 0, 0), (2, 0, 0)], [], [], 3)]], 0, [])
    executable = _core.Executable(main, prepare, 64, [0], [("f32", (3,))], [("f32", (3,))], 1)
    data = np.arange(3, dtype=F32)

    def right() -> bool:
        return np.array_equal(run(executable, data), data)

    found: list[bool] = []
    other = threading.Thread(target=lambda: found.append(right()))
    other.start()
    entered.wait()
    assert forked(right) == 0
    leave.set()
    other.join()
    assert found == [True] and right()


def test_while_threads_call() -> None:
    """Some forks meet a lock that another thread holds, or a list that it changes."""
    executable, data = ngraph_mxnet.compile(relu(), "CPU", threads=2), np.arange(SIZE, dtype=F32)
    stop = threading.Event()

    def right() -> bool:
        return np.array_equal(executable(data)[0], data)

    def calls() -> None:
        while not stop.is_set():
            assert right()

    threads = [threading.Thread(target=calls) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        assert [forked(right) for _ in range(20)] == [0] * 20
    finally:
        stop.set()
        for thread in threads:
            thread.join()


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="Python 3.14 itself leaves locks taken")
def test_an_interrupt_never_leaves_a_lock_taken():
    """A signal's handler may raise right after the lock was taken, before the body of `with`."""
    lock, taken = ForkSafeLock(), []

    class InterruptedError(Exception):
        pass

    def raise_it(*_: object) -> None:
        raise InterruptedError

    def take() -> None:
        with lock:
            taken.append(True)

    before = signal.signal(signal.SIGALRM, raise_it)
    try:
        for round_ in range(400):
            with contextlib.suppress(InterruptedError):
                signal.setitimer(signal.ITIMER_REAL, 1e-4 + 1e-6 * (round_ % 50))
                while True:
                    with lock:
                        pass
            other = threading.Thread(target=take, daemon=True)
            other.start()
            other.join(20)
            assert len(taken) == round_ + 1, "another thread waits for the lock for ever"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
