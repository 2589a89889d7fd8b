"""Nets of bytes: QuantizeLinear and DequantizeLinear everywhere, branches, concats, residuals, shared scales; and what
ONNX Runtime's own quantisation makes of random nets."""

from __future__ import annotations

import logging
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnxruntime import quantization

from fuzzing.values import sizes
from fuzzing.values.closeness import EXACT, Closeness
from fuzzing.values.drawing import Draw, chance, integer, pick
from fuzzing.values.families.convolutions import follow, power
from fuzzing.values.nets import Net, Value, normal, scaled_weights, whole
from fuzzing.values.setups import draw_setup
from fuzzing.values.trials import Trial, family


def sixty_fourths(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Numbers that scales divide with ties."""
    return (rng.integers(-300, 300, shape) / 64).astype(np.float32)


class _Bytes:
    """Grows a net whose values are quantised. With `exact` scales are powers of two, and all sums exact."""

    def __init__(self, net: Net, exact: bool) -> None:
        self.net, self.draw, self.exact = net, net.draw, exact
        self.kind = pick(self.draw, np.uint8, np.uint8, np.int8)
        self.shared = self._pair()
        self.blocks = chance(self.draw)
        """Whether all images have whole blocks of channels, so that parts of a concat can lie in it."""
        self.values: list[Value] = []

    def channels(self) -> int:
        if self.blocks:
            return sizes.BLOCK * pick(self.draw, 1, 1, 2, 3, 4)
        return sizes.draw_channels(self.draw, 64)

    def _pair(self) -> tuple[Value, Value]:
        scale = power(self.draw, -5, -2) if self.exact else np.float32(2.0 ** self.net.rng.uniform(-5, -2))
        near = 128 if self.kind is np.uint8 else 0
        if chance(self.draw, 12):  # one that every call brings
            array = np.array(near, self.kind)
            return self.net.input((), lambda rng, shape: np.asarray(scale)), self.net.constant(array)
        return self.net.constant(scale), self.net.constant(np.array(near + pick(self.draw, 0, 0, -3, 20), self.kind))

    def quantised(self, value: Value) -> Value:
        """Through bytes, of scales of its own or shared ones."""
        scale, point = self.shared if chance(self.draw) else self._pair()
        return self.net.node("DequantizeLinear", self.net.node("QuantizeLinear", value, scale, point), scale, point)

    def weights(self, shape: tuple[int, ...]) -> Value:
        terms = int(np.prod(shape[1:]))
        most = max(1, min(60, 2**15 // terms)) if self.exact else 127
        array = self.net.weight(shape, whole(-most, most, np.int8))
        count = shape[0] if chance(self.draw, 3) else None
        factors = 2.0 ** (self.net.rng.integers(-6, -3, count) if self.exact else self.net.rng.uniform(-7, -5, count))
        scale = self.net.constant(np.asarray(factors, np.float32))
        zero = self.net.constant(np.zeros(() if count is None else count, np.int8))
        return self.net.node("DequantizeLinear", array, scale, zero, axis=0)

    def pick_image(self) -> Value:
        return self.values[-1 - min(pick(self.draw, 0, 0, 0, 1, 2), len(self.values) - 1)]

    def convolution(self) -> Value:
        x, size = self.pick_image(), pick(self.draw, 1, 3, 3)
        outputs = self.channels()
        groups = 1
        if chance(self.draw, 5):
            outputs = groups = x.shape[1]
        size = size if min(x.shape[2:]) >= size else 1
        w = self.weights((outputs, x.shape[1] // groups, size, size))
        pad = size // 2 * pick(self.draw, 1, 1, 0)
        stride = pick(self.draw, 1, 1, 1, 2)
        bias = []
        if self.exact and chance(self.draw):
            bias = [self.net.weight((outputs,), sixty_fourths)]
        y = self.net.node("Conv", x, w, *bias, pads=[pad] * 4, strides=[stride] * 2, group=groups)
        if chance(self.draw, 3):
            y = self.net.node("Relu", y)
        return self.quantised(y)

    def join(self) -> Value:
        x = self.pick_image()
        alike = [value for value in self.values if value.shape[2:] == x.shape[2:] and value.shape[0] == x.shape[0]]
        parts = [pick(self.draw, *alike) for _ in range(pick(self.draw, 2, 2, 3))]
        y = self.net.node("Concat", *parts, axis=1)
        if y.shape[1] > 2 * sizes.MOST_CHANNELS:
            raise IndexError
        return self.quantised(y) if not chance(self.draw, 4) else y

    def residual(self) -> Value:
        x = self.pick_image()
        other = pick(self.draw, *[value for value in self.values if value.shape == x.shape])
        y = self.net.node("Add", *((x, other) if chance(self.draw) else (other, x)))
        if chance(self.draw, 3):
            y = self.net.node("Relu", y)
        return self.quantised(y)

    def pool(self) -> Value:
        x = self.pick_image()
        if min(x.shape[2:]) < 2:
            raise IndexError
        kind = pick(self.draw, "MaxPool", "MaxPool", "AveragePool")
        y = self.net.node(kind, x, kernel_shape=[2, 2], strides=[pick(self.draw, 1, 2)] * 2)
        return self.quantised(y) if kind == "AveragePool" or chance(self.draw) else y

    def shape(self) -> Value:
        x = self.pick_image()
        kind = pick(self.draw, "resize", "pad", "slice", "act")
        if kind == "resize" and max(x.shape[2:]) < 16:
            return self.net.node("Resize", x, None, self.net.constant([1, 1, 2, 2], np.float32), mode="nearest",
                                 coordinate_transformation_mode="asymmetric", nearest_mode="floor")
        if kind == "pad":
            return self.net.node("Pad", x, self.net.constant([0, 0, 1, 0, 0, 0, 0, 1], np.int64))
        if kind == "slice" and x.shape[1] > 1:
            half = x.shape[1] // 2
            return self.net.node("Slice", x, self.net.constant([0], np.int64), self.net.constant([half], np.int64),
                                 self.net.constant([1], np.int64))
        return self.quantised(self.net.node(pick(self.draw, "Relu", "Clip"), x))

    def grow(self) -> None:
        step = pick(self.draw, self.convolution, self.convolution, self.convolution, self.join, self.residual,
                    self.pool, self.shape)
        try:
            self.values.append(step())
        except IndexError:
            return


@family("quantised nets", weight=10)
def quantised_nets(draw: Draw) -> Trial:
    net = Net(draw)
    exact = not chance(draw, 3)
    grown = _Bytes(net, exact)
    channels, height, width = grown.channels(), integer(draw, 2, 12), integer(draw, 2, 12)
    axes = {axis: "HW"[axis - 2] for axis in (2, 3) if chance(draw)} if chance(draw, 5) else {}

    for _ in range(pick(draw, 1, 1, 2)):
        grown.values.append(grown.quantised(net.input((1, channels, height, width), sixty_fourths, axes)))
    for _ in range(integer(draw, 1, 7)):
        grown.grow()
    outputs = grown.values[-1:] if chance(draw) else grown.values[-2:]
    mean = chance(draw, 4)
    if mean:
        outputs = [net.node("GlobalAveragePool", outputs[0])]
    if exact:  # but for Winograd's algorithm, where data are no bytes any more
        return net.trial(outputs, Closeness(1e-5, 1e-5) if mean else EXACT, NGRAPH_CPU_WINOGRAD="0")
    return net.trial(outputs, _rounded(net, 0.08))


@family("quantised products", weight=5)
def quantised_products(draw: Draw) -> Trial:
    """Dense layers and products of two quantised tensors, joined along any axis."""
    net, exact = Net(draw), True
    grown = _Bytes(net, exact)
    batch, rows, width = pick(draw, 1, 2), pick(draw, 1, 3, 16, 16, 17, 32), grown.channels()

    values = [grown.quantised(net.input((batch, rows, width), sixty_fourths)) for _ in range(2)]
    for _ in range(integer(draw, 1, 5)):
        x = pick(draw, *values[-2:])
        kind = pick(draw, "dense", "dense", "join", "product", "add")
        if kind == "dense":
            outputs = grown.channels()
            w = net.node("Transpose", grown.weights((outputs, x.shape[-1])), perm=[1, 0])
            y = net.node("MatMul", x, w)
        elif kind == "join":
            axis = pick(draw, 1, 2)
            y = net.node("Concat", *[value for value in values if value.shape[:axis] + value.shape[axis + 1:] ==
                                     x.shape[:axis] + x.shape[axis + 1:]][-3:], axis=axis)
        elif kind == "product" and x.shape[-1] * 2 ** 16 <= 2 ** 23:
            y = net.node("MatMul", x, net.node("Transpose", x, perm=[0, 2, 1]))
        else:
            y = net.node("Add", x, x)
        values.append(grown.quantised(y))
    return net.trial(values[-1:] if chance(draw) else values[-2:], EXACT)


def _float_net(draw: Draw, *, open_sizes: bool) -> tuple[Net, list[Value]]:
    """Of convolutions or of dense layers, as people quantise them."""
    net = Net(draw, 17)
    if chance(draw, 3):
        x = net.input((pick(draw, 1, 4), sizes.draw_channels(draw, 64)))
        for _ in range(integer(draw, 1, 3)):
            x = net.node("MatMul", x, net.weight((x.shape[1], sizes.draw_channels(draw, 64)), _columns))
            if chance(draw):
                x = net.node(pick(draw, "Relu", "Sigmoid", "Tanh"), x)
        return net, [x]
    axes = {axis: "HW"[axis - 2] for axis in (2, 3) if chance(draw)} if open_sizes and chance(draw, 4) else {}
    values = [net.input((1, pick(draw, 3, 16, 17), integer(draw, 6, 12), integer(draw, 6, 12)), normal, axes)]
    for _ in range(integer(draw, 1, 6)):
        x = pick(draw, *values[-2:])
        kind = pick(draw, "conv", "conv", "conv", "follow", "join", "add")
        alike = [value for value in values if value.shape[2:] == x.shape[2:]]
        same = [value for value in values if value.shape == x.shape]
        if kind == "conv":
            outputs = sizes.draw_channels(draw, 64)
            size = pick(draw, 1, 3) if min(x.shape[2:]) >= 3 else 1
            bias = [net.weight((outputs,), normal)] if chance(draw) else []
            values.append(net.node("Conv", x, net.weight((outputs, x.shape[1], size, size), scaled_weights), *bias,
                                   pads=[size // 2] * 4, strides=[pick(draw, 1, 1, 2)] * 2))
        elif kind == "follow":
            values.append(follow(net, x, pick(draw, "Relu", "Clip", "Sigmoid", "MaxPool", "LeakyRelu", "HardSwish")))
        elif kind == "join":
            values.append(net.node("Concat", x, pick(draw, *alike), axis=1))
        else:
            values.append(net.node("Add", x, pick(draw, *same)))
    return net, values[-1:]


def _rounded(net: Net, share: float) -> Closeness:
    """Of elements that lie between two steps; of means of four bytes every other may."""
    means = any(node.op_type in ("AveragePool", "GlobalAveragePool", "ReduceMean") for node in net.nodes)
    return Closeness(0.05, 0.05, share=0.4 if means else share)


def _columns(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return (rng.standard_normal(shape) / shape[0] ** 0.5).astype(np.float32)


class _Samples(quantization.CalibrationDataReader):  # type: ignore[misc]
    def __init__(self, feeds: list[dict[str, Any]]) -> None:
        self._left = iter(feeds)

    def get_next(self) -> Any:
        return next(self._left, None)


def _quantised(draw: Draw, make: Any, *, open_sizes: bool) -> Trial:
    net, outputs = _float_net(draw, open_sizes=open_sizes)
    trial = net.trial(outputs, _rounded(net, 0.05))
    with tempfile.TemporaryDirectory() as folder:
        plain, target = Path(folder) / "plain.onnx", Path(folder) / "quantised.onnx"
        plain.write_bytes(trial.model)
        logging.getLogger().setLevel(logging.ERROR)  # it advises
        make(plain, target, [net.feeds() for _ in range(3)])
        model = target.read_bytes()
    ops = tuple(node.op_type for node in onnx.load_model_from_string(model).graph.node)
    return replace(trial, model=model, ops=ops, setup=draw_setup(draw, open_sizes=len(trial.calls) > 1))


@family("ONNX Runtime's dynamic quantisation", weight=4)
def dynamically(draw: Draw) -> Trial:
    kind = pick(draw, quantization.QuantType.QUInt8, quantization.QuantType.QInt8)
    per_channel = chance(draw, 3)

    def make(plain: Path, target: Path, samples: list[dict[str, Any]]) -> None:
        quantization.quantize_dynamic(plain, target, weight_type=kind, per_channel=per_channel, reduce_range=True)

    return _quantised(draw, make, open_sizes=True)


@family("ONNX Runtime's static quantisation", weight=4)
def statically(draw: Draw) -> Trial:
    types = quantization.QuantType
    form = pick(draw, quantization.QuantFormat.QDQ, quantization.QuantFormat.QOperator)
    activations = pick(draw, types.QUInt8, types.QInt8)
    weights = types.QInt8 if activations is types.QInt8 else pick(draw, types.QInt8, types.QUInt8)
    per_channel = chance(draw, 3)

    def make(plain: Path, target: Path, samples: list[dict[str, Any]]) -> None:
        quantization.quantize_static(plain, target, _Samples(samples), quant_format=form, activation_type=activations,
                                     weight_type=weights, per_channel=per_channel, reduce_range=True)

    return _quantised(draw, make, open_sizes=False)
