"""Training steps in bf16: gradients near MXNet's in float32, by products of bf16 in all three passes."""

from __future__ import annotations

import mxnet as mx
import numpy as np
import pytest
from bf16_machine import allow_bf16
from mxnet import autograd, gluon
from mxnet.gluon import nn

from ngraph_mxnet import _core
from ngraph_mxnet.targets.cpu.machine.isa import supported

NEAR = 1e-2
FAR = 1.2e-1
"""Of gradients: rounding moves what a relu lets through, and batch norms magnify it."""


class Residual(gluon.HybridBlock):
    """A strided, a grouped and a plain convolution with batch norms, beside a projection."""

    def __init__(self) -> None:
        super().__init__()
        with self.name_scope():
            self.body = nn.HybridSequential()
            self.body.add(nn.Conv2D(32, 3, 2, 1, use_bias=False, in_channels=24), nn.BatchNorm(), nn.Activation("relu"),
                          nn.Conv2D(32, 3, 1, 1, groups=32, use_bias=False), nn.BatchNorm(), nn.Activation("relu"),
                          nn.Conv2D(48, 1, use_bias=False), nn.BatchNorm())
            self.beside = nn.Conv2D(48, 1, 2, in_channels=24)

    def hybrid_forward(self, f, x):
        return f.relu(self.body(x) + self.beside(x))


def network() -> gluon.HybridBlock:
    mx.random.seed(5)
    net = nn.HybridSequential(prefix="net_")
    with net.name_scope():
        net.add(nn.Conv2D(24, 3, padding=1, in_channels=3), nn.BatchNorm(), nn.Activation("relu"), Residual(),
                nn.Conv2D(32, 3, padding=1), nn.Activation("relu"), nn.GlobalAvgPool2D(), nn.Dense(40),
                nn.LayerNorm(), nn.Dense(6))
    net.initialize(mx.init.Xavier())
    net.hybridize(static_alloc=True)
    return net


def gradients() -> tuple[float, dict[str, np.ndarray]]:
    """The loss of a step, and each parameter's gradient."""
    net, loss = network(), gluon.loss.SoftmaxCrossEntropyLoss()
    loss.hybridize()
    random = np.random.default_rng(7)
    x, y = mx.nd.array(random.standard_normal((6, 3, 15, 14))), mx.nd.array(random.integers(0, 6, 6))
    with autograd.record():
        found = loss(net(x), y)
    found.backward()
    return float(found.mean().asscalar()), {name: parameter.grad().asnumpy()
                                            for name, parameter in net.collect_params().items()
                                            if parameter.grad_req != "null"}


def test_gradients_are_near_and_of_bf16(monkeypatch: pytest.MonkeyPatch) -> None:
    if "avx2" not in supported(_core.cpu_features()):
        pytest.skip("the CPU has no AVX2")
    monkeypatch.setenv("MXNET_SUBGRAPH_BACKEND", "NGRAPH")
    monkeypatch.setenv("NGRAPH_CACHE_DIR", "off")
    monkeypatch.setenv("NGRAPH_TRAINING", "0")
    loss, wanted = gradients()
    if not _core.cpu_features()["avx512bf16"]:
        allow_bf16(monkeypatch)
    monkeypatch.setenv("NGRAPH_TRAINING", "1")
    monkeypatch.setenv("NGRAPH_PRECISION", "bf16")
    address, called = _core.kernel_address, set()

    def kernel_address(name: str) -> int:
        called.add(name.removeprefix("ng_").rpartition("__")[0])
        return address(name)

    monkeypatch.setattr(_core, "kernel_address", kernel_address)
    found_loss, found = gradients()
    assert abs(found_loss - loss) <= NEAR * loss
    errors = {}
    for name, gradient in wanted.items():
        scale = max(np.linalg.norm(gradient), 1e-2 * max(map(np.linalg.norm, wanted.values())))
        errors[name] = float(np.linalg.norm(found[name] - gradient) / scale)
    assert max(errors.values()) <= FAR, errors
    assert {"weight_gradient_bf16", "batch_norm_gradient_data_f32_bf16"} <= called, called
