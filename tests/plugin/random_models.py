"""Random MXNet models: images through layers of many kinds, side branches, several outputs, nodes that stay with MXNet.

Scales are such that values stay near one, so that a difference in the outputs is a mistake and not rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod, sqrt
from typing import Any

import ngraph_mxnet  # noqa: F401  (makes mxnet importable on current NumPy)

# isort: split
import mxnet as mx
import numpy as np
from hypothesis import strategies as st

sym = mx.sym
Draw = Callable[[st.SearchStrategy[Any]], Any]


@dataclass(frozen=True)
class _Value:
    symbol: mx.sym.Symbol
    shape: tuple[int, ...]

    @property
    def is_image(self) -> bool:
        return len(self.shape) == 4


class _Grower:
    """Adds a layer at a time to what there is; IndexError where no value suits."""

    def __init__(self, draw: Draw, data: tuple[int, ...]) -> None:
        self.draw, self.data, self.count = draw, data, 0
        self.values = [_Value(sym.var("data"), data)]

    def pick(self, *choices: Any) -> Any:
        return self.draw(st.sampled_from(choices))

    def chance(self) -> bool:
        return self.draw(st.booleans())

    def value(self, suits: Callable[[_Value], bool]) -> _Value:
        """A late one more often: models are deep rather than wide."""
        found = [value for value in self.values if suits(value)]
        place = min(self.draw(st.integers(0, 5)), len(found) - 1) if found else 0
        return found[::-1][place]

    def image(self, least: int = 1) -> _Value:
        return self.value(lambda value: value.is_image and min(value.shape[2:]) >= least)

    def like(self, other: _Value) -> _Value:
        return self.value(lambda value: value.shape == other.shape)

    def name(self) -> str:
        self.count += 1
        return f"layer{self.count}"

    def add(self, symbol: mx.sym.Symbol) -> None:
        for output in symbol:
            _, (shape,), _ = output.infer_shape(data=self.data)
            if 0 < prod(shape) <= 20_000:
                self.values.append(_Value(output, shape))

    # ---- layers ---------------------------------------------------------------------------------------------

    def convolution(self) -> mx.sym.Symbol:
        x = self.image()
        size = self.pick(*[size for size in (1, 3, 5) if size <= min(x.shape[2:])])
        dilation = self.pick(1, 2) if 2 * (size - 1) < min(x.shape[2:]) else 1
        groups = self.pick(1, 1, x.shape[1])
        filters = groups * self.pick(1, 2) if groups > 1 else self.pick(1, 4, 8, 16, 19)
        return sym.Convolution(
            x.symbol, num_filter=filters, num_group=groups, kernel=(size, size), pad=(self.pick(0, size // 2),) * 2,
            dilate=(dilation,) * 2, stride=(self.pick(1, 1, 2),) * 2, no_bias=self.chance(), name=self.name())

    def deconvolution(self) -> mx.sym.Symbol:
        size = self.pick(2, 3)
        return sym.Deconvolution(self.image().symbol, num_filter=self.pick(2, 16), kernel=(size, size),
                                 stride=(self.pick(1, 2),) * 2, pad=(self.pick(0, 1),) * 2, no_bias=self.chance(),
                                 name=self.name())

    def batch_norm(self) -> mx.sym.Symbol:
        return sym.BatchNorm(self.image().symbol, fix_gamma=self.chance(), eps=1e-3, name=self.name())

    def other_norm(self) -> mx.sym.Symbol:
        x = self.value(lambda value: len(value.shape) > 1)
        kind = self.pick("layer", "instance", "response") if x.is_image else "layer"
        if kind == "instance":
            return sym.InstanceNorm(x.symbol, eps=0.1, name=self.name())
        if kind == "response":
            return sym.LRN(x.symbol, nsize=3, name=self.name())
        return sym.LayerNorm(x.symbol, axis=-1, eps=0.1, name=self.name())

    def activation(self) -> mx.sym.Symbol:
        x = self.value(lambda value: True).symbol
        if self.chance():
            return sym.LeakyReLU(x, act_type=self.pick("leaky", "elu", "selu", "gelu", "prelu"), name=self.name())
        return sym.Activation(x, act_type=self.pick("relu", "relu", "sigmoid", "tanh", "softrelu", "softsign"),
                              name=self.name())

    def simple(self) -> mx.sym.Symbol:
        x = self.value(lambda value: True).symbol
        return self.pick(
            lambda: sym.clip(x, 0, 6), lambda: x * 0.5, lambda: 1 - x, lambda: sym.square(x), lambda: sym.abs(x),
            lambda: sym.Dropout(x, p=0.3), lambda: sym.BlockGrad(x), lambda: sym.sin(x), lambda: sym.identity(x),
            lambda: sym.sqrt(sym.abs(x) + 0.1), lambda: sym.hard_sigmoid(x),
            lambda: sym.cast_storage(x, "default"))()  # the last stays with MXNet

    def pooling(self) -> mx.sym.Symbol:
        kind = self.pick("max", "avg")
        if self.pick(0, 0, 1):
            return sym.Pooling(self.image().symbol, global_pool=True, kernel=(1, 1), pool_type=kind, name=self.name())
        stride, pad = (self.pick(1, 2),) * 2, (self.pick(0, 1),) * 2
        return sym.Pooling(self.image(3).symbol, kernel=(3, 3), stride=stride, pad=pad, pool_type=kind,
                           count_include_pad=self.chance(), name=self.name())

    def sum_(self) -> mx.sym.Symbol:
        x = self.value(lambda value: True)
        return self.pick(sym.elemwise_add, sym.elemwise_mul, sym.broadcast_maximum, sym.broadcast_sub)(
            x.symbol, self.like(x).symbol, name=self.name())

    def gate(self) -> mx.sym.Symbol:
        """What squeeze-and-excitation nets do."""
        x = self.image()
        few = sym.Pooling(x.symbol, global_pool=True, kernel=(1, 1), pool_type="avg", name=self.name())
        few = sym.Convolution(few, kernel=(1, 1), num_filter=x.shape[1], name=self.name())
        return sym.broadcast_mul(x.symbol, sym.sigmoid(few), name=self.name())

    def concat(self) -> mx.sym.Symbol:
        x = self.image()
        others = [self.like(x).symbol for _ in range(self.pick(1, 2))]
        return sym.concat(x.symbol, *others, dim=self.pick(1, 1, 2), name=self.name())

    def split(self) -> mx.sym.Symbol:
        x = self.value(lambda value: value.is_image and value.shape[1] % 2 == 0)
        return sym.SliceChannel(x.symbol, num_outputs=2, axis=1, name=self.name())

    def move(self) -> mx.sym.Symbol:
        x = self.image().symbol
        return self.pick(
            lambda: sym.transpose(x, axes=(0, 1, 3, 2)), lambda: sym.slice_axis(x, axis=1, begin=0, end=1),
            lambda: sym.UpSampling(x, scale=2, sample_type="nearest"), lambda: sym.flip(x, axis=3),
            lambda: sym.pad(x, mode=self.pick("constant", "edge"), pad_width=(0, 0, 0, 0, 1, 0, 0, 2)),
            lambda: sym.reshape(x, shape=(0, -1)), lambda: sym.reshape(x, shape=(0, 0, -1)),
            lambda: sym.mean(x, axis=(2, 3), keepdims=self.chance()), lambda: sym.max(x, axis=1, keepdims=True),
            lambda: sym.SwapAxis(x, dim1=1, dim2=3))()

    def dense(self) -> mx.sym.Symbol:
        x = self.value(lambda value: len(value.shape) > 1)
        return sym.FullyConnected(x.symbol, num_hidden=self.pick(1, 5, 16, 33), flatten=self.chance(),
                                  no_bias=self.chance(), name=self.name())

    def attention(self) -> mx.sym.Symbol:
        x = self.value(lambda value: len(value.shape) == 3).symbol
        scores = sym.softmax(sym.batch_dot(x, x, transpose_b=True) * 0.2, axis=2)
        return sym.batch_dot(scores, x, name=self.name())

    def softmax(self) -> mx.sym.Symbol:
        """MXNet's own softmax over axis -1 of an image crashes in its MKL-DNN, so no axis is negative."""
        x = self.value(lambda value: len(value.shape) > 1)
        return sym.softmax(x.symbol, axis=self.pick(1, len(x.shape) - 1), name=self.name())

    def grow(self) -> None:
        layer = self.pick(
            self.convolution, self.convolution, self.batch_norm, self.activation, self.activation, self.simple,
            self.pooling, self.sum_, self.sum_, self.gate, self.concat, self.split, self.move, self.dense,
            self.attention, self.softmax, self.deconvolution, self.other_norm)
        try:
            self.add(layer())
        except IndexError:
            return


@st.composite
def models(draw: Draw) -> tuple[mx.sym.Symbol, tuple[int, ...]]:
    """A model and its data's shape. Its outputs are the last values, at most three, and perhaps any other one."""
    shape = (draw(st.integers(1, 2)), draw(st.sampled_from([1, 3, 16])), *(draw(st.integers(5, 10)) for _ in range(2)))
    grower = _Grower(draw, shape)
    for _ in range(draw(st.integers(2, 14))):
        grower.grow()
    outputs = [value.symbol for value in grower.values[-draw(st.integers(1, 3)):]]
    if draw(st.booleans()):
        outputs.append(draw(st.sampled_from(grower.values)).symbol)
    return sym.Group(outputs), shape


def values_for(name: str, shape: tuple[int, ...], seed: int) -> np.ndarray:
    """An array for the input called `name`: weights by their fan-in, variances around one."""
    rng = np.random.default_rng([seed, *name.encode()])
    if name.endswith("var"):
        values = rng.uniform(0.5, 1.5, shape)
    elif name.endswith("weight"):
        values = rng.uniform(-1, 1, shape) * sqrt(3 / prod(shape[1:]))
    else:
        values = rng.uniform(-1, 1, shape)
    return values.astype(np.float32)
