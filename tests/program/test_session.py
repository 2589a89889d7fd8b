"""Sessions: steps in order or lanes at once, results of the caller's own, and what does not fit."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from ngraph_mxnet.base.errors import PackageError
from ngraph_mxnet.ir import Builder, TensorType, element_type
from ngraph_mxnet.ir.module import Flow, Shared, Step
from ngraph_mxnet.ir.types import Role
from ngraph_mxnet.program.compile import compile
from ngraph_mxnet.program.executable import Executable, Port, Session

PAIR = TensorType(element_type("f32"), (2,))


def made(name: str) -> Shared:
    return Shared(name, PAIR, Role.MADE)


X = Shared("x", PAIR, Role.INPUT)
# One graph is called three times; the last call reads both others' results.
FLOW = Flow((X,), (Step("f", (X, X), (made("a"),)), Step("f", (X, X), (made("b"),)),
                   Step("f", (made("a"), made("b")), (made("c"),))),
            (made("c"), X, made("a"), made("c")), ("c", "x", "a", "again"))


class Sum(Executable):
    """Adds; the two calls that read the inputs meet, if there is a barrier."""

    def __init__(self, barrier: threading.Barrier | None = None) -> None:
        super().__init__([Port("l", PAIR), Port("r", PAIR)], [Port("s", PAIR)])
        self.barrier = barrier

    def run(self, arrays: list[np.ndarray]) -> list[np.ndarray]:
        if self.barrier is not None and arrays[0] is arrays[1]:
            self.barrier.wait()
        return [arrays[0] + arrays[1]]


@pytest.mark.parametrize("at_once", [False, True])
def test_steps_run_in_order_and_lanes_at_once(at_once: bool):
    barrier = threading.Barrier(2, timeout=20) if at_once else None
    session = Session(FLOW, {"f": Sum(barrier)}, (0, 1, 0), at_once=at_once)
    x = np.array([1, -2], np.float32)
    found = session.run([x])
    for array, factor in zip(found, (4, 1, 2, 4), strict=True):
        np.testing.assert_array_equal(array, factor * x)
    everything = [x, *found]
    assert not any(np.shares_memory(one, other) for i, one in enumerate(everything) for other in everything[:i])


def test_what_compiled_graphs_give():
    b = Builder()
    graph = b.results(b.multiply(b.parameter("l", (2,)), b.parameter("r", (2,))))
    found = Session(FLOW, {"f": compile(graph, "INTERPRETER")}).run([np.array([1, -2], np.float32)])
    assert found[0].tolist() == [1, 16]


def test_what_does_not_fit():
    b = Builder()
    other = compile(b.results(b.exp(b.parameter("x", (2,)))), "INTERPRETER")
    with pytest.raises(PackageError, match=r"step f: found inputs x: .*, and what it calls has x: f32\[2\]"):
        Session(FLOW, {"f": other})
