"""Random small graphs that are full of what the passes look for, and of what nearly fits."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st

from ngraph_mxnet.base.errors import TypeRuleError
from ngraph_mxnet.ir import Builder, Graph, Value


class _Grower:
    """Each public method takes an image [N, C, H, W] (or a matrix, after `rows`) and returns a new value."""

    def __init__(self, draw: Callable[[Any], Any]) -> None:
        self.draw, self.b = draw, Builder()
        self.values = [self.b.parameter("data", (2, 3, 5, 6))]

    def choice(self, *options: Any) -> Any:
        return self.draw(st.sampled_from(options))

    def weight(self, *shape: int, kind: str = "w") -> Value:
        """A weight mostly; sometimes a constant (now and then 0 or 1) or a run-time input."""
        source = self.choice("weight", "weight", "weight", "constant", "uniform", "input")
        number = len(self.b.graph.parameters)
        if source in ("weight", "input"):
            return (self.b.weight if source == "weight" else self.b.parameter)(f"{kind}{number}", shape)
        if source == "uniform" and kind == "w":
            return self.b.constant(np.full(shape, self.choice(0, 1, -0.0, 2), np.float32))
        return self.b.constant(np.linspace(0.5, 2, math.prod(shape), dtype=np.float32).reshape(shape))

    def per_channel(self, x: Value, kind: str = "w") -> Value:
        c, ones = x.shape[1], (1,) * (x.type.rank - 2)
        shape = self.choice((c, *ones), (1, c, *ones), (1,) * x.type.rank, ())
        vector = self.weight(*shape, kind=kind)
        return self.b.broadcast(vector, shape=x.shape) if self.choice(False, False, True) else vector

    def convolution(self, x: Value) -> Value:
        if x.type.rank != 4:
            return self.matmul(x)
        groups = self.choice(1, 1, x.shape[1])
        kernel, pads = self.choice((1, 1), (3, 3), (3, 1), (1, 2)), self.choice((1, 1), (1, 0), (0, 2))
        same = {"pads_begin": [k // 2 for k in kernel], "pads_end": [(k - 1) // 2 for k in kernel]}
        attrs = self.choice(same, same, {"pads_begin": (1, 1), "pads_end": pads, "strides": (1, 2)})
        outputs = groups * self.choice(1, 2) if groups > 1 else self.choice(3, 4)
        weights = self.weight(outputs, x.shape[1] // groups, *kernel)
        return self.b.convolution(x, weights, groups=groups, **attrs)

    def matmul(self, x: Value) -> Value:
        columns, transposed = self.choice(3, 4), self.choice(False, True)
        shape = (columns, x.shape[-1]) if transposed else (x.shape[-1], columns)
        return self.b.matmul(x, self.weight(*shape), transpose_b=transposed)

    def bias(self, x: Value) -> Value:
        operands = self.draw(st.permutations([x, self.per_channel(x)]))
        return self.b.add(*operands)

    def affine(self, x: Value) -> Value:
        op = self.choice("multiply", "divide", "subtract", "multiply")
        vector = self.per_channel(x, "var" if op == "divide" else "w")
        operands = self.draw(st.permutations([x, vector])) if op == "multiply" else (x, vector)
        return self.b.apply(op, *operands)

    def batch_norm(self, x: Value) -> Value:
        kinds = ("w", "w", "w", "var")
        return self.b.batch_norm(x, *(self.weight(x.shape[1], kind=k) for k in kinds), epsilon=1e-3)

    def scale_shift(self, x: Value) -> Value:
        bounds = self.choice({}, {}, {"lower": 0}, {"upper": 1.5})
        return self.b.scale_shift(x, self.weight(x.shape[1]), self.weight(x.shape[1]), **bounds)

    def clamp(self, x: Value) -> Value:
        op = self.choice("relu", "relu", "clamp", "maximum", "minimum")
        if op == "clamp":
            return self.b.clamp(x, **self.choice({"lower": 0, "upper": 6}, {"lower": -1, "upper": -0.5},
                                                 {"lower": -math.inf, "upper": math.inf}))
        return self.b.relu(x) if op == "relu" else self.b.apply(op, x, self.b.constant(self.choice(0.0, 1.0)))

    def residual(self, x: Value) -> Value:
        other = self.choice(*(v for v in self.values if v.type == x.type))
        return self.b.add(*self.draw(st.permutations([x, other])))

    def block(self, x: Value) -> Value:
        """Two convolutions added: which one hosts the addition?"""
        if x.type.rank != 4:
            return x
        c = x.shape[1]
        left, right = (self.b.convolution(x, self.weight(c, c, 1, 1)) for _ in range(2))
        return self.b.add(self.batch_norm(left), self.clamp(right) if self.choice(False, True) else right)

    def pad(self, x: Value) -> Value:
        if x.type.rank != 4:
            return x
        begin = self.choice((0, 0, 1, 0), (0, 0, 1, 0), (0, 0, 0, 0), (0, 1, 0, 0))
        end = self.choice((0, 0, 0, 2), (0, 0, 0, 2), (0, 0, 0, 0), (0, 0, 1, 1))
        x = self.b.pad(x, pads_begin=begin, pads_end=end, value=self.choice(0.0, 0.0, 1.0, -math.inf))
        return self.choice(self.convolution, self.pool, self.pool)(x)

    def pool(self, x: Value) -> Value:
        if x.type.rank != 4 or min(x.shape[2:]) < 3:
            return x
        attrs = {"kernel": (3, 2), "strides": self.choice((1, 1), (2, 2)),
                 "pads_begin": self.choice((0, 0), (1, 1)), "pads_end": self.choice((0, 0), (1, 0)),
                 "rounding": self.choice("floor", "ceil")}
        if self.choice(False, True):
            return self.b.max_pool(x, **attrs)
        return self.b.avg_pool(x, **attrs, include_pad=self.choice(False, True))

    def global_pool(self, x: Value) -> Value:
        if x.type.rank != 4:
            return x
        wide = self.choice(0, 0, 1)
        kernel = tuple(size + 2 * wide for size in x.shape[2:])
        y = self.b.avg_pool(x, kernel=kernel, pads_begin=(wide,) * 2, pads_end=(wide,) * 2,
                            include_pad=self.choice(False, True))
        return self.b.reshape(y, shape=self.choice(x.shape[:2], y.shape))

    def reduce(self, x: Value) -> Value:
        op, keep = self.choice("reduce_mean", "reduce_sum", "reduce_max"), self.choice(False, True)
        axes = self.choice((-1,), tuple(range(2, x.type.rank)), ())
        y = self.b.apply(op, x, axes=axes, keep_dims=keep)
        y = self.b.reshape(y, shape=(*(d for d in y.shape if d != 1),)) if self.choice(False, True) else y
        if y.shape[:2] != x.shape[:2] or math.prod(y.shape[2:]) != 1:
            return x
        return self.b.multiply(x, self.b.reshape(y, shape=(*y.shape, *(1,) * (x.type.rank - y.type.rank))))

    def nothing(self, x: Value) -> Value:
        b, rank = self.b, x.type.rank
        order = self.draw(st.permutations(range(rank)))
        back = [order.index(axis) for axis in range(rank)]
        half = x.shape[1] // 2
        lows = (0,) * rank
        full = tuple(x.shape)
        split = (0, half, *lows[2:]), (full[0], half, *full[2:])
        return self.choice(
            lambda: b.identity(x),
            lambda: b.dropout(x, rate=0.3),
            lambda: b.negative(b.negative(x)),
            lambda: b.reshape(b.reshape(x, shape=(x.type.size,)), shape=x.shape),
            lambda: b.transpose(b.transpose(x, order=order), order=back),
            lambda: b.concat(x, axis=1),
            lambda: b.concat(
                b.slice(x, begin=lows, end=split[1]), b.slice(x, begin=split[0], end=full), axis=1),
            lambda: b.slice(x, begin=lows, end=full),
            lambda: b.slice(x, begin=[d - 1 for d in full], end=[-1] * rank, strides=[-1] * rank),
            lambda: b.power(x, b.constant(self.choice(1.0, 2.0))),
            lambda: b.abs(b.negative(b.abs(x))),
            lambda: b.convert(b.convert(x, element="f64"), element="f32"),
            lambda: b.add(b.tanh(x), b.tanh(x)),
        )()

    def rows(self, x: Value) -> Value:
        return self.b.reshape(x, shape=(x.shape[0], math.prod(x.shape[1:]))) if x.type.rank == 4 else x


_HELPERS = ("choice", "weight", "per_channel")
_STEPS = [name for name in vars(_Grower) if not name.startswith("_") and name not in _HELPERS]


@st.composite
def fusible_graphs(draw: Callable[[Any], Any], steps: int = 9) -> Graph:
    """A chain of up to `steps` steps that may go on from an earlier value; one to three results."""
    grower = _Grower(draw)
    x = grower.values[0]
    for _ in range(draw(st.integers(1, steps))):
        try:
            y = getattr(grower, draw(st.sampled_from(_STEPS)))(x)
        except TypeRuleError:  # the image has become too small for the kernel
            continue
        # Squares and inputs of size 2 grow: keep the numbers in the range where rounding is small.
        if draw(st.integers(0, 7)) == 0:
            y = grower.b.tanh(y)
        grower.values.append(y)
        x = draw(st.sampled_from(grower.values)) if draw(st.integers(0, 7)) == 0 else y
    others = draw(st.lists(st.sampled_from(grower.values), max_size=2))
    return grower.b.results(grower.values[-1], *others)
