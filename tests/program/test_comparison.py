"""When two arrays differ, by how much and where."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from ngraph_mxnet.program.differences import Tolerance, compare, in_order_of

TOLERANCE = Tolerance(1e-3)


def floats(*numbers: float) -> np.ndarray:
    return np.array(numbers, np.float32)


def test_a_difference_is_measured_by_the_largest_magnitude():
    found = compare(floats(1, 2, -100.05), floats(1, 2.01, -100), TOLERANCE)
    assert found.agrees and found.beyond == 0 and found.index == (2,)
    assert found.share == pytest.approx(5e-4, rel=1e-3)
    found = compare(floats(1, 2, -100.2), floats(1, 2.15, -100), TOLERANCE)
    assert not found.agrees and found.beyond == 2
    assert (found.index, found.element, found.expected) == ((2,), pytest.approx(-100.2), -100)
    assert found.absolute == pytest.approx(0.2, rel=1e-4) and found.relative == pytest.approx(2e-3, rel=1e-4)


def test_the_tolerance_is_the_limit_itself():
    assert compare(np.array([1.0, 0.125]), np.array([1.0, 0.0]), Tolerance(0.125)).agrees
    assert not compare(np.array([1.0, 0.126]), np.array([1.0, 0.0]), Tolerance(0.125)).agrees


def test_a_reference_of_zeros_is_measured_by_1():
    assert compare(floats(0, 9e-4), floats(0, 0), TOLERANCE).agrees
    found = compare(floats(0, 2e-3), floats(0, 0), TOLERANCE)
    assert not found.agrees and found.relative == math.inf


@pytest.mark.parametrize(("ours", "reference", "agrees"), [
    (math.nan, math.nan, True), (math.inf, math.inf, True), (-math.inf, -math.inf, True), (math.inf, -math.inf, False),
    (math.nan, 1.0, False), (1.0, math.nan, False), (math.inf, 1.0, False), (1.0, math.inf, False),
    (math.nan, math.inf, False),
])
def test_what_is_no_number(ours: float, reference: float, agrees: bool):
    found = compare(floats(1, ours), floats(1, reference), TOLERANCE)
    assert found.agrees == agrees and found.beyond == (not agrees)
    assert found.share == (0 if agrees else math.inf)
    json.dumps(found.to_dict(), allow_nan=False)


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint64", "bool"])
def test_integers_are_equal_or_differ(dtype: str):
    one = np.array([[1, 0, 1]], dtype)
    assert compare(one, one.copy(), TOLERANCE).agrees
    found = compare(one, np.array([[1, 1, 1]], dtype), Tolerance(10))
    assert not found.agrees and found.index == (0, 1) and found.absolute == 1


def test_integers_beyond_what_float64_tells_apart():
    found = compare(np.array([2**62 + 1]), np.array([2**62]), TOLERANCE)
    assert not found.agrees and found.beyond == 1


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_quantised_numbers_may_differ_by_1(dtype: str):
    one = np.array([3, 120, 9], dtype)
    assert compare(one + np.array(1, dtype), one, TOLERANCE).agrees
    found = compare(one + np.array([0, 0, 2], dtype), one, TOLERANCE)
    assert not found.agrees and found.beyond == 1 and found.index == (2,)


def test_the_norm_of_the_largest_numbers_is_none_for_json():
    large = np.full(4, np.finfo(np.float64).max)
    assert compare(large, large, TOLERANCE).to_dict()["ours"]["norm"] == "inf"


def test_another_shape_differs():
    found = compare(np.zeros((2, 3)), np.zeros((3, 2)), TOLERANCE)
    assert not found.agrees and found.share is None and found.index is None
    assert found.to_dict()["ours"]["shape"] == [2, 3]


@pytest.mark.parametrize("shape", [(), (0, 4), (1, 1, 1)])
def test_scalars_and_nothing(shape: tuple[int, ...]):
    assert compare(np.ones(shape), np.ones(shape, np.float32), TOLERANCE).agrees
    found = compare(np.full(shape, 2.0), np.ones(shape), TOLERANCE)
    assert found.agrees == (0 in shape) and found.index == (None if 0 in shape else (0,) * len(shape))


def test_other_dtypes_are_compared_as_numbers():
    assert compare(floats(1, 0), np.array([True, False]), TOLERANCE).agrees
    assert not compare(floats(1, 0.5), np.array([True, False]), TOLERANCE).agrees


def test_rows_are_put_in_order_that_are_at_other_places() -> None:
    rows = np.random.default_rng(0).random((2, 40, 6), np.float32)
    swapped = rows.copy()
    swapped[1, [3, 4]] = swapped[1, [4, 3]]
    np.testing.assert_array_equal(in_order_of(swapped, rows, Tolerance(1e-4)), rows)
    wrong = swapped.copy()
    wrong[1, 3, 0] += 1
    assert not compare(in_order_of(wrong, rows, Tolerance(1e-4)), rows, Tolerance(1e-4)).agrees
    backwards = rows[:, ::-1].copy()
    assert in_order_of(backwards, rows, Tolerance(1e-4)) is backwards  # another order altogether is a difference
    moved = np.where(np.arange(6) == 2, np.float32(np.inf), rows)
    np.testing.assert_array_equal(in_order_of(moved, moved, Tolerance(1e-4)), moved)
