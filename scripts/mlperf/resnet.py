"""ResNet-50 v1.5: the bottleneck's stride is in its 3x3 convolution. MLPerf Inference v0.5's vision model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ngraph_mxnet.ir.graph import Builder, Graph, Value

STAGES = ((3, 64), (4, 128), (6, 256), (3, 512))
"""Blocks and width of each."""
IMAGE = (3, 224, 224)
CLASSES = 1000


def resnet50(batch: int) -> Graph:
    """f32[batch, 3, 224, 224] -> the logits f32[batch, 1000]; its parameters are weights."""
    net = _Net()
    x = net.b.parameter("data", (batch, *IMAGE))
    x = net.convolution(x, "stem", 64, kernel=7, stride=2)
    x = net.b.max_pool(x, kernel=(3, 3), strides=(2, 2), pads_begin=(1, 1), pads_end=(1, 1))
    for stage, (blocks, width) in enumerate(STAGES):
        for block in range(blocks):
            name = f"stage{stage}_block{block}"
            stride = 2 if stage and not block else 1
            shortcut = x if block else net.convolution(x, f"{name}_shortcut", 4 * width, stride=stride, active=False)
            y = net.convolution(x, f"{name}_reduce", width)
            y = net.convolution(y, f"{name}_spatial", width, kernel=3, stride=stride)
            y = net.convolution(y, f"{name}_expand", 4 * width, active=False)
            net.b.origin = f"{name}_sum"
            x = net.b.relu(net.b.add(y, shortcut))
    net.b.origin = "head"
    x = net.b.reduce_mean(x, axes=(2, 3))
    x = net.b.matmul(x, net.weight("head_weight", CLASSES, x.shape[1]), transpose_b=True)
    return net.b.results(net.b.add(x, net.weight("head_bias", CLASSES)))


def random_weights(graph: Graph, seed: int = 0) -> list[np.ndarray]:
    """Arrays for all parameters but the first, in order: with them products keep the size of what they read, and batch
    norms nearly so."""
    rng = np.random.default_rng(seed)
    return [_random(rng, parameter.name, parameter.shape) for parameter in graph.parameters[1:]]


def _random(rng: np.random.Generator, name: str, shape: Sequence[int]) -> np.ndarray:
    if name.endswith(("gamma", "variance")):
        return rng.uniform(0.8, 1.2, shape).astype(np.float32)
    spread = np.sqrt(2 / np.prod(shape[1:])) if len(shape) > 1 else 0.1
    return rng.normal(0, spread, shape).astype(np.float32)


class _Net:
    def __init__(self) -> None:
        self.b = Builder(name="resnet50_v1_5")

    def weight(self, name: str, *shape: int) -> Value:
        return self.b.weight(name, shape)

    def convolution(self, x: Value, name: str, channels: int, *, kernel: int = 1, stride: int = 1,
                    active: bool = True) -> Value:
        """With batch norm and, if `active`, ReLU; padded so that stride 1 keeps the size."""
        self.b.origin = name
        pads = (kernel // 2, kernel // 2)
        weight = self.weight(f"{name}_weight", channels, x.shape[1], kernel, kernel)
        x = self.b.convolution(x, weight, strides=(stride, stride), pads_begin=pads, pads_end=pads)
        parts = [self.weight(f"{name}_{part}", channels) for part in ("gamma", "beta", "mean", "variance")]
        x = self.b.batch_norm(x, *parts)
        return self.b.relu(x) if active else x
