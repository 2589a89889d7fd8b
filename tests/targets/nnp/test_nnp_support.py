"""What Intel's software ran on the NNP-I, by the table of facts about Glow's backend."""

from __future__ import annotations

import numpy as np
import pytest

from ngraph_mxnet.base.errors import ConfigError, UnsupportedError
from ngraph_mxnet.ir import Builder, Graph, all_ops
from ngraph_mxnet.ir.graph import Value
from ngraph_mxnet.program.backend import DeviceCosts, get_backend
from ngraph_mxnet.program.compile import compile
from ngraph_mxnet.targets.nnp.support import RUNS, unpublished


def detector() -> Graph:
    b = Builder(name="detector")
    x = b.relu(b.convolution(b.parameter("x", (1, 3, 8, 8)), b.weight("w", (6, 3, 1, 1))))
    b.origin = "onnx:nms NonMaxSuppression"
    return b.results(b.box_nms(b.reshape(x, shape=(1, 64, 6)), id=0))


def test_nms_goes_to_the_cpu():
    """Made-up costs would place all nodes on the NNP."""
    costs = {"CPU": DeviceCosts(lambda node: 1.0, 0.0, None, "made up"),
             "NNP": DeviceCosts(lambda node: 1e-3, 0.0, None, "made up")}
    plan = get_backend("HYBRID").plan(detector(), {"costs": costs})
    nms = next(node for node in plan.nodes if node.op == "box_nms")
    assert nms.device == "CPU"
    assert nms.why.startswith("NNP does not run it: Intel's software for the NNP-I had no NonMaxSuppression "
                              "(pytorch/glow 05dd99b, lib/Backends/NNPI/NNPI.cpp)")
    assert {node.device for node in plan.nodes if node is not nms} == {"NNP"}
    for options in ({"nnp_support": "all"}, {"pins": {"nms": "NNP"}}, {"devices": "CPU,NNP:nnp-t-1400"}):
        given = {name.replace("NNP", "NNP:nnp-t-1400") if "devices" in options else name: each
                 for name, each in costs.items()}
        plan = get_backend("HYBRID").plan(detector(), {"costs": given, **options})
        assert {node.device for node in plan.nodes} == {plan.devices[1]}


def test_alone_the_simulator_runs_what_it_can():
    """It has no other device to leave a node to; a device beside others has."""
    x, w = np.ones((1, 3, 8, 8), np.float32), np.ones((6, 3, 1, 1), np.float32)
    assert get_backend("NNP").supports(detector().nodes[-1]) is None
    assert compile(detector(), "NNP")(x, w)[0].shape == (1, 64, 6)
    with pytest.raises(UnsupportedError, match=r"with support=published does not run box_nms .*no NonMaxSuppression "
                                               r".*backend HYBRID, or simulate it with support=all"):
        compile(detector(), "NNP", support="published")
    with pytest.raises(UnsupportedError, match="support=published does not run box_nms"):
        compile(detector(), "HYBRID", pins="*=NNP", nnp_support="published")


@pytest.mark.parametrize(("device", "support", "expected"), [("nnp-i-1300", "most", "published or all on nnp-i-1300"),
                                                             ("nnp-t-1400", "published", "all on nnp-t-1400")])
def test_what_is_not_published_is_no_choice(device: str, support: str, expected: str) -> None:
    with pytest.raises(ConfigError, match=f"option support: found '{support}', expected {expected}"):
        get_backend(f"NNP:{device}").check_options({"support": support})


def made(op: str) -> Value:
    b = Builder(name="one")
    x, n = b.parameter("x", (2, 4, 8, 8)), b.parameter("n", (2, 4), "i32")
    nodes = {
        "erf": lambda: b.erf(x), "slice": lambda: b.slice(x, begin=(0, 0, 0, 0), end=(2, 4, 8, 8)),
        "steps": lambda: b.slice(x, begin=(0, 0, 0, 0), end=(2, 4, 8, 8), strides=(1, 1, 2, 2)),
        "topk": lambda: b.argsort(x, count=3), "argsort": lambda: b.argsort(x),
        "nearest": lambda: b.resize(x, sizes=(16, 16), mode="nearest"), "bilinear": lambda: b.resize(x, sizes=(16, 16)),
        "select": lambda: b.select(b.greater(x, x), x, x), "integers": lambda: b.select(b.greater(n, n), n, n),
        "gather": lambda: b.gather(x, b.parameter("i", (3,), "i64"), axis=1), "sum": lambda: b.reduce_sum(x, axes=(1,)),
        "product": lambda: b.reduce_prod(x, axes=(1,)),
        "backwards": lambda: b.convolution(x, b.weight("w", (4, 4, 3, 3)), data_dilations=(2, 2)),
    }
    return nodes[op]()


@pytest.mark.parametrize(("op", "missing"), [
    ("erf", "had no erf"), ("slice", None), ("steps", "had no slices with steps"), ("topk", None),
    ("argsort", "had no argsort, except TopK"), ("nearest", None), ("bilinear", "had no bilinear resize"),
    ("select", None), ("integers", "ran Select on no i32"), ("gather", None), ("sum", None),
    ("product", "had no reduce_prod"), ("backwards", "had no transposed convolutions")])
def test_facts(op: str, missing: str | None) -> None:
    found = unpublished(made(op).node)
    assert found is None if missing is None else found is not None and missing in found


def test_the_table_is_of_ops():
    assert RUNS.keys() < all_ops().keys()
