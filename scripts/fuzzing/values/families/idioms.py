"""What frameworks write in several nodes and passes know as one: cells, gates, embeddings, residual blocks."""

from __future__ import annotations

import numpy as np

from fuzzing.values import sizes
from fuzzing.values.closeness import Closeness
from fuzzing.values.drawing import Draw, chance, integer, pick
from fuzzing.values.nets import Net, Value, normal, scaled_weights, whole
from fuzzing.values.operators import elements
from fuzzing.values.trials import Trial, family


def _dense(net: Net, x: Value, columns: int, weights: Value | None = None) -> Value:
    shape = x.shape[-1], columns
    y = net.node("MatMul", x, weights or net.weight(shape, _columns))
    return net.node("Add", y, net.weight((columns,), normal)) if chance(net.draw) else y


def _columns(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return (rng.standard_normal(shape) / shape[0] ** 0.5).astype(np.float32)


def _parts(net: Net, x: Value, count: int) -> list[Value]:
    return net.several("Split", x, outputs=count, axis=-1, num_outputs=count)


def cells(net: Net) -> Value:
    """A recurrent layer that was unrolled: products with the same weights at each step, and the gates by hand."""
    draw = net.draw
    kind, hidden, batch = pick(draw, "lstm", "gru", "tanh"), pick(draw, 4, 16, 17), pick(draw, 1, 3)
    gates = {"lstm": 4, "gru": 3, "tanh": 1}[kind]
    inputs = sizes.draw_channels(draw, 48)
    x = net.input((batch, integer(draw, 1, 4), inputs))
    weights = net.weight((inputs, gates * hidden), _columns), net.weight((hidden, gates * hidden), _columns)
    h = c = net.constant(np.zeros((batch, hidden)), np.float32)
    for step in range(x.shape[1]):
        now = net.node("Gather", x, net.constant(np.array(step, np.int64)), axis=1)
        given, fed = (net.node("MatMul", value, each) for value, each in zip((now, h), weights, strict=True))
        if kind == "tanh":
            h = net.node("Tanh", net.node("Add", given, fed))
        elif kind == "lstm":
            i, f, g, o = _parts(net, net.node("Add", given, fed), 4)
            i, f, o = (net.node("Sigmoid", each) for each in (i, f, o))
            c = net.node("Add", net.node("Mul", f, c), net.node("Mul", i, net.node("Tanh", g)))
            h = net.node("Mul", o, net.node("Tanh", c))
        else:
            (r, z, n), (hr, hz, hn) = _parts(net, given, 3), _parts(net, fed, 3)
            r, z = (net.node("Sigmoid", net.node("Add", *each)) for each in ((r, hr), (z, hz)))
            n = net.node("Tanh", net.node("Add", n, net.node("Mul", r, hn)))
            one = net.constant(np.float32(1))
            h = net.node("Add", net.node("Mul", net.node("Sub", one, z), n), net.node("Mul", z, h))
    return h


def embedding(net: Net) -> Value:
    """Of numbers that are compared with all there are; or a gather."""
    count, width = pick(net.draw, 5, 16, 33), sizes.draw_channels(net.draw, 48)
    places, table = net.input((2, 7), whole(0, count - 1, np.int64)), net.weight((count, width), normal)
    if chance(net.draw, 3):
        return net.node("Gather", table, places)
    kind = pick(net.draw, "compared", "one hot")
    if kind == "one hot":
        hot = net.node("OneHot", places, net.constant([count], np.int64), net.constant([0, 1], np.float32))
    else:
        numbers = net.constant(np.arange(count), np.int64)
        alone = net.node("Unsqueeze", places, net.constant([-1], np.int64))
        hot = net.node("Cast", net.node("Equal", alone, numbers), to=1)
    return net.node("MatMul", hot, table)


def shuffled(net: Net) -> Value:
    """A transposed convolution whose windows do not overlap."""
    draw, block = net.draw, pick(net.draw, 2, 3)
    inputs, outputs = sizes.draw_channels(draw, 64), pick(draw, 1, 2, 3, 16)
    axes = {2: "H"} if chance(draw, 4) else {}
    x = net.input((1, inputs, integer(draw, 1, 9), integer(draw, 1, 9)), normal, axes)
    bias = [net.weight((outputs,), normal)] if chance(draw) else []
    y = net.node("ConvTranspose", x, net.weight((inputs, outputs, block, block), scaled_weights), *bias,
                 strides=[block] * 2)
    return net.node(pick(draw, "Relu", "Sigmoid"), y) if chance(draw) else y


def residuals(net: Net) -> Value:
    """ResNet's blocks, of both versions: sums that two read, and norms before or behind convolutions."""
    draw = net.draw
    channels, size = sizes.BLOCK * pick(draw, 1, 2, 4), integer(draw, 3, 12)
    x = net.input((pick(draw, 1, 2), channels, size, size))
    for _ in range(integer(draw, 1, 3)):
        y = x
        first = chance(draw)
        for _ in range(pick(draw, 1, 2)):
            y = _normed(net, y) if first else y
            y = net.node("Conv", y, net.weight((channels, channels, 3, 3), scaled_weights), pads=[1] * 4)
            y = y if first else _normed(net, y)
        x = net.node("Add", *((x, y) if chance(draw) else (y, x)))
    return _normed(net, x) if chance(draw) else x


def _normed(net: Net, x: Value) -> Value:
    vectors = [net.weight(x.shape[1:2], normal) for _ in range(3)]
    y = net.node("BatchNormalization", x, *vectors, net.weight(x.shape[1:2], elements(np.float32, low=0.5, high=2)))
    return net.node("Relu", y) if chance(net.draw) else y


def siblings(net: Net) -> Value:
    """Several products of the same data, and of several data with the same weights."""
    draw = net.draw
    x = net.input((pick(draw, 1, 5, 17), sizes.draw_channels(draw, 64)))
    columns = sizes.draw_channels(draw, 48)
    shared = net.weight((x.shape[1], columns), _columns) if chance(draw) else None
    several = [net.node("Relu", x) if chance(draw) else x for _ in range(integer(draw, 2, 4))]
    parts = [_dense(net, each, columns, shared) for each in several]
    return net.node("Concat", *parts, axis=pick(draw, 0, 1))


def swish(net: Net) -> Value:
    """Hard swish and other activations, node by node, behind a convolution or alone."""
    draw = net.draw
    channels = sizes.draw_channels(draw, 64)
    x = net.input((1, channels, integer(draw, 2, 12), integer(draw, 2, 12)))
    if chance(draw):
        x = net.node("Conv", x, net.weight((sizes.draw_channels(draw, 64), channels, 1, 1), scaled_weights))
    kind = pick(draw, "hard", "silu", "gelu", "affine")
    if kind == "silu":
        return net.node("Mul", x, net.node("Sigmoid", x))
    if kind == "gelu":
        half = net.node("Erf", net.node("Div", x, net.constant(np.float32(2**0.5))))
        both = net.node("Mul", x, net.node("Add", half, net.constant(np.float32(1))))
        return net.node("Mul", both, net.constant(np.float32(0.5)))
    if kind == "affine":
        vector = (x.shape[1], 1, 1)
        return net.node("Add", net.node("Mul", x, net.weight(vector, normal)), net.weight(vector, normal))
    moved = net.node("Add", x, net.constant(np.float32(3)))
    bounds = [net.constant(np.float32(each)) for each in (0, 6)]
    gate = net.node("Clip", moved, *bounds)
    six = net.constant(np.float32(6))
    return net.node("Div", net.node("Mul", x, gate), six) if chance(draw) else net.node(
        "Mul", x, net.node("Div", gate, six))


@family("idioms", weight=6)
def idioms(draw: Draw) -> Trial:
    net = Net(draw)
    y = pick(draw, cells, embedding, shuffled, residuals, siblings, swish)(net)
    return net.trial([y], Closeness(2e-3, 2e-3))
