"""The kernel of random numbers, against the op that defines them, on every instruction set."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kernel_library import SPLITS, every_isa, run

from ngraph_mxnet.ir import get_op
from ngraph_mxnet.ops.random import threshold
from ngraph_mxnet.targets.cpu.params.selection import RANDOM_MASK, RANDOM_UNIFORM

ANY = st.integers(-(2**63), 2**63 - 1)


@every_isa
@given(key=ANY, step=ANY, stream=st.integers(0, 2**32 - 1), count=st.integers(1, 500),
       chunk=st.sampled_from([4, 64, 800]), keep=st.floats(0, 1), splits=SPLITS)
def test_random_mask(isa: str, key: int, step: int, stream: int, count: int, chunk: int, keep: float,
                     splits: list[int]) -> None:
    attrs, state = {"shape": (count,), "keep": keep, "stream": stream}, np.array([key, step]).view(np.int32)
    (wanted,) = get_op("random_mask").evaluate([state], attrs)
    out = np.full(count + 3, 7, np.uint8)
    run(isa, "random_mask", [state, out], RANDOM_MASK(count=count, chunk=chunk, stream=stream,
                                                      threshold=threshold(attrs)), (), splits)
    np.testing.assert_array_equal(out[:count], wanted)
    assert (out[count:] == 7).all()


@every_isa
@given(key=ANY, step=ANY, stream=st.integers(0, 2**32 - 1), count=st.integers(1, 500),
       chunk=st.sampled_from([4, 64, 800]), splits=SPLITS)
def test_random_uniform(isa: str, key: int, step: int, stream: int, count: int, chunk: int,
                        splits: list[int]) -> None:
    state = np.array([key, step]).view(np.int32)
    (wanted,) = get_op("random_uniform").evaluate([state], {"shape": (count,), "stream": stream})
    out = np.full(count + 3, 7, np.float32)
    run(isa, "random_uniform", [state, out], RANDOM_UNIFORM(count=count, chunk=chunk, stream=stream), (), splits)
    np.testing.assert_array_equal(out, [*wanted, 7, 7, 7])


@every_isa
@pytest.mark.parametrize("keep", [0.0, 1.0])
def test_none_and_all(isa: str, keep: float) -> None:
    out = np.full(4099, 7, np.uint8)
    run(isa, "random_mask", [np.arange(4, dtype=np.int32), out],
        RANDOM_MASK(count=4099, chunk=1024, stream=0, threshold=threshold({"keep": keep})))
    assert (out == keep).all()
