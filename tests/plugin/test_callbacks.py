"""What the plugin is given: compiled regions."""

from __future__ import annotations

import json

import numpy as np
import pytest
from mxnet_helpers import needs_library
from native_runs import all_shapes, mx, random_arrays, run_native

from ngraph_mxnet.plugin import callbacks

pytestmark = needs_library
sym = mx.sym


@pytest.mark.parametrize("backend", ["INTERPRETER", "CPU"])
def test_compiled_region(backend: str) -> None:
    net = sym.Activation(sym.FullyConnected(sym.var("x"), num_hidden=3, name="fc"), act_type="relu")
    shapes = all_shapes(net, {"x": (2, 4)})
    names = net.list_arguments()
    native = callbacks.compile_subgraph(net.tojson(), [shapes[n] for n in names], [0] * len(names),
                                        {"ngraph_backend": backend})
    arrays = random_arrays(shapes, 0)
    outputs = [np.empty((2, 3), np.float32)]
    native.run([arrays[name] for name in names], outputs)
    np.testing.assert_allclose(outputs[0], run_native(net, arrays)[0], rtol=1e-5, atol=1e-6)


def test_a_computed_input_is_never_a_weight() -> None:
    root = json.loads(sym.FullyConnected(sym.var("x"), num_hidden=3, no_bias=True, name="fc").tojson())
    for node in root["nodes"][:2]:
        node["attrs"] = {"isArg": "False", "isAux": "False"}
    native = callbacks.compile_subgraph(json.dumps(root), [(1, 2), (3, 2)], [0, 0], {"ngraph_backend": "CPU"})
    out = [np.empty((1, 3), np.float32)]
    for scale in (1, 2):
        native.run([np.ones((1, 2), "f"), np.full((3, 2), scale, "f")], out)
        assert out[0].tolist() == [[2 * scale] * 3]
    assert native.prepare_runs == 0
