"""Random small well-typed graphs, for fuzzing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st

from ngraph_mxnet.ir import Builder, Graph, Value

_ORIGINS = ("", "mx:conv0 Convolution", 'mx:a} # {b=1} ü \\ "q"')


def _floats(values: list[Value]) -> list[Value]:
    return [v for v in values if v.type.element.name == "f32"]


def _images(values: list[Value]) -> list[Value]:
    return [v for v in _floats(values) if len(v.shape) == 4 and min(v.shape) > 0]


class _Step:
    """The ways to grow a graph from the values there are; IndexError where there is none to grow from."""

    def __init__(self, b: Builder, draw: Callable[[Any], Any]) -> None:
        self.b, self.draw, self.parameters = b, draw, 0

    def pick(self, choices: Any) -> Any:
        choices = list(choices)
        if not choices:
            raise IndexError("no choice")
        return self.draw(st.sampled_from(choices))

    def weight(self, shape: tuple[int, ...]) -> Value:
        self.parameters += 1
        if self.draw(st.booleans()):
            return self.b.constant(np.linspace(-1, 1, int(np.prod(shape)), dtype=np.float32).reshape(shape))
        make = self.b.weight if self.draw(st.booleans()) else self.b.parameter
        return make(f"w{self.parameters}", shape)

    def unary(self, values: list[Value]) -> Value:
        op = self.pick(
            ["relu", "tanh", "negative", "sigmoid", "abs", "square", "identity", "dropout", "floor"]
        )
        return self.b.apply(op, self.pick(_floats(values)))

    def clamp(self, values: list[Value]) -> Value:
        return self.b.clamp(self.pick(_floats(values)), lower=0, upper=6)

    def binary(self, values: list[Value]) -> Value:
        a = self.pick(_floats(values))
        same = [v for v in _floats(values) if v.shape == a.shape]
        other = self.pick(same) if self.draw(st.booleans()) else self.weight(a.shape[1:])
        return self.b.apply(self.pick(["add", "subtract", "multiply", "maximum"]), a, other)

    def select(self, values: list[Value]) -> Value:
        a = self.pick(_floats(values))
        return self.b.select(self.b.greater(a, self.b.constant(0.25)), a, self.weight(a.shape))

    def convert(self, values: list[Value]) -> Value:
        a = self.pick(_floats(values))
        return self.b.convert(self.b.convert(self.b.tanh(a), element="f16"), element="f32")

    def integers(self, values: list[Value]) -> Value:
        return self.b.argmax(self.pick([v for v in _floats(values) if v.shape]), axis=-1)

    def reduce(self, values: list[Value]) -> Value:
        a = self.pick([v for v in _floats(values) if v.shape])
        axes = self.draw(st.lists(st.integers(0, len(a.shape) - 1), unique=True))
        op = self.pick(["reduce_sum", "reduce_mean", "reduce_max"])
        return self.b.apply(op, a, axes=axes, keep_dims=self.draw(st.booleans()))

    def transpose(self, values: list[Value]) -> Value:
        a = self.pick(values)
        return self.b.transpose(a, order=self.draw(st.permutations(range(len(a.shape)))))

    def flatten(self, values: list[Value]) -> Value:
        a = self.pick([v for v in values if v.shape])
        return self.b.reshape(a, shape=(a.shape[0], int(np.prod(a.shape[1:]))))

    def concat(self, values: list[Value]) -> Value:
        a = self.pick([v for v in values if v.shape])
        return self.b.concat(a, self.b.identity(a), axis=-1)

    def slice(self, values: list[Value]) -> Value:
        a = self.pick(values)
        return self.b.slice(
            a, begin=[d - 1 for d in a.shape], end=[-1] * len(a.shape), strides=[-1] * len(a.shape)
        )

    def pad(self, values: list[Value]) -> Value:
        a = self.pick(_images(values))
        return self.b.pad(
            a, pads_begin=(0, 0, 1, 1), pads_end=(0, 0, 1, 0), mode=self.pick(["constant", "edge"])
        )

    def softmax(self, values: list[Value]) -> Value:
        return self.b.softmax(self.pick([v for v in _floats(values) if v.shape]))

    def matmul(self, values: list[Value]) -> Value:
        a = self.pick([v for v in _floats(values) if len(v.shape) >= 2])
        return self.b.matmul(a, self.weight((5, a.shape[-1])), transpose_b=True)

    def convolution(self, values: list[Value]) -> Value:
        a, kernel = self.pick(_images(values)), self.pick([1, 3])
        y = self.b.convolution(
            a,
            self.weight((4, a.shape[1], kernel, kernel)),
            strides=(self.pick([1, 2]),) * 2,
            pads_begin=(kernel // 2,) * 2,
            pads_end=(kernel // 2,) * 2,
        )
        return self.b.batch_norm(
            y, *(self.weight((4,)) for _ in range(3)), self.b.constant([1.0, 2.0, 0.5, 1.0])
        )

    def pool(self, values: list[Value]) -> Value:
        op, a = (
            self.pick(["max_pool", "avg_pool"]),
            self.pick([v for v in _images(values) if min(v.shape[2:]) >= 2]),
        )
        return self.b.apply(op, a, kernel=(2, 2), strides=(2, 2), rounding=self.pick(["floor", "ceil"]))

    def two_outputs(self, values: list[Value]) -> Value:
        a = self.pick(_images(values))
        c = a.shape[1]
        vectors = [self.weight((c,)) for _ in range(3)]
        inputs = [a, self.weight((c, c, 1, 1)), vectors[0], a, *vectors[1:]]
        node = self.b.node("convolution", inputs, {"lower2": 0})
        return self.b.add(*node.outputs)


_METHODS = [name for name in vars(_Step) if not name.startswith("_") and name not in ("pick", "weight")]


@st.composite
def graphs(draw: Callable[[Any], Any], steps: int = 8) -> Graph:
    """Graphs of up to `steps` growth steps with one to three results."""
    b = Builder(name=draw(st.sampled_from(["main", "two words", 'q"\\'])))
    step = _Step(b, draw)
    values = [
        b.parameter("data", (2, 3, 5, 6)),
        b.parameter(draw(st.sampled_from(["b", "0", "x, %y: f32[1]"])), (4, 7)),
    ]
    for _ in range(draw(st.integers(1, steps))):
        b.origin = draw(st.sampled_from(_ORIGINS))
        try:
            values.append(getattr(step, draw(st.sampled_from(_METHODS)))(values))
        except IndexError:  # nothing of the kind to pick from
            continue
    count = draw(st.integers(1, 3))
    return b.results(*(draw(st.sampled_from(values[-3:])) for _ in range(count)))
