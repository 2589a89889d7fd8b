"""Recurrent layers backwards: step by step goes only the chain through time, all else is done for all steps at once.

The gates, their derivatives and the gradients of weights are elementwise ops and products over all steps. From a step
to the one before it go the gradients of its states: a product, and a few elementwise ops.
"""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np

from ngraph_mxnet.ir.graph import Node, Value
from ngraph_mxnet.passes.pattern import Answer, Rewriter


class _Ops:
    """Makes nodes. Tensors are of all steps [S, N, columns] or of one [N, columns]."""

    def __init__(self, rw: Rewriter) -> None:
        self.make = rw.make
        self.constant = rw.constant

    def times(self, *factors: Value) -> Value:
        return reduce(lambda a, b: self.make("multiply", a, b), factors)

    def plus(self, a: Value, b: Value) -> Value:
        return self.make("add", a, b)

    def less(self, x: Value) -> Value:
        """1 - x."""
        return self.make("subtract", self.constant(np.ones((), x.type.element.numpy)), x)

    def bell(self, x: Value) -> Value:
        """x (1 - x), a sigmoid's derivative by what the sigmoid gives."""
        return self.times(x, self.less(x))

    def slope(self, x: Value) -> Value:
        """1 - x^2, that of a tanh."""
        return self.less(self.times(x, x))

    def product(self, a: Value, b: Value, **attrs: Any) -> Value:
        return self.make("matmul", a, b, **attrs)

    def reshaped(self, x: Value, *shape: int) -> Value:
        return self.make("reshape", x, shape=shape)

    def rows(self, x: Value) -> Value:
        """[S, N, columns] as [S N, columns]."""
        return self.reshaped(x, x.shape[0] * x.shape[1], x.shape[2])

    def part(self, x: Value, axis: int, begin: int, end: int) -> Value:
        bounds = [(begin, end) if own == axis else (0, size) for own, size in enumerate(x.shape)]
        return self.make("slice", x, begin=[b for b, _ in bounds], end=[e for _, e in bounds])

    def gates(self, x: Value, count: int) -> list[Value]:
        """Equal parts of the columns."""
        units = x.shape[-1] // count
        return [self.part(x, len(x.shape) - 1, gate * units, (gate + 1) * units) for gate in range(count)]

    def columns(self, *parts: Value) -> Value:
        return self.make("concat", *parts, axis=-1)

    def at(self, x: Value, step: int) -> Value:
        return self.reshaped(self.part(x, 0, step, step + 1), *x.shape[1:])

    def stacked(self, steps: list[Value]) -> Value:
        """Those of one step each as those of all."""
        parts = [self.reshaped(step, 1, *step.shape) for step in steps]
        return self.make("concat", *parts, axis=0) if len(parts) > 1 else parts[0]

    def turned(self, x: Value) -> Value:
        """The steps in reverse order."""
        steps, *shape = x.shape
        return self.make("slice", x, begin=(steps - 1, 0, 0), end=(-1, *shape), strides=(-1, 1, 1))


def rnn_gradient(node: Node, rw: Rewriter) -> Answer:
    """The gradients of all operands, in ops that have kernels."""
    if not node.inputs[0].type.size:  # an empty batch, over which no product has a kernel
        return {value: rw.constant(np.zeros(value.shape, value.type.element.numpy)) for value in node.outputs}
    own = len(node.outputs)
    (x, weights, bias, h, *rest), (states, of_states, *heads) = node.inputs[:own], node.inputs[own:]
    ops, back = _Ops(rw), node.attrs["reverse"]
    if back:
        x, states, of_states = ops.turned(x), ops.turned(states), ops.turned(of_states)
    before = ops.stacked([h, *(ops.at(states, step) for step in range(x.shape[0] - 1))])
    sums = ops.plus(ops.product(ops.rows(before), weights, transpose_b=True), bias)
    sums = ops.reshaped(sums, *x.shape)
    if node.attrs["cell"] == "lstm":
        of_x, *others = _lstm(ops, ops.plus(x, sums), weights, rest, of_states, heads)
        of_sums = of_x
    elif node.attrs["cell"] == "gru":
        of_x, of_sums, *others = _gru(ops, x, sums, before, weights, of_states, heads[0])
    else:
        of_x, *others = _plain(ops, node.attrs["cell"], states, weights, of_states, heads[0])
        of_sums = of_x
    rows = ops.rows(of_sums)
    by_weights = ops.product(rows, ops.rows(before), transpose_a=True)
    by_bias = rw.make("reduce_sum", rows, axes=(0,))
    return dict(zip(node.outputs, [ops.turned(of_x) if back else of_x, by_weights, by_bias, *others], strict=True))


def _plain(ops: _Ops, cell: str, states: Value, weights: Value, of_states: Value, of_h: Value) -> list[Value]:
    """The gradients of x and of the hidden state."""
    if cell == "tanh":
        slopes = ops.slope(states)
    else:
        zero = ops.constant(np.zeros((), states.type.element.numpy))
        slopes = ops.make("convert", ops.make("greater", states, zero), element=states.type.element)
    found: list[Value] = []
    for step in reversed(range(states.shape[0])):
        found.append(ops.times(ops.plus(of_h, ops.at(of_states, step)), ops.at(slopes, step)))
        of_h = ops.product(found[-1], weights)
    return [ops.stacked(found[::-1]), of_h]


def _gru(ops: _Ops, x: Value, sums: Value, before: Value, weights: Value, of_states: Value, of_h: Value) -> list[Value]:
    """The gradients of x, of the other addend and of the hidden state. All are multiples of the state's gradient."""
    (xr, xz, xn), (pr, pz, pn) = ops.gates(x, 3), ops.gates(sums, 3)
    r, z = ops.make("sigmoid", ops.plus(xr, pr)), ops.make("sigmoid", ops.plus(xz, pz))
    n = ops.make("tanh", ops.plus(xn, ops.times(r, pn)))
    by_n = ops.times(ops.less(z), ops.slope(n))
    by_r = ops.times(by_n, pn, ops.bell(r))
    by_z = ops.times(ops.make("subtract", before, n), ops.bell(z))
    slopes = ops.columns(by_r, by_z, ops.times(by_n, r))
    found: list[Value] = []
    whole: list[Value] = []
    for step in reversed(range(x.shape[0])):
        whole.append(ops.plus(of_h, ops.at(of_states, step)))
        found.append(ops.times(ops.columns(*[whole[-1]] * 3), ops.at(slopes, step)))
        of_h = ops.plus(ops.product(found[-1], weights), ops.times(whole[-1], ops.at(z, step)))
    of_sums, all_of_h = ops.stacked(found[::-1]), ops.stacked(whole[::-1])
    *others, _ = ops.gates(of_sums, 3)
    return [ops.columns(*others, ops.times(all_of_h, by_n)), of_sums, of_h]


def _lstm(ops: _Ops, gates: Value, weights: Value, rest: list[Value], of_states: Value,
          heads: list[Value]) -> list[Value]:
    """The gradients of x, of both states and of the projection, if there is one."""
    (c, *projections), (of_h, of_c) = rest, heads
    i, f, g, o = ops.gates(gates, 4)
    i, f, o, g = (*(ops.make("sigmoid", gate) for gate in (i, f, o)), ops.make("tanh", g))
    added = ops.times(i, g)
    cells = [c]
    for step in range(gates.shape[0]):
        cells.append(ops.plus(ops.times(ops.at(f, step), cells[-1]), ops.at(added, step)))
    before, after = ops.stacked(cells[:-1]), ops.make("tanh", ops.stacked(cells[1:]))
    by_c = ops.columns(ops.times(g, ops.bell(i)), ops.times(before, ops.bell(f)), ops.times(i, ops.slope(g)))
    by_h, through = ops.times(after, ops.bell(o)), ops.times(o, ops.slope(after))
    found: list[Value] = []
    whole: list[Value] = []
    for step in reversed(range(gates.shape[0])):
        whole.append(ops.plus(of_h, ops.at(of_states, step)))
        of_hidden = ops.product(whole[-1], projections[0]) if projections else whole[-1]
        of_c = ops.plus(of_c, ops.times(of_hidden, ops.at(through, step)))
        found.append(ops.columns(ops.times(ops.columns(of_c, of_c, of_c), ops.at(by_c, step)),
                                 ops.times(of_hidden, ops.at(by_h, step))))
        of_c, of_h = ops.times(of_c, ops.at(f, step)), ops.product(found[-1], weights)
    results = [ops.stacked(found[::-1]), of_h, of_c]
    if projections:
        hidden = ops.rows(ops.times(o, after))
        results.append(ops.product(ops.rows(ops.stacked(whole[::-1])), hidden, transpose_a=True))
    return results
