"""Random graphs of elementwise ops and reductions, as clusters are made of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from ngraph_mxnet.ir import Builder, Graph, Value

_SMOOTH = "abs negative relu sigmoid tanh gelu softplus softsign square leaky_relu elu exp"
_EXACT = "floor ceiling round sign trunc"
"""Ops with jumps: only of parameters, where no rounding error comes before."""


class _Growing:
    def __init__(self, b: Builder, draw: Callable[[Any], Any], shape: tuple[int, ...], images: bool) -> None:
        self.b, self.draw, self.shape, self.images = b, draw, shape, images
        self.parameters: list[Value] = []
        self.values: list[Value] = []
        self.vectors: list[Value] = []

    def parameter(self, shape: tuple[int, ...]) -> Value:
        make = self.b.weight if self.draw(st.booleans()) else self.b.parameter
        self.parameters.append(make(f"p{len(self.parameters)}", shape))
        return self.parameters[-1]

    def known(self) -> Value:
        """A parameter that broadcasts against full values."""
        return self.draw(st.sampled_from([p for p in self.parameters if p not in self.vectors]))

    def pick(self) -> Value:
        return self.draw(st.sampled_from(self.values))

    def narrow(self) -> Value:
        """Something that broadcasts against full values."""
        kind = self.draw(st.sampled_from(["constant", "tail", "ones"]))
        if kind == "constant":
            return self.b.constant(self.draw(st.sampled_from([0.5, -1.0, 3.0])))
        if kind == "tail":
            return self.parameter(self.shape[self.draw(st.integers(0, len(self.shape))):])
        return self.parameter(tuple(d if self.draw(st.booleans()) else 1 for d in self.shape))

    def unary(self) -> Value:
        return self.b.apply(self.draw(st.sampled_from(_SMOOTH.split())), self.b.tanh(self.pick()))

    def exact(self) -> Value:
        return self.b.apply(self.draw(st.sampled_from(_EXACT.split())), self.draw(st.sampled_from(self.parameters)))

    def clamp(self) -> Value:
        return self.b.clamp(self.pick(), lower=-1, upper=self.draw(st.sampled_from([0.5, 6.0])))

    def binary(self) -> Value:
        op = self.draw(st.sampled_from(["add", "subtract", "multiply", "maximum", "minimum"]))
        operands = [self.pick(), self.narrow() if self.draw(st.booleans()) else self.pick()]
        if self.draw(st.booleans()):
            operands.reverse()
        return self.b.apply(op, *operands)

    def select(self) -> Value:
        op = self.draw(st.sampled_from(["greater", "less_equal", "not_equal"]))
        condition = self.b.apply(op, self.known(), self.b.constant(0.25))
        if self.draw(st.booleans()):
            condition = self.b.logical_not(condition)
        return self.b.select(condition, self.pick(), self.narrow())

    def truth(self) -> Value:
        condition = self.b.greater(self.known(), self.b.constant(0.0))
        return self.b.convert(condition, element="f32")

    def scale_shift(self) -> Value:
        value = self.pick()
        scale, shift = (self.parameter(value.shape[1:2]) for _ in range(2))
        self.vectors += scale, shift
        return self.b.scale_shift(value, scale, shift, lower=-2)

    def reduction(self) -> Value:
        value = self.pick()
        rank = len(value.shape)
        axes = tuple(range(self.draw(st.integers(1, rank)), rank))
        op = self.draw(st.sampled_from(["reduce_sum", "reduce_mean", "reduce_max"]))
        return self.b.apply(op, value, axes=axes, keep_dims=self.draw(st.booleans()))

    def beside(self, reduced: Value) -> Value:
        """A value of one element a row, perhaps with another of its kind that no cluster made."""
        if self.draw(st.booleans()):
            return reduced
        self.vectors.append(self.parameter(reduced.shape))
        return self.b.subtract(self.vectors[-1], reduced)

    def row_op(self) -> Value:
        value = self.pick()
        if self.draw(st.booleans()):
            gamma, beta = (self.parameter(value.shape[-1:]) for _ in range(2))
            return self.b.layer_norm(value, gamma, beta, axis=-1, epsilon=1e-3)
        return self.b.apply(self.draw(st.sampled_from(["softmax", "log_softmax"])), value, axis=-1)

    def escape(self) -> Value:
        """Through an op that no cluster takes."""
        return self.b.transpose(self.b.sin(self.pick()), order=tuple(range(len(self.shape))))


@st.composite
def cluster_graphs(draw: Callable[[Any], Any], images: bool = False) -> Graph:
    """`images`: rank 4 behind a pool, so that the blocked layout comes up."""
    b = Builder(name="clusters")
    sizes = st.sampled_from([1, 2, 3, 5, 16, 17, 33])
    if images:
        shape = (draw(st.integers(1, 2)), draw(st.sampled_from([3, 16, 20, 32])), draw(sizes), draw(sizes))
    else:
        shape = tuple(draw(st.lists(sizes, min_size=2, max_size=4)))
    grow = _Growing(b, draw, shape, images)
    first = grow.parameter(shape)
    grow.values.append(b.max_pool(first, kernel=(1, 1)) if images else first)
    methods = ["unary", "unary", "exact", "clamp", "binary", "binary", "binary", "select", "truth", "scale_shift",
               "reduction", "row_op", "escape"]
    for _ in range(draw(st.integers(2, 10))):
        made = getattr(grow, draw(st.sampled_from(methods)))()
        if made.shape == shape or (len(made.shape) == len(shape) and draw(st.booleans())):
            made = b.add(grow.values[0], made) if made.shape != shape else made
            grow.values.append(made)
        elif draw(st.booleans()):
            b.graph.results.append(b.tanh(grow.beside(made)))
    results = [*b.graph.results, grow.values[-1]]
    if images and draw(st.booleans()):
        weights = b.weight("w", (16, shape[1], 3, 3))
        results.append(b.convolution(grow.values[-1], weights, pads_begin=(1, 1), pads_end=(1, 1)))
    if draw(st.booleans()):
        results.append(grow.pick())
    return b.results(*results)
