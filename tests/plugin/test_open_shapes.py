"""Shapes that a symbol leaves open, such as of the states with which recurrent cells begin, are inferred."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mxnet_helpers import backend, mx, needs_library

from mxnet.gluon import nn, rnn  # isort: skip  # the helpers make it importable
import ngraph_mxnet
from ngraph_mxnet.base.errors import UnsupportedError
from ngraph_mxnet.frontends.mxnet.importer import with_open_shapes
from ngraph_mxnet.frontends.mxnet.symbol_json import parse_symbol
from ngraph_mxnet.ir import TensorType, element_type
from ngraph_mxnet.ir.ranges import Guards, assuming
from ngraph_mxnet.ir.sizes import symbol as size_symbol

pytestmark = [needs_library, pytest.mark.usefixtures("nothing_is_compiled")]


class Cells(nn.HybridBlock):
    """So many cells over three steps, from states of zeros; between two of them what MXNet does with LAPACK."""

    def __init__(self, layers: int = 1) -> None:
        super().__init__()
        for number in range(layers):
            setattr(self, f"cell{number}", rnn.LSTMCell(32))
        self.layers = layers

    def hybrid_forward(self, F, x):  # noqa: N803
        for number in range(self.layers):
            x, _ = getattr(self, f"cell{number}").unroll(3, x, layout="NTC", merge_outputs=True)
            if number + 1 < self.layers:
                x, _ = F.linalg.gelqf(x)
        return x


def called(net: nn.HybridBlock, batch: int) -> np.ndarray:
    return net(mx.nd.array(np.random.default_rng(batch).standard_normal((batch, 3, 32)))).asnumpy()


@pytest.mark.parametrize("layers", [1, 12])
def test_cells_whose_batch_changes(layers: int) -> None:
    """The twelve regions are more than the partitioner remembers what it lowered of."""
    net, batches = Cells(layers), (4, 4, 7, 2, 1, 33)
    net.initialize(mx.init.Uniform(0.3))
    with backend(None):
        expected = [called(net, batch) for batch in batches]
    before = ngraph_mxnet.report()
    with backend("NGRAPH"):
        net.hybridize()
        for batch, wanted in zip(batches, expected, strict=True):
            np.testing.assert_allclose(called(net, batch), wanted, rtol=1e-3, atol=1e-4)
    found = ngraph_mxnet.report()
    assert found.fallbacks == before.fallbacks
    assert found.calls - before.calls == len(batches) * layers
    assert [verdict.reason for verdict in found.ranges] == [None] * len(found.ranges) != []


def zeros_with(data: mx.sym.Symbol, shape: tuple[int, ...] = (0, 4)) -> mx.sym.Symbol:
    return data + mx.sym.zeros(shape, name="open")


def open_type(symbol: mx.sym.Symbol, *shape: object) -> TensorType | None:
    graph = with_open_shapes(parse_symbol(symbol.tojson()), [TensorType(element_type("float32"), shape)])  # type: ignore[arg-type]
    (types,) = (node.types for node in graph.nodes if node.name == "open")
    return types[0] if types else None


N, M = size_symbol("N"), size_symbol("M", 2, 9)


@given(st.integers(1, 50), st.integers(2, 9))
def test_open_sizes_of_symbols(n: int, m: int) -> None:
    data = mx.sym.Variable("data")
    with assuming(Guards({"N": n, "M": m})):
        assert open_type(zeros_with(data), N, 4) == TensorType(element_type("float32"), (N, 4))
        tripled = zeros_with(mx.sym.concat(data, data, data, dim=0), (0, 0))
        assert open_type(tripled, N + 2, M) == TensorType(element_type("float32"), (3 * N + 6, M))
        rows = zeros_with(mx.sym.reshape(data, shape=(-1, 4)))
        assert open_type(rows, N, M, 4) == TensorType(element_type("float32"), (N * M, 4))
    assert open_type(zeros_with(data), n, 4) == TensorType(element_type("float32"), (n, 4))


def test_what_stays_open() -> None:
    data = mx.sym.Variable("data")
    assert open_type(mx.sym.Group([data, mx.sym.zeros((0, 4), name="open")]), 3, 4) is None
    whole = mx.sym.Group([data, mx.sym.zeros((2, 4), name="open")])
    assert open_type(whole, 3, 4) is None  # nothing is asked of MXNet


def test_zero_is_a_size_to_numpy_operators() -> None:
    symbol = mx.sym.np.zeros((0, 4)).as_nd_ndarray() + mx.sym.Variable("data")
    graph = parse_symbol(symbol.tojson())
    assert with_open_shapes(graph, [TensorType(element_type("float32"), (3, 4))]) is graph


def test_sizes_that_contradict() -> None:
    with pytest.raises(UnsupportedError, match=r"mx:_plus\d+ elemwise_add: .* left open would be 4 and 5 at once"):
        open_type(zeros_with(mx.sym.Variable("data"), (0, 5)), 3, 4)
