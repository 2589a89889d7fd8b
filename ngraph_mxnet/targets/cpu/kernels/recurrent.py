"""The gates of recurrent cells, forward and back: everything of a step but its matrix products."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numba import float32

from ngraph_mxnet.targets.cpu.kernels import maths
from ngraph_mxnet.targets.cpu.kernels.pointers import inline, load, pointer, reader, select, shift, store
from ngraph_mxnet.targets.cpu.kernels.record import kernel
from ngraph_mxnet.targets.cpu.params.sequences import CELL_GRADIENTS, CELLS, TRAINING_CELLS

read_cell = reader(CELLS["lstm"])
read_training = reader(TRAINING_CELLS["lstm"])
read_gradient = reader(CELL_GRADIENTS["lstm"])

F = np.float32
ZERO, ONE = F(0), F(1)


@inline
def _zeros_behind(row, columns):
    """Up to a multiple of 16."""
    for u in range(columns, (columns + 15) // 16 * 16):
        row[u] = ZERO


@inline
def _lstm_units(x, p, before, h, c, first, last, units):
    for u in range(first, last):
        i = maths.sigmoid(load(x, u) + load(p, u))
        f = maths.sigmoid(load(x, units + u) + load(p, units + u))
        g = maths.tanh(load(x, 2 * units + u) + load(p, 2 * units + u))
        o = maths.sigmoid(load(x, 3 * units + u) + load(p, 3 * units + u))
        state = f * load(before, u) + i * g
        store(c, u, state)
        store(h, u, o * maths.tanh(state))


@inline
def _gru_units(x, p, before, h, c, first, last, units):
    for u in range(first, last):
        r = maths.sigmoid(load(x, u) + load(p, u))
        z = maths.sigmoid(load(x, units + u) + load(p, units + u))
        n = maths.tanh(load(x, 2 * units + u) + r * load(p, 2 * units + u))
        store(h, u, (ONE - z) * n + z * load(before, u))


@inline
def _gru_reset_units(x, p, before, h, c, first, last, units):
    for u in range(first, last):
        store(h, u, maths.sigmoid(load(x, u) + load(p, u)) * load(before, u))
        store(c, u, maths.sigmoid(load(x, units + u) + load(p, units + u)))


@inline
def _gru_update_units(x, p, before, h, c, first, last, units):
    for u in range(first, last):
        z = load(c, u)
        store(h, u, (ONE - z) * maths.tanh(load(x, u) + load(p, u)) + z * load(before, u))


@inline
def _relu_units(x, p, before, h, c, first, last, units):
    for u in range(first, last):
        total = load(x, u) + load(p, u)
        store(h, u, select(total < ZERO, ZERO, total))


@inline
def _tanh_units(x, p, before, h, c, first, last, units):
    for u in range(first, last):
        store(h, u, maths.tanh(load(x, u) + load(p, u)))


def _cell(units_of: Callable) -> Callable:
    def cell(tensors, ints, floats, begin, end):
        """One step of a recurrent cell (see the ops `lstm_cell`, `gru_cell` and `rnn`), or half of one.

        tensors: x, p, the state before (LSTM: c, GRU: h, else unused), h, and LSTM's c after, which may be the
        state before, or z of `gru_reset_first`; float32, a row is contiguous, and h also has zeros up to a multiple of
        16.
        Tasks: (row, ceil(units / chunk)).
        """
        p = read_cell(ints, floats)
        parts = (p.units + p.chunk - 1) // p.chunk
        for task in range(begin, end):
            row, first = task // parts, task % parts * p.chunk
            last = min(first + p.chunk, p.units)
            h = shift(pointer(tensors, 3, float32), row * p.h_row)
            units_of(
                shift(pointer(tensors, 0, float32), row * p.x_row),
                shift(pointer(tensors, 1, float32), row * p.p_row),
                shift(pointer(tensors, 2, float32), row * p.before_row),
                h,
                shift(pointer(tensors, 4, float32), row * p.c_row),
                first,
                last,
                p.units,
            )
            if last == p.units:
                _zeros_behind(h, p.units)

    return cell


for _name, _units in (("lstm", _lstm_units), ("gru", _gru_units), ("relu", _relu_units), ("tanh", _tanh_units),
                      ("gru_reset", _gru_reset_units), ("gru_update", _gru_update_units)):
    kernel(f"{_name}_cell")(_cell(_units))


@inline
def _lstm_slopes(x, p, before, h, c, slopes, first, last, units):
    for u in range(first, last):
        i = maths.sigmoid(load(x, u) + load(p, u))
        f = maths.sigmoid(load(x, units + u) + load(p, units + u))
        g = maths.tanh(load(x, 2 * units + u) + load(p, 2 * units + u))
        o = maths.sigmoid(load(x, 3 * units + u) + load(p, 3 * units + u))
        old = load(before, u)
        state = f * old + i * g
        after = maths.tanh(state)
        store(c, u, state)
        store(h, u, o * after)
        store(slopes, u, o * (ONE - after * after))
        store(slopes, units + u, g * i * (ONE - i))
        store(slopes, 2 * units + u, old * f * (ONE - f))
        store(slopes, 3 * units + u, i * (ONE - g * g))
        store(slopes, 4 * units + u, after * o * (ONE - o))
        store(slopes, 5 * units + u, f)


@inline
def _gru_slopes(x, p, before, h, c, slopes, first, last, units):
    for u in range(first, last):
        r = maths.sigmoid(load(x, u) + load(p, u))
        z = maths.sigmoid(load(x, units + u) + load(p, units + u))
        inner = load(p, 2 * units + u)
        n = maths.tanh(load(x, 2 * units + u) + r * inner)
        old = load(before, u)
        by_n = (ONE - z) * (ONE - n * n)
        store(h, u, (ONE - z) * n + z * old)
        store(slopes, u, by_n * inner * r * (ONE - r))
        store(slopes, units + u, (old - n) * z * (ONE - z))
        store(slopes, 2 * units + u, by_n)
        store(slopes, 3 * units + u, r)
        store(slopes, 4 * units + u, z)


@inline
def _relu_slopes(x, p, before, h, c, slopes, first, last, units):
    for u in range(first, last):
        total = load(x, u) + load(p, u)
        store(h, u, select(total < ZERO, ZERO, total))
        store(slopes, u, select(total > ZERO, ONE, ZERO))


@inline
def _tanh_slopes(x, p, before, h, c, slopes, first, last, units):
    for u in range(first, last):
        after = maths.tanh(load(x, u) + load(p, u))
        store(h, u, after)
        store(slopes, u, ONE - after * after)


def _training_cell(units_of: Callable) -> Callable:
    def cell(tensors, ints, floats, begin, end):
        """Compute the cell as without `training`, and also the step's slopes (see the op `rnn_training`)."""
        p = read_training(ints, floats)
        parts = (p.units + p.chunk - 1) // p.chunk
        for task in range(begin, end):
            row, first = task // parts, task % parts * p.chunk
            last = min(first + p.chunk, p.units)
            h = shift(pointer(tensors, 3, float32), row * p.h_row)
            units_of(
                shift(pointer(tensors, 0, float32), row * p.x_row),
                shift(pointer(tensors, 1, float32), row * p.p_row),
                shift(pointer(tensors, 2, float32), row * p.before_row),
                h,
                shift(pointer(tensors, 4, float32), row * p.c_row),
                shift(pointer(tensors, 5, float32), row * p.slopes_row),
                first,
                last,
                p.units,
            )
            if last == p.units:
                _zeros_behind(h, p.units)

    return cell


for _name, _units in (("lstm", _lstm_slopes), ("gru", _gru_slopes), ("relu", _relu_slopes), ("tanh", _tanh_slopes)):
    kernel(f"{_name}_cell_training")(_training_cell(_units))


@inline
def _lstm_back(slopes, head, product, before, carry, x, sums, first, last, units):
    for u in range(first, last):
        whole = load(head, u) + load(product, u)
        cell = load(before, u) + whole * load(slopes, u)
        store(x, u, cell * load(slopes, units + u))
        store(x, units + u, cell * load(slopes, 2 * units + u))
        store(x, 2 * units + u, cell * load(slopes, 3 * units + u))
        store(x, 3 * units + u, whole * load(slopes, 4 * units + u))
        store(carry, u, cell * load(slopes, 5 * units + u))
    if last == units:
        _zeros_behind(x, 4 * units)


@inline
def _gru_back(slopes, head, product, before, carry, x, sums, first, last, units):
    for u in range(first, last):
        whole = load(head, u) + load(product, u) + load(before, u)
        of_r, of_z, of_n = whole * load(slopes, u), whole * load(slopes, units + u), whole * load(slopes, 2 * units + u)
        store(x, u, of_r)
        store(x, units + u, of_z)
        store(x, 2 * units + u, of_n)
        store(sums, u, of_r)
        store(sums, units + u, of_z)
        store(sums, 2 * units + u, of_n * load(slopes, 3 * units + u))
        store(carry, u, whole * load(slopes, 4 * units + u))
    if last == units:
        _zeros_behind(x, 3 * units)
        _zeros_behind(sums, 3 * units)


@inline
def _tanh_back(slopes, head, product, before, carry, x, sums, first, last, units):
    for u in range(first, last):
        store(x, u, (load(head, u) + load(product, u)) * load(slopes, u))
    if last == units:
        _zeros_behind(x, units)


def _cell_gradient(units_of: Callable) -> Callable:
    def cell(tensors, ints, floats, begin, end):
        """One step back (see the op `rnn_gradient`): the gradients of the gates' sums.

        tensors: slopes, the two addends of the gradient of h after the step, what came past the gates from the step
        behind (LSTM: of c, GRU: of h, else unused) and what goes on so, which may lie in the same place, the gradient
        of x and GRU's of the other addend; these two have zeros up to a multiple of 16.
        Tasks: (row, ceil(units / chunk)).
        """
        p = read_gradient(ints, floats)
        parts = (p.units + p.chunk - 1) // p.chunk
        for task in range(begin, end):
            row, first = task // parts, task % parts * p.chunk
            units_of(
                shift(pointer(tensors, 0, float32), row * p.slopes_row),
                shift(pointer(tensors, 1, float32), row * p.head_row),
                shift(pointer(tensors, 2, float32), row * p.product_row),
                shift(pointer(tensors, 3, float32), row * p.before_row),
                shift(pointer(tensors, 4, float32), row * p.carry_row),
                shift(pointer(tensors, 5, float32), row * p.x_row),
                shift(pointer(tensors, 6, float32), row * p.sums_row),
                first,
                min(first + p.chunk, p.units),
                p.units,
            )

    return cell


for _name, _units in (("lstm", _lstm_back), ("gru", _gru_back), ("tanh", _tanh_back)):
    kernel(f"{_name}_cell_gradient")(_cell_gradient(_units))
