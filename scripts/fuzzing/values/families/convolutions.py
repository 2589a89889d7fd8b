"""Convolutions of floats, of integers and of quantised bytes, of every kind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fuzzing.values import sizes
from fuzzing.values.closeness import EXACT, Closeness
from fuzzing.values.drawing import Draw, chance, integer, pick
from fuzzing.values.nets import Net, Value, normal, scaled_weights, whole
from fuzzing.values.trials import Trial, family

MOST_WORK = 3e7
"""Multiply-adds of a convolution: the interpreter has to do them, too."""


@dataclass(frozen=True)
class Window:
    """What a convolution is like: the sizes of its data and weights, and its attributes."""

    data: tuple[int, ...]
    weights: tuple[int, ...]
    attrs: dict[str, Any]

    @property
    def terms(self) -> int:
        """Products that an element of the result is the sum of."""
        return int(np.prod(self.weights[1:]))


def draw_window(draw: Draw, *, rank: int | None = None, transposed: bool = False) -> Window:
    """Of 1 to 3 dimensions, grouped, depthwise, dilated, strided."""
    rank = rank or pick(draw, 2, 2, 2, 2, 2, 1, 3)
    kind = pick(draw, "plain", "plain", "plain", "usual", "usual", "groups", "depthwise")
    if kind == "usual":
        return _usual(draw, transposed)
    if kind == "plain":
        inputs, outputs, groups = sizes.draw_channels(draw), sizes.draw_channels(draw), 1
    elif kind == "depthwise":
        inputs = groups = sizes.draw_channels(draw)
        outputs = inputs * pick(draw, 1, 1, 1, 2)
    else:
        groups = pick(draw, 2, 3, 4, 8)
        inputs, outputs = (groups * sizes.draw_channels(draw, sizes.MOST_CHANNELS // groups) for _ in range(2))
    square = chance(draw, 2)
    kernel = [pick(draw, 3, 3, 1, 1, 2, 5, 7) for _ in range(rank)]
    if square:
        kernel = kernel[:1] * rank
    strides = [1] * rank if chance(draw) else [pick(draw, 1, 2, 2, 3) for _ in range(rank)]
    dilations = [1] * rank if not chance(draw, 4) else [pick(draw, 1, 2, 3) for _ in range(rank)]
    most = {1: 64, 2: 30, 3: 9}[rank]
    work = inputs * outputs / groups * np.prod(kernel)
    most = max(2, min(most, int((MOST_WORK / work) ** (1 / rank))))
    image = [sizes.draw_image(draw, inputs, outputs, most) for _ in range(rank)]
    if square and chance(draw):
        image = image[:1] * rank
    pads = [k // 2 * pick(draw, 1, 1, 0) for k in kernel]
    ends = list(pads) if not chance(draw, 4) else [pick(draw, *range(k)) for k in kernel]
    image = [max(size, (k - 1) * d + 1 - 2 * min(p, e), 1)
             for size, k, d, p, e in zip(image, kernel, dilations, pads, ends, strict=True)]
    attrs: dict[str, Any] = {"strides": strides, "dilations": dilations, "group": groups, "pads": [*pads, *ends]}
    if chance(draw, 8):
        del attrs["pads"]
        attrs["auto_pad"] = pick(draw, "SAME_UPPER", "SAME_LOWER", "VALID")
        image = [max(size, (k - 1) * d + 1) for size, k, d in zip(image, kernel, dilations, strict=True)]
        if attrs["auto_pad"] != "VALID":
            attrs["dilations"] = [1] * rank  # ONNX Runtime refuses others
    # Wide windows, dilated, have images at least as wide.
    over = max(1.0, work * np.prod(image) / MOST_WORK) ** 0.5
    inputs, outputs = (groups * max(1, int(channels / groups / over)) for channels in (inputs, outputs))
    first = (inputs, outputs // groups) if transposed else (outputs, inputs // groups)
    return Window((pick(draw, 1, 1, 2, 3), inputs, *image), (*first, *kernel), attrs)


def _usual(draw: Draw, transposed: bool) -> Window:
    """What most convolutions of nets are, and other algorithms are for: 3x3, stride 1, whole blocks of channels."""
    inputs, outputs = (min(sizes.MOST_CHANNELS, sizes.BLOCK * pick(draw, 1, 1, 2, 3, 4, 8)) for _ in range(2))
    most = max(4, min(30, int((MOST_WORK / (9 * inputs * outputs)) ** 0.5)))
    image = [sizes.draw_image(draw, inputs, outputs, most, 3) for _ in range(2)]
    if chance(draw):
        image = image[:1] * 2
    pads = [pick(draw, 1, 1, 0)] * 4
    attrs = {"strides": [1, 1], "dilations": [pick(draw, 1, 1, 1, 2)] * 2, "group": 1, "pads": pads}
    if attrs["dilations"][0] == 2:
        image = [max(size, 5) for size in image]
    first = (inputs, outputs) if transposed else (outputs, inputs)
    return Window((pick(draw, 1, 1, 2), inputs, *image), (*first, 3, 3), attrs)


def open_axes(draw: Draw, rank: int) -> dict[int, str]:
    """Of images whose sizes are open, rarely."""
    if not chance(draw, 5):
        return {}
    axes = {0: "N"} if chance(draw, 3) else {}
    return {**axes, **{axis: "DHW"[axis - rank] for axis in range(2, rank) if chance(draw)}}


_FOLLOWERS = ("Relu", "HardSwish", "Clip", "Add", "LeakyRelu", "Sigmoid", "BatchNormalization", "Mul", "Tanh",
              "MaxPool", "HardSigmoid", "Gate", "Elu", "GlobalAveragePool", "PRelu")


def follow(net: Net, value: Value, kind: str | None = None) -> Value:
    """A node that nets have behind convolutions."""
    draw, channels = net.draw, value.shape[1]
    kind = kind or pick(draw, *_FOLLOWERS)
    vector = (channels, *(1,) * (value.rank - 2))
    if kind == "Clip":
        low, high = pick(draw, (0, 6), (-1, 1), (0.5, None), (None, 2))
        bounds = [None if each is None else net.constant(np.float32(each)) for each in (low, high)]
        return net.node("Clip", value, *(bounds if bounds[1] else bounds[:1]))
    if kind in ("Add", "Mul"):
        other = pick(draw, vector, value.shape, ())
        side = net.input(other) if other == value.shape and not _is_open(net) else net.weight(vector, normal)
        return net.node(kind, *([value, side] if chance(draw) else [side, value]))
    if kind == "BatchNormalization":
        factors = [net.weight((channels,), normal) for _ in range(3)]
        return net.node(kind, value, *factors, net.weight((channels,), lambda rng, shape: rng.uniform(
            0.5, 2, shape).astype(np.float32)))
    if kind == "PRelu":
        return net.node(kind, value, net.weight(vector, normal))
    if kind == "MaxPool":
        if min(value.shape[2:]) < 2:
            return value
        return net.node(kind, value, kernel_shape=[2] * (value.rank - 2), strides=[pick(draw, 1, 2)] * (value.rank - 2))
    if kind == "Gate":
        few = net.node("GlobalAveragePool", value)
        return net.node("Mul", value, net.node(pick(draw, "Sigmoid", "HardSigmoid"), few))
    return net.node(kind, value)


def _is_open(net: Net) -> bool:
    return any(axes for _, _, axes in net.inputs.values())


@family("convolutions", weight=8)
def convolutions(draw: Draw) -> Trial:
    """Of floats, with what nets have behind them."""
    net, transposed = Net(draw), chance(draw, 4)
    window = draw_window(draw, transposed=transposed)
    x = net.input(window.data, normal, open_axes(draw, len(window.data)))
    operands = [x, net.maybe_input(window.weights, scaled_weights)]
    if chance(draw):
        count = window.weights[1] * window.attrs["group"] if transposed else window.weights[0]
        operands.append(net.maybe_input((count,), normal))
    attrs = dict(window.attrs)
    if transposed:
        y = net.node("ConvTranspose", *operands, **_transposed(draw, attrs))
    else:
        y = net.node("Conv", *operands, **attrs)
    results = [y]
    for _ in range(integer(draw, 0, 3)):
        y = follow(net, y)
        results.append(y)
    outputs = [results[-1]] if chance(draw) else results[-2:]
    return net.trial(outputs, Closeness(relative=1e-3, largest=1e-3))


def _transposed(draw: Draw, attrs: dict[str, Any]) -> dict[str, Any]:
    strides = attrs["strides"]
    if chance(draw, 3) and "pads" in attrs:
        attrs["output_padding"] = [pick(draw, *range(max(s, d))) for s, d in
                                   zip(strides, attrs["dilations"], strict=True)]
    return attrs


def byte_type(draw: Draw) -> Any:
    return pick(draw, np.uint8, np.int8)


def bytes_of(dtype: Any, most: int = 127) -> Any:
    return whole(0, min(255, 2 * most + 1), dtype) if dtype is np.uint8 else whole(-most - 1, most, dtype)


def narrow_weights(draw: Draw, dtype: Any) -> Any:
    """Of 7 bits: ONNX Runtime adds pairs of products in 16 bits, which is right for these."""
    if chance(draw, 6):
        return whole(pick(draw, 0, 3), pick(draw, 3, 60), dtype)
    return whole(0, 127, dtype) if dtype is np.uint8 else whole(-64, 63, dtype)


@family("integer convolutions", weight=6)
def integer_convolutions(draw: Draw) -> Trial:
    """ConvInteger, with zero points that are known, brought by calls, or found in the data."""
    net, window = Net(draw), draw_window(draw)
    kind, own = byte_type(draw), byte_type(draw)
    axes = open_axes(draw, len(window.data))
    if kind is np.uint8 and chance(draw, 3):
        x = net.input(window.data, normal, axes)
        like = [Value("", window.data, np.dtype(np.uint8)), Value("", (), np.dtype(np.float32)),
                Value("", (), np.dtype(np.uint8))]
        data, scale, zero = net.several("DynamicQuantizeLinear", x, outputs=3, like=like)
    else:
        data, scale = net.input(window.data, bytes_of(kind), axes), None
        zero = _zero_point(net, kind)
    weights = net.maybe_input(window.weights, narrow_weights(draw, own))
    operands = [data, weights, zero, _zero_point(net, own)]
    while operands[-1] is None:
        operands.pop()
    y = net.node("ConvInteger", *operands, **window.attrs)
    if scale is None and chance(draw):
        return net.trial([y], EXACT)
    y = net.node("Cast", y, to=1)
    if scale is not None:
        y = net.node("Mul", y, scale)
    if chance(draw):
        y = follow(net, y)
    return net.trial([y], Closeness(relative=1e-4, largest=1e-5))


def _zero_point(net: Net, dtype: Any) -> Value | None:
    if chance(net.draw, 3):
        return None
    array = np.array(pick(net.draw, *((128, 0, 3, 255) if dtype is np.uint8 else (0, -3, 100))), dtype)
    if chance(net.draw, 4):
        return net.input((), lambda rng, shape: array)
    return net.constant(array)


def power(draw: Draw, low: int, high: int) -> np.float32:
    """A power of two, by which floats are divided exactly."""
    return np.float32(2.0 ** integer(draw, low, high))


def scale(net: Net, exact: bool, low: int, high: int) -> Value:
    """A constant between powers of two; `exact`, one of these."""
    return net.constant(power(net.draw, low, high) if exact else np.float32(2.0 ** net.rng.uniform(low, high)))


@family("quantised convolutions", weight=6)
def quantised_convolutions(draw: Draw) -> Trial:
    """QLinearConv, to the bit where scales are powers of two: ties, too."""
    net, window = Net(draw), draw_window(draw)
    kind = byte_type(draw)
    own = np.int8 if kind is np.int8 else byte_type(draw)
    exact = chance(draw, 2)
    data = net.input(window.data, bytes_of(kind), open_axes(draw, len(window.data)))
    most = max(1, min(60, 2**23 // (255 * window.terms)))
    weights = net.weight(window.weights, whole(0 if own is np.uint8 else -most, most, own))
    outputs = window.weights[0]

    def point(dtype: Any, near: int) -> Value:
        return net.constant(np.array(near + pick(draw, 0, 0, 5, -5), dtype))

    per_channel = chance(draw, 3)
    if per_channel:
        factors = 2.0 ** (net.rng.integers(-5, -2, outputs) if exact else net.rng.uniform(-5, -2, outputs))
        scales = net.constant(factors.astype(np.float32))
        points = net.constant(np.full(outputs, 3 * (own is np.uint8), own))
    else:
        scales, points = scale(net, exact, -5, -2), net.constant(np.array(pick(draw, 0, 0, 3), own))
    shift = int(np.log2(window.terms) / 2)
    middle = 128 if kind is np.uint8 else 0
    operands = [data, scale(net, exact, -5, -3), point(kind, middle), weights, scales, points,
                scale(net, exact, shift - 6, shift - 3), point(kind, middle)]
    if chance(draw):
        operands.append(net.weight((outputs,), whole(-2000, 2000, np.int32)))
    y = net.node("QLinearConv", *operands, **window.attrs)
    return net.trial([y], EXACT if exact else Closeness(steps=1))
