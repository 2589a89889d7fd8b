"""The models in operations that every peer but MXNet has, as `Ops`: each layer in the order of the Gluon block's, so
that weights fit by their order."""

from __future__ import annotations

from typing import Any, Protocol

from training_peers.spec import TRAININGS


class Ops(Protocol):
    """Layers take their weights, in MXNet's layouts, in turn. Images may have any order of axes inside."""

    def image(self, x: Any) -> Any: ...
    def conv(self, x: Any, stride: int = 1, pad: int = 0, groups: int = 1, bias: bool = False) -> Any: ...
    def batch_norm(self, x: Any, affine: bool = True) -> Any: ...
    def relu(self, x: Any) -> Any: ...
    def relu6(self, x: Any) -> Any: ...
    def max_pool(self, x: Any, size: int, stride: int, pad: int = 0) -> Any: ...
    def mean_pool(self, x: Any) -> Any: ...
    def flat(self, x: Any) -> Any: ...
    def dense(self, x: Any) -> Any: ...
    def weight(self) -> Any: ...
    def embedding(self, x: Any, table: Any) -> Any: ...
    def lstm(self, x: Any, layers: int) -> Any: ...
    def gelu(self, x: Any) -> Any: ...
    def layer_norm(self, x: Any, epsilon: float) -> Any: ...
    def attention(self, x: Any, heads: int) -> Any: ...


def mlp(ops: Ops, x: Any) -> Any:
    return ops.dense(ops.relu(ops.dense(ops.relu(ops.dense(x)))))


def resnet50_v2(ops: Ops, x: Any) -> Any:
    x = ops.batch_norm(ops.image(x), affine=False)
    x = ops.max_pool(ops.relu(ops.batch_norm(ops.conv(x, 2, 3))), 3, 2, 1)
    for stage, blocks in enumerate((3, 4, 6, 3)):
        for block in range(blocks):
            stride = 2 if block == 0 and stage > 0 else 1
            y = ops.relu(ops.batch_norm(x))
            z = ops.relu(ops.batch_norm(ops.conv(y)))
            z = ops.relu(ops.batch_norm(ops.conv(z, stride, 1)))
            z = ops.conv(z)
            x = z + (ops.conv(y, stride) if block == 0 else x)
    return ops.dense(ops.mean_pool(ops.relu(ops.batch_norm(x))))


def mobilenetv2(ops: Ops, x: Any) -> Any:
    x = ops.relu6(ops.batch_norm(ops.conv(ops.image(x), 2, 1)))
    channels = 32
    for expansion, width, blocks, first in ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1),
                                            (6, 160, 3, 2), (6, 320, 1, 1)):
        for block in range(blocks):
            stride = first if block == 0 else 1
            y = ops.relu6(ops.batch_norm(ops.conv(x)))
            y = ops.relu6(ops.batch_norm(ops.conv(y, stride, 1, groups=expansion * channels)))
            y = ops.batch_norm(ops.conv(y))
            x = x + y if stride == 1 and channels == width else y
            channels = width
    x = ops.relu6(ops.batch_norm(ops.conv(x)))
    return ops.flat(ops.conv(ops.mean_pool(x)))


def vgg16(ops: Ops, x: Any) -> Any:
    x = ops.image(x)
    for layers in (2, 2, 3, 3, 3):
        for _ in range(layers):
            x = ops.relu(ops.conv(x, 1, 1, bias=True))
        x = ops.max_pool(x, 2, 2)
    return ops.dense(ops.relu(ops.dense(ops.relu(ops.dense(ops.flat(x))))))


def lstm_lm(ops: Ops, x: Any) -> Any:
    return ops.dense(ops.lstm(ops.embedding(x, ops.weight()), 2))


def bert12(ops: Ops, x: Any) -> Any:
    """Axes [batch, length, units] inside."""
    positions, words = ops.weight(), ops.weight()
    x = ops.layer_norm(ops.embedding(x, words) + positions, 1e-5)
    for _ in range(12):
        x = ops.layer_norm(x + ops.dense(ops.attention(ops.dense(x), 12)), 1e-5)
        x = ops.layer_norm(x + ops.dense(ops.gelu(ops.dense(x))), 1e-5)
    return ops.dense(x[:, 0])


def scores(name: str, ops: Ops, x: Any) -> Any:
    """From data to scores of the classes, the last axis."""
    net = {"mlp": mlp, "resnet50_v2": resnet50_v2, "mobilenetv2_1.0": mobilenetv2, "vgg16": vgg16, "lstm_lm": lstm_lm,
           "bert12_128": bert12}
    assert net.keys() == TRAININGS.keys()
    return net[name](ops, x)
