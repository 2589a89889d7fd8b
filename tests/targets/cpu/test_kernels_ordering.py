"""The kernels that sort, sum up and find positions, against NumPy."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kernel_library import SEEDS, SPLITS, every_isa, run

from ngraph_mxnet.ir import Builder
from ngraph_mxnet.program.compile import compile
from ngraph_mxnet.targets.cpu.params.reduction import around
from ngraph_mxnet.targets.cpu.params.selection import (
    ARGSORT,
    ARGSORT_DIGITS,
    COORDINATE_POSITIONS,
    CUMSUM,
    DIGITS,
    ELEMENT_POSITIONS,
    FIRST,
    OUTSIDE_CODES,
    SCATTER,
    SCATTER_CODES,
    SCATTER_INTO,
)

SHAPES = st.lists(st.integers(1, 5), min_size=1, max_size=3).flatmap(
    lambda shape: st.sampled_from([1, 7, 8, 9, 40, 70]).map(lambda size: [*shape[:1], size, *shape[1:]]))
DTYPES = {"f32": np.float32, "f64": np.float64, "i64": np.int64}


@every_isa
@pytest.mark.parametrize("element", DTYPES)
@given(seed=SEEDS, shape=SHAPES, axis=st.integers(0, 3), descending=st.booleans(), splits=SPLITS)
def test_argsort_and_first(isa: str, element: str, seed: int, shape: list[int], axis: int, descending: bool,
                 splits: list[int]) -> None:
    """Equal elements in the order of their positions, NaN as the greatest; the result is each line's first half."""
    random, axis = np.random.default_rng(seed), axis % len(shape)
    ranks = random.integers(-4, 5, shape)
    data = ranks.astype(DTYPES[element])
    if data.dtype.kind == "f":
        data[ranks == 4] = np.nan
    keys = np.where(data != data, -9 if descending else 9, -ranks if descending else ranks)
    wanted = np.moveaxis(np.argsort(keys, axis=axis, kind="stable"), axis, -1)
    out = np.full((*wanted.shape[:-1], 2, wanted.shape[-1]), -1)
    params = ARGSORT(**around(shape, axis), descending=descending, count=0)
    run(isa, f"argsort_{element}", [data, out], params, (), splits)
    np.testing.assert_array_equal(out[..., 0, :], wanted)
    for count in {1, min(5, shape[axis]), shape[axis]}:
        out = np.full((*wanted.shape[:-1], count), -1)
        ints = FIRST(**around(shape, axis), descending=descending, count=count)
        run(isa, f"first_{element}", [data, out], ints, (), splits)
        np.testing.assert_array_equal(out, wanted[..., :count])


@every_isa
@given(seed=SEEDS, size=st.sampled_from([1, 2, 255, 256, 257, 1000]), outer=st.integers(1, 3), inner=st.integers(1, 3),
       kind=st.sampled_from(["bits", "whole", "alike", "normal"]), descending=st.booleans(), splits=SPLITS)
def test_argsort_by_digits(isa: str, seed: int, size: int, outer: int, inner: int, kind: str, descending: bool,
                           splits: list[int]) -> None:
    """Any bits: infinities, numbers below the normal ones, NaN of all kinds, zeros of both signs, which are equal."""
    random, shape = np.random.default_rng(seed), (outer, size, inner)
    data = {"bits": random.integers(0, 1 << 32, shape, np.uint32).view(np.float32),
            "whole": random.integers(-3, 4, shape).astype(np.float32) * np.float32(-0.0 if seed % 2 else 1),
            "alike": np.full(shape, 7, np.float32), "normal": random.normal(size=shape).astype(np.float32)}[kind]
    data[random.random(shape) < 0.1] = np.nan
    data[random.random(shape) < 0.1] = random.choice([np.inf, -np.inf, 0.0, -0.0])
    with np.errstate(invalid="ignore"):  # NaN of a kind that conversions change
        ranks = np.nan_to_num(data.astype(np.float64), nan=1e301, posinf=1e300, neginf=-1e300)
    wanted = np.moveaxis(np.argsort(-ranks if descending else ranks, axis=1, kind="stable"), 1, -1)
    out = np.full((outer, inner, 2 * size + DIGITS), -1)
    params = ARGSORT_DIGITS(**around(shape, 1), descending=descending, count=0)
    run(isa, "argsort_digits_f32", [data, out], params, (), splits)
    np.testing.assert_array_equal(out[..., :size], wanted)


@every_isa
@pytest.mark.parametrize("element", DTYPES)
@given(seed=SEEDS, shape=SHAPES, axis=st.integers(0, 3), splits=SPLITS)
def test_cumsum(isa: str, element: str, seed: int, shape: list[int], axis: int, splits: list[int]) -> None:
    axis %= len(shape)
    data = np.random.default_rng(seed).integers(-100, 100, shape).astype(DTYPES[element])
    out = np.full_like(data, 77)
    params = CUMSUM(**around(shape, axis), descending=False, count=0)
    run(isa, f"cumsum_{element}", [data, out], params, (), splits)
    np.testing.assert_array_equal(out, np.cumsum(data, axis))


@every_isa
@pytest.mark.parametrize("element", DTYPES)
@pytest.mark.parametrize("how", [np.add, np.multiply, np.maximum, np.minimum])
@given(seed=SEEDS, count=st.integers(1, 30), inner=st.integers(1, 30), columns=st.integers(1, 9), splits=SPLITS)
def test_scatter_into(isa: str, element: str, how: np.ufunc, seed: int, count: int, inner: int, columns: int,
                      splits: list[int]) -> None:
    random = np.random.default_rng(seed)
    updates, out = (random.integers(-3, 4, (rows, inner)).astype(DTYPES[element]) for rows in (count, 7))
    positions, wanted = random.integers(0, 7, count), out.copy()
    how.at(wanted, positions, updates)
    code = SCATTER_CODES[{"multiply": "mul", "maximum": "max", "minimum": "min"}.get(how.__name__, how.__name__)]
    ints = SCATTER_INTO(rows=7, inner=inner, count=count, columns=columns, code=code)
    run(isa, f"scatter_{element}", [updates, positions, out], ints, (), splits)
    np.testing.assert_array_equal(out, wanted)


@every_isa
@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.float32, np.int64])
@given(seed=SEEDS, count=st.integers(1, 30), inner=st.integers(1, 30), columns=st.integers(1, 9), splits=SPLITS)
def test_scatter(isa: str, dtype: type, seed: int, count: int, inner: int, columns: int, splits: list[int]) -> None:
    """Where positions are equal, the last update stays."""
    random = np.random.default_rng(seed)
    updates = random.integers(-100, 100, (count, inner)).astype(dtype)
    out, positions = np.full((9, inner), 77, dtype), random.integers(0, 9, count)
    wanted = out.copy()
    for position, update in zip(positions, updates, strict=True):
        wanted[position] = update
    ints = SCATTER(rows=9, inner=inner, count=count, columns=columns)
    run(isa, f"scatter_{out.itemsize}", [updates, positions, out], ints, (), splits)
    np.testing.assert_array_equal(out, wanted)


@every_isa
@given(seed=SEEDS, sizes=st.lists(st.integers(1, 5), min_size=1, max_size=4), count=st.integers(1, 40),
       points=st.integers(1, 9), splits=SPLITS)
def test_coordinate_positions(isa: str, seed: int, sizes: list[int], count: int, points: int,
                              splits: list[int]) -> None:
    """Negative coordinates count from the end; then all are clipped."""
    rows = np.random.default_rng(seed).integers(-8, 8, (len(sizes), count))
    inside = [np.clip(np.where(row < 0, row + size, row), 0, size - 1)
              for row, size in zip(rows, sizes, strict=True)]
    out = np.full(count, -1)
    ints = COORDINATE_POSITIONS(axes=len(sizes), count=count, points=points).followed_by(sizes)
    run(isa, "coordinate_positions", [rows, out], ints, (), splits)
    np.testing.assert_array_equal(out, np.ravel_multi_index(inside, sizes))


@every_isa
@pytest.mark.parametrize("mode", ["clip", "wrap", "from_end"])
@given(seed=SEEDS, shape=st.lists(st.integers(1, 5), min_size=1, max_size=3), axis=st.integers(0, 2),
       count=st.integers(1, 9), splits=SPLITS)
def test_element_positions(isa: str, mode: str, seed: int, shape: list[int], axis: int, count: int,
                           splits: list[int]) -> None:
    axis %= len(shape)
    indices = np.random.default_rng(seed).integers(-9, 9, [*shape[:axis], count, *shape[axis + 1:]])
    size = shape[axis]
    counted = indices + size * (indices < 0) if mode == "from_end" else indices
    inside = indices % size if mode == "wrap" else np.clip(counted, 0, size - 1)
    wanted = np.take_along_axis(np.arange(prod(shape)).reshape(shape), inside, axis)
    out = np.full_like(wanted, -1)
    ints = ELEMENT_POSITIONS(**around(shape, axis) | {"count": count, "outside": OUTSIDE_CODES[mode]})
    run(isa, "element_positions", [indices, out], ints, (), splits)
    np.testing.assert_array_equal(out, wanted)


@given(seed=SEEDS, in_place=st.booleans(), form=st.sampled_from(["corner", "center"]), by_id=st.booleans())
def test_boxes_with_nan_overlap_with_none(seed: int, in_place: bool, form: str, by_id: bool) -> None:
    """Infinite ones neither, where an overlap is NaN; scores have none of either."""
    random = np.random.default_rng(seed)
    rows = np.round(random.uniform(-1, 3, (2, 12, 7)), 1).astype(np.float32)
    rows[..., 1] = random.integers(0, 2, (2, 12))
    drawn = random.random((2, 12, 4))
    rows[..., 3:] = np.where(drawn < 0.1, np.nan, np.where(drawn < 0.15, np.inf, np.where(drawn < 0.2, -np.inf,
                                                                                         rows[..., 3:])))
    b = Builder(name="nms")
    attrs = {"overlap": 0.3, "valid": -0.5, "coordinates": 3, "score": 2, "id": 1, "across_ids": not by_id,
             "format": form, "in_place": in_place}
    graph = b.results(b.node("box_nms", [b.parameter("x", rows.shape)], attrs).outputs[0])
    found, wanted = (compile(graph, name)(rows)[0] for name in ("CPU", "INTERPRETER"))
    np.testing.assert_array_equal(found, wanted)


@given(seed=SEEDS, keep=st.sampled_from([-1, 1, 40, 63, 64, 65, 130, 500]), topk=st.sampled_from([-1, 200]),
       by_id=st.booleans(), in_place=st.booleans())
def test_boxes_of_a_detector(seed: int, keep: int, topk: int, by_id: bool, in_place: bool) -> None:
    """So many are kept that a row is compared with them in several turns."""
    random = np.random.default_rng(seed)
    rows = np.empty((2, 400, 6), np.float32)
    rows[..., 0] = np.round(random.random((2, 400)), 2)  # ties
    rows[..., 1] = random.integers(0, 3, (2, 400))
    rows[..., 2:4] = random.random((2, 400, 2))
    rows[..., 4:] = rows[..., 2:4] + random.random((2, 400, 2)) * 0.2
    b = Builder(name="nms")
    attrs = {"overlap": 0.4, "valid": 0.05, "coordinates": 2, "score": 0, "id": 1, "across_ids": not by_id,
             "topk": topk, "in_place": in_place, "keep": -1 if in_place else keep}
    graph = b.results(b.node("box_nms", [b.parameter("x", rows.shape)], attrs).outputs[0])
    found, wanted = (compile(graph, name)(rows)[0] for name in ("CPU", "INTERPRETER"))
    np.testing.assert_array_equal(found, wanted)
