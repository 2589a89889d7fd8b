"""The C++ side of MXNet's partitioner and op, with callbacks written here."""

# ruff: noqa: I001

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import ngraph_mxnet  # noqa: F401 - before mxnet, which alone does not import on current NumPy
import mxnet as mx
import numpy as np
import pytest
from numba import cfunc, types

from ngraph_mxnet import _core
from ngraph_mxnet.plugin import callbacks
from ngraph_mxnet.ir import Graph
from ngraph_mxnet.program.executable import NativeExecutable, input_ports, output_ports
from ngraph_mxnet.targets.interpreter import InterpreterBackend

ABI = types.void(types.CPointer(types.CPointer(types.float32)), types.CPointer(types.int64),
                 types.CPointer(types.float64), types.int64, types.int64)
SIZE = 1000


@cfunc(ABI)
def add(tensors, ints, floats, begin, end):
    for i in range(begin, end):
        tensors[2][i] = tensors[0][i] + tensors[1][i]


@cfunc(ABI)
def copy(tensors, ints, floats, begin, end):
    for i in range(begin, end):
        tensors[1][i] = tensors[0][i]


def adding(shapes: list, _types: list) -> _core.Executable:
    """data + weights, through a prepared copy of the weights."""
    main = _core.BoundProgram([[("add", add.address, [(1, 0, 0), (4, 0, 0), (2, 0, 0)], [], [], SIZE)]], 0, [])
    prepare = _core.BoundProgram([[("copy", copy.address, [(1, 1, 0), (4, 0, 0)], [], [], SIZE)]], 0, [])
    return _core.Executable(main, prepare, 4 * SIZE, [1], [("f32", s) for s in shapes], [("f32", (SIZE,))], 2)


def doubling(shapes: list, _types: list) -> _core.PythonExecutable:
    spec = [("f32", s) for s in shapes]
    return _core.PythonExecutable(lambda inputs: [inputs[0] * 2], spec, spec)


@pytest.fixture
def compiles_with(own_backend: Callable[..., None],
                  monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Callable], list]]:
    """Sets what a backend compiles for shapes and types; the list has what that was."""

    def use(make: Callable) -> list:
        made: list[Any] = []

        def compile(self: Any, graph: Graph, options: Any) -> NativeExecutable:
            types_ = [parameter.type for parameter in graph.parameters]
            made.append(make([type_.shape for type_ in types_], [type_.element for type_ in types_]))
            return NativeExecutable(input_ports(graph), output_ports(graph), made[-1])

        own_backend(InterpreterBackend, compile=compile)
        monkeypatch.setenv("NGRAPH_BACKEND", "OWN")
        monkeypatch.setenv("NGRAPH_DYNAMIC", "off")
        _core.clear_compile_cache()
        return made

    yield use
    _core.clear_compile_cache()


def one_input() -> mx.sym.Symbol:
    return mx.sym.exp(mx.sym.relu(mx.sym.Variable("data")))


def executor(symbol: mx.sym.Symbol, **arrays: mx.nd.NDArray) -> Any:
    return symbol.optimize_for("NGRAPH", arrays).bind(mx.cpu(), arrays, grad_req="null")


def test_the_compile_cache_is_keyed_by_shape_and_shared(compiles_with):
    made, calls = compiles_with(doubling), _core.op_calls()
    symbol = one_input().optimize_for("NGRAPH", {"data": mx.nd.ones((2, 4))})
    for rows in (2, 3, 2, 3):
        out = symbol.bind(mx.cpu(), {"data": mx.nd.ones((rows, 4))}, grad_req="null").forward()[0]
        np.testing.assert_array_equal(out.asnumpy(), np.full((rows, 4), 2))
    assert len(made) == 2
    assert _core.compile_cache_info() == {"entries": 2, "hits": 2, "misses": 2, "bound": 0}
    assert _core.op_calls() == calls + 4


def test_threads_compile_the_same_subgraph_once(compiles_with):
    made = compiles_with(lambda *arguments: time.sleep(0.2) or doubling(*arguments))
    symbol = one_input().optimize_for("NGRAPH", {"data": mx.nd.ones((2, 4))})
    right = []

    def body() -> None:
        bound = symbol.bind(mx.cpu(), {"data": mx.nd.ones((2, 4))}, grad_req="null")
        right.append(bool((bound.forward()[0].asnumpy() == 2).all()))

    threads = [threading.Thread(target=body) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert right == [True] * 4
    assert len(made) == 1


def fails(*_: object) -> None:
    raise ValueError("out of luck")


@pytest.mark.parametrize(("make", "message"), [
    (fails, "NGraphSubgraphOp: ValueError: out of luck"),
    (lambda *_: 42, "NGraphSubgraphOp: compile_subgraph returned a int"),
    (lambda *_: _core.PythonExecutable(fails, [], []), "got 1 inputs, but the graph was compiled for 0"),
    (lambda *_: _core.PythonExecutable(fails, [("f32", (9,))], []), r"input 0 is f32\[2,4\].*compiled for f32\[9\]"),
    (lambda s, _: _core.PythonExecutable(fails, [("f32", s[0])], [("i32", s[0])]), r"output 0 is f32\[2,4\].*i32"),
    (lambda s, _: _core.PythonExecutable(fails, [("f32", s[0])], [("f32", s[0])]), "ValueError: out of luck"),
])
def test_failures_are_mxnet_errors_and_do_not_pile_up(compiles_with, make, message):
    made = compiles_with(make)
    for _ in range(2):
        with pytest.raises(mx.MXNetError, match=f"^NGraphSubgraphOp: .*{message.removeprefix('NGraphSubgraphOp: ')}"):
            executor(one_input(), data=mx.nd.ones((2, 4))).forward()[0].wait_to_read()
    assert len(made) <= 2


def test_prepared_weights_follow_changes_and_only_changes(compiles_with):
    made = compiles_with(adding)
    arrays = {"data": mx.nd.ones(SIZE), "weights": mx.nd.arange(SIZE)}
    bound = executor(mx.sym.relu(mx.sym.Variable("data") + mx.sym.Variable("weights")), **arrays)

    def check(prepare_runs: int) -> None:
        expected = arrays["data"].asnumpy() + arrays["weights"].asnumpy()
        np.testing.assert_array_equal(bound.forward()[0].asnumpy(), expected)
        assert made[0].prepare_runs == prepare_runs

    for _ in range(3):
        check(1)
    arrays["data"][:] = 5
    check(1)
    arrays["weights"][7] = -3  # one element: no sampled word
    check(2)
    arrays["weights"][:] = arrays["weights"].copy()  # a new version, the same content
    check(2)
    for step in range(3):
        arrays["weights"][:] = step
        check(3 + step)


def test_executors_with_equal_weights_share_what_was_prepared(compiles_with):
    made = compiles_with(adding)
    symbol = mx.sym.relu(mx.sym.Variable("data") + mx.sym.Variable("weights"))
    bound = [executor(symbol, data=mx.nd.ones(SIZE), weights=mx.nd.arange(SIZE)) for _ in range(3)]
    for each in bound * 3:
        np.testing.assert_array_equal(each.forward()[0].asnumpy(), np.arange(SIZE) + 1)
    assert len(made) == 1
    assert made[0].prepare_runs == 1


def test_an_empty_batch(monkeypatch):
    """Of which the package itself compiles nothing."""
    monkeypatch.setattr(callbacks, "compile_subgraph", lambda _json, shapes, types_, _attrs: doubling(shapes, types_))
    _core.clear_compile_cache()
    with mx.util.np_shape(True):
        symbol = one_input().optimize_for("NGRAPH", {"data": mx.nd.ones((2, 4))})
        bound = symbol.bind(mx.cpu(), {"data": mx.nd.empty((0, 4))}, grad_req="null")
        assert bound.forward()[0].asnumpy().shape == (0, 4)
    _core.clear_compile_cache()
