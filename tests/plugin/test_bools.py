"""No bool crosses a region's border, which MXNet's interface for extensions could not pass."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mxnet_helpers import backend, mx, needs_library

from mxnet.gluon import HybridBlock  # isort: skip  # the helpers make it importable
from ngraph_mxnet import _core
from ngraph_mxnet.base.errors import UnsupportedError
from ngraph_mxnet.plugin import callbacks
from ngraph_mxnet.plugin.binding import fallbacks, partitioner

pytestmark = needs_library

SHAPE = (2, 3)
STATIC = [{}, {"static_alloc": True}, {"static_alloc": True, "static_shape": True}]


@pytest.fixture(autouse=True)
def numpy_semantics():
    with mx.util.np_shape(True), mx.util.np_array(True):
        yield


class Net(HybridBlock):
    """Steps of (name of an operator, numbers of the operands, of which there are enough); outputs by number."""

    def __init__(self, steps, outputs) -> None:
        super().__init__()
        self.steps, self.outputs = steps, outputs

    def hybrid_forward(self, F, x, flags):  # noqa: N803 - MXNet's name
        floats, bools = [x, x * 2 + 1], [flags]
        for op, i, j in self.steps:
            a, b, p, q = (values[n % len(values)] for values in (floats, bools) for n in (i, j))
            match op:
                case "compute":
                    floats.append(F.np.tanh(a * b) + 0.5)
                case "compare":
                    bools.append(a < b)
                case "isnan":
                    bools.append(F.np.isnan(F.np.sqrt(a)))
                case "not":
                    bools.append(F.np.logical_not(p))
                case "equal":
                    bools.append(p == q)
                case "select":
                    floats.append(F.np.where(p, a, b))
                case "count":
                    floats.append(a * p.sum(axis=1, keepdims=True).astype("float32"))
                case "cast":
                    bools.append(a.astype("bool"))
        values = [*reversed(floats), *reversed(bools)]
        return tuple(values[n % len(values)] for n in self.outputs)


OPS = ("compute", "compare", "isnan", "not", "equal", "select", "count", "cast")
numbers = st.integers(0, 7)
nets = st.builds(Net, st.lists(st.tuples(st.sampled_from(OPS), numbers, numbers), min_size=1, max_size=7),
                 st.lists(st.integers(0, 9), min_size=1, max_size=3))


def arrays():
    draw = np.random.default_rng(0)
    return mx.np.array(draw.normal(size=SHAPE), dtype="float32"), mx.np.array(draw.uniform(size=SHAPE) < 0.5)


def same(found, expected) -> None:
    for ours, stock in zip(found, expected, strict=True):
        assert ours.dtype == stock.dtype
        np.testing.assert_allclose(ours.asnumpy(), stock.asnumpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.filterwarnings("ignore:The .-th input to HybridBlock is not used:UserWarning")  # as nets are drawn
@pytest.mark.parametrize("flags", STATIC)
@given(net=nets)
def test_hybridized_nets_of_floats_and_bools(flags, net):
    net.initialize()
    expected = net(*arrays())
    net.hybridize(backend="NGRAPH", **flags)
    for _ in range(2):
        same(net(*arrays()), expected)


@given(net=nets)
def test_binds_of_floats_and_bools(net):
    expected = net(*arrays())
    x, flags = mx.sym.var("x").as_np_ndarray(), mx.sym.var("flags").as_np_ndarray()
    symbol = mx.sym.Group(list(net(x, flags)))
    given_arrays = dict(zip(("x", "flags"), arrays(), strict=True))
    used = {name: given_arrays[name] for name in symbol.list_arguments()}
    with backend("NGRAPH"):
        same(symbol.bind(mx.cpu(), used, grad_req="null").forward(), expected)


@pytest.mark.parametrize("flags", STATIC)
@pytest.mark.parametrize("lower", [
    lambda f, x: f.np.exp(x * 2 + 1) < 0.5, lambda f, x: f.np.isnan(f.np.exp(x * 2)),
    lambda f, x: f.npx.softmax(x * 2) > 0.1,
], ids=["less", "isnan", "softmax"])
def test_a_bool_result_ends_the_region_before_it(lower, flags):
    class Small(HybridBlock):
        def hybrid_forward(self, F, x):  # noqa: N803
            return lower(F, x)

    net, (x, _) = Small(), arrays()
    expected = net(x)
    net.hybridize(backend="NGRAPH", **flags)
    before = _core.op_calls()
    same([net(x)], [expected])
    mx.nd.waitall()
    assert _core.op_calls() > before, "what comes before the bool is compiled"
    refused = [verdict.reason for verdict in fallbacks.partitions()[-1].verdicts if not verdict.supported]
    assert len(refused) == 1 and "bool" in refused[0]


def test_a_bool_input_leaves_the_rest_compiled():
    net, (x, flags) = Net([("compute", 0, 1), ("compute", 2, 2), ("select", 3, 0)], [0]), arrays()
    expected = net(x, flags)
    net.hybridize(backend="NGRAPH")
    before = _core.op_calls()
    same(net(x, flags), expected)
    mx.nd.waitall()
    assert _core.op_calls() > before


def test_bools_inside_a_region_stay_inside():
    net, (x, _) = Net([("compare", 0, 1), ("not", 1, 0), ("select", 2, 0)], [0]), arrays()
    symbol = mx.sym.Group(list(net(mx.sym.var("x").as_np_ndarray(), mx.sym.var("flags").as_np_ndarray())))
    assert symbol.list_arguments() == ["x"], "the flags are not read"
    nodes = json.loads(symbol.optimize_for("NGRAPH", {"x": x}).tojson())["nodes"]
    assert [node["op"] for node in nodes] == ["null", partitioner.SUBGRAPH_OP]


def test_compiling_for_a_bool_is_refused_when_it_is_asked_for():
    symbol = mx.sym.var("x").as_np_ndarray() < 0.5
    with pytest.raises(UnsupportedError, match="a bool would cross"):
        callbacks.compile_subgraph(symbol.tojson(), [SHAPE], [0], {"ngraph_backend": "CPU"})
