"""What the nets of `nets` are made of: layers of ONNX operators, and a function for each kind of net."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod, sqrt
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


class Layers:
    """Appends operators to a graph of one input, `x`. Values are their names; `shapes` has those of some.

    Layers know the shapes of what they read, for that the sizes of their weights and what reshapes give are numbers.
    """

    def __init__(self, shape: tuple[int, ...], is_ids: bool = False) -> None:
        self.random = np.random.default_rng(3)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.element = TensorProto.INT64 if is_ids else TensorProto.FLOAT
        self.x = "x"
        self.shapes: dict[str, tuple[int, ...]] = {"x": shape}

    def op(self, kind: str, *inputs: str, shape: tuple[int, ...] | None = None, **attributes: Any) -> str:
        """An operator of one output, like its first input unless its shape is said."""
        name = f"{kind.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], name=name, **attributes))
        self.shapes[name] = self.shapes[inputs[0]] if shape is None else shape
        return name

    def array(self, array: Any, dtype: Any = np.float32) -> str:
        """A constant."""
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(array, dtype), name))
        self.shapes[name] = np.shape(array)
        return name

    def weight(self, *shape: int, fan: int = 0) -> str:
        """Normal numbers, such that a sum over `fan` of them keeps its size behind a ReLU."""
        return self.array(self.random.standard_normal(shape) * sqrt(2 / max(fan or shape[-1], 1)))

    def near(self, *shape: int, middle: float = 0.0) -> str:
        return self.array(middle + 0.1 * self.random.standard_normal(shape))

    def act(self, x: str, kind: str | None) -> str:
        """An activation; Silu and Gelu as exporters write them."""
        if kind is None:
            return x
        if kind == "Silu":
            return self.op("Mul", x, self.op("Sigmoid", x))
        if kind == "Gelu":
            half = self.op("Mul", x, self.array(0.5))
            return self.op("Mul", half, self.op("Add", self.op("Erf", self.op("Div", x, self.array(sqrt(2)))),
                                                self.array(1.0)))
        if kind == "Relu6":
            return self.op("Clip", x, self.array(0.0), self.array(6.0))
        if kind == "PRelu":
            return self.op("PRelu", x, self.near(self.shapes[x][1], *(1,) * (len(self.shapes[x]) - 2), middle=0.25))
        return self.op(kind, x)

    def convolution(self, x: str, outputs: int, kernel: int | Sequence[int] = 3, *, stride: int = 1, dilation: int = 1,
                    groups: int = 1, act: str | None = "Relu") -> str:
        """Padded to keep its size, or the stride's share of it."""
        n, inputs, *size = self.shapes[x]
        taps = [kernel] * len(size) if isinstance(kernel, int) else list(kernel)
        pads = [dilation * (tap - 1) // 2 for tap in taps]
        made = [(s + 2 * p - dilation * (t - 1) - 1) // stride + 1 for s, p, t in zip(size, pads, taps, strict=True)]
        weights = self.weight(outputs, inputs // groups, *taps, fan=inputs // groups * prod(taps))
        y = self.op("Conv", x, weights, self.near(outputs), shape=(n, outputs, *made), strides=[stride] * len(size),
                    dilations=[dilation] * len(size), pads=pads * 2, group=groups, kernel_shape=taps)
        return self.act(y, act)

    def transposed(self, x: str, outputs: int, kernel: int, stride: int, pad: int, act: str | None = "Relu") -> str:
        n, inputs, *size = self.shapes[x]
        made = ((s - 1) * stride - 2 * pad + kernel for s in size)
        y = self.op("ConvTranspose", x, self.weight(inputs, outputs, kernel, kernel, fan=inputs * kernel),
                    shape=(n, outputs, *made), strides=[stride] * 2, pads=[pad] * 4, kernel_shape=[kernel] * 2)
        return self.act(y, act)

    def dense(self, x: str, outputs: int, act: str | None = None) -> str:
        *rows, inputs = self.shapes[x]
        y = self.op("MatMul", x, self.weight(inputs, outputs, fan=inputs), shape=(*rows, outputs))
        return self.act(self.op("Add", y, self.near(outputs)), act)

    def reshape(self, x: str, *shape: int) -> str:
        return self.op("Reshape", x, self.array(shape, np.int64), shape=shape)

    def transpose(self, x: str, *order: int) -> str:
        return self.op("Transpose", x, shape=tuple(self.shapes[x][axis] for axis in order), perm=order)

    def concat(self, *parts: str, axis: int = 1) -> str:
        shape = list(self.shapes[parts[0]])
        shape[axis] = sum(self.shapes[part][axis] for part in parts)
        return self.op("Concat", *parts, shape=tuple(shape), axis=axis)

    def pool(self, x: str, kind: str = "MaxPool", window: Sequence[int] = (2, 2)) -> str:
        n, c, *size = self.shapes[x]
        return self.op(kind, x, shape=(n, c, *(s // w for s, w in zip(size, window, strict=True))),
                       kernel_shape=list(window), strides=list(window))

    def mean(self, x: str) -> str:
        """Over all pixels, which stay axes."""
        n, c, *size = self.shapes[x]
        return self.op("GlobalAveragePool", x, shape=(n, c, *(1,) * len(size)))

    def flat(self, x: str) -> str:
        n, *rest = self.shapes[x]
        return self.op("Flatten", x, shape=(n, prod(rest)))

    def doubled(self, x: str, mode: str = "nearest") -> str:
        n, c, h, w = self.shapes[x]
        return self.op("Resize", x, "", self.array([1, 1, 2, 2]), shape=(n, c, 2 * h, 2 * w), mode=mode)

    def norm(self, x: str) -> str:
        """Of layers, along the last axis."""
        width = self.shapes[x][-1]
        return self.op("LayerNormalization", x, self.near(width, middle=1.0), self.near(width), axis=-1)

    def embedded(self, x: str, rows: int, width: int) -> str:
        return self.op("Gather", self.array(0.3 * self.random.standard_normal((rows, width))), x,
                       shape=(*self.shapes[x], width))

    def heads(self, x: str, heads: int) -> str:
        n, t, width = self.shapes[x]
        return self.transpose(self.reshape(x, n, t, heads, width // heads), 0, 2, 1, 3)

    def attention(self, x: str, heads: int, memory: str = "", mask: str = "") -> str:
        """Of `x` to `memory` or itself, and the residual's norm."""
        n, t, width = self.shapes[x]
        q, k, v = (self.heads(self.dense(source, width), heads) for source in (x, memory or x, memory or x))
        keys = self.shapes[k][2]
        scores = self.op("MatMul", q, self.transpose(k, 0, 1, 3, 2), shape=(n, heads, t, keys))
        scores = self.op("Mul", scores, self.array((width // heads) ** -0.5))
        weights = self.op("Softmax", self.op("Add", scores, mask) if mask else scores, axis=-1)
        joined = self.transpose(self.op("MatMul", weights, v, shape=(n, heads, t, width // heads)), 0, 2, 1, 3)
        return self.norm(self.op("Add", x, self.dense(self.reshape(joined, n, t, width), width)))

    def feed_forward(self, x: str, act: str = "Gelu") -> str:
        width = self.shapes[x][-1]
        return self.norm(self.op("Add", x, self.dense(self.dense(x, 4 * width, act), width)))

    def recurrent(self, x: str, kind: str, hidden: int, both: bool = False) -> str:
        """Of [steps, batch, inputs]; both ways' states side by side."""
        steps, n, inputs = self.shapes[x]
        ways, gates = 1 + both, {"LSTM": 4, "GRU": 3, "RNN": 1}[kind]
        spread = 1 / sqrt(hidden)
        w, r, bias = (self.array(self.random.uniform(-spread, spread, shape)) for shape in (
            (ways, gates * hidden, inputs), (ways, gates * hidden, hidden), (ways, 2 * gates * hidden)))
        y = self.op(kind, x, w, r, bias, shape=(steps, ways, n, hidden), hidden_size=hidden,
                    direction="bidirectional" if both else "forward")
        return self.reshape(self.transpose(y, 0, 2, 1, 3), steps, n, ways * hidden)

    def model(self, result: str) -> onnx.ModelProto:
        """The model whose output is `result`."""
        x = helper.make_tensor_value_info("x", self.element, self.shapes["x"])
        y = helper.make_tensor_value_info(result, TensorProto.FLOAT, self.shapes[result])
        graph = helper.make_graph(self.nodes, "net", [x], [y], self.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def unet(b: Layers, width: int) -> str:
    x, skips = b.x, []
    for level in range(3):
        x = b.convolution(b.convolution(x, width << level), width << level)
        skips.append(x)
        x = b.pool(x)
    x = b.convolution(x, width << 3)
    for level in (2, 1, 0):
        x = b.concat(b.transposed(x, width << level, 2, 2, 0, None), skips[level])
        x = b.convolution(b.convolution(x, width << level), width << level)
    return b.convolution(x, 2, 1, act="Sigmoid")


def generator(b: Layers, width: int) -> str:
    x = b.transposed(b.x, 8 * width, 4, 1, 0)
    for share in (4, 2, 1):
        x = b.transposed(x, share * width, 4, 2, 1)
    return b.transposed(x, 3, 4, 2, 1, "Tanh")


def video(b: Layers, widths: Sequence[int]) -> str:
    x = b.x
    for width in widths:
        x = b.convolution(b.convolution(x, width, stride=2), width)
    return b.dense(b.flat(b.mean(x)), 20)


def dilated_branches(b: Layers, width: int, steps: Sequence[int]) -> str:
    branches = [b.convolution(b.x, width, 1), *(b.convolution(b.x, width, dilation=step) for step in steps)]
    return b.doubled(b.convolution(b.concat(*branches), 19, 1, act=None), "linear")


def dense_super_resolution(b: Layers, width: int, growth: int) -> str:
    x = b.convolution(b.x, width, act=None)
    for _ in range(2):
        parts = [x]
        for _ in range(3):
            seen = b.concat(*parts) if len(parts) > 1 else x
            parts.append(b.op("LeakyRelu", b.convolution(seen, growth, act=None), alpha=0.2))
        x = b.op("Add", x, b.convolution(b.concat(*parts), width, act=None))
    return b.convolution(b.doubled(x), 3, act=None)


def pixel_shuffle(b: Layers, width: int, factor: int) -> str:
    x = b.convolution(b.convolution(b.x, width, 5, act="PRelu"), width // 2, act="PRelu")
    x = b.convolution(x, factor**2, act=None)
    n, _, h, w = b.shapes[x]
    return b.op("DepthToSpace", x, shape=(n, 1, factor * h, factor * w), blocksize=factor, mode="CRD")


def style(b: Layers, width: int) -> str:
    def normed(x: str) -> str:
        channels = b.shapes[x][1]
        return b.op("Relu", b.op("InstanceNormalization", x, b.near(channels, middle=1.0), b.near(channels)))

    x = normed(b.convolution(b.x, width, 9, act=None))
    for level in (1, 2):
        x = normed(b.convolution(x, width << level, stride=2, act=None))
    x = b.op("Add", x, normed(b.convolution(x, width << 2, act=None)))
    for level in (1, 0):
        x = normed(b.convolution(b.doubled(x), width << level, act=None))
    return b.convolution(x, 3, 9, act="Tanh")


def group_norm(b: Layers, blocks: int) -> str:
    x, (n, channels, h, w) = b.x, b.shapes[b.x]
    for _ in range(blocks):
        y = b.op("InstanceNormalization", b.reshape(x, n, 8, channels // 8 * h * w), b.array(np.ones(8)),
                 b.array(np.zeros(8)))
        y = b.op("Mul", b.reshape(y, n, channels, h, w), b.near(channels, 1, 1, middle=1.0))
        y = b.act(b.op("Add", y, b.near(channels, 1, 1)), "Silu")
        x = b.op("Add", x, b.convolution(y, channels, act=None))
    return x


def wavenet(b: Layers, width: int, layers: int) -> str:
    x, skips = b.convolution(b.x, width, 1, act=None), []
    for layer in range(layers):
        gate, value = (b.convolution(x, width, 3, dilation=1 << layer, act=act) for act in ("Sigmoid", "Tanh"))
        skips.append(b.convolution(b.op("Mul", gate, value), width, 1, act=None))
        x = b.op("Add", x, skips[-1])
    return b.convolution(b.op("Relu", b.op("Sum", *skips)), 2 * width, 1, act=None)


def speech(b: Layers, width: int, taps: int) -> str:
    x = b.convolution(b.x, width, taps, stride=2)
    for share in (1, 2):
        x = b.convolution(x, share * width, taps)
    return b.convolution(x, 32, 1, act=None)


def separable_speech(b: Layers, taps: int, blocks: int) -> str:
    x, channels = b.x, b.shapes[b.x][1]
    for _ in range(blocks):
        y = b.convolution(b.convolution(x, channels, taps, groups=channels, act=None), channels, 1, act=None)
        x = b.op("Relu", b.op("Add", x, y))
    return x


def recurrent(b: Layers, kind: str, hidden: int, layers: int, both: bool) -> str:
    x = b.transpose(b.x, 1, 0, 2)
    for _ in range(layers):
        x = b.recurrent(x, kind, hidden, both)
    return b.dense(x, 16)


def transformer(b: Layers, heads: int, layers: int, causal: bool = False) -> str:
    x, tokens = b.x, b.shapes[b.x][1]
    mask = b.array(np.triu(np.full((tokens, tokens), -1e9), 1)) if causal else ""
    for _ in range(layers):
        x = b.feed_forward(b.attention(x, heads, mask=mask))
    return x


def patches(b: Layers, patch: int, width: int, heads: int, layers: int) -> str:
    n, channels, h, w = b.shapes[b.x]
    weights = b.weight(width, channels, patch, patch, fan=channels * patch**2)
    x = b.op("Conv", b.x, weights, shape=(n, width, h // patch, w // patch), strides=[patch] * 2,
             kernel_shape=[patch] * 2)
    x = b.transpose(b.reshape(x, n, width, h * w // patch**2), 0, 2, 1)
    for _ in range(layers):
        x = b.feed_forward(b.attention(x, heads))
    return b.op("ReduceMean", x, shape=(n, width), axes=[1], keepdims=0)


def windows(b: Layers, window: int, heads: int) -> str:
    n, h, w, width = b.shapes[b.x]
    x = b.transpose(b.reshape(b.x, n, h // window, window, w // window, window, width), 0, 1, 3, 2, 4, 5)
    x = b.reshape(x, n * h * w // window**2, window**2, width)
    x = b.feed_forward(b.attention(x, heads, mask=b.near(1, heads, window**2, window**2)))
    x = b.transpose(b.reshape(x, n, h // window, w // window, window, window, width), 0, 1, 3, 2, 4, 5)
    return b.reshape(x, n, h, w, width)


def cross_attention(b: Layers, heads: int, memory: int) -> str:
    n, _, width = b.shapes[b.x]
    kept = b.array(b.random.standard_normal((n, memory, width)))
    return b.feed_forward(b.attention(b.attention(b.x, heads), heads, kept))


def mixer(b: Layers, blocks: int) -> str:
    x, width = b.x, b.shapes[b.x][1]
    for _ in range(blocks):
        y = b.dense(b.dense(b.transpose(b.norm(x), 0, 2, 1), 2 * width, "Gelu"), width)
        x = b.feed_forward(b.op("Add", x, b.transpose(y, 0, 2, 1)))
    return x


def mlp(b: Layers, widths: Sequence[int]) -> str:
    x = b.x
    for width in widths[:-1]:
        x = b.dense(x, width, "Relu")
    return b.dense(x, widths[-1])


def wide_and_deep(b: Layers, rows: int, width: int) -> str:
    n, fields = b.shapes[b.x]
    wide = b.op("ReduceSum", b.embedded(b.x, rows, 1), b.array([1], np.int64), shape=(n, 1), keepdims=0)
    deep = b.reshape(b.embedded(b.x, rows, width), n, fields * width)
    deep = b.dense(b.dense(b.dense(deep, 256, "Relu"), 64, "Relu"), 1)
    return b.op("Sigmoid", b.op("Add", wide, deep))


def factorisation(b: Layers, rows: int, width: int) -> str:
    n, _ = b.shapes[b.x]
    vectors, axes = b.embedded(b.x, rows, width), b.array([1], np.int64)
    total = b.op("ReduceSum", vectors, axes, shape=(n, width), keepdims=0)
    squares = b.op("ReduceSum", b.op("Mul", vectors, vectors), axes, shape=(n, width), keepdims=0)
    pairs = b.op("Sub", b.op("Mul", total, total), squares)
    return b.op("ReduceSum", pairs, axes, shape=(n, 1), keepdims=1)


def classes(b: Layers, classes: int, best: int = 0) -> str:
    found = b.op("Softmax", b.dense(b.x, classes), axis=-1)
    if not best:
        return found
    b.nodes.append(helper.make_node("TopK", [found, b.array([best], np.int64)], ["best", "places"], axis=-1))
    b.shapes["best"] = (*b.shapes[found][:-1], best)
    return "best"


def text_convolutions(b: Layers, rows: int, width: int, outputs: int) -> str:
    x = b.transpose(b.embedded(b.x, rows, width), 0, 2, 1)
    found = []
    for taps in (3, 5, 7):
        y = b.convolution(x, outputs, taps)
        found.append(b.op("GlobalMaxPool", y, shape=(*b.shapes[y][:2], 1)))
    return b.dense(b.flat(b.concat(*found)), 6)


def text_recurrent(b: Layers, rows: int, width: int, hidden: int) -> str:
    x = b.recurrent(b.transpose(b.embedded(b.x, rows, width), 1, 0, 2), "LSTM", hidden, True)
    _, n, states = b.shapes[x]
    return b.dense(b.op("ReduceMean", x, shape=(n, states), axes=[0], keepdims=0), 4)


def _blocks(b: Layers, blocks: int, made: Any) -> str:
    """Residual blocks, each with a ReLU behind its sum."""
    x = b.x
    for _ in range(blocks):
        x = b.op("Relu", b.op("Add", x, made(x)))
    return x


def grouped(b: Layers, width: int, groups: int, blocks: int) -> str:
    channels = b.shapes[b.x][1]
    return _blocks(b, blocks, lambda x: b.convolution(
        b.convolution(b.convolution(x, width, 1), width, groups=groups), channels, 1, act=None))


def residual(b: Layers, blocks: int) -> str:
    channels = b.shapes[b.x][1]
    return _blocks(b, blocks, lambda x: b.convolution(b.convolution(x, channels), channels, act=None))


def bottleneck(b: Layers, width: int, blocks: int) -> str:
    channels = b.shapes[b.x][1]
    return _blocks(b, blocks, lambda x: b.convolution(
        b.convolution(b.convolution(x, width, 1), width), channels, 1, act=None))


def _shuffled(b: Layers, x: str, groups: int) -> str:
    n, channels, h, w = b.shapes[x]
    parts = b.transpose(b.reshape(x, n, groups, channels // groups, h, w), 0, 2, 1, 3, 4)
    return b.reshape(parts, n, channels, h, w)


def shuffled(b: Layers, blocks: int) -> str:
    x, (n, channels, h, w) = b.x, b.shapes[b.x]
    half = channels // 2
    for _ in range(blocks):
        parts = [f"{x}-{part}" for part in (0, 1)]
        b.nodes.append(helper.make_node("Split", [x, b.array([half, half], np.int64)], parts, axis=1))
        b.shapes.update(dict.fromkeys(parts, (n, half, h, w)))
        y = b.convolution(b.convolution(parts[1], half, 1), half, groups=half, act=None)
        x = _shuffled(b, b.concat(parts[0], b.convolution(y, half, 1)), 2)
    return x


def shuffled_groups(b: Layers, groups: int, blocks: int) -> str:
    channels = b.shapes[b.x][1]
    return _blocks(b, blocks, lambda x: b.convolution(b.convolution(
        _shuffled(b, b.convolution(x, channels // 4, 1, groups=groups), groups), channels // 4, groups=channels // 4,
        act=None), channels, 1, groups=groups, act=None))


def inverted(b: Layers, expand: int, kernel: int, act: str, squeeze: int, blocks: int) -> str:
    x, channels = b.x, b.shapes[b.x][1]
    inner = expand * channels
    for _ in range(blocks):
        y = b.convolution(b.convolution(x, inner, 1, act=act), inner, kernel, groups=inner, act=act)
        if squeeze:
            seen = b.convolution(b.mean(y), inner // squeeze, 1, act="Silu" if act == "Silu" else "Relu")
            gate = "Sigmoid" if act == "Silu" else "HardSigmoid"
            y = b.op("Mul", y, b.convolution(seen, inner, 1, act=gate))
        x = b.op("Add", x, b.convolution(y, channels, 1, act=None))
    return x


def factorised(b: Layers, taps: int, blocks: int) -> str:
    x, channels = b.x, b.shapes[b.x][1]
    for _ in range(blocks):
        x = b.convolution(b.convolution(x, channels, (1, taps)), channels, (taps, 1))
    return x


def small_images(b: Layers, width: int) -> str:
    x = b.convolution(b.x, width)
    for level in range(3):
        y = b.convolution(b.convolution(x, width << level, stride=1 + (level > 0)), width << level, act=None)
        x = b.op("Relu", b.op("Add", y, b.convolution(x, width << level, 1, stride=1 + (level > 0), act=None)))
    return b.dense(b.flat(b.mean(x)), 10)


def fire(b: Layers, blocks: int) -> str:
    x = b.x
    for _ in range(blocks):
        narrow = b.convolution(x, 32, 1)
        x = b.concat(b.convolution(narrow, 96, 1), b.convolution(narrow, 96))
    return x


def convnext(b: Layers, blocks: int) -> str:
    x, channels = b.x, b.shapes[b.x][1]
    for _ in range(blocks):
        y = b.norm(b.transpose(b.convolution(x, channels, 7, groups=channels, act=None), 0, 2, 3, 1))
        y = b.op("Mul", b.dense(b.dense(y, 4 * channels, "Gelu"), channels), b.near(channels, middle=0.5))
        x = b.op("Add", x, b.transpose(y, 0, 3, 1, 2))
    return x


def ghost(b: Layers, blocks: int) -> str:
    def module(x: str, outputs: int, act: str | None) -> str:
        first = b.convolution(x, outputs // 2, 1, act=act)
        return b.concat(first, b.convolution(first, outputs // 2, groups=outputs // 2, act=act))

    x, channels = b.x, b.shapes[b.x][1]
    for _ in range(blocks):
        x = b.op("Add", x, module(module(x, 2 * channels, "Relu"), channels, None))
    return x


def face(b: Layers, width: int) -> str:
    x = b.convolution(b.x, width, stride=2, act="PRelu")
    for stride in (2, 1, 2, 1):
        inner = 2 * b.shapes[x][1]
        y = b.convolution(b.convolution(x, inner, 1, act="PRelu"), inner, stride=stride, groups=inner, act="PRelu")
        y = b.convolution(y, width * 2 if stride == 2 else b.shapes[x][1], 1, act=None)
        x = b.op("Add", x, y) if stride == 1 else y
    return b.dense(b.flat(b.mean(x)), 128)


def face_residual(b: Layers, blocks: int) -> str:
    x, channels = b.x, b.shapes[b.x][1]
    for _ in range(blocks):
        x = b.op("Add", x, b.convolution(b.convolution(x, channels, act="PRelu"), channels, act=None))
    return x


def pyramid(b: Layers, width: int, outputs: int) -> str:
    low = b.convolution(b.x, 2 * width, stride=2)
    high = b.convolution(low, 4 * width, stride=2)
    up = b.concat(b.doubled(b.convolution(high, width, 1)), low)
    up = b.concat(b.doubled(b.convolution(up, width, 1)), b.x)
    return b.convolution(b.convolution(up, width), outputs, 1, act=None)


def text_line(b: Layers, width: int, hidden: int) -> str:
    x = b.x
    for level, window in enumerate(((2, 2), (2, 2), (2, 1), (2, 1), (2, 1))):
        x = b.pool(b.convolution(x, width << min(level, 2)), window=window)
    n, channels, _, steps = b.shapes[x]
    x = b.transpose(b.reshape(x, n, channels, steps), 2, 0, 1)
    return b.op("Softmax", b.dense(b.recurrent(x, "LSTM", hidden, True), 64), axis=-1)


def points(b: Layers, widths: Sequence[int]) -> str:
    x = b.x
    for width in widths:
        x = b.dense(x, width, "Relu")
    n, _, width = b.shapes[x]
    return b.dense(b.op("ReduceMax", x, shape=(n, width), axes=[1], keepdims=0), 40)


def graph(b: Layers, width: int) -> str:
    """Two layers of a graph convolution, whose matrix is dense."""
    _, nodes, _ = b.shapes[b.x]
    near = b.array((b.random.random((nodes, nodes)) < 0.01) / (0.01 * nodes))

    def spread(x: str) -> str:
        return b.op("MatMul", near, x, shape=b.shapes[x])

    return spread(b.dense(b.op("Relu", spread(b.dense(b.x, width))), 7))


def chain(b: Layers) -> str:
    y = b.op("Mul", b.op("Sigmoid", b.x), b.op("Tanh", b.op("Add", b.x, b.array(0.2))))
    return b.op("Sqrt", b.op("Abs", b.op("Sub", b.op("Exp", b.op("Neg", b.op("Abs", y))), b.x)))


def moments(b: Layers) -> str:
    n, channels, *_ = b.shapes[b.x]
    middle = b.op("ReduceMean", b.x, shape=(n, channels, 1, 1), axes=[2, 3])
    away = b.op("Sub", b.x, middle)
    spread = b.op("Sqrt", b.op("ReduceMean", b.op("Mul", away, away), shape=(n, channels, 1, 1), axes=[2, 3]))
    normed = b.op("Div", away, b.op("Add", spread, b.array(1e-3)))
    return b.op("Softmax", b.transpose(normed, 0, 2, 3, 1), axis=-1)


def large_image(b: Layers, width: int) -> str:
    return b.convolution(b.pool(b.convolution(b.x, width, 7, stride=2)), 2 * width, stride=2)


def one_convolution(b: Layers, outputs: int) -> str:
    return b.convolution(b.x, outputs, act=None)
