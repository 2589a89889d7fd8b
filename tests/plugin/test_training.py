"""`Module` and its relatives from start to end: what they compute equals MXNet's own, with and without us."""

from __future__ import annotations

import numpy as np
import pytest
from mxnet_helpers import CONV_SHAPE, backend, classifier, close, conv_net, is_partitioned, mx, needs_library

pytestmark = needs_library


def data(n: int = 24) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.uniform(size=(n, 6)).astype(np.float32)
    return x, x[:, :3].argmax(axis=1).astype(np.float32)


def iterator(batch_size: int = 4) -> mx.io.NDArrayIter:
    return mx.io.NDArrayIter(*data(), batch_size=batch_size, label_name="softmax_label")


def trained(value: str | None, **bind) -> tuple[mx.mod.Module, np.ndarray, float]:
    with backend(value):
        mx.random.seed(5)
        np.random.seed(5)
        module = mx.mod.Module(classifier(), context=mx.cpu())
        module.fit(
            iterator(),
            eval_data=iterator(),
            num_epoch=3,
            initializer=mx.init.Xavier(),
            optimizer_params={"learning_rate": 0.2},
            eval_metric="acc",
            **bind,
        )
        score = dict(module.score(iterator(), "acc"))["accuracy"]
        return module, module.predict(iterator()).asnumpy(), score


def test_fit_score_predict():
    ours, stock = trained("NGRAPH"), trained(None)
    assert is_partitioned(ours[0]._exec_group.execs[0])
    close(ours[1], stock[1])
    assert ours[2] == stock[2]
    for mine, theirs in zip(ours[0].get_params(), stock[0].get_params(), strict=True):
        for name in theirs:
            close(mine[name], theirs[name])


def test_gradients_that_accumulate():
    sums = []
    for value in ("NGRAPH", None):
        with backend(value):
            mx.random.seed(5)
            module = mx.mod.Module(classifier())
            module.bind([("data", (4, 6))], [("softmax_label", (4,))], grad_req="add")
            module.init_params(mx.init.One())
            batch = next(iterator())
            for _ in range(3):
                module.forward_backward(batch)
                module.forward(batch, is_train=False)
            sums.append(module._exec_group.execs[0].grad_dict["fc2_weight"].asnumpy())
    close(sums[0], sums[1])


@pytest.mark.parametrize("for_training", [False, True])
def test_forward_with_another_batch_size(for_training):
    x = np.random.default_rng(1).uniform(size=(8, *CONV_SHAPE[1:])).astype(np.float32)
    outs = []
    for value in ("NGRAPH", None):
        with backend(value):
            module = mx.mod.Module(conv_net(), label_names=None)
            module.bind([("data", CONV_SHAPE)], for_training=for_training)
            module.init_params(mx.init.One())
            mine = []
            for n in (2, 5, 1, 8, 2):
                module.forward(mx.io.DataBatch([mx.nd.array(x[:n])]), is_train=False)
                mine.append(module.get_outputs()[0].asnumpy())
            outs.append(mine)
    for ours, stock in zip(*outs, strict=True):
        close(ours, stock, rtol=1e-3)


def test_save_and_load(tmp_path):
    prefix = str(tmp_path / "model")
    module, expected, _ = trained("NGRAPH")
    module.save_checkpoint(prefix, 1)
    assert "NGraphSubgraphOp" not in (tmp_path / "model-symbol.json").read_text()
    for value in ("NGRAPH", None):
        with backend(value):
            loaded = mx.mod.Module.load(prefix, 1)
            loaded.bind(iterator().provide_data, iterator().provide_label, for_training=False)
            close(loaded.predict(iterator()), expected)


def test_bucketing_module():
    def generate(length):
        net = mx.sym.FullyConnected(mx.sym.mean(mx.sym.Variable("data"), axis=1), num_hidden=3, name="fc")
        net = mx.sym.SoftmaxOutput(mx.sym.Activation(net, act_type="relu"), name="softmax")
        return net, ("data",), ("softmax_label",)

    outs = []
    for value in ("NGRAPH", None):
        with backend(value):
            mx.random.seed(2)
            module = mx.mod.BucketingModule(generate, default_bucket_key=8)
            module.bind([("data", (2, 8, 5))], [("softmax_label", (2,))])
            module.init_params(mx.init.One())
            module.init_optimizer(optimizer_params={"learning_rate": 0.1})
            mine = []
            for length in (8, 4, 6, 4, 8):
                x = np.random.default_rng(length).uniform(size=(2, length, 5))
                batch = mx.io.DataBatch(
                    [mx.nd.array(x)],
                    [mx.nd.array([0, 2])],
                    bucket_key=length,
                    provide_data=[("data", x.shape)],
                    provide_label=[("softmax_label", (2,))],
                )
                module.forward(batch, is_train=True)
                module.backward()
                module.update()
                module.forward(batch, is_train=False)
                mine.append(module.get_outputs()[0].asnumpy())
            outs.append(mine)
    for ours, stock in zip(*outs, strict=True):
        close(ours, stock)


def test_monitor_during_fit():
    seen = []
    with backend("NGRAPH"):
        monitor = mx.mon.Monitor(1, stat_func=lambda array: array.max(), pattern=".*")
        module = mx.mod.Module(classifier())
        module.bind(iterator().provide_data, iterator().provide_label)
        module.install_monitor(monitor)
        module.init_params()
        monitor.tic()
        module.forward(next(iterator()), is_train=False)
        seen = [name for _, name, _ in monitor.toc()]
    assert any("relu1" in name for name in seen)
