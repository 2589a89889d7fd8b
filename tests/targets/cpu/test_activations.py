"""Activations behind a convolution: computed by the convolution where nothing else reads what lies between."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kernel_library import every_isa

from ngraph_mxnet import compile
from ngraph_mxnet.ir import Builder, Graph, Value

CASES = {
    "1x1": {"kernel": (1, 1)},
    "depthwise": {"kernel": (3, 3), "groups": 20, "pads_begin": (1, 1), "pads_end": (1, 1)},
    "strided depthwise": {"kernel": (3, 3), "groups": 20, "strides": (2, 2)},
    "large depthwise": {"kernel": (5, 5), "groups": 20, "pads_begin": (2, 2), "pads_end": (2, 2)},
    "winograd": {"kernel": (3, 3), "pads_begin": (1, 1), "pads_end": (1, 1)},
    "transposed": {"kernel": (2, 2), "data_dilations": (2, 2), "pads_begin": (1, 1), "pads_end": (1, 1)},
}


ACTIVATIONS: dict[str, Callable[[Builder, Value], Value]] = {
    "hard_swish": lambda b, x: b.hard_swish(x, slope=0.2, offset=0.4, scale=1.5, shift=-0.25),
    "prelu": lambda b, x: b.prelu(x, b.weight("slopes", (x.shape[1], 1, 1))),
    "prelu, one slope": lambda b, x: b.prelu(x, b.weight("slopes", (1,))),
    "prelu, constant slopes": lambda b, x: b.prelu(x, b.constant(
        np.linspace(-1, 2, x.shape[1], dtype=np.float32).reshape(1, -1, 1, 1))),
    "leaky_relu": lambda b, x: b.leaky_relu(x, slope=0.1),
    "silu": lambda b, x: b.silu(x),
    "gelu": lambda b, x: b.gelu(x),
    "sigmoid": lambda b, x: b.sigmoid(x),
    "tanh": lambda b, x: b.tanh(x),
}


def network(kernel: tuple[int, int], twice: str = "", size: int = 12, outputs: int = 20, activation: str = "hard_swish",
            **attrs: object) -> Graph:
    """Convolution, activation, then a convolution with padding: the border must stay zero."""
    b = Builder()
    x = b.parameter("x", (2, 20, size, size))
    weights = b.weight("w", (outputs, 20 // int(attrs.get("groups", 1)), *kernel))  # type: ignore[call-overload]
    conv = b.convolution(x, weights, b.weight("b", (outputs,)), **attrs)
    active = ACTIVATIONS[activation](b, conv)
    taps = b.weight("v", (3, outputs, 3, 3))
    last = b.convolution(active, taps, pads_begin=(1, 1), pads_end=(1, 1))
    return b.results(last, *([b.square(conv)] if twice == "read" else [conv] if twice == "result" else []))


def kernels_of(exe: object) -> list[str]:
    return [instruction.kernel for instruction in exe.main.instructions]  # type: ignore[attr-defined]


def check(graph: Graph, seed: int = 0, **options: str) -> list[str]:
    random = np.random.default_rng(seed)
    arrays = [random.standard_normal(p.shape).astype(np.float32) for p in graph.parameters]
    exe = compile(graph, "CPU", **options)
    for found, wanted in zip(exe(*arrays), compile(graph, "INTERPRETER")(*arrays), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4 * np.abs(wanted).max())
    return kernels_of(exe)


def has_own(activation: str, kernels: list[str]) -> bool:
    """Whether there is a kernel for the activation alone."""
    return any(f"ng_{activation.split(',')[0]}__" in kernel for kernel in kernels)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("case", CASES)
def test_convolutions(case: str, activation: str) -> None:
    kernels = check(network(**CASES[case], activation=activation))
    # Winograd's algorithm, where this CPU's instruction set gains by it, ends in a kernel of its own.
    assert has_own(activation, kernels) == any("winograd_output" in kernel for kernel in kernels)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("twice", ["read", "result"])
def test_what_lies_between_is_kept_where_it_is_needed(twice: str, activation: str) -> None:
    assert has_own(activation, check(network((1, 1), twice, activation=activation)))


def test_slopes_of_another_shape_are_an_op_of_their_own() -> None:
    b = Builder()
    conv = b.convolution(b.parameter("x", (2, 20, 5, 5)), b.weight("w", (20, 20, 1, 1)))
    kernels = check(b.results(b.square(b.prelu(conv, b.weight("slopes", (20, 5, 1))))))
    assert has_own("prelu", kernels)
    b = Builder()
    conv = b.convolution(b.parameter("x", (2, 20, 5, 5)), b.weight("w", (20, 20, 1, 1)))
    assert has_own("prelu", check(b.results(b.square(b.prelu(b.parameter("y", (20, 1, 1)), conv)))))


@every_isa
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_instruction_sets(isa: str, activation: str) -> None:
    check(network((1, 1), activation=activation, outputs=40), isa=isa)
    check(network((1, 1), activation=activation, outputs=7), isa=isa)


@given(st.sampled_from(["1x1", "depthwise", "large depthwise"]), st.integers(6, 14), st.integers(0, 99),
       st.sampled_from([*ACTIVATIONS]))
def test_sizes(case: str, size: int, seed: int, activation: str) -> None:
    check(network(**CASES[case], size=size, activation=activation), seed)


@given(st.integers(1, 40), st.integers(3, 9), st.sampled_from([*ACTIVATIONS]))
def test_channels(outputs: int, size: int, activation: str) -> None:
    check(network((1, 1), size=size, outputs=outputs, activation=activation))


def stored(case: str, size: int, by: str, channels: int = 64) -> Graph:
    """The hard swish is quantised at once, and by nobody else read: by a product of bytes, or as a result."""
    b = Builder()
    groups = channels if "depthwise" in case else 1
    kernel = (3, 3) if case != "1x1" else (1, 1)
    x = b.parameter("x", (1, channels, size, size))
    weights = b.weight("w", (channels, channels // groups, *kernel))
    conv = b.convolution(x, weights, b.weight("b", (channels,)), groups=groups,
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
