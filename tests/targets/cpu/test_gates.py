"""A hard swish behind a convolution: computed by the convolution where nothing else reads what lies between."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ngraph_mxnet import compile
from ngraph_mxnet.ir import Builder, Graph

CASES = {
    "1x1": {"kernel": (1, 1)},
    "depthwise": {"kernel": (3, 3), "groups": 20, "pads_begin": (1, 1), "pads_end": (1, 1)},
    "strided depthwise": {"kernel": (3, 3), "groups": 20, "strides": (2, 2)},
    "large depthwise": {"kernel": (5, 5), "groups": 20, "pads_begin": (2, 2), "pads_end": (2, 2)},
    "winograd": {"kernel": (3, 3), "pads_begin": (1, 1), "pads_end": (1, 1)},
    "transposed": {"kernel": (2, 2), "data_dilations": (2, 2), "pads_begin": (1, 1), "pads_end": (1, 1)},
}


def network(kernel: tuple[int, int], twice: str = "", size: int = 12, outputs: int = 20, **attrs: object) -> Graph:
    """Convolution, hard swish, then a convolution with padding: the border must stay zero."""
    b = Builder()
    x = b.parameter("x", (2, 20, size, size))
    weights = b.weight("w", (outputs, 20 // int(attrs.get("groups", 1)), *kernel))  # type: ignore[call-overload]
    conv = b.convolution_bias(x, weights, b.weight("b", (outputs,)), **attrs)
    swish = b.hard_swish(conv, slope=0.2, offset=0.4, scale=1.5, shift=-0.25)
    taps = b.weight("v", (3, outputs, 3, 3))
    last = b.convolution(swish, taps, pads_begin=(1, 1), pads_end=(1, 1))
    return b.results(last, *([b.tanh(conv)] if twice == "read" else [conv] if twice == "result" else []))


def kernels_of(exe: object) -> list[str]:
    return [instruction.kernel for instruction in exe.main.instructions]  # type: ignore[attr-defined]


def check(graph: Graph, seed: int = 0) -> list[str]:
    random = np.random.default_rng(seed)
    arrays = [random.standard_normal(p.shape).astype(np.float32) for p in graph.parameters]
    exe = compile(graph, "CPU")
    for found, wanted in zip(exe(*arrays), compile(graph, "INTERPRETER")(*arrays), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4 * np.abs(wanted).max())
    return kernels_of(exe)


@pytest.mark.parametrize("case", CASES)
def test_convolutions(case: str) -> None:
    kernels = check(network(**CASES[case]))
    # Winograd's algorithm, where this CPU's instruction set gains by it, ends in a kernel of its own.
    assert any("hard_swish" in kernel for kernel in kernels) == any("winograd_output" in kernel for kernel in kernels)


@pytest.mark.parametrize("twice", ["read", "result"])
def test_what_lies_between_is_kept_where_it_is_needed(twice: str) -> None:
    assert any("hard_swish" in kernel for kernel in check(network((1, 1), twice)))


@given(st.sampled_from(["1x1", "depthwise", "large depthwise"]), st.integers(6, 14), st.integers(0, 99))
def test_sizes(case: str, size: int, seed: int) -> None:
    check(network(**CASES[case], size=size), seed)


@given(st.integers(1, 40), st.integers(3, 9))
def test_channels(outputs: int, size: int) -> None:
    check(network((1, 1), size=size, outputs=outputs))


def stored(case: str, size: int, by: str, channels: int = 64) -> Graph:
    """The hard swish is quantised at once, and by nobody else read: by a product of bytes, or as a result."""
    b = Builder()
    groups = channels if "depthwise" in case else 1
    kernel = (3, 3) if case != "1x1" else (1, 1)
    x = b.parameter("x", (1, channels, size, size))
    weights = b.weight("w", (channels, channels // groups, *kernel))
    conv = b.convolution_bias(x, weights, b.weight("b", (channels,)), groups=groups,
                              **({"pads_begin": (1, 1), "pads_end": (1, 1)} if kernel == (3, 3) else {}))
    q = b.quantize(b.hard_swish(conv, slope=0.2, offset=0.4), b.constant(np.float32(0.5)), b.constant(np.uint8(100)))
    return b.results(q if by == "result" else b.max_pool(q, kernel=(2, 2)) if by == "pool" else b.tanh(
        b.dequantize(q, b.constant(np.float32(0.5)), b.constant(np.uint8(100)))))


@pytest.mark.parametrize("by", ["result", "pool", "floats"])
@pytest.mark.parametrize("case", ["1x1", "depthwise", "winograd"])
def test_what_is_quantised_at_once(case: str, by: str) -> None:
    """Convolutions of real numbers store no bytes: the hard swish is there for who quantises it."""
    graph = stored(case, 24, by)
    random = np.random.default_rng(0)
    arrays = [random.standard_normal(p.shape).astype(np.float32) / (8 if len(p.shape) == 4 else 1)
              for p in graph.parameters]
    (found,), (wanted,) = compile(graph.clone(), "CPU")(*arrays), compile(graph.clone(), "INTERPRETER")(*arrays)
    off = np.abs(found.astype(np.float64) - wanted)
    assert off.max() <= 1 and (off > 1e-3).mean() < 0.01
    assert any("winograd" in name for name in kernels_of(compile(graph, "CPU"))) is (case == "winograd")
