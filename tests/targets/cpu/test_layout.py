"""Layout decisions: halos reach producers, concatenation happens in place, views alias what they can."""

from __future__ import annotations

import numpy as np
import pytest

from ngraph_mxnet import compile
from ngraph_mxnet.ir import Builder, TensorType, element_type
from ngraph_mxnet.targets.cpu.planning.layout import plan_layout
from ngraph_mxnet.targets.cpu.planning.view import (
    Halo,
    as_blocked,
    as_plain,
    blocked_bytes,
    blocked_view,
    contiguous_strides,
    plain_view,
)
from ngraph_mxnet.targets.cpu.program.instruction import Buffer, Space


def tensor(*shape: int) -> TensorType:
    return TensorType(element_type("f32"), shape)


def test_a_halo_is_the_most_that_any_reader_pads():
    b = Builder()
    x = b.parameter("x", (1, 16, 8, 8))
    small, large = b.parameter("w3", (16, 16, 3, 3)), b.parameter("w5", (16, 16, 5, 5))
    pooled = b.max_pool(x, kernel=(1, 1))
    one = b.convolution(pooled, small, pads_begin=(1, 1), pads_end=(1, 1))
    two = b.convolution(pooled, large, pads_begin=(2, 2), pads_end=(2, 1))
    graph = b.results(one, two)
    assert plan_layout(graph).halo[pooled] == Halo(2, 2, 2, 1)


def test_nested_concats_share_one_buffer_and_the_largest_halo():
    b = Builder()
    x = b.parameter("x", (1, 16, 8, 8))
    first = b.max_pool(x, kernel=(1, 1))
    second = b.max_pool(first, kernel=(1, 1))
    inner = b.concat(first, second, axis=1)
    third = b.max_pool(inner, kernel=(1, 1))
    outer = b.concat(inner, third, axis=1)
    weights = b.parameter("w", (16, 16, 3, 3))
    graph = b.results(outer, b.convolution(first, weights, pads_begin=(1, 1), pads_end=(1, 1)))
    plan = plan_layout(graph)
    assert plan.placement == {first: (inner, 0), second: (inner, 1), inner: (outer, 0), third: (outer, 2)}
    assert all(plan.halo[value] == Halo(1, 1, 1, 1) for value in (first, second, inner, third, outer))


def test_channels_that_fill_no_block_are_not_concatenated_in_place():
    b = Builder()
    x = b.parameter("x", (1, 8, 4, 4))
    pooled = b.max_pool(x, kernel=(1, 1))
    graph = b.results(b.concat(pooled, pooled, axis=1))
    assert not plan_layout(graph).placement


def test_vectors_alias_between_layouts():
    buffer = Buffer(Space.ARENA, 4096)
    blocked = blocked_view(tensor(2, 20, 1, 1), buffer, Halo())
    assert as_plain(blocked).strides == (32, 1, 1, 1)
    assert as_plain(blocked_view(tensor(2, 20, 2, 1), buffer, Halo())) is None
    whole = plain_view(tensor(2, 32), buffer)
    assert as_blocked(whole).block == 16
    assert as_blocked(plain_view(tensor(2, 20), buffer)) is None


def test_blocked_bytes_count_halo_and_padding_lanes():
    assert blocked_bytes(tensor(2, 17, 3, 5), Halo(1, 0, 2, 1)) == 2 * 2 * (3 + 1) * (5 + 3) * 16 * 4
    assert contiguous_strides((2, 3, 4)) == (12, 4, 1)


@pytest.mark.parametrize("keep_dims", [True, False])
@pytest.mark.parametrize("size", [(7,), (5, 6), (3, 4, 5)])
@pytest.mark.parametrize("special", [0.0, np.nan, -np.inf])
def test_the_greatest_of_an_image_stays_in_blocks(size: tuple[int, ...], keep_dims: bool, special: float) -> None:
    b = Builder()
    image = b.convolution(b.parameter("x", (2, 33, *size)), b.weight("w", (20, 33, *(1,) * len(size))))
    graph = b.results(b.reduce_max(image, axes=tuple(range(2, 2 + len(size))), keep_dims=keep_dims))
    random = np.random.default_rng(0)
    arrays = [random.standard_normal(p.shape).astype(np.float32) for p in graph.parameters]
    arrays[0].reshape(-1)[3] = special
    executable = compile(graph, "CPU")
    with np.errstate(invalid="ignore"):
        (found,), (wanted,) = executable(*arrays), compile(graph, "INTERPRETER")(*arrays)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
    assert "max_pool_blocked" in [i.name for i in executable.main.instructions]  # type: ignore[attr-defined]


@pytest.mark.parametrize("size", [(7,), (5, 6), (2, 1, 1), (3, 4, 5)])
@pytest.mark.parametrize("channels", [1, 20, 32])
@pytest.mark.parametrize("operand", ["image", "channel", "pixel"])
def test_what_there_is_of_each_channel_meets_images(size: tuple[int, ...], channels: int, operand: str) -> None:
    """As squeeze and excite has it: of each image, of all, or of each pixel."""
    b = Builder()
    image = b.convolution(b.parameter("x", (2, 33, *size)), b.weight("w", (channels, 33, *(1,) * len(size))))
    ones = (1,) * len(size)
    shape = {"image": (2, channels, *ones), "channel": (channels, *ones), "pixel": (2, 1, *size)}[operand]
    scaled = b.multiply(image, b.sigmoid(b.parameter("s", shape)))
    graph = b.results(b.convolution(scaled, b.weight("v", (5, channels, *ones))), b.reduce_sum(image, axes=(1,)))
    random = np.random.default_rng(0)
    arrays = [random.standard_normal(p.shape).astype(np.float32) for p in graph.parameters]
    for found, wanted in zip(compile(graph, "CPU")(*arrays), compile(graph, "INTERPRETER")(*arrays), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
