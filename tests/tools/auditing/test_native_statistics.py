"""The native statistics are those of `debug.statistics`, whatever the numbers and the instructions of the CPU."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ngraph_mxnet import _core
from ngraph_mxnet.ir.types import ELEMENT_TYPES
from ngraph_mxnet.program.differences import Statistics, statistics

CODES = _core.tensor_codes()
SHAPES = [(), (0,), (1,), (3,), (4,), (7,), (2, 0, 3), (5, 13), (3, 8, 9), (4099,)]


def drawn(random: np.random.Generator, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    """All kinds of numbers: any bits, and some that are small, zero, infinite or NaN more often than bits would be."""
    size = math.prod(shape)
    if dtype.kind == "b":
        return random.integers(0, 2, size).astype(dtype).reshape(shape)
    array = np.frombuffer(random.bytes(size * dtype.itemsize), dtype).copy()
    if dtype.kind == "f":
        odd = np.array([0, -0.0, np.nan, np.inf, -np.inf, np.finfo(dtype).smallest_subnormal, 1], dtype)
        array = np.where(random.random(size) < 0.3, random.choice(odd, size), array)
        if random.random() < 0.5:
            array = np.where(np.isfinite(array), random.standard_normal(size).astype(dtype), array)
    return array.astype(dtype).reshape(shape)


def native(array: np.ndarray, element: str, code: str | None = None) -> Statistics:
    numbers, _ = _core.statistics_and_hash(array, element, code)
    bounds = [None if math.isnan(number) else number for number in numbers[:4]]
    return Statistics(array.shape, str(array.dtype), *bounds, *numbers[4:])


@pytest.mark.parametrize("element", ELEMENT_TYPES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_statistics(element: str, shape: tuple[int, ...]) -> None:
    random = np.random.default_rng(len(shape) + len(element))
    for _ in range(8):
        array = drawn(random, ELEMENT_TYPES[element].numpy, shape)
        found, wanted = native(array, element), statistics(array)
        assert found[6:] == wanted[6:]
        if wanted.norm is not None:
            assert (found.min, found.max) == (float(wanted.min), float(wanted.max))  # as doubles, integers too
            scale = max(abs(float(wanted.min)), abs(float(wanted.max)))
            assert found.mean == pytest.approx(wanted.mean, rel=1e-12, abs=1e-12 * scale)
            assert found.norm == pytest.approx(wanted.norm, rel=1e-12)
        else:
            assert found.min is None and found.max is None and found.mean is None and found.norm is None


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("place", [None, 0, 5, 1023, 1024, 3000, 4098])
def test_one_odd_number_among_usual_ones(place: int | None, code: str) -> None:
    """Pieces without any are counted faster."""
    array = np.random.default_rng(0).standard_normal(4099).astype(np.float32)
    array[::7] = 0
    for odd in (np.nan, np.inf, 1e-40, -0.0):
        if place is not None:
            array[place] = odd
        found, wanted = native(array, "f32", code), statistics(array)
        assert (found.min, found.max, *found[6:]) == (wanted.min, wanted.max, *wanted[6:])
        assert found.mean == pytest.approx(wanted.mean, rel=1e-9)
        assert found.norm == pytest.approx(wanted.norm, rel=1e-12)


ODD = st.sampled_from([0.0, -0.0, math.nan, math.inf, -math.inf, 1e-45, -1e-39, 3.4e38, -3.4e38])


@given(st.lists(st.one_of(st.floats(width=32), ODD, st.floats(-8, 8, width=32)), max_size=100), st.integers(0, 3))
def test_numbers_of_any_kind(numbers: list[float], offset: int) -> None:
    """Also where they are not aligned, and few of a kind."""
    array = np.array([*[0] * offset, *numbers], "f4")[offset:]
    wanted = statistics(array)
    for code in CODES:
        found = native(array, "f32", code)
        assert (found.min, found.max, *found[6:]) == (wanted.min, wanted.max, *wanted[6:])
        if wanted.norm is not None:
            assert wanted.min is not None and wanted.max is not None
            scale = max(abs(float(wanted.min)), abs(float(wanted.max)))
            assert found.mean == pytest.approx(wanted.mean, rel=1e-12, abs=1e-12 * scale)
            assert found.norm == pytest.approx(wanted.norm, rel=1e-12)


@pytest.mark.parametrize("code", CODES)
def test_sums_are_of_doubles(code: str) -> None:
    """Their error does not grow with the number of elements as that of floats does."""
    array = np.full(1 << 20, 0.1, "f4")
    array[::2] = 1e-4
    found, wanted = native(array, "f32", code), array.astype("f8")
    assert found.mean == pytest.approx(wanted.mean(), rel=1e-13)
    assert found.norm == pytest.approx(float(np.sqrt((wanted**2).sum())), rel=1e-13)


@pytest.mark.parametrize("largest", [1e300, 1e-300, 5e-324])
def test_squares_that_no_float_holds(largest: float) -> None:
    array = np.array([largest, -largest, largest / 2, 0])
    assert native(array, "f64").norm == pytest.approx(statistics(array).norm, rel=1e-12)
    assert native(array, "f64").norm > 0


@pytest.mark.parametrize(("array", "element"), [(np.zeros((4, 4), np.float32).T[1:], "f32"),
                                                (np.zeros(4, np.float64), "f32"), (np.zeros(4, np.int32), "f32")])
def test_what_is_none_of_these_is_refused(array: np.ndarray, element: str) -> None:
    with pytest.raises(ValueError, match="expected a C-contiguous array of f32"):
        _core.statistics_and_hash(array, element)
