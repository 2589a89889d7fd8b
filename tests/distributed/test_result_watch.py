"""What runs graphs tells when each result is final."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from ngraph_mxnet import _core
from ngraph_mxnet.ir import Builder, Graph
from ngraph_mxnet.program.compile import compile as compile_graph

LAYERS = 6


def chain(size: int) -> Graph:
    """Results that are made one after the other."""
    b = Builder()
    value = b.parameter("x", (size, size))
    results = []
    for _ in range(LAYERS):
        value = b.tanh(b.matmul(value, value, transpose_a=False, transpose_b=False))
        results.append(value)
    return b.results(*results)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("size", [8, 96])
def test_results_are_announced_in_their_order(threads: int, size: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OMP_NUM_THREADS", str(threads))
    executable = compile_graph(chain(size), "CPU").native
    x = np.random.default_rng(0).standard_normal((size, size)).astype(np.float32) / size
    outputs = [np.zeros((size, size), np.float32) for _ in range(LAYERS)]
    writes = np.arange(LAYERS, dtype=np.uint64) + 40
    addresses = [(out.__array_interface__["data"][0], writes.__array_interface__["data"][0] + 8 * i)
                 for i, out in enumerate(outputs)]
    watch = _core.ResultWatch([*addresses[1:], addresses[0], addresses[0]])
    executable.run([x], outputs)
    events = watch.take(0.0)
    assert [number for number, _, _ in events] == [LAYERS - 1, *range(LAYERS - 1)]
    assert [count for _, _, count in events] == list(range(40, 40 + LAYERS))
    times = [time for _, time, _ in events]
    assert times == sorted(times)
    assert watch.take(0.0) == []
    del watch
    gc.collect()
    other = _core.ResultWatch([(123, 0)])
    executable.run([x], outputs)
    assert other.take(0.01) == []


def test_wake():
    watch = _core.ResultWatch([])
    watch.wake()
    assert watch.take(60.0) == []
