"""Models to place, of every kind, with weights of no content: what counts is what they take."""

from __future__ import annotations

from collections.abc import Callable

from mlperf.resnet import resnet50

from ngraph_mxnet.ir.graph import Builder, Graph, Value

Model = Callable[[], Graph]


class Net:
    """A graph whose layers have names. Values have a batch in front."""

    def __init__(self, name: str) -> None:
        self.b = Builder(name=name)
        self._count = 0

    def layer(self, kind: str) -> str:
        """Begin a layer: its nodes have this origin. Returns its name, for weights."""
        self._count += 1
        self.b.origin = f"onnx:{kind}{self._count} {kind.capitalize()}"
        return f"{kind}{self._count}"

    def dense(self, x: Value, units: int, activation: str = "relu") -> Value:
        name = self.layer("dense")
        y = self.b.matmul(x, self.b.weight(f"{name}_weight", (units, x.shape[-1])), transpose_b=True)
        y = self.b.add(y, self.b.weight(f"{name}_bias", (units,)))
        return getattr(self.b, activation)(y) if activation else y

    def convolution(self, x: Value, channels: int, kernel: int = 3, stride: int = 1, groups: int = 1,
                    activation: str = "relu") -> Value:
        name, rank = self.layer("conv"), len(x.shape) - 2
        weight = self.b.weight(f"{name}_weight", (channels, x.shape[1] // groups, *(kernel,) * rank))
        y = self.b.convolution(x, weight, self.b.weight(f"{name}_bias", (channels,)), strides=(stride,) * rank,
                               pads_begin=(kernel // 2,) * rank, pads_end=(kernel // 2,) * rank, groups=groups)
        return getattr(self.b, activation)(y) if activation else y

    def lookup(self, rows: int, width: int, shape: tuple[int, ...]) -> Value:
        """Rows of a table, for indices of this shape that the caller gives."""
        name = self.layer("lookup")
        return self.b.gather(self.b.weight(f"{name}_table", (rows, width)),
                             self.b.parameter(f"{name}_indices", shape, "i64"))

    def norm(self, x: Value) -> Value:
        name = self.layer("norm")
        gamma, beta = (self.b.weight(f"{name}_{part}", x.shape[-1:]) for part in ("gamma", "beta"))
        return self.b.layer_norm(x, gamma, beta)

    def attention(self, x: Value, memory: Value, heads: int) -> Value:
        """x [N, T, D] attends to memory [N, S, D]."""
        parts = []
        for source in (x, memory, memory):
            y = self.dense(source, x.shape[-1], "")
            y = self.b.reshape(y, shape=(*y.shape[:2], heads, y.shape[2] // heads))
            parts.append(self.b.transpose(y, order=(0, 2, 1, 3)))
        self.layer("attention")
        y = self.b.transpose(self.b.attention(*parts, scale=parts[0].shape[-1] ** -0.5), order=(0, 2, 1, 3))
        return self.dense(self.b.reshape(y, shape=x.shape), x.shape[-1], "")

    def encoder(self, x: Value, heads: int) -> Value:
        """A transformer's layer."""
        y = self.norm(self.b.add(x, self.attention(x, x, heads)))
        return self.norm(self.b.add(y, self.dense(self.dense(y, 4 * y.shape[-1]), y.shape[-1], "")))

    def recurrent(self, x: Value, cell: str, units: int) -> Value:
        """x [S, N, D] to [S, N, units]."""
        gates = {"lstm": 4, "gru": 3}[cell]
        x = self.dense(x, gates * units, "")
        name = self.layer(cell)
        states = [self.b.parameter(f"{name}_state{n}", (x.shape[1], units)) for n in range(gates - 2)]
        weights = [self.b.weight(f"{name}_weight", (gates * units, units)),
                   self.b.weight(f"{name}_bias", (gates * units,))]
        return self.b.node("rnn", [x, *weights, *states], {"cell": cell}).outputs[0]


def mlp(batch: int, units: int = 1024, layers: int = 4) -> Graph:
    net = Net("mlp")
    x = net.b.parameter("x", (batch, units))
    for _ in range(layers):
        x = net.dense(x, units)
    return net.b.results(x)


def dlrm(batch: int = 128, rows: int = 100_000, tables: int = 26, width: int = 64) -> Graph:
    """Meta's recommender: dense features and lookups, products of all pairs, and a tower on top."""
    net = Net("dlrm")
    x = net.b.parameter("dense", (batch, 13))
    for units in (512, 256, width):
        x = net.dense(x, units)
    features = [net.b.reshape(each, shape=(batch, 1, width))
                for each in (x, *(net.lookup(rows, width, (batch,)) for _ in range(tables)))]
    net.layer("pairs")
    joined = net.b.concat(*features, axis=1)
    pairs = net.b.reshape(net.b.matmul(joined, joined, transpose_b=True), shape=(batch, (tables + 1) ** 2))
    y = net.b.concat(x, pairs, axis=1)
    for units in (512, 256):
        y = net.dense(y, units)
    return net.b.results(net.dense(y, 1, "sigmoid"))


def wide_and_deep(batch: int = 128) -> Graph:
    net = Net("wide_and_deep")
    parts = [net.lookup(20_000, 32, (batch,)) for _ in range(8)]
    deep = net.b.concat(*parts, net.b.parameter("dense", (batch, 16)), axis=1)
    for units in (1024, 512, 256):
        deep = net.dense(deep, units)
    wide = net.b.reduce_sum(net.lookup(100_000, 1, (batch, 20)), axes=(1,))
    return net.b.results(net.b.sigmoid(net.b.add(net.dense(deep, 1, ""), wide)))


def bags(batch: int = 64) -> Graph:
    """Means of words' vectors, classified."""
    net = Net("bags")
    words = net.b.reduce_mean(net.lookup(50_000, 128, (batch, 40)), axes=(1,))
    return net.b.results(net.b.softmax(net.dense(words, 100, ""), axis=-1))


def two_towers(batch: int = 32, candidates: int = 4096) -> Graph:
    """A user's and a text's vector, and the ten candidates nearest to both."""
    net = Net("two_towers")
    left = net.dense(net.dense(net.b.parameter("user", (batch, 256)), 512), 128, "tanh")
    right = net.b.reduce_mean(net.lookup(30_000, 128, (batch, 30)), axes=(1,))
    right = net.dense(right, 128, "tanh")
    net.layer("nearest")
    scores = net.b.matmul(net.b.add(left, right), net.b.weight("items", (candidates, 128)), transpose_b=True)
    return net.b.results(net.b.argsort(scores, axis=-1, descending=True, count=10))


def transformer(batch: int = 1, tokens: int = 128, width: int = 256, layers: int = 2) -> Graph:
    """BERT's encoder, smaller."""
    net = Net("transformer")
    x = net.norm(net.b.add(net.lookup(30_000, width, (batch, tokens)), net.b.weight("positions", (tokens, width))))
    for _ in range(layers):
        x = net.encoder(x, 4)
    return net.b.results(net.dense(x, 2, ""))


def decoder_step(memory: int = 512, width: int = 512) -> Graph:
    """One token that attends to those before, and the scores of the next."""
    net = Net("decoder_step")
    x, before = net.lookup(32_000, width, (1, 1)), net.b.parameter("before", (1, memory, width))
    for _ in range(2):
        x = net.norm(net.b.add(x, net.attention(x, before, 8)))
        x = net.norm(net.b.add(x, net.dense(net.dense(x, 4 * width), width, "")))
    return net.b.results(net.dense(x, 32_000, ""))


def language_model(cell: str, batch: int, steps: int = 20, units: int = 256) -> Graph:
    net = Net(f"{cell}_model")
    x = net.recurrent(net.lookup(10_000, units, (steps, batch)), cell, units)
    return net.b.results(net.dense(x, 10_000, ""))


def mobile(batch: int = 1, size: int = 128) -> Graph:
    """MobileNet's pairs of depthwise and pointwise convolutions."""
    net = Net("mobile")
    x = net.convolution(net.b.parameter("image", (batch, 3, size, size)), 16, stride=2)
    for channels, stride in ((32, 1), (64, 2), (64, 1), (128, 2), (128, 1), (256, 2), (256, 1)):
        x = net.convolution(x, x.shape[1], stride=stride, groups=x.shape[1])
        x = net.convolution(x, channels, kernel=1)
    return net.b.results(net.dense(net.b.reduce_mean(x, axes=(2, 3)), 1000, ""))


def plain_convolutions(batch: int = 4, size: int = 64) -> Graph:
    """VGG's way: many channels, no shortcuts."""
    net = Net("plain")
    x = net.b.parameter("image", (batch, 3, size, size))
    for channels in (64, 128, 256):
        x = net.convolution(net.convolution(x, channels), channels)
        x = net.b.max_pool(x, kernel=(2, 2), strides=(2, 2))
    flat = net.b.reshape(x, shape=(batch, x.type.size // batch))
    return net.b.results(net.dense(net.dense(flat, 512), 100, ""))


def segmentation(size: int = 64) -> Graph:
    """U-Net: down, and up again beside what was there on the way down."""
    net = Net("segmentation")
    x, kept = net.b.parameter("image", (1, 3, size, size)), []
    for channels in (16, 32, 64):
        x = net.convolution(net.convolution(x, channels), channels)
        kept.append(x)
        x = net.b.max_pool(x, kernel=(2, 2), strides=(2, 2))
    for beside in reversed(kept):
        net.layer("up")
        x = net.b.resize(x, sizes=beside.shape[2:], mode="nearest")
        x = net.convolution(net.b.concat(x, beside, axis=1), beside.shape[1])
    return net.b.results(net.convolution(x, 4, kernel=1, activation=""))


def detector(size: int = 128, classes: int = 4) -> Graph:
    """SSD: boxes and scores at three scales, and the boxes that are left of those that overlap."""
    net = Net("detector")
    x = net.convolution(net.b.parameter("image", (1, 3, size, size)), 32, stride=2)
    boxes, scores = [], []
    for channels in (64, 128, 128):
        x = net.convolution(net.convolution(x, channels, stride=2), channels)
        for parts, values in ((boxes, 4), (scores, classes)):
            y = net.convolution(x, 2 * values, activation="")
            y = net.b.transpose(y, order=(0, 2, 3, 1))
            parts.append(net.b.reshape(y, shape=(1, y.type.size // values, values)))
    net.layer("nms")
    score = net.b.concat(*scores, axis=1)
    best = net.b.reduce_max(net.b.softmax(score, axis=-1), axes=(-1,), keep_dims=True)
    kind = net.b.convert(net.b.argmax(score, axis=-1, keep_dims=True), element=best.type.element)
    rows = net.b.concat(kind, best, net.b.concat(*boxes, axis=1), axis=-1)
    return net.b.results(net.b.box_nms(rows, overlap=0.5, valid=0.01, topk=100, score=1, coordinates=2, id=0))


def sound(seconds: int = 1) -> Graph:
    """One-dimensional convolutions on samples."""
    net = Net("sound")
    x = net.b.parameter("samples", (1, 1, 8000 * seconds))
    for channels in (32, 64, 64, 128):
        x = net.convolution(x, channels, kernel=9, stride=4)
    return net.b.results(net.dense(net.b.reduce_mean(x, axes=(2,)), 35, ""))


def pointwise(size: int = 1 << 20) -> Graph:
    """Elementwise ops on large tensors: memory bounds them."""
    net = Net("pointwise")
    x, y = (net.b.parameter(name, (size,)) for name in ("x", "y"))
    net.layer("map")
    return net.b.results(net.b.tanh(net.b.add(net.b.multiply(x, y), net.b.exp(y))))


MODELS: dict[str, Model] = {
    "resnet50": lambda: resnet50(1),
    "resnet50_12": lambda: resnet50(12),
    "mobile": mobile,
    "mobile_8": lambda: mobile(8),
    "plain_convolutions": plain_convolutions,
    "segmentation": segmentation,
    "detector": detector,
    "sound": sound,
    "mlp": lambda: mlp(1),
    "mlp_128": lambda: mlp(128),
    "transformer": transformer,
    "transformer_8": lambda: transformer(8),
    "decoder_step": decoder_step,
    "lstm": lambda: language_model("lstm", 1),
    "gru": lambda: language_model("gru", 16),
    "dlrm": dlrm,
    "wide_and_deep": wide_and_deep,
    "bags": bags,
    "two_towers": two_towers,
    "pointwise": pointwise,
}
