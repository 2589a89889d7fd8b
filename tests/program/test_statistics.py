"""Statistics of tensors, against their definitions."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from ngraph_mxnet.base.rendered import jsonable
from ngraph_mxnet.program.differences import Statistics, statistics


def test_figures_are_of_the_finite_elements():
    array = np.array([[3.0, -4.0, 0.0], [np.nan, np.inf, -np.inf]], np.float32)
    found = statistics(array)
    assert found == Statistics((2, 3), "float32", -4.0, 3.0, pytest.approx(-1 / 3), pytest.approx(5.0), 1, 2, 1, 0)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "uint8", "int32", "int64", "uint64"])
def test_figures_are_numpys(dtype: str):
    array = (np.random.default_rng(1).uniform(-100, 100, (5, 7)) ** 2 % 113).astype(dtype)
    found = statistics(array)
    wide = array.astype(np.float64)
    assert (found.min, found.max) == (array.min(), array.max())
    assert found.mean == pytest.approx(wide.mean()) and found.norm == pytest.approx(np.linalg.norm(wide))
    assert (found.shape, found.dtype, found.zeros) == ((5, 7), dtype, int((array == 0).sum()))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_the_largest_numbers_do_not_overflow(dtype: str):
    largest = float(np.finfo(dtype).max)
    found = statistics(np.full(100, largest, dtype))
    assert found.mean == pytest.approx(largest, rel=1e-3)
    assert found.norm == (pytest.approx(10 * largest) if dtype != "float64" else math.inf)
    assert statistics(np.full(4, -largest / 4, dtype)).norm == pytest.approx(largest / 2, rel=1e-3)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_denormals_are_no_zeros(dtype: str):
    info = np.finfo(dtype)
    array = np.array([0.0, -0.0, info.smallest_subnormal, -info.smallest_normal / 2, info.smallest_normal, 1], dtype)
    found = statistics(array)
    assert (found.zeros, found.denormals) == (2, 2)


def test_the_least_integer_has_no_positive_of_its_kind():
    found = statistics(np.array([-128, 127], np.int8))
    assert (found.min, found.max, found.mean) == (-128, 127, pytest.approx(-0.5))
    assert found.norm == pytest.approx(math.hypot(128, 127))


def test_bool_counts_as_0_and_1():
    found = statistics(np.array([True, False, True, True]))
    assert (found.dtype, found.min, found.max, found.mean, found.zeros) == ("bool", 0, 1, 0.75, 1)


@pytest.mark.parametrize("array", [np.zeros((0, 3), np.float32), np.full(2, np.nan), np.zeros((2, 0), np.int32)])
def test_without_finite_elements_there_are_no_figures(array: np.ndarray):
    found = statistics(array)
    assert (found.min, found.max, found.mean, found.norm) == (None,) * 4
    assert found.nan == array.size and "min -, max -" in str(found)


def test_a_single_number_and_any_strides():
    assert statistics(np.float32(2)).shape == ()
    array = np.arange(24, dtype=np.float32).reshape(4, 6)
    assert statistics(array[::2, ::3]) == statistics(array[::2, ::3].copy())


def test_as_json_and_as_a_line():
    found = statistics(np.array([[np.nan, 1, 0, 1e-40]], np.float32))
    assert json.loads(json.dumps(jsonable(found)))["shape"] == [1, 4]
    assert str(found) == "float32 [1, 4], min 0, max 1, mean 0.333333, norm 1, NaN 1, zeros 1, denormals 1"


def test_texts_have_no_statistics():
    with pytest.raises(TypeError, match="expected bool, integers or floats"):
        statistics(np.array(["a"]))
