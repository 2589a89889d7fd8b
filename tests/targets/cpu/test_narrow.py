"""Convolutions whose channels leave much of a block unused: single input channels, half blocks of outputs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ngraph_mxnet import Builder, compile
from ngraph_mxnet.ir.graph import Graph
from ngraph_mxnet.targets.cpu.machine.isa import choose_isa


def graph(n: int, channels: tuple[int, int, int], size: tuple[int, int], kernel: int, stride: int,
          residual: bool) -> Graph:
    """Two convolutions, so that the first one's padding is read, both from blocked data."""
    first, second, third = channels
    pad = kernel // 2
    b = Builder()
    x = b.parameter("x", (n, first, *size))
    scale, shift = b.parameter("scale", (first,)), b.parameter("shift", (first,))
    weights = b.weight("w1", (second, first, kernel, kernel))
    bias = b.weight("b1", (second,))
    more = b.weight("w2", (third, second, 1, 1))
    pads = {"pads_begin": (pad, pad), "pads_end": (pad, pad)}
    blocked = b.max_pool(x, kernel=(1, 1), strides=(1, 1), pads_begin=(0, 0), pads_end=(0, 0))
    blocked = b.scale_shift(blocked, scale, shift, lower=-np.inf, upper=np.inf)
    y = b.convolution(blocked, weights, bias, strides=(stride, stride), lower=0.0, upper=6.0, **pads)
    if residual:
        again = b.weight("w3", (second, second, 1, 1))
        y = b.convolution(y, again, bias, y, strides=(1, 1), pads_begin=(0, 0), pads_end=(0, 0))
    return b.results(b.convolution(y, more, strides=(1, 1), pads_begin=(0, 0), pads_end=(0, 0)), y)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 99), st.integers(1, 2), st.tuples(*[st.integers(1, 45)] * 3),
       st.tuples(st.integers(3, 9), st.integers(3, 30)), st.sampled_from([1, 3]), st.sampled_from([1, 2]),
       st.booleans(), st.integers(1, 2))
def test_against_the_interpreter(seed: int, n: int, channels: tuple[int, int, int], size: tuple[int, int],
                                 kernel: int, stride: int, residual: bool, threads: int) -> None:
    rng = np.random.default_rng(seed)
    g = graph(n, channels, size, kernel, stride, residual)
    arrays = [rng.standard_normal(p.shape).astype(np.float32) for p in g.parameters]
    found = compile(g, backend="CPU", threads=threads)(*arrays)
    for ours, wanted in zip(found, compile(g, backend="INTERPRETER")(*arrays), strict=True):
        np.testing.assert_allclose(ours, wanted, rtol=1e-4, atol=1e-4 * max(1.0, float(np.abs(wanted).max(initial=0))))


@pytest.mark.parametrize(("channels", "kernel"), [((4, 24, 6), "k1"), ((24, 144, 24), "k1"), ((32, 16, 16), "k16")])
def test_choice(channels: tuple[int, int, int], kernel: str) -> None:
    exe = compile(graph(1, channels, (8, 8), 1, 1, False), backend="CPU", threads=1)
    convolutions = [i.kernel for i in exe.main.instructions if "contraction" in i.kernel]
    assert convolutions[0].startswith(f"ng_contraction_{kernel}_")


def test_half_blocks_where_they_exist() -> None:
    from ngraph_mxnet import _core

    if choose_isa(_core.cpu_features()) != "avx2":
        pytest.skip("only AVX2 has half blocks")
    exe = compile(graph(1, (64, 24, 16), (8, 8), 1, 1, False), backend="CPU", threads=1)
    assert any(i.kernel.startswith("ng_contraction_k1_n8_rows__") for i in exe.main.instructions)


def test_a_border_is_never_written() -> None:
    """The stem's zero border lies in the arena, and calls follow each other there."""
    b = Builder()
    x, w = b.parameter("x", (1, 3, 6, 6)), b.weight("w", (8, 3, 3, 3))
    y = b.convolution(x, w, strides=(1, 1), pads_begin=(1, 1), pads_end=(1, 1))
    g = b.results(b.relu(b.subtract(y, b.reduce_mean(y, axes=(0, 1, 2, 3), keep_dims=True))))
    ours, wanted = compile(g, backend="CPU", threads=1), compile(g, backend="INTERPRETER")
    for seed in range(4):
        arrays = [np.random.default_rng(seed + i).standard_normal(p.shape).astype(np.float32)
                  for i, p in enumerate(g.parameters)]
        np.testing.assert_allclose(ours(*arrays)[0], wanted(*arrays)[0], rtol=1e-4, atol=1e-4)
