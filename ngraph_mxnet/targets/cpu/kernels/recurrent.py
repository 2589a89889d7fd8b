"""The gates of recurrent cells, forward and back: everything of a step but its matrix products."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numba import float32

from ngraph_mxnet.targets.cpu.kernels import maths
from ngraph_mxnet.targets.cpu.kernels.lanes import (
    LANES,
    load_first_lanes,
    load_lanes,
    splat,
    store_first_lanes,
    store_lanes,
)
from ngraph_mxnet.targets.cpu.kernels.pointers import inline, load, pointer, reader, scratch, select, shift, store
from ngraph_mxnet.targets.cpu.kernels.record import kernel
from ngraph_mxnet.targets.cpu.params.sequences import CELL_GRADIENTS, CELLS, TRAINING_CELLS

read_cell = reader(CELLS["lstm"])
read_training = reader(TRAINING_CELLS["lstm"])
read_gradient = reader(CELL_GRADIENTS["lstm"])

F = np.float32
ZERO, ONE = F(0), F(1)


@inline
def _gate(x):
    """The sigmoid."""
    return ONE / (ONE + maths.gate_exp(x))


@inline
def _zeros_behind(row, columns):
    """Up to a multiple of 16."""
    for u in range(columns, (columns + 15) // 16 * 16):
        row[u] = ZERO


@inline
def _lstm_units(x, p, before, h, c, slopes, units):
    for u in range(LANES):
        i = ONE + maths.gate_exp(load(x, u) + load(p, u))
        f = ONE + maths.gate_exp(load(x, units + u) + load(p, units + u))
        above, below = maths.tanh_ratio(load(x, 2 * units + u) + load(p, 2 * units + u))
        o = ONE + maths.gate_exp(load(x, 3 * units + u) + load(p, 3 * units + u))
        state = load(before, u) / f + above / (i * below)
        store(c, u, state)
        above, below = maths.tanh_ratio(state)
        store(h, u, above / (o * below))


@inline
def _gru_units(x, p, before, h, c, slopes, units):
    for u in range(LANES):
        r = ONE + maths.gate_exp(load(x, u) + load(p, u))
        z = maths.gate_exp(load(x, units + u) + load(p, units + u))
        above, below = maths.tanh_ratio(load(x, 2 * units + u) + load(p, 2 * units + u) / r)
        store(h, u, (z * above + load(before, u) * below) / ((ONE + z) * below))


@inline
def _gru_reset_units(x, p, before, h, c, slopes, units):
    for u in range(LANES):
        store(h, u, _gate(load(x, u) + load(p, u)) * load(before, u))
        store(c, u, _gate(load(x, units + u) + load(p, units + u)))


@inline
def _gru_update_units(x, p, before, h, c, slopes, units):
    for u in range(LANES):
        z = load(c, u)
        store(h, u, (ONE - z) * maths.tanh(load(x, u) + load(p, u)) + z * load(before, u))


@inline
def _relu_units(x, p, before, h, c, slopes, units):
    for u in range(LANES):
        total = load(x, u) + load(p, u)
        store(h, u, select(total < ZERO, ZERO, total))


@inline
def _tanh_units(x, p, before, h, c, slopes, units):
    for u in range(LANES):
        store(h, u, maths.tanh(load(x, u) + load(p, u)))


@inline
def _spread(source, first, count, gates, units, room):
    """Copy `count` units of each gate to a gate of 16 units, whose others are zeros."""
    for gate in range(gates):
        store_lanes(room, gate * LANES, load_first_lanes(source, gate * units + first, count, splat(ZERO)))


@inline
def _lstm_slopes(x, p, before, h, c, slopes, units):
    for u in range(LANES):
        i = _gate(load(x, u) + load(p, u))
        f = _gate(load(x, units + u) + load(p, units + u))
        g = maths.tanh(load(x, 2 * units + u) + load(p, 2 * units + u))
        o = _gate(load(x, 3 * units + u) + load(p, 3 * units + u))
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
def _gru_slopes(x, p, before, h, c, slopes, units):
    for u in range(LANES):
        r = _gate(load(x, u) + load(p, u))
        z = _gate(load(x, units + u) + load(p, units + u))
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
def _relu_slopes(x, p, before, h, c, slopes, units):
    for u in range(LANES):
        total = load(x, u) + load(p, u)
        store(h, u, select(total < ZERO, ZERO, total))
        store(slopes, u, select(total > ZERO, ONE, ZERO))


@inline
def _tanh_slopes(x, p, before, h, c, slopes, units):
    for u in range(LANES):
        after = maths.tanh(load(x, u) + load(p, u))
        store(h, u, after)
        store(slopes, u, ONE - after * after)


_slopes_of = inline(lambda tensors, p, row: shift(pointer(tensors, 5, float32), row * p.slopes_row))
_no_slopes = inline(lambda tensors, p, row: pointer(tensors, 3, float32))


def _cell(units_of: Callable, gates: int, *, keeps: str = "", slopes: int = 0) -> Callable:
    """Make the kernel of a cell from the function of 16 units.

    `gates`: of x and p. `keeps`: `w` if the cell writes c, `r` if it reads it. `slopes`: how many it stores of a unit.
    """
    read, slopes_of = (read_training, _slopes_of) if slopes else (read_cell, _no_slopes)
    recalls, writes, reads = gates > 1 or keeps == "r", keeps == "w", keeps == "r"

    @inline
    def remaining(x, p, before, h, c, steep, first, count, units):
        """The last units, fewer than 16, as those of a cell with 16: in one vector, with the zeros behind h."""
        room = scratch(272)
        sums, old = shift(room, 4 * LANES), shift(room, 8 * LANES)
        out, state, made = shift(room, 9 * LANES), shift(room, 10 * LANES), shift(room, 11 * LANES)
        _spread(x, first, count, gates, units, room)
        _spread(p, first, count, gates, units, sums)
        if recalls:
            _spread(before, first, count, 1, units, old)
        if reads:
            _spread(c, first, count, 1, units, state)
        units_of(room, sums, old, out, state, made, LANES)
        store_lanes(h, first, load_lanes(out, 0))
        if writes:
            store_first_lanes(c, first, load_lanes(state, 0), count)
        for slope in range(slopes):
            store_first_lanes(steep, slope * units + first, load_lanes(made, slope * LANES), count)

    def cell(tensors, ints, floats, begin, end):
        """One step of a recurrent cell (see the ops `lstm_cell`, `gru_cell` and `rnn`), or half of one.

        tensors: x, p, the state before (LSTM: c, GRU: h, else unused), h, LSTM's c after, which may be the state
        before, or z of `gru_reset_first`, and for training the step's slopes (see the op `rnn_training`); float32, a
        row is contiguous, and h also has zeros up to a multiple of 16.
        Tasks: (row, ceil(units / chunk)).
        """
        p = read(ints, floats)
        parts = (p.units + p.chunk - 1) // p.chunk
        for task in range(begin, end):
            row, first = task // parts, task % parts * p.chunk
            last = min(first + p.chunk, p.units)
            x = shift(pointer(tensors, 0, float32), row * p.x_row)
            sums = shift(pointer(tensors, 1, float32), row * p.p_row)
            before = shift(pointer(tensors, 2, float32), row * p.before_row)
            h = shift(pointer(tensors, 3, float32), row * p.h_row)
            c = shift(pointer(tensors, 4, float32), row * p.c_row)
            steep = slopes_of(tensors, p, row)
            whole = last - (last - first) % LANES
            for u in range(first, whole, LANES):
                units_of(shift(x, u), shift(sums, u), shift(before, u), shift(h, u), shift(c, u), shift(steep, u),
                         p.units)
            if whole < last:
                remaining(x, sums, before, h, c, steep, whole, last - whole, p.units)

    return cell


for _name, _made in {
    "lstm_cell": _cell(_lstm_units, 4, keeps="w"),
    "gru_cell": _cell(_gru_units, 3),
    "relu_cell": _cell(_relu_units, 1),
    "tanh_cell": _cell(_tanh_units, 1),
    "gru_reset_cell": _cell(_gru_reset_units, 2, keeps="w"),
    "gru_update_cell": _cell(_gru_update_units, 1, keeps="r"),
    "lstm_cell_training": _cell(_lstm_slopes, 4, keeps="w", slopes=6),
    "gru_cell_training": _cell(_gru_slopes, 3, slopes=5),
    "relu_cell_training": _cell(_relu_slopes, 1, slopes=1),
    "tanh_cell_training": _cell(_tanh_slopes, 1, slopes=1),
}.items():
    kernel(_name)(_made)


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
