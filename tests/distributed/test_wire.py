"""bf16 between hosts: rounding as the format has it."""

from __future__ import annotations

import ml_dtypes
import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from ngraph_mxnet.distributed.wire import rounded, widened


@given(arrays(np.float32, st.integers(1, 50), elements=st.floats(width=32)))
def test_rounds_to_the_nearest_number_of_bf16(values):
    expected = values.astype(ml_dtypes.bfloat16).astype(np.float32)
    np.testing.assert_array_equal(widened(rounded(values)), expected)
