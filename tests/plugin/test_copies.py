"""Arrays that NumPy's are copied to at once, in the order of the engine."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mxnet_helpers import mx, needs_library

pytestmark = needs_library


@given(st.lists(st.tuples(st.sampled_from(["write", "write part", "add", "read"]), st.integers(0, 9)), max_size=30),
       st.sampled_from(["float32", "float64", "int32", "uint8"]))
@settings(max_examples=60, deadline=None)
def test_writes_among_operators(steps: list[tuple[str, int]], dtype: str) -> None:
    shape = (40, 50)
    array, expected = mx.nd.zeros(shape, dtype=dtype), np.zeros(shape, dtype)
    for kind, number in steps:
        source = np.full(shape, number, dtype)
        if kind == "write":
            array[:] = source
            expected[:] = number
            source[:] = 77  # it is the caller's again
        elif kind == "write part":
            array[number:number + 5] = source[:5]
            expected[number:number + 5] = number
        elif kind == "add":
            array += array.ones_like()
            expected += 1
        else:
            np.testing.assert_array_equal(array.asnumpy(), expected)
    np.testing.assert_array_equal(array.asnumpy(), expected)


def test_a_write_behind_slow_operators() -> None:
    """Readers that were asked for before see what was there before."""
    array = mx.nd.ones((300, 300))
    for _ in range(20):
        before = array
        for _ in range(4):
            before = mx.nd.dot(before, array) / 300
        array[:] = np.full((300, 300), 2, np.float32)
        assert array.asnumpy()[0, 0] == 2
        np.testing.assert_allclose(before.asnumpy(), np.ones((300, 300)), rtol=1e-6)
        array[:] = np.ones((300, 300), np.float32)


def test_what_does_not_fit_is_refused_as_ever() -> None:
    array = mx.nd.zeros((2, 3))
    with pytest.raises((ValueError, mx.MXNetError)):
        array._sync_copyfrom(np.zeros((2, 4), np.float32))
    np.testing.assert_array_equal(array.asnumpy(), np.zeros((2, 3)))


def test_a_failed_array_raises_where_it_is_written() -> None:
    failed = mx.nd.random.normal(0, -1, (2, 2))  # fails in the engine
    with pytest.raises(mx.MXNetError):
        failed[:] = np.ones((2, 2), np.float32)
    mx.nd.zeros(1).wait_to_read()
