"""What is computed of one byte becomes a table, whose numbers are the ops'."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ngraph_mxnet import compile
from ngraph_mxnet.ir import Builder, Graph, Value

FUNCTIONS: dict[str, Callable[[Builder, Value, np.random.Generator], Value]] = {
    "sigmoid": lambda b, x, rng: b.sigmoid(x),
    "tanh": lambda b, x, rng: b.tanh(x),
    "product with a sigmoid": lambda b, x, rng: b.multiply(x, b.sigmoid(x)),
    "a quantised sigmoid": lambda b, x, rng: b.multiply(x, again(b, b.sigmoid(x), 1 / 256, 0)),
    "clamp": lambda b, x, rng: b.clamp(x, lower=-0.5, upper=1.0),
    "prelu": lambda b, x, rng: b.prelu(x, channels(b, x, rng)),
    "scaled sum": lambda b, x, rng: b.add(b.multiply(channels(b, x, rng), x), b.constant(np.float32(0.25))),
    "hard swish in parts": lambda b, x, rng: b.multiply(x, again(b, b.clamp(
        b.add(b.multiply(x, b.constant(np.float32(1 / 6))), b.constant(np.float32(0.5))), lower=0.0, upper=1.0),
        1 / 255, 3)),
    "another step": lambda b, x, rng: x,
}


def channels(b: Builder, x: Value, rng: np.random.Generator) -> Value:
    """A number for each channel."""
    shape = (x.shape[1], *(1,) * (x.type.rank - 2))
    return b.constant(rng.standard_normal(shape).astype(np.float32))


def again(b: Builder, x: Value, scale: float, zero_point: int) -> Value:
    """Quantised and back."""
    step = b.constant(np.float32(scale)), b.constant(np.uint8(zero_point))
    return b.dequantize(b.quantize(x, *step), *step)


def quantised(b: Builder, x: Value, scale: float, zero_point: int) -> Value:
    return b.quantize(x, b.constant(np.float32(scale)), b.constant(np.uint8(zero_point)))


def kernels(executable: Any) -> list[str]:
    return [instruction.name for instruction in executable.main.instructions]


def agree(graph: Graph, *arrays: np.ndarray, steps: int = 0) -> list[str]:
    """The kernels; all results are bytes, `steps` apart at most: products round sums in float32."""
    executable = compile(graph, "CPU")
    for found, wanted in zip(executable(*arrays), compile(graph, "INTERPRETER")(*arrays), strict=True):
        np.testing.assert_allclose(found.astype(int), wanted.astype(int), rtol=0, atol=steps)
        assert (found == wanted).mean() > 0.99
    return kernels(executable)


@pytest.mark.parametrize("name", FUNCTIONS)
@settings(deadline=None, max_examples=15)
@given(seed=st.integers(0, 999), shape=st.sampled_from([(2, 17, 5, 3), (1, 32, 4), (3, 5), (2, 16, 2, 3, 4)]),
       first=st.tuples(st.sampled_from([0.01, 0.02]), st.integers(0, 255)),
       last=st.tuples(st.sampled_from([0.005, 0.03]), st.integers(0, 255)))
def test_functions(name: str, seed: int, shape: tuple[int, ...], first: tuple[float, int],
                   last: tuple[float, int]) -> None:
    rng = np.random.default_rng(seed)
    b = Builder()
    x = b.dequantize(b.parameter("x", shape, "u8"), b.constant(np.float32(first[0])), b.constant(np.uint8(first[1])))
    graph = b.results(quantised(b, FUNCTIONS[name](b, x, rng), *last))
    assert agree(graph, rng.integers(0, 256, shape).astype(np.uint8)) == ["lookup"]


@pytest.mark.parametrize("shape", [(), (7,), (300,), (1, 1)])
def test_without_channels(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    b = Builder()
    x = b.dequantize(b.parameter("x", shape, "u8"), b.constant(np.float32(0.02)), b.constant(np.uint8(99)))
    graph = b.results(quantised(b, b.multiply(x, b.sigmoid(x)), 0.01, 3))
    assert agree(graph, rng.integers(0, 256, shape).astype(np.uint8)) == ["lookup"]


@pytest.mark.parametrize("outputs", [32, 20])
@pytest.mark.parametrize("name", ["prelu", "a quantised sigmoid"])
def test_between_products_bytes_stay_in_blocks(name: str, outputs: int) -> None:
    rng = np.random.default_rng(0)
    b = Builder()

    def product(x: Value, filters: int, **attrs: Any) -> Value:
        shape = (filters, x.shape[1], 3, 3)
        w = b.constant(rng.integers(-128, 128, shape).astype(np.int8))
        vectors = [b.constant(np.zeros(filters, np.int32)), b.constant(np.full(filters, 1e-5, np.float32)),
                   b.constant(np.zeros(filters, np.float32))]
        return b.quantized_convolution(x, w, *vectors, pads_begin=(1, 1), pads_end=(1, 1), **attrs)

    x = b.parameter("x", (2, 16, 9, 7), "u8")
    middle = quantised(b, product(x, outputs), 0.02, 100)
    real = b.dequantize(middle, b.constant(np.float32(0.02)), b.constant(np.uint8(100)))
    looked = quantised(b, FUNCTIONS[name](b, real, rng), 0.01, 60)
    graph = b.results(quantised(b, product(looked, 16, pad_value=60), 0.01, 128))
    found = agree(graph, rng.integers(0, 256, (2, 16, 9, 7)).astype(np.uint8), steps=1)
    assert found.count("lookup") == 1 and not any("quantize" in name for name in found), found
    assert len([name for name in found if "blocked" in name]) <= 2, found


def test_what_is_of_two_values_or_has_other_readers() -> None:
    b = Builder()
    step = b.constant(np.float32(0.02)), b.constant(np.uint8(10))
    x, y = (b.dequantize(b.parameter(name, (2, 16, 4, 4), "u8"), *step) for name in "xy")
    graph = b.results(quantised(b, b.multiply(x, y), 0.01, 3))
    rng = np.random.default_rng(0)
    assert "lookup" not in agree(graph, *rng.integers(0, 256, (2, 2, 16, 4, 4)).astype(np.uint8))
    b = Builder()
    x = b.dequantize(b.parameter("x", (2, 16, 4, 4), "u8"), b.constant(np.float32(0.02)), b.constant(np.uint8(10)))
    rows = b.constant(np.arange(4, dtype=np.float32))  # by an axis that is not the channels'
    graph = b.results(quantised(b, b.add(x, rows), 0.01, 3))
    assert "lookup" not in agree(graph, rng.integers(0, 256, (2, 16, 4, 4)).astype(np.uint8))


def test_dequantized_weights_of_any_size_are_folded() -> None:
    """Of a product that has no kernel of bytes: in three dimensions."""
    rng = np.random.default_rng(0)
    b = Builder()
    step = b.constant(np.float32(0.02)), b.constant(np.uint8(10))
    x = b.dequantize(b.parameter("x", (1, 64, 2, 2, 2), "u8"), *step)
    w = b.dequantize(b.constant(rng.integers(-99, 99, (256, 64, 3, 3, 3)).astype(np.int8)),
                     b.constant(np.full(256, 0.001, np.float32)), b.constant(np.zeros(256, np.int8)), axis=0)
    y = b.convolution(x, w, pads_begin=(1, 1, 1), pads_end=(1, 1, 1))
    found = kernels(compile(b.results(y), "CPU"))
    assert "pack_contraction" not in found and not any("i8" in name for name in found), found
