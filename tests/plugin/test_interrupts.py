"""Signals in the middle of a bind and of Gluon's first call: the program gets what it would get anywhere else."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from mxnet_helpers import CONV_SHAPE, backend, close, conv_net, environment, fill, forget_graphs, mx, needs_library

from ngraph_mxnet import _core
from ngraph_mxnet.base import forks
from ngraph_mxnet.ir import Graph
from ngraph_mxnet.ir.graph import Node
from ngraph_mxnet.plugin.binding import compiled_bind, interrupts
from ngraph_mxnet.targets.cpu.backend import CPUBackend

pytestmark = needs_library


class AlarmError(Exception):
    """What looks like any failure."""


def raise_alarm(number: int, frame: object) -> None:
    raise AlarmError(number)


def leave(number: int, frame: object) -> None:
    raise SystemExit(3)


SIGNALS = {
    "Ctrl-C": (signal.SIGINT, signal.default_int_handler, KeyboardInterrupt),
    "alarm": (signal.SIGALRM, raise_alarm, AlarmError),
    "termination": (signal.SIGTERM, leave, SystemExit),
}
#: Where the signal arrives: where the backend judges nodes alone, or those of a region, or makes code.
PLACES = ("judging", "reviewing", "compiling")


@pytest.fixture
def meanwhile(own_backend: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> dict[str, Callable[[], Any]]:
    """What is to be called at each place; at first nothing is."""
    calls: dict[str, Callable[[], Any]] = {}

    def supports(self: Any, node: Node) -> str | None:
        if not isinstance(node.inputs[0].node, Node):
            calls.get("judging", bool)()
        elif node.op.name in ("relu", "exp"):  # which no other node comes with where they are judged alone
            calls.get("reviewing", bool)()
        return CPUBackend.supports(self, node)

    def compile(self: Any, graph: Graph, options: Any) -> Any:
        calls.get("compiling", bool)()
        return CPUBackend.compile(self, graph, options)

    own_backend(CPUBackend, supports=supports, compile=compile)
    monkeypatch.setenv("NGRAPH_BACKEND", "OWN")
    return calls


@pytest.fixture(params=SIGNALS)
def arrives(request: pytest.FixtureRequest) -> Iterator[tuple[Callable[[], None], type[BaseException]]]:
    """Sends the signal to this process from another thread; and what its handler raises."""
    number, handler, raised = SIGNALS[request.param]
    before = signal.signal(number, handler)

    def send() -> None:
        sender = threading.Thread(target=os.kill, args=(os.getpid(), number))
        sender.start()
        sender.join()
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline:  # Python runs the handler between two instructions
            time.sleep(0.001)
        raise AssertionError("no handler ran")

    yield send, raised
    assert signal.getsignal(number) is handler, "it is the program's again"
    signal.signal(number, before)


def bind() -> mx.nd.NDArray:
    return fill(conv_net().simple_bind(mx.cpu(), grad_req="null", data=CONV_SHAPE)).forward()[0]


def call_gluon() -> mx.nd.NDArray:
    net = mx.gluon.SymbolBlock(conv_net(), mx.sym.Variable("data"))
    net.initialize(mx.init.One())
    net.hybridize()
    return net(mx.nd.ones(CONV_SHAPE) / 8)


def bind_partitioned() -> mx.nd.NDArray:
    """MXNet's own method, of a symbol that has our regions."""
    data = {"data": mx.nd.ones((2, 3))}
    symbol = mx.sym.exp(mx.sym.relu(mx.sym.Variable("data"))).optimize_for("NGRAPH", data)
    with backend(None):
        return symbol.bind(mx.cpu(), data, grad_req="null").forward()[0]


@pytest.mark.parametrize("run", [bind, call_gluon, bind_partitioned])
@pytest.mark.parametrize("place", PLACES)
def test_the_program_gets_it_and_may_go_on(run, place, arrives, meanwhile):
    send, raised = arrives
    with backend("NONE"):
        expected = run() if run is not bind_partitioned else None
    environment_lock = environment.lock
    forget_graphs()
    with backend("NGRAPH"):
        meanwhile[place] = send
        with pytest.raises(raised) as caught:
            run()
        meanwhile.clear()
        if raised is SystemExit:
            assert caught.value.code == 3
        assert gc.isenabled()
        assert environment_lock.acquire(blocking=False)
        environment_lock.release()
        assert not _core.compile_cache_info()["entries"]
        calls = _core.op_calls()
        found = run()
        found.wait_to_read()
        assert _core.op_calls() > calls, "compiled the second time"
        if expected is not None:
            close(found, expected)


#: What calls libmxnet, holds locks or turns things off, and what such things are made with.
MOMENTS_IN = {module.__file__ for module in (environment, interrupts, forks, compiled_bind, contextlib, signal)}


def alarm_at(moment: int) -> Callable[[Any, str, Any], None]:
    """For `sys.setprofile`: the alarm comes at this one of the moments at which Python runs signals' handlers."""
    seen = 0

    def profile(frame: Any, event: str, _: Any) -> None:
        nonlocal seen
        if event in ("call", "c_return") and frame.f_code.co_filename in MOMENTS_IN:
            seen += 1
            if seen == moment:
                signal.raise_signal(signal.SIGALRM)

    return profile


def test_an_exception_that_the_program_keeps_holds_nothing_of_ours():
    before = signal.signal(signal.SIGALRM, raise_alarm)
    kept: list[AlarmError] = []
    with backend("NONE"):
        expected = bind().asnumpy()
    try:
        with backend("NGRAPH"):
            for moment in range(1, 1000):
                forget_graphs()
                try:
                    sys.setprofile(alarm_at(moment))
                    bind()
                    break
                except AlarmError as error:
                    kept.append(error)
                finally:
                    sys.setprofile(None)
                with ThreadPoolExecutor(1) as other:
                    assert other.submit(environment.lock.acquire, timeout=1).result(), moment
                    other.submit(environment.lock.release).result()
                assert gc.isenabled(), moment
                assert signal.getsignal(signal.SIGALRM) is raise_alarm, moment
        assert len(kept) > 20
        with backend("NGRAPH"):
            close(bind(), expected)
    finally:
        signal.signal(signal.SIGALRM, before)


class Finalized:
    """Garbage for the collector, whose finalizer is Python code and leaves more of it."""

    ends = False

    def __init__(self) -> None:
        self.itself = self

    def __del__(self) -> None:
        if not Finalized.ends:
            Finalized()


def test_a_finalizer_that_runs_within_libmxnet_does_not_swallow_it(meanwhile):
    """What is kept is raised in what called libmxnet, not in what the collector calls in the meantime."""

    def interrupted() -> None:
        Finalized()
        gc.set_threshold(1)
        signal.raise_signal(signal.SIGALRM)

    before, threshold = signal.signal(signal.SIGALRM, raise_alarm), gc.get_threshold()
    meanwhile["compiling"] = interrupted
    Finalized.ends = False
    forget_graphs()
    try:
        with backend("NGRAPH"), pytest.raises(AlarmError):
            bind()
    finally:
        gc.set_threshold(*threshold)
        signal.signal(signal.SIGALRM, before)
        Finalized.ends = True
        gc.collect()


@pytest.mark.parametrize("call", range(4))
@pytest.mark.parametrize("late", [False, True])
def test_handlers_are_put_back_whenever_the_signal_comes(call, late, monkeypatch):
    """Of two signals: before or after this one of the calls that replace their handlers and put them back."""
    before = signal.signal(signal.SIGALRM, raise_alarm), signal.signal(signal.SIGUSR1, leave)
    stock, calls = signal.signal, iter(range(99))

    def replacing(number: int, handler: Any) -> Any:
        now = next(calls) == call
        if now and not late:
            signal.raise_signal(signal.SIGALRM)
        found = stock(number, handler)
        if now and late:
            signal.raise_signal(signal.SIGALRM)
        return found

    try:
        with monkeypatch.context() as patch:
            patch.setattr(signal, "signal", replacing)
            with pytest.raises(AlarmError):
                interrupts.delivering(interrupts.told_apart(lambda: None))()
        assert signal.getsignal(signal.SIGALRM) is raise_alarm
        assert signal.getsignal(signal.SIGUSR1) is leave
        assert interrupts.told_apart(lambda: 3)() == 3
    finally:
        signal.signal(signal.SIGALRM, before[0])
        signal.signal(signal.SIGUSR1, before[1])


@pytest.mark.parametrize("run", [bind, call_gluon, bind_partitioned])
@pytest.mark.parametrize("place", PLACES)
def test_nothing_but_the_program_holds_what_was_raised(run, place, arrives, meanwhile):
    """Else it is freed by the garbage collector, with all that its frames hold, on whatever thread."""
    send, raised = arrives
    forget_graphs()
    meanwhile[place] = send
    gc.collect()
    gc.disable()
    try:
        with backend("NGRAPH"):
            try:
                run()
            except raised as error:
                error.attached = threading.Event()
                attached = weakref.ref(error.attached)
        assert attached() is None
    finally:
        gc.enable()


def test_a_thread_that_waits_for_an_interrupted_one_compiles(meanwhile, monkeypatch):
    monkeypatch.setenv("NGRAPH_DYNAMIC", "off")  # else other tests' shapes have made a range
    symbol = mx.sym.exp(mx.sym.relu(mx.sym.Variable("data"))).optimize_for("NGRAPH", {"data": mx.nd.ones((2, 5))})
    found, waited = [], []

    def body() -> None:
        found.append(symbol.bind(mx.cpu(), {"data": mx.nd.ones((2, 5))}, grad_req="null").forward()[0].asnumpy())

    other = threading.Thread(target=body)

    def interrupted() -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        other.start()
        time.sleep(0.3)  # so that it waits for this one
        waited.append(not found)
        raise KeyboardInterrupt

    _core.clear_compile_cache()
    meanwhile["compiling"] = interrupted
    with pytest.raises(KeyboardInterrupt):
        symbol.bind(mx.cpu(), {"data": mx.nd.ones((2, 5))}, grad_req="null")
    other.join()
    assert len(found) == 1 and waited == [True]


def test_a_handler_that_raises_nothing_and_one_that_replaces_itself():
    seen: list[int] = []

    def replaces(number: int, frame: object) -> None:
        seen.append(number)
        signal.signal(signal.SIGALRM, signal.SIG_IGN)

    before = signal.signal(signal.SIGALRM, replaces)
    try:
        interrupts.told_apart(lambda: (os.kill(os.getpid(), signal.SIGALRM), time.sleep(0.01)))()
        assert seen == [signal.SIGALRM]
        assert signal.getsignal(signal.SIGALRM) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGALRM, before)


def test_real_timers_at_any_moment_of_a_bind():
    """Each ends in the alarm or in a result, never in an error of MXNet's or a fallback."""
    before = signal.signal(signal.SIGALRM, raise_alarm)
    with backend("NONE"):
        expected = bind().asnumpy()
    alarms = 0
    try:
        for microseconds in (300, 1000, 3000, 5000, 10_000, 20_000, 40_000, 80_000):
            forget_graphs()
            with backend("NGRAPH"):
                try:
                    signal.setitimer(signal.ITIMER_REAL, microseconds / 1e6)
                    executor = conv_net().simple_bind(mx.cpu(), grad_req="null", data=CONV_SHAPE)
                    signal.setitimer(signal.ITIMER_REAL, 0)
                    assert executor.is_compiled
                except AlarmError:
                    alarms += 1
                assert gc.isenabled()
                close(bind(), expected)
        assert alarms
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
