"""Weights are read when no operator reads them any more."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from mxnet_helpers import mx, needs_library

from ngraph_mxnet.frontends.model import model_of
from ngraph_mxnet.plugin.arrays import settled

pytestmark = needs_library


@pytest.fixture(scope="module")
def read_slowly() -> Iterator[Callable[[mx.nd.NDArray], list[str]]]:
    """Calls an operator that reads an array for a while; what it gives is empty until the operator has ended."""
    ended: list[str] = []

    class Reader(mx.operator.CustomOp):
        def forward(self, is_train, req, in_data, out_data, aux):
            time.sleep(0.3)
            self.assign(out_data[0], req[0], in_data[0])
            ended.append("")

    @mx.operator.register("test_settled_reader")
    class Property(mx.operator.CustomOpProp):
        def create_operator(self, ctx, shapes, dtypes):
            return Reader()

    def call(array: mx.nd.NDArray) -> list[str]:
        ended.clear()
        mx.nd.Custom(array, op_type="test_settled_reader")
        return ended

    yield call
    mx.nd.waitall()  # a process that ends meanwhile hangs


def test_readers_end_first(read_slowly) -> None:
    array = mx.nd.array([[1, 2], [3, 4]])
    array.wait_to_read()
    ended = read_slowly(array)
    found = settled(array)
    assert ended
    np.testing.assert_array_equal(found, [[1, 2], [3, 4]])


def test_a_block_is_read_when_its_calls_have_ended(read_slowly) -> None:
    block = mx.gluon.nn.Dense(3, in_units=4)
    block.initialize()
    weight = block.weight.data()
    weight.wait_to_read()
    ended = read_slowly(weight)
    _, weights = model_of(block).graph({"data": (1, 4)}, "CPU")()
    assert ended
    np.testing.assert_array_equal(weights[block.weight.name], weight.asnumpy())
