"""The facts that ops state, against their references."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from op_records import RECORDS, array_of

from ngraph_mxnet.base.errors import NGraphError
from ngraph_mxnet.ir import all_ops, get_op, register_op
from ngraph_mxnet.ir.types import TensorType, element_type
from ngraph_mxnet.ops.common import broadcast_shape


def ops_that(fact: str):
    names = [name for name, op in all_ops().items() if getattr(op, fact)]
    assert names
    return pytest.mark.parametrize("name", names)


def applied(name: str, types: list[TensorType], attrs: dict, arrays: list[np.ndarray]) -> np.ndarray:
    op = get_op(name)
    return op.evaluate(arrays, op.complete(types, op.check_attrs(attrs)))[0]


def drawn(data, name: str) -> tuple[list[TensorType], dict, list[np.ndarray]]:
    """A case of the op's record; floats are quarters, so that little sums are exact."""
    types, attrs = RECORDS[name].case(data.draw)
    rng = np.random.default_rng(0)
    arrays = [array_of(type_, rng) for type_ in types]
    return types, attrs, [np.asarray(np.round(a * 4) / 4, a.dtype) if a.dtype.kind == "f" else a for a in arrays]


few = settings(max_examples=10)


@ops_that("elementwise")
@few
@given(st.data())
def test_elementwise_ops_broadcast(name: str, data):
    types, attrs, arrays = drawn(data, name)
    assert applied(name, types, attrs, arrays).shape == broadcast_shape([array.shape for array in arrays])


@ops_that("selects")
@few
@given(st.data())
def test_what_selects_makes_no_new_elements(name: str, data):
    types, attrs, arrays = drawn(data, name)
    assert np.isin(applied(name, types, attrs, arrays), np.concatenate([array.ravel() for array in arrays])).all()


@ops_that("same_bytes")
@few
@given(st.data())
def test_same_bytes(name: str, data):
    types, attrs, arrays = drawn(data, name)
    assert applied(name, types, attrs, arrays).tobytes() == arrays[0].tobytes()


@ops_that("rows")
@few
@given(st.data())
def test_rows_hold_all_that_is_read_of_operand_0(name: str, data):
    """The result's elements are runs of as many elements as the rows are, each of elements side by side."""
    types, attrs, arrays = drawn(data, name)
    op, numbers = get_op(name), np.arange(types[0].size, dtype=np.float64).reshape(types[0].shape)
    found = applied(name, [TensorType(element_type("f64"), types[0].shape), *types[1:]], attrs, [numbers, *arrays[1:]])
    shapes, complete = [type_.shape for type_ in types], op.complete(types, op.check_attrs(attrs))
    count, length = op.rows(shapes, [found.shape], complete)
    assert count * length == found.size
    if found.size:
        runs = found.reshape(count, length)
        np.testing.assert_array_equal(runs, runs[:, :1] + np.arange(length))
        assert len(np.unique(found)) <= op.elements_read(shapes, [found.shape], complete)[0] <= types[0].size


@ops_that("rounds")
@few
@given(st.data())
def test_what_rounds_keeps_whole_numbers(name: str, data):
    types, attrs, arrays = drawn(data, name)
    whole = applied(name, types, attrs, arrays)
    np.testing.assert_array_equal(whole, np.floor(whole))
    np.testing.assert_array_equal(applied(name, types, attrs, [whole]), whole)


@ops_that("ordinal")
@few
@given(st.data())
def test_ordinal_ops_follow_an_increasing_map(name: str, data):
    types, attrs, arrays = drawn(data, name)
    if any(array.dtype.kind != "f" for array in arrays):
        return
    bounds = {key: value for key, value in attrs.items() if key in ("lower", "upper")}
    found = applied(name, types, {**attrs, **{key: 2 * value + 1 for key, value in bounds.items()}},
                    [2 * array + 1 for array in arrays])
    plain = applied(name, types, attrs, arrays)
    np.testing.assert_allclose(found, 2 * plain + 1 if plain.dtype.kind == "f" else plain, rtol=1e-2)


@ops_that("keeps_finite")
@few
@given(st.data())
def test_zeros_stay_finite(name: str, data):
    types, attrs, arrays = drawn(data, name)
    assert np.isfinite(applied(name, types, attrs, [np.zeros_like(array) for array in arrays])).all()


@ops_that("commutative")
@few
@given(st.data())
def test_commutative_ops_take_either_order(name: str, data):
    types, attrs, arrays = drawn(data, name)
    np.testing.assert_array_equal(applied(name, types, attrs, arrays), applied(name, types[::-1], attrs, arrays[::-1]))


def test_facts_are_checked():
    with pytest.raises(ValueError, match="no kind of op 'convolutoin'; there are arithmetic, "):
        register_op("test_only", operands=1, kind="convolutoin")(lambda types, attrs: types[0])
    with pytest.raises(TypeError, match="keeps_fnite"):
        register_op("test_only", operands=1, keeps_fnite=True)(lambda types, attrs: types[0])
    assert "test_only" not in all_ops()


def test_an_op_without_a_count_says_so():
    op = type(get_op("relu"))("test_only", 1, {}, lambda types, attrs: types[0])
    with pytest.raises(NGraphError, match="no count of operations for op 'test_only': register it with `work`"):
        op.operations([(2,)], [(2,)], {})
