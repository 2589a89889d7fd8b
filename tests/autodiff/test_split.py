"""The halves of a joint graph give what it gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from random_graphs import graphs
from test_differentiate import GRAPHS, arrays_for

from ngraph_mxnet.autodiff import differentiate, split
from ngraph_mxnet.base.errors import UnsupportedError
from ngraph_mxnet.ir import Builder, Graph
from ngraph_mxnet.ir.graph import verify
from ngraph_mxnet.program.compile import compile as compile_graph


def whole_and_halves(graph: Graph, wanted: list[str], early: int, backend: str,
                     blocks: int = 1) -> tuple[list[np.ndarray], ...]:
    rng = np.random.default_rng(3)
    joint = differentiate(graph, wanted)
    halves = split(joint, early, blocks=blocks)
    for half in (halves.forward, halves.backward):
        verify(half)
    arrays = dict(zip([p.name for p in graph.parameters], arrays_for(graph, rng), strict=True))
    for parameter in joint.graph.parameters[len(arrays):]:
        arrays[parameter.name] = rng.standard_normal(parameter.type.shape).astype(parameter.type.element.numpy)

    def run(one: Graph) -> list[np.ndarray]:
        return list(compile_graph(one.clone(), backend)(*(arrays[p.name] for p in one.parameters)))

    expected = run(joint.graph)
    first = run(halves.forward)
    arrays.update(zip(halves.saved, first[early:], strict=True))
    assert halves.saved_bytes == sum(arrays[name].nbytes for name in halves.saved)
    assert all(arrays[name].ndim for name in halves.saved)
    return expected, [*first[:early], *run(halves.backward)]


@pytest.mark.parametrize("blocks", [1, 2])
@pytest.mark.parametrize("backend", ["INTERPRETER", "CPU"])
@pytest.mark.parametrize("make", GRAPHS)
def test_halves_give_what_the_whole_gives(make: Callable[[str], Graph], backend: str, blocks: int) -> None:
    graph = make("f32")
    for early in {1, len(graph.results)}:
        expected, found = whole_and_halves(graph, [p.name for p in graph.parameters], early, backend, blocks)
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5 * max(1.0, float(np.abs(other).max())))


def test_a_number_is_saved_as_one_element() -> None:
    b = Builder()
    x = b.parameter("x", (4,))
    total = b.reduce_sum(b.square(x), axes=[0])
    graph = b.results(b.exp(b.multiply(total, b.constant(0.1))))
    expected, found = whole_and_halves(graph, ["x"], 1, "INTERPRETER")
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


def test_constants_and_parameters_are_not_saved() -> None:
    b = Builder()
    x = b.parameter("x", (4,))
    graph = b.results(b.multiply(x, b.constant(np.arange(4, dtype="f"))))
    halves = split(differentiate(graph, ["x"]), 1)
    assert not halves.saved and [p.name for p in halves.backward.parameters] == ["head.0"]


def test_a_gradient_that_is_none_of_a_derivative_is_made_where_it_is_read() -> None:
    b = Builder()
    x = b.parameter("x", (4,))
    y = b.sigmoid(x)
    joint = differentiate(b.results(b.own_gradient(y, x, b.multiply(y, b.constant(2.0)))), ["x"])
    halves = split(joint, 1)
    assert [node.op.name for node in halves.forward.nodes] == ["sigmoid"]
    expected, found = whole_and_halves(b.graph, ["x"], 1, "CPU")
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)
    assert "own_gradient" in {node.op.name for node in joint.graph.nodes}  # which stays as it is


def block(axes: int, channels: int = 32) -> Graph:
    """A residual block: two convolutions with batch norms, of which the second pads, and a max pool."""
    b = Builder()
    x = b.parameter("x", (2, 16, *(7,) * axes))
    for number, (size, pad) in enumerate(((1, 0), (3, 1))):
        weights = b.parameter(f"weights{number}", (channels, x.shape[1], *(size,) * axes))
        vector = b.parameter(f"vector{number}", (channels,))
        y = b.convolution(x, weights, pads_begin=(pad,) * axes, pads_end=(pad,) * axes)
        y = b.relu(b.node("batch_norm_training", [y, vector, vector], {"epsilon": 1e-3}).outputs[0])
        x = y if number == 0 else b.add(x, y)
    return b.results(b.max_pool(x, kernel=(2,) * axes, strides=(2,) * axes))


@pytest.mark.parametrize("channels", [32, 24])
@pytest.mark.parametrize("axes", [1, 2])
@pytest.mark.parametrize("backend", ["INTERPRETER", "CPU"])
def test_images_are_saved_in_blocks(axes: int, channels: int, backend: str) -> None:
    graph = block(axes, channels)
    expected, found = whole_and_halves(graph, [p.name for p in graph.parameters], 1, backend, blocks=16)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4 * max(1.0, float(np.abs(other).max())))


def test_blocks_move_nothing_on_the_cpu() -> None:
    """Of the backward graph's operands only what is the caller's own comes in plain layout."""
    halves = split(differentiate(block(2), ["weights0", "weights1", "vector0"]), 1, blocks=16)
    shapes = {p.name: p.type.shape for p in halves.backward.parameters}
    images = {name for name in halves.saved if len(shapes[name]) > 1}
    assert images and all(len(shapes[name]) == 5 and shapes[name][-1] == 16 for name in images)
    for half, callers in ((halves.forward, 1), (halves.backward, 2)):
        kernels = [i.name for i in compile_graph(half, "CPU").main.instructions]
        assert kernels.count("to_blocked") <= callers, kernels
        assert kernels.count("from_blocked") <= 1, kernels


SHARES = (None, 0.0, 0.3, 0.6, 1.0)


def of_shares(graph: Graph, wanted: list[str], blocks: int) -> list[tuple[int, list[np.ndarray]]]:
    """What is saved with each share, and the results and gradients."""
    joint = differentiate(graph, wanted)
    rng = np.random.default_rng(5)
    arrays = dict(zip([p.name for p in graph.parameters], arrays_for(graph, rng), strict=True))
    for parameter in joint.graph.parameters[len(arrays):]:
        arrays[parameter.name] = rng.standard_normal(parameter.type.shape).astype(parameter.type.element.numpy)
    found = []
    for share in SHARES:
        halves, early = split(joint, len(graph.results), blocks=blocks, share=share), len(graph.results)
        for half in (halves.forward, halves.backward):
            verify(half)
        saved_bytes = halves.saved_bytes
        first = compile_graph(halves.forward, "CPU")(*(arrays[p.name] for p in halves.forward.parameters))
        given = {**arrays, **dict(zip(halves.saved, first[early:], strict=True))}
        assert saved_bytes == sum(given[name].nbytes for name in halves.saved)
        second = compile_graph(halves.backward, "CPU")(*(given[p.name] for p in halves.backward.parameters))
        found.append((saved_bytes, [*first[:early], *second]))
    return found


def assert_shares_agree(found: list[tuple[int, list[np.ndarray]]], exact: int = len(SHARES)) -> None:
    """The first shares to the bit, the others but for rounding; and none saves more than the one before it."""
    sizes = [size for size, _ in found]
    assert sizes == sorted(sizes, reverse=True)
    for number, (_, arrays) in enumerate(found):
        for one, other in zip(arrays, found[0][1], strict=True):
            if number < exact:
                np.testing.assert_array_equal(one, other)
            else:
                scale = max(1.0, float(np.nanmax(np.abs(other), initial=0)))
                np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5 * scale)


@settings(max_examples=40, deadline=None)
@given(graphs(steps=10), st.sampled_from([1, 16]))
def test_no_bit_changes_by_default(graph: Graph, blocks: int) -> None:
    """With other shares rounding may: inference's batch norms go into convolutions whose results nobody saves."""
    wanted = [p.name for p in graph.parameters if p.type.element.is_float]
    assume(wanted)
    try:
        found = of_shares(graph, wanted, blocks)
    except UnsupportedError:
        assume(False)
    assert_shares_agree(found, exact=2)


@pytest.mark.parametrize("make", GRAPHS)
def test_shares_of_networks(make: Callable[[str], Graph]) -> None:
    graph = make("f32")
    assert_shares_agree(of_shares(graph, [p.name for p in graph.parameters], 1))


def tower(blocks: int, axes: int = 2) -> Graph:
    """Residual blocks: batch norm, relu, convolution, twice; and the sum."""
    b = Builder()
    x = b.parameter("x", (2, 32, *(8,) * axes))
    for number in range(blocks):
        y = x
        for part in range(2):
            vector = b.parameter(f"vector{number}.{part}", (32,))
            y = b.relu(b.node("batch_norm_training", [y, vector, vector], {"epsilon": 1e-3}).outputs[0])
            weights = b.parameter(f"weights{number}.{part}", (32, 32, *(3,) * axes))
            y = b.convolution(y, weights, pads_begin=(1,) * axes, pads_end=(1,) * axes)
        x = b.add(x, y)
    return b.results(x)


def test_normalised_images_are_computed_again() -> None:
    """Only what convolutions and sums make is saved of images at 0; at 1 checkpoints."""
    graph = tower(9)
    found = of_shares(graph, [p.name for p in graph.parameters], 16)
    assert_shares_agree(found)
    image = 2 * 32 * 8 * 8 * 4
    everything, default, *_, least = (size // image for size, _ in found)
    assert everything == 4 * 9 - 1  # of the first batch norm the operand is a parameter
    assert default == 2 * 9 - 1
    assert 2 <= least <= 5


def test_the_backward_half_computes_again_what_it_needs_next() -> None:
    """Each is computed right before its first reader, so that the CPU's memory holds few of them."""
    halves = split(differentiate(tower(9), ["x"]), 1, blocks=16)
    executable: Any = compile_graph(halves.backward, "CPU")
    assert executable.memory.planned <= 8 * (2 * 32 * 10 * 10 * 4)
