"""Models of other element types than float32 are regions too."""

from __future__ import annotations

import numpy as np
import pytest
from mxnet_helpers import backend, mx, needs_library

from ngraph_mxnet.plugin.binding.fallbacks import partitions

pytestmark = needs_library


def _outputs(block: mx.gluon.HybridBlock, x: mx.nd.NDArray, value: str) -> np.ndarray:
    with backend(value):
        symbol = block(mx.sym.var("data"))
        executor = symbol.simple_bind(mx.cpu(), grad_req="null", data=x.shape,
                                      type_dict={"data": x.dtype, **_types(block)})
        for name, parameter in block.collect_params().items():
            target = executor.aux_dict if name in executor.aux_dict else executor.arg_dict
            target[name][:] = parameter.data()
        return executor.forward(is_train=False, data=x)[0].asnumpy()


def _types(block: mx.gluon.HybridBlock) -> dict[str, str]:
    return {name: parameter.dtype for name, parameter in block.collect_params().items()}


@pytest.mark.parametrize("codegen", ["0", "1"])
def test_a_float16_resnet_is_one_region(codegen: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """MXNet has no float16 matrix product on CPUs, so the same weights in float32 say what is right."""
    monkeypatch.setenv("NGRAPH_CODEGEN", codegen)
    mx.random.seed(0)
    net = mx.gluon.model_zoo.vision.resnet18_v1(classes=10)
    net.initialize(mx.init.Xavier())
    x = mx.nd.random.uniform(-1, 1, (1, 3, 32, 32)).astype("float16")
    net(x.astype("float32"))
    for parameter in net.collect_params().values():
        parameter.set_data(parameter.data().astype("float16").astype("float32"))
    expected = _outputs(net, x.astype("float32"), "NONE")
    net.cast("float16")
    found = _outputs(net, x, "NGRAPH")
    assert found.dtype == np.float16
    (partition,) = partitions()[-1:]
    assert not partition.left() and len(partition.regions) == 1
    np.testing.assert_allclose(found.astype(np.float32), expected, atol=2e-3 * np.abs(expected).max())


def test_float16_values_are_rounded_where_they_are_stored_only() -> None:
    """Between two convolutions with a reshape between them nothing is converted."""
    from ngraph_mxnet.frontends.mxnet.importer import lower_graph
    from ngraph_mxnet.frontends.mxnet.symbol_json import parse_symbol
    from ngraph_mxnet.ir import TensorType, element_type

    data = mx.sym.var("data")
    hidden = mx.sym.exp(mx.sym.reshape(mx.sym.tanh(data), shape=(6,)))
    graph = lower_graph(parse_symbol(hidden.tojson()), [TensorType(element_type("f16"), (2, 3))])
    assert [node.op.name for node in graph.nodes] == ["convert", "tanh", "reshape", "exp", "convert"]


def test_moving_float16_converts_nothing() -> None:
    from ngraph_mxnet.frontends.mxnet.importer import lower_graph
    from ngraph_mxnet.frontends.mxnet.symbol_json import parse_symbol
    from ngraph_mxnet.ir import TensorType, element_type

    moved = mx.sym.transpose(mx.sym.reshape(mx.sym.var("data"), shape=(3, 2)))
    graph = lower_graph(parse_symbol(moved.tojson()), [TensorType(element_type("f16"), (2, 3))])
    assert [node.op.name for node in graph.nodes] == ["reshape", "transpose"]
