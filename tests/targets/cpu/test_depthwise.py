"""Depthwise 3x3 row kernels: by themselves on every instruction set, and whole convolutions against the interpreter."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_library import SEEDS, SPLITS, Blocked, close, every_isa, images, run
from packing_references import pack_depthwise_reference
from test_microkernels import FORMULAS

from ngraph_mxnet import compile
from ngraph_mxnet.ir import Builder, Graph
from ngraph_mxnet.targets.cpu.microkernels.params import DEPTHWISE
from ngraph_mxnet.targets.cpu.microkernels.variants import ACTIVATIONS
from ngraph_mxnet.targets.cpu.params.record import by_name

SIZES = st.integers(1, 13)


def reference(padded: np.ndarray, weights: np.ndarray, stride: int) -> np.ndarray:
    """In float64: channel by channel over an image that has its padding."""
    windows = np.lib.stride_tricks.sliding_window_view(padded.astype(np.float64), (3, 3), (2, 3))
    return np.einsum("nchwij,cij->nchw", windows[:, :, ::stride, ::stride], weights[:, 0].astype(np.float64))


@every_isa
@pytest.mark.parametrize("stride", [1, 2])
def test_the_kernel(isa: str, stride: int) -> None:
    @settings(max_examples=25, deadline=None)
    @given(SEEDS, st.integers(1, 3), st.integers(1, 40), SIZES, SIZES, st.integers(1, 5),
           st.sampled_from([*ACTIVATIONS]), SPLITS)
    def check(seed: int, n: int, c: int, height: int, width: int, chunk: int, activation: str,
              splits: list[int]) -> None:
        h, w = (height - 1) * stride + 1, (width - 1) * stride + 1
        x, weights, bias = images(seed, n, c, h, w), images(seed + 1, c, 1, 3, 3), images(seed + 2, 1, 1, 1, c).ravel()
        source, out = Blocked(n, c, h, w, halo=(2, 3)), Blocked(n, c, height, width, halo=(1, 0))
        source.whole[:, :, 1 : 3 + h, 2 : 4 + w] = 0  # a padding of 1; NaN beyond
        source.fill(x)
        padded = np.zeros((source.whole.shape[1] * 16), np.float32)
        padded[:c] = bias
        steps = [4 * stride for stride in source.strides], [4 * stride for stride in out.strides]
        params = DEPTHWISE[stride](
            images=n, channels=c, blocks=source.whole.shape[1], height=height, width=width, chunk_rows=chunk,
            first=-steps[0][2] - steps[0][3], input=steps[0][:3], output=steps[1][:3],
            activation=ACTIVATIONS[activation],
            **by_name("lower upper slope offset scale shift", [-0.5, 2.0, 0.25, 0.375, 1.5, -0.125]))
        slopes = np.zeros_like(padded)
        slopes[:c] = images(seed + 3, 1, 1, 1, c).ravel()
        tensors = [source.inner, pack_depthwise_reference(weights), padded, out.inner, slopes]
        around = out.whole.copy()
        run(isa, f"depthwise3x3_s{stride}", tensors, params, (), splits)
        wanted = reference(np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1))), weights, stride) + bias[:, None, None]
        wanted = np.clip(wanted, -0.5, 2.0)
        wanted = FORMULAS[activation](wanted, slopes[:c, None, None])
        close(out.plain, wanted, relative=1e-5, absolute=1e-5)
        assert np.isfinite(out.inner).all()  # also the channels that fill the last block
        around[:, :, 1 : 1 + height] = out.inner
        np.testing.assert_array_equal(around, out.whole)  # the halo is left alone

    check()


@settings(max_examples=40, deadline=None)
@given(SEEDS, st.integers(1, 2), st.integers(2, 40), SIZES, SIZES, st.sampled_from([1, 2]),
       st.tuples(*[st.integers(0, 2)] * 4), st.booleans(), st.integers(1, 3))
def test_convolutions(seed: int, n: int, c: int, h: int, w: int, stride: int, pads: tuple[int, int, int, int],
                      relu: bool, threads: int) -> None:
    if h + pads[0] + pads[2] < 3 or w + pads[1] + pads[3] < 3:
        return
    graph = depthwise_graph(n, c, h, w, stride, pads, relu)
    exe = compile(graph, backend="CPU", threads=threads)
    assert any(i.kernel.startswith(f"ng_depthwise3x3_s{stride}__") for i in exe.main.instructions)
    arrays = [images(seed + i, *p.shape) if len(p.shape) == 4 else images(seed + i, 1, 1, 1, *p.shape).ravel()
              for i, p in enumerate(graph.parameters)]
    (found,), (wanted,) = exe(*arrays), compile(graph, backend="INTERPRETER")(*arrays)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


def test_nan_passes_the_clamp() -> None:
    graph = depthwise_graph(1, 16, 4, 4, 1, (1, 1, 1, 1), relu=True)
    arrays = [np.zeros(p.shape, np.float32) for p in graph.parameters]
    arrays[0][0, 3, 0, 0] = np.nan
    found = compile(graph, backend="CPU")(*arrays)[0]
    assert np.isnan(found[0, 3, :2, :2]).all()
    assert np.isnan(found).sum() == 4


def depthwise_graph(n: int, c: int, h: int, w: int, stride: int, pads: tuple[int, int, int, int], relu: bool) -> Graph:
    b = Builder()
    x, weights = b.parameter("x", (n, c, h, w)), b.weight("w", (c, 1, 3, 3))
    bias = b.weight("b", (c,))
    return b.results(b.convolution(x, weights, bias, strides=(stride, stride), pads_begin=pads[:2],
                                        pads_end=pads[2:], groups=c, lower=0.0 if relu else -np.inf))
