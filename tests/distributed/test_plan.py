"""Buckets: every gradient once, in the order wanted, of one dtype and about the size wanted."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ngraph_mxnet.distributed.gradients import ALIGNMENT, MOST_BUCKETS, buffer_bytes, make_plan, summed_dtype

GRADIENTS = st.lists(st.tuples(st.integers(0, 5000), st.sampled_from([np.float16, np.float32, np.float64])), min_size=1,
                     max_size=40)


@given(gradients=GRADIENTS, full_bytes=st.none() | st.integers(1, 1 << 16), data=st.data())
def test_every_gradient_has_a_place_of_its_own(gradients, full_bytes, data):
    sizes, dtypes = [size for size, _ in gradients], [np.dtype(dtype) for _, dtype in gradients]
    order = data.draw(st.permutations(range(len(sizes))))
    buckets = make_plan(sizes, dtypes, order, full_bytes)
    slots = [slot for bucket in buckets for slot in bucket.slots]
    assert [slot.gradient for slot in slots] == list(order)
    assert all(slot.elements == sizes[slot.gradient] for slot in slots)
    assert all(slot.dtype == summed_dtype(dtypes[slot.gradient]) for slot in slots)
    assert all(slot.begin % ALIGNMENT == 0 for slot in slots)
    for before, after in itertools.pairwise(slots):
        assert before.begin + before.bytes <= after.begin
    assert slots[-1].begin + slots[-1].bytes <= buffer_bytes(sizes, dtypes)
    for bucket in buckets:
        assert {slot.dtype for slot in bucket.slots} == {bucket.dtype}
        assert bucket.begin == bucket.slots[0].begin
        assert bucket.elements * bucket.dtype.itemsize == bucket.end - bucket.begin


def test_buckets_are_full_before_the_next_begins():
    buckets = make_plan([100] * 10, [np.dtype(np.float32)] * 10, range(10), 1000)
    assert [len(bucket.slots) for bucket in buckets] == [3, 3, 3, 1]


@pytest.mark.parametrize(("megabytes", "buckets"), [(0.5, 1), (8, 2), (128, 16), (600, 24)])
def test_usual_buckets_are_a_sixteenth_of_all_but_neither_small_nor_large(megabytes, buckets):
    sizes = [int(megabytes * 1024)] * 256  # of float32
    assert len(make_plan(sizes, [np.dtype(np.float32)] * 256, range(256), None)) == buckets


def test_large_models_have_few_buckets():
    assert len(make_plan([1000] * 1000, [np.dtype(np.float32)] * 1000, range(1000), 1)) <= MOST_BUCKETS


def test_integers_are_refused():
    with pytest.raises(TypeError, match="int32 can't be summed over processes"):
        make_plan([1], [np.dtype(np.int32)], [0], 1)
