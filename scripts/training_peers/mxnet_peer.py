"""MXNet as a peer, with its own backends or with NGRAPH: hybridized Gluon blocks with a Trainer, or a Module."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from training_peers.idioms import IDIOMS, own_loss
from training_peers.spec import NETS, Training, parts_of, training_of

UNITS, LAYERS = 200, 2
"""Of the language model."""


def import_mxnet(kind: str) -> Any:
    """MXNet, and our package only where it is measured: others should not pay for its memory."""
    if kind == "ngraph":
        import ngraph_mxnet  # noqa: F401
    else:
        import ngraph_mxnet_autoload  # noqa: F401  # mxnet imports on current NumPy
    import mxnet

    return mxnet


def network(name: str) -> Any:
    """The block, from data to scores, in which the last axis is the classes; without dropout, whose numbers differ."""
    from mxnet import gluon
    from mxnet.gluon import nn

    name, _ = parts_of(name)
    if name in NETS:
        from training_peers.blocks import block

        net = block(name)
    elif name == "mlp":
        net = nn.HybridSequential()
        net.add(nn.Dense(256, activation="relu"), nn.Dense(128, activation="relu"), nn.Dense(10))
    elif name == "lstm_lm":
        words = training_of(name).words
        net = nn.HybridSequential()
        net.add(nn.Embedding(words, UNITS), gluon.rnn.LSTM(UNITS, LAYERS), nn.Dense(words, flatten=False))
    elif name.startswith("bert12_"):
        from peers.bert import Encoder

        net = nn.HybridSequential()
        first = nn.HybridLambda(lambda f, x: f.reshape(f.slice_axis(x, axis=0, begin=0, end=1), shape=(-3, 0)))
        net.add(Encoder(training_of(name).inputs[1]), first, nn.Dense(training_of(name).classes))
    else:
        net = gluon.model_zoo.vision.get_model(name)
        for layer in getattr(net, "features", ()):
            if isinstance(layer, nn.Dropout):
                layer._rate = 0
    return net


def draw_weights(name: str) -> list[np.ndarray]:
    """Weights to begin with, in the order of the block's parameters, moving statistics left out."""
    import mxnet as mx

    mx.random.seed(0)
    np.random.seed(0)
    net = network(name)
    net.initialize(mx.init.Normal(0.02) if name.startswith("bert") else mx.init.Xavier(magnitude=2))
    net(mx.nd.zeros((1, *training_of(name).inputs[1:])))
    return [parameter.data().asnumpy() for parameter in trained(net)]


def trained(net: Any) -> list[Any]:
    """The parameters that are trained, in the order in which the layers come."""
    return [parameter for parameter in net.collect_params().values() if parameter.grad_req != "null"]


class Gluon:
    """A hybridized block, its loss and a Trainer, whose kvstore is one of `ranks` processes."""

    def __init__(self, kind: str) -> None:
        self.mx = import_mxnet(kind)
        self.kind = kind
        self.kvstore: Any = "device"
        self.ranks = 1

    def load(self, name: str, training: Training, weights: list[np.ndarray]) -> None:
        """The block with these weights, not yet hybridized nor run."""
        mx = self.mx
        self.training, self.net, self.idiom = training, network(name), parts_of(name)[1]
        self.net.initialize(mx.init.Zero())
        # Parameters get their shapes. In a forward pass of inference MXNet would move some to oneDNN's layout, in which
        # they can't be set.
        with mx.autograd.pause(train_mode=True):
            self.net(mx.nd.zeros((1, *training.inputs[1:])))
        for parameter, weight in zip(trained(self.net), weights, strict=True):
            parameter.set_data(mx.nd.array(weight))
        mx.nd.waitall()

    def native(self, data: np.ndarray, labels: np.ndarray) -> Any:
        pair = self.mx.nd.array(data), self.mx.nd.array(labels)
        self.mx.nd.waitall()
        return pair

    def compile(self) -> None:
        gluon = self.mx.gluon
        self.net.hybridize(static_alloc=self.idiom != "dynamic")
        self.loss = gluon.loss.L2Loss() if self.training.target else gluon.loss.SoftmaxCrossEntropyLoss()
        self.loss = own_loss(gluon) if self.idiom == "own_block" else self.loss
        self.second_loss, self.metric = gluon.loss.L2Loss(), self.mx.metric.Accuracy()
        self.loss.hybridize()
        self.second_loss.hybridize()
        if self.idiom == "micro_batches":
            for parameter in trained(self.net):
                parameter.grad_req = "add"
        options = {"learning_rate": self.training.rate}
        if self.training.optimizer == "sgd":
            options["momentum"] = self.training.momentum
        self.trainer = gluon.Trainer(self.net.collect_params(), self.training.optimizer, options,
                                     kvstore=self.kvstore)

    def scores_and_labels(self, batch: Any) -> tuple[Any, Any]:
        """The net's rows, recorded where the caller records, and their labels."""
        data, labels = batch
        scores = self.net(data)
        if self.training.labelled > 1:
            scores, labels = scores.reshape((-1, self.training.classes)), labels.reshape((-1,))
        return scores, labels

    def halves(self, batch: Any) -> Iterator[Any]:
        axis = self.training.labelled - 1
        for begin, end in ((0, self.training.samples // 2), (self.training.samples // 2, None)):
            yield tuple(array.slice_axis(axis=axis, begin=begin, end=end) for array in batch)

    def forward(self, batch: Any) -> Any:
        """The losses of the labels, recorded."""
        with self.mx.autograd.record():
            return self.loss(*self.scores_and_labels(batch))

    def backward(self, batch: Any) -> tuple[Any, float]:
        """The losses, and what the gradients are to be divided by."""
        if self.idiom == "micro_batches":
            self.net.collect_params().zero_grad()
        return IDIOMS[self.idiom](self, batch)

    def step(self, batch: Any) -> Any:
        losses, count = self.backward(batch)
        self.trainer.step(count * self.ranks)
        self.mx.nd.waitall()
        return losses

    def loss_of(self, result: Any) -> float:
        return float(result.mean().asscalar())

    def gradients(self, batch: Any) -> list[np.ndarray]:
        _, count = self.backward(batch)
        return [parameter.grad().asnumpy() / count for parameter in trained(self.net)]

    def detail(self) -> str:
        return _detail(self.kind)


class Module:
    """The same block's symbol in a Module."""

    def __init__(self, kind: str) -> None:
        self.mx = import_mxnet(kind)
        self.kind = kind

    def load(self, name: str, training: Training, weights: list[np.ndarray]) -> None:
        mx = self.mx
        self.training = training
        net = network(name)
        net.initialize(mx.init.Zero())
        with mx.autograd.pause(train_mode=True):
            net(mx.nd.zeros((1, *training.inputs[1:])))
        self.names = [parameter.name for parameter in trained(net)]
        self.values = {n: mx.nd.array(weight) for n, weight in zip(self.names, weights, strict=True)}
        self.constants = {p.name: p.data() for p in net.collect_params().values() if p.grad_req == "null"}
        scores, labels = net(mx.sym.var("data")), mx.sym.var("label")
        loss = mx.gluon.loss.L2Loss() if training.target else mx.gluon.loss.SoftmaxCrossEntropyLoss()
        if not training.target:
            scores, labels = mx.sym.reshape(scores, shape=(-1, training.classes)), mx.sym.reshape(labels, shape=(-1,))
        self.symbol = mx.sym.MakeLoss(loss(scores, labels))
        mx.nd.waitall()

    def native(self, data: np.ndarray, labels: np.ndarray) -> Any:
        mx = self.mx
        batch = mx.io.DataBatch([mx.nd.array(data)], [mx.nd.array(labels)])
        self.shapes = [("data", data.shape)], [("label", labels.shape)]
        mx.nd.waitall()
        return batch

    def compile(self) -> None:
        data, labels = self.shapes
        fixed = {name: self.constants[name] for name in self.symbol.list_arguments() if name in self.constants}
        self.module = self.mx.mod.Module(self.symbol, ["data"], ["label"], fixed_param_names=list(fixed))
        self.module.bind(data, labels)
        self.count = int(np.prod(labels[0][1]))
        states = {name: self.constants[name] for name in self.symbol.list_auxiliary_states()}
        self.module.init_params(arg_params={**self.values, **fixed}, aux_params=states)
        options = {"learning_rate": self.training.rate, "rescale_grad": 1 / self.count}
        if self.training.optimizer == "sgd":
            options["momentum"] = self.training.momentum
        self.module.init_optimizer(optimizer=self.training.optimizer, optimizer_params=options)

    def step(self, batch: Any) -> Any:
        self.module.forward(batch, is_train=True)
        self.module.backward()
        self.module.update()
        self.mx.nd.waitall()
        return self.module.get_outputs()[0]

    def loss_of(self, result: Any) -> float:
        return float(result.mean().asscalar())

    def gradients(self, batch: Any) -> list[np.ndarray]:
        self.module.forward(batch, is_train=True)
        self.module.backward()
        grads = self.module._exec_group.execs[0].grad_dict
        return [grads[name].asnumpy() / self.count for name in self.names]

    def detail(self) -> str:
        return _detail(self.kind)


def _detail(kind: str) -> str:
    """What was not compiled, and why; raises RuntimeError where no update was."""
    if kind != "ngraph":
        return ""
    report = sys.modules["ngraph_mxnet"].report()
    if os.environ.get("NGRAPH_TRAINING") != "0" and not report.updates:
        raise RuntimeError("no update was compiled")
    return "; ".join(f"{left.what}: {left.reason} ({left.count})" for left in report.fallbacks)
