"""Results are made in the caller's memory where they can be, and copied there where not."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ngraph_mxnet.ir import Builder, Graph
from ngraph_mxnet.program.compile import compile


def copies(graph: Graph) -> int:
    """How many instructions copy results."""
    instructions = compile(graph, "CPU").main.instructions
    return sum(i.origin == "result" and "copy_" in i.kernel for i in instructions)


def agree(graph: Graph, seed: int) -> None:
    rng = np.random.default_rng(seed)
    arrays = [rng.uniform(-1, 1, p.shape).astype(np.float32) for p in graph.parameters]
    for found, expected in zip(compile(graph, "CPU")(*arrays), compile(graph, "INTERPRETER")(*arrays), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def product(rows: int, depth: int, columns: int, *, then: str = "") -> Graph:
    b = Builder()
    x = b.parameter("x", (rows, depth))
    y = b.matmul(x, b.weight("w", (depth, columns)), transpose_a=False, transpose_b=False)
    if then == "reshape":
        return b.results(b.reshape(y, shape=(columns, rows)))
    if then == "step":
        return b.results(b.reshape(y, shape=(1, rows, 1, columns)))
    if then == "twice":
        return b.results(y, y)
    if then == "read":
        return b.results(y, b.relu(y))
    return b.results(y)


def image(channels: int, size: tuple[int, int]) -> Graph:
    """A convolution's result, which is blocked."""
    b = Builder()
    x, w = b.parameter("x", (2, 3, *size)), b.weight("w", (channels, 3, 3, 3))
    return b.results(b.convolution(x, w, strides=[1, 1], dilations=[1, 1], pads_begin=[1, 1], pads_end=[1, 1],
                                   groups=1))


def saved(kernel: int) -> Graph:
    """What a training step's forward half saves: images in blocks, which a convolution reads too."""
    b = Builder()
    vector = b.parameter("v", (32,))
    x = b.scale_shift(b.parameter("x", (2, 32, 5, 7)), vector, vector)
    pads = (kernel // 2,) * 2
    y = b.convolution(x, b.parameter("w", (16, 32, kernel, kernel)), pads_begin=pads, pads_end=pads)
    return b.results(b.reduce_mean(y, axes=(2, 3)),
                     b.transpose(b.reshape(x, shape=(2, 2, 16, 5, 7)), order=(0, 1, 3, 4, 2)))


@pytest.mark.parametrize(("graph", "number"), [
    (product(5, 7, 32), 0),
    (product(5, 7, 32, then="reshape"), 0),
    (product(5, 7, 32, then="step"), 0),
    (product(5, 7, 32, then="twice"), 1),
    (product(5, 7, 32, then="read"), 0),
    (product(5, 7, 33), 1),
    (image(20, (5, 7)), 0),
    (saved(1), 0),
    (saved(3), 1),
], ids=["product", "reshaped", "step", "twice", "read", "with padding", "blocked", "saved", "saved with a halo"])
def test_what_is_copied(graph: Graph, number: int) -> None:
    assert copies(graph) == number
    agree(graph, 0)


def test_no_arena_for_a_result() -> None:
    memory = compile(product(64, 32, 256), "CPU").main.memory
    assert memory.planned < 64 * 256 * 4


@given(rows=st.integers(1, 20), depth=st.integers(1, 40), columns=st.integers(1, 70),
       then=st.sampled_from(["", "reshape", "step", "twice", "read"]), seed=st.integers(0, 99))
def test_products_agree(rows: int, depth: int, columns: int, then: str, seed: int) -> None:
    agree(product(rows, depth, columns, then=then), seed)


@given(channels=st.integers(1, 40), size=st.tuples(st.integers(1, 12), st.integers(1, 12)), seed=st.integers(0, 99))
def test_images_agree(channels: int, size: tuple[int, int], seed: int) -> None:
    agree(image(channels, size), seed)
