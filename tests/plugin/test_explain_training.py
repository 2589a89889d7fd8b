"""What training compiles, told beforehand: `explain --train`, `ngraph_mxnet.explain_training`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from mxnet_helpers import CONV_SHAPE, classifier, conv_net, mx, needs_library

import ngraph_mxnet
from ngraph_mxnet.plugin.binding import updates
from ngraph_mxnet.tools.cli.commands import main

pytestmark = needs_library


def parted() -> mx.sym.Symbol:
    """What comes before the system of equations, and what comes behind."""
    hidden = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=8, name="fc1")
    solved = mx.sym.linalg.trsm(mx.sym.Variable("triangle"), hidden, name="solved")
    return mx.sym.FullyConnected(mx.sym.Activation(solved, act_type="tanh", name="tanh"), num_hidden=3, name="fc2")


SHAPES = {"data": (4, 6), "triangle": (4, 4)}


def test_a_model_that_is_ours_as_a_whole() -> None:
    found = ngraph_mxnet.explain_training(classifier(), {"data": (4, 6)})
    assert found.whole is None
    assert {node.name: (node.forward, node.backward) for node in found.nodes} == dict.fromkeys(
        ("fc1", "relu1", "fc2", "softmax"), ("whole", "whole"))
    assert [update.name for update in found.updates] == ["fc1_weight", "fc1_bias", "fc2_weight", "fc2_bias"]
    assert {"SGD", "Adam", "LAMB"} <= set(found.optimizers)
    assert found.saved_bytes >= 4 * 8 * 4  # what relu gave, at least
    assert "4 of 4 nodes train compiled" in str(found)


def test_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    found = ngraph_mxnet.explain_training(classifier(), {"data": (4, 6)})
    (bucket,) = found.buckets
    assert set(bucket.gradients) == {"fc1_weight", "fc1_bias", "fc2_weight", "fc2_bias"}
    assert set(bucket.gradients[:2]) == {"fc2_weight", "fc2_bias"}  # the last layer's come first
    assert bucket.bytes == sum(update.bytes for update in found.updates)
    assert 0 < bucket.ready <= 1 and found.backward_seconds > 0
    assert "Sums over processes" in str(found)


def test_a_gradient_goes_through_nodes_without_kernels_of_their_own() -> None:
    pooled = mx.sym.Pooling(mx.sym.Convolution(mx.sym.Variable("data"), num_filter=4, kernel=(1, 1), name="conv"),
                            global_pool=True, pool_type="avg", kernel=(1, 1), name="pool")
    net = mx.sym.FullyConnected(mx.sym.Flatten(pooled, name="flat"), num_hidden=3, name="fc")
    found = {node.name: node.backward for node in ngraph_mxnet.explain_training(net, {"data": (2, 3, 4, 4)}).nodes}
    assert found["conv"] == found["fc"] == "whole" and found["flat"] == "no kernel of its own"
    assert found["pool"] in ("whole", "no kernel of its own")


def test_a_gradient_that_nobody_asks_for() -> None:
    data = mx.sym.BlockGrad(mx.sym.relu(mx.sym.Variable("data"), name="relu"), name="blocked")
    found = ngraph_mxnet.explain_training(mx.sym.FullyConnected(data, num_hidden=3, name="fc"), {"data": (4, 6)})
    assert [node.backward for node in found.nodes] == ["nothing goes back", "nothing goes back", "whole"]


def test_parts() -> None:
    found = ngraph_mxnet.explain_training(parted(), {"data": (1 << 18, 6), "triangle": (1 << 18, 1 << 18)})
    assert [(node.name, node.forward, node.backward) for node in found.nodes] == [
        ("fc1", "part 1", "part 1"), ("solved", "MXNet", "MXNet"), ("tanh", "part 2", "part 2"),
        ("fc2", "part 2", "part 2")]
    assert "LAPACK" in str(found.nodes[1].reason)
    assert found.whole is not None
    assert "solved" in found.whole


def test_too_little_work_for_parts() -> None:
    found = ngraph_mxnet.explain_training(parted(), SHAPES)
    assert not found.compiles
    assert all("no part of it is worth it" in str(node.reason) for node in found.nodes)


def test_an_update_that_is_mxnets() -> None:
    data = mx.sym.cast(mx.sym.Variable("data"), dtype="float64")
    product = mx.sym.broadcast_mul(data, mx.sym.Variable("w", shape=(1, 6), dtype="float64"))
    with pytest.warns(UserWarning, match="Cannot decide type for the following arguments"):  # the data's is not told
        found = ngraph_mxnet.explain_training(product, {"data": (4, 6)}, {"w": "float64"})
    assert [(update.where, update.reason) for update in found.updates] == [("MXNet", "it is float64, not float32")]


def test_one_dtype_leaves_all_updates_to_mxnet() -> None:
    net = mx.gluon.nn.HybridSequential()
    net.add(mx.gluon.nn.Dense(5, in_units=6, prefix="narrow_"), mx.gluon.nn.HybridLambda(
        lambda ops, x: ops.cast(x, dtype="float64")), mx.gluon.nn.Dense(3, in_units=5, dtype="float64", prefix="wide_"))
    net.initialize()
    net.hybridize()
    found = ngraph_mxnet.explain_training(net(mx.sym.Variable("data")), {"data": (4, 6)},
                                          {"wide_weight": "float64", "wide_bias": "float64"})
    assert {update.name: update.reason for update in found.updates} == {
        "narrow_weight": "wide_weight is float64, and one program updates all or none",
        "narrow_bias": "wide_weight is float64, and one program updates all or none",
        "wide_weight": "it is float64, not float32", "wide_bias": "it is float64, not float32"}
    trainer = mx.gluon.Trainer(net.collect_params(), "sgd")
    before = updates.ran()
    with mx.autograd.record():
        net(mx.nd.ones((4, 6))).backward()
    trainer.step(4)
    assert updates.ran() == before


def test_the_command(tmp_path: Path) -> None:
    file = tmp_path / "net-symbol.json"
    conv_net().save(str(file))
    shape = ",".join(map(str, CONV_SHAPE))
    shown = CliRunner().invoke(main, ["explain", str(file), "--shape", f"data={shape}", "--train", "--json"])
    assert shown.exit_code == 0, shown.output
    found = json.loads(shown.output)
    assert {node["forward"] for node in found["nodes"]} == {"whole"}
    assert found["saved_bytes"] > 0
    table = CliRunner().invoke(main, ["explain", str(file), "--shape", f"data={shape}", "--train"])
    assert "6 of 6 nodes train compiled" in table.output


def test_what_does_not_go_with_it(tmp_path: Path) -> None:
    file = tmp_path / "net-symbol.json"
    classifier().save(str(file))
    shown = CliRunner().invoke(main, ["explain", str(file), "--shape", "data=4,6", "--train", "--kernels"])
    assert shown.exit_code == 2
    assert "--train goes with" in shown.output
    none = CliRunner().invoke(main, ["explain", str(tmp_path / "net.onnx"), "--train"])
    assert none.exit_code == 2


def embedded(**stored: str) -> mx.sym.Symbol:
    weight = mx.sym.Variable("table", **stored)
    rows = mx.sym.Embedding(mx.sym.Variable("data"), weight, input_dim=50, output_dim=8, sparse_grad=True, name="rows")
    return mx.sym.FullyConnected(rows, num_hidden=3, name="fc")


def test_a_sparse_gradient() -> None:
    found = ngraph_mxnet.explain_training(embedded(), {"data": (1 << 18, 6)})
    assert found.whole == "a gradient is sparse"
    assert [(node.forward, node.reason) for node in found.nodes] == [
        ("MXNet", "the gradient of table is sparse"), ("part 1", None)]
    assert [(update.name, update.where) for update in found.updates] == [
        ("table", "MXNet"), ("fc_weight", "one program"), ("fc_bias", "one program")]
    assert not found.buckets


def test_sparse_storage() -> None:
    found = ngraph_mxnet.explain_training(embedded(stype="row_sparse"), {"data": (4, 6)})
    assert {(node.forward, node.reason) for node in found.nodes} == {("MXNet", "a variable has sparse storage")}
    assert not ngraph_mxnet.explain(embedded(stype="row_sparse"), {"data": (4, 6)}).compiles
    assert ngraph_mxnet.explain(embedded(), {"data": (4, 6)}).compiles
