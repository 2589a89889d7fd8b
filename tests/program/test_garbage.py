"""Pausing the garbage collector."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest

import ngraph_mxnet
from ngraph_mxnet.base.errors import NGraphError
from ngraph_mxnet.base.forks import collector_paused
from ngraph_mxnet.ir import Builder, Graph
from ngraph_mxnet.program.compile import compile as compile_graph
from ngraph_mxnet.targets.interpreter import InterpreterBackend


@pytest.fixture
def collecting() -> object:
    assert gc.isenabled()
    yield
    gc.enable()


def graph() -> Graph:
    b = Builder()
    return b.results(b.relu(b.parameter("x", (2, 3), "f32")))


def test_nesting_and_errors_leave_it_as_it_was(collecting: object) -> None:
    enabled = collector_paused(gc.isenabled)
    assert collector_paused(lambda: (enabled(), gc.isenabled()))() == (False, False)
    assert gc.isenabled()
    with pytest.raises(KeyError):
        collector_paused({}.pop)("no such key")
    assert gc.isenabled()
    gc.disable()
    enabled()
    assert not gc.isenabled(), "who turned it off keeps it off"


def test_a_compilation_pauses_it(collecting: object, own_backend: Callable[..., None]) -> None:
    seen = []

    def compile(self: Any, graph: Graph, options: Any) -> Any:
        seen.append(gc.isenabled())
        return InterpreterBackend.compile(self, graph, options)

    own_backend(InterpreterBackend, compile=compile)
    for compiles in (ngraph_mxnet.compile, compile_graph):
        compiles(graph(), backend="OWN")
        assert gc.isenabled()
    assert seen == [False, False]
    with pytest.raises(NGraphError):
        ngraph_mxnet.compile(graph(), backend="INTERPRETER", nonsense=1)
    assert gc.isenabled()
