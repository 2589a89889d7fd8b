"""ResNet-50 in both versions as the MXNet bridge would import them, and small networks of the same shape."""

from __future__ import annotations

from ngraph_mxnet.ir import Builder, Graph, Value


class _Net:
    """A builder with a running number for names, and MXNet's layers in IR ops."""

    def __init__(self, name: str) -> None:
        self.b = Builder(name=name)
        self.counts: dict[str, int] = {}

    def _name(self, kind: str, op: str) -> str:
        number = self.counts.get(kind, 0)
        self.counts[kind] = number + 1
        self.b.origin = f"mx:{kind}{number} {op}"
        return f"{kind}{number}"

    def weight(self, name: str, *shape: int) -> Value:
        return self.b.weight(name, shape)

    def conv(self, x: Value, channels: int, kernel: int, stride: int = 1, *, bias: bool = False) -> Value:
        name = self._name("conv", "Convolution")
        pads = (kernel // 2,) * 2
        y = self.b.convolution(x, self.weight(f"{name}_weight", channels, x.shape[1], kernel, kernel),
                               strides=(stride, stride), pads_begin=pads, pads_end=pads)
        if bias:
            vector = self.weight(f"{name}_bias", channels)
            y = self.b.add(y, self.b.reshape(vector, shape=(1, channels, 1, 1)))
        return y

    def bn(self, x: Value) -> Value:
        name = self._name("bn", "BatchNorm")
        vectors = [self.weight(f"{name}_{v}", x.shape[1]) for v in ("gamma", "beta", "mean", "var")]
        return self.b.batch_norm(x, *vectors, epsilon=1e-5)

    def relu(self, x: Value) -> Value:
        self._name("relu", "Activation")
        return self.b.relu(x)

    def add(self, x: Value, y: Value) -> Value:
        self._name("add", "elemwise_add")
        return self.b.add(x, y)

    def max_pool(self, x: Value) -> Value:
        self._name("pool", "Pooling")
        return self.b.max_pool(x, kernel=(3, 3), strides=(2, 2), pads_begin=(1, 1), pads_end=(1, 1))

    def head(self, x: Value, classes: int) -> Value:
        self._name("pool", "Pooling")
        x = self.b.avg_pool(x, kernel=x.shape[2:])
        self._name("flatten", "Flatten")
        x = self.b.reshape(x, shape=x.shape[:2])
        name = self._name("dense", "FullyConnected")
        x = self.b.matmul(x, self.weight(f"{name}_weight", classes, x.shape[1]), transpose_b=True)
        return self.b.add(x, self.weight(f"{name}_bias", classes))


def resnet_v1(layers=(3, 4, 6, 3), *, size: int = 224, width: int = 64, classes: int = 1000) -> Graph:
    """Bottleneck ResNet v1; the defaults are ResNet-50."""
    net = _Net("resnet_v1")
    x = net.b.parameter("data", (1, 3, size, size))
    x = net.max_pool(net.relu(net.bn(net.conv(x, width, 7, 2))))
    for stage, blocks in enumerate(layers):
        channels = width * 4 << stage
        for block in range(blocks):
            stride = 2 if block == 0 and stage > 0 else 1
            y = net.relu(net.bn(net.conv(x, channels // 4, 1, stride)))
            y = net.relu(net.bn(net.conv(y, channels // 4, 3)))
            y = net.bn(net.conv(y, channels, 1))
            shortcut = net.bn(net.conv(x, channels, 1, stride)) if block == 0 else x
            x = net.relu(net.add(y, shortcut))
    return net.b.results(net.head(x, classes))


def resnet_v2(layers=(3, 4, 6, 3), *, size: int = 224, width: int = 64, classes: int = 1000) -> Graph:
    """Bottleneck ResNet v2, with batch_norm and ReLU before each convolution; by default ResNet-50 v2."""
    net = _Net("resnet_v2")
    x = net.bn(net.b.parameter("data", (1, 3, size, size)))
    x = net.max_pool(net.relu(net.bn(net.conv(x, width, 7, 2))))
    for stage, blocks in enumerate(layers):
        channels = width * 4 << stage
        for block in range(blocks):
            stride = 2 if block == 0 and stage > 0 else 1
            pre = net.relu(net.bn(x))
            y = net.relu(net.bn(net.conv(pre, channels // 4, 1)))
            y = net.relu(net.bn(net.conv(y, channels // 4, 3, stride)))
            y = net.conv(y, channels, 1)
            shortcut = net.conv(pre, channels, 1, stride) if block == 0 else x
            x = net.add(y, shortcut)
    return net.b.results(net.head(net.relu(net.bn(x)), classes))
