"""Executors that come back when they are reshaped to what they were."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import weakref
from pathlib import Path

import pytest
from mxnet_helpers import backend, bound, close, fill, mx, needs_library

SCRIPT = Path(__file__).parents[2] / "scripts" / "alternate_shapes.py"

pytestmark = needs_library


@pytest.fixture(autouse=True)
def ours():
    with backend("NGRAPH"):
        yield


def net() -> mx.sym.Symbol:
    hidden = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=4, name="fc")
    return mx.sym.Activation(hidden, act_type="tanh")


def at(rows: int) -> mx.executor.Executor:
    return bound(net(), "NGRAPH", data=(rows, 3))


def to(executor: mx.executor.Executor, rows: int, **flags: bool) -> mx.executor.Executor:
    return executor.reshape(data=(rows, 3), **{"partial_shaping": True, "allow_up_sizing": True, **flags})


def right(executor: mx.executor.Executor, rows: int) -> None:
    theirs = fill(net().simple_bind(mx.cpu(), grad_req="null", data=(rows, 3)))
    x = mx.nd.random.uniform(shape=(rows, 3))
    for name, array in executor.arg_dict.items():
        array.copyto(theirs.arg_dict[name])
    with backend("NONE"):
        expected = theirs.forward(data=x)[0]
    close(executor.forward(data=x)[0], expected)


def test_in_a_chain():
    first = at(5)
    second = to(first, 2)
    third = to(second, 7)
    assert to(third, 5) is first and to(first, 2) is second and to(second, 7) is third
    first.arg_dict["fc_weight"][:] = 0.25
    for executor, rows in ((first, 5), (second, 2), (third, 7)):
        right(executor, rows)


def test_of_one_base():
    base = at(5)
    made = {rows: to(base, rows) for rows in (2, 3, 7)}
    for rows in (3, 7, 2, 3):
        assert to(base, rows) is made[rows]
        right(made[rows], rows)
    right(base, 5)


def test_no_more_than_asked_for(monkeypatch):
    monkeypatch.setenv("NGRAPH_SHAPES", "2")
    executors = [at(5)]
    for rows in (6, 7, 8):
        executors.append(to(executors[-1], rows))
    assert to(executors[-1], 7) is executors[2]
    assert to(executors[2], 5) is not executors[0]


@pytest.mark.parametrize("as_base", [False, True])
def test_nobody_keeps_them_for_ever(as_base):
    executor = at(5)
    alive = [weakref.ref(executor)]
    gc.disable()
    try:
        kept = executor
        for rows in (2, 3, 5, 2):
            made = to(executor if as_base else kept, rows)
            alive.append(weakref.ref(made))
            kept = made
        del executor, kept, made
        assert not any(reference() for reference in alive)
    finally:
        gc.enable()


def test_mxnet_refuses_what_it_refuses():
    executor = at(5)
    smaller = to(executor, 2)
    with pytest.raises(mx.MXNetError, match="allow_up_sizing"):
        to(smaller, 5, allow_up_sizing=False)
    assert to(smaller, 5) is executor


def test_with_a_monitor():
    executor = at(5)
    smaller = to(executor, 2)
    seen: list[str] = []
    smaller.set_monitor_callback(lambda name, _: seen.append(name))
    back = to(smaller, 5)
    assert back is not executor
    back.forward()[0].wait_to_read()
    assert seen


def test_parameters_that_are_others():
    executor = at(5)
    smaller = to(executor, 2)
    smaller.arg_arrays[1] = smaller.arg_arrays[1].copy()
    assert to(smaller, 5) is not executor


@pytest.mark.parametrize("way", ["plain", "static", "mixed", "module", "reshape"])
def test_shapes_that_take_turns_leave_no_memory_behind(way):
    """MXNet leaves 800 bytes a call and more, where an op is asked for shapes at each change of them."""
    command = [sys.executable, SCRIPT, "--way", way, "--backend", "NGRAPH", "--calls", "4000", "--warm", "25",
               "--growth", "200"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
