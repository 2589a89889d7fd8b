"""Images with a halo in memory that others use too: their zeros are written anew at every call."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ngraph_mxnet.ir import Builder, Graph
from ngraph_mxnet.program.compile import compile
from ngraph_mxnet.targets.cpu.program import builder


def stack(batch: int, channels: list[int], size: tuple[int, int], kernels: list[int], strides: list[int]) -> Graph:
    """Convolutions that pad by half a kernel, each followed by a pool that leaves dirt behind."""
    b = Builder()
    x = b.parameter("x", (batch, channels[0], *size))
    for number, (after, kernel, stride) in enumerate(zip(channels[1:], kernels, strides, strict=True)):
        weight = b.weight(f"w{number}", (after, channels[number], kernel, kernel))
        pads = [kernel // 2] * 2
        x = b.convolution(x, weight, strides=[stride] * 2, dilations=[1, 1], pads_begin=pads, pads_end=pads, groups=1)
        x = b.max_pool(b.relu(x), kernel=[3, 3], strides=[1, 1], pads_begin=[1, 1], pads_end=[1, 1])
    return b.results(x)


def fills(monkeypatch: pytest.MonkeyPatch, gain: int) -> None:
    monkeypatch.setattr(builder, "SHARING_GAIN", gain)


@given(data=st.data())
def test_shared_memory_gives_the_same_results(data: st.DataObject) -> None:
    depth = data.draw(st.integers(2, 4))
    channels = [data.draw(st.sampled_from([3, 16, 20, 32])) for _ in range(depth + 1)]
    kernels = [data.draw(st.sampled_from([1, 3, 5])) for _ in range(depth)]
    strides = [data.draw(st.sampled_from([1, 2])) for _ in range(depth)]
    size = data.draw(st.tuples(st.integers(5, 12), st.integers(5, 12)))
    graph = stack(data.draw(st.integers(1, 3)), channels, size, kernels, strides)
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    weights = [rng.uniform(-1, 1, p.shape).astype(np.float32) for p in graph.parameters[1:]]
    wanted = compile(graph, "INTERPRETER")
    with pytest.MonkeyPatch.context() as patch:
        fills(patch, 1 - (1 << 40))
        shared = compile(graph, "CPU")
    for _ in range(2):  # the second call finds what the first left
        x = rng.uniform(-1, 1, graph.parameters[0].shape).astype(np.float32)
        (found,), (expected,) = shared(x, *weights), wanted(x, *weights)
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4 * np.abs(expected).max())


def test_memory_is_shared_where_it_saves_much(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = stack(1, [16, 32, 48, 64], (32, 32), [3, 3, 3], [1, 1, 1])
    apart = compile(graph, "CPU").main.memory
    fills(monkeypatch, 1024)
    assert compile(graph, "CPU").main.memory.planned < apart.planned
