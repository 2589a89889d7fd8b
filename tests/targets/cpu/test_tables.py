"""The tables that binding makes are those of their definitions in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ngraph_mxnet import _core
from ngraph_mxnet.ops.pooling import adaptive_taps, resize_taps
from ngraph_mxnet.targets.cpu.microkernels.tables import (
    FirstRecipe,
    Plane,
    WeightRecipe,
    pixel_table,
    step_table,
)

sizes, strides = st.integers(1, 7), st.integers(0, 5000)
pairs, planes = st.tuples(sizes, sizes), st.builds(Plane, strides, strides, strides)


def offsets(plane: Plane, images: int, rows: Any, columns: Any) -> np.ndarray:
    """Of the grid images x rows x columns."""
    image = np.arange(images) * plane.image
    return (image[:, None, None] + (rows * plane.row)[:, None] + columns * plane.pixel).reshape(-1)


@given(pairs, sizes, pairs, st.tuples(st.integers(0, 3), st.integers(0, 3)), st.tuples(planes, planes, planes, planes))
def test_pixels(out, images, stride, padding, four):
    recipe = pixel_table(*out, inputs=four[0], output=four[1], residual=four[2], output2=four[3], stride=stride,
                         padding=padding, images=images)
    h, w = map(np.arange, out)
    wanted = [offsets(four[0], images, h * stride[0] - padding[0], w * stride[1] - padding[1]),
              *(offsets(plane, images, h, w) for plane in four[1:])]
    found = recipe.table().reshape(4, -1)
    np.testing.assert_array_equal(found, wanted)
    for number, row in enumerate(found):
        assert recipe.extremes(number * row.size, row.size) == (row.min(), row.max())


@given(planes, st.integers(1, 40), strides, st.sampled_from([1, 16]), pairs, pairs, st.integers(1, 3), strides)
def test_steps(plane, channels, channel_stride, lanes, kernel, dilation, slices, slice_stride):
    recipe = step_table(plane, channels=channels, channel_stride=channel_stride, lanes=lanes, kernel=kernel,
                        dilation=dilation, slices=slices, slice_stride=slice_stride)
    block, lane = np.divmod(np.arange(channels), lanes)
    axes = (block * channel_stride + lane * 4, np.arange(slices) * slice_stride,
            np.arange(kernel[0]) * dilation[0] * plane.row, np.arange(kernel[1]) * dilation[1] * plane.pixel)
    wanted = sum(np.ix_(*axes)).reshape(-1)
    found = recipe.table()
    np.testing.assert_array_equal(found, wanted)
    assert found.size == recipe.size
    low, high = recipe.extremes(0, recipe.size)
    assert low <= found.min() and found.max() <= high


@given(st.integers(1, 40), st.integers(1, 90),
       st.sampled_from([("nearest", False), ("bilinear", False), ("bilinear", True)]))
def test_taps_of_a_resize(size, out, mode):
    number = {("nearest", False): 0, ("bilinear", False): 1, ("bilinear", True): 2}[mode]
    numbers = size, out, number, 1 + (number > 0)
    first, weights = resize_taps(size, out, *mode)
    found = WeightRecipe(numbers).table().reshape(out, -1)
    np.testing.assert_array_equal(FirstRecipe(numbers).table(), first)
    np.testing.assert_array_equal(found[:, :weights.shape[1]], weights)


@given(st.integers(1, 40), st.integers(1, 40))
def test_taps_of_means(size, out):
    numbers = size, out, -1, -(-size // out) + 1
    first, weights = adaptive_taps(size, out)
    found = WeightRecipe(numbers).table().reshape(out, -1)
    np.testing.assert_array_equal(FirstRecipe(numbers).table(), first)
    np.testing.assert_array_equal(found[:, :weights.shape[1]], weights)
    assert not found[:, weights.shape[1]:].any()


def test_what_32_bits_cannot_hold_is_refused():
    with pytest.raises(ValueError, match="2 GiB"):
        pixel_table(1, 3, inputs=Plane(0, 2**30), output=Plane(0, 64)).table()


@pytest.mark.parametrize(("kind", "numbers"), [("stars", []), ("steps", [1, 2]), ("steps", [1 << 40] * 11)])
def test_what_is_no_table_is_refused(kind, numbers):
    with pytest.raises(ValueError, match=r"table|bounds|entries"):
        _core.table(kind, numbers)
