"""The gates of recurrent cells: everything of a step but its matrix products."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numba import float32

from ngraph_mxnet.targets.cpu.kernels import maths
from ngraph_mxnet.targets.cpu.kernels.pointers import inline, load, pointer, reader, select, shift, store
from ngraph_mxnet.targets.cpu.kernels.record import kernel
from ngraph_mxnet.targets.cpu.params.recurrent import CELLS

read_cell = reader(CELLS["lstm"])

F = np.float32
ZERO, ONE = F(0), F(1)


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
        """One step of a recurrent cell (see the ops `lstm_cell`, `gru_cell` and `rnn`).

        tensors: x, p, the state before (LSTM: c, GRU: h, else unused), h, and LSTM's c after, which may be the
        state before; float32, a row is contiguous, and h also has zeros up to a multiple of 16.
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
                for u in range(p.units, (p.units + 15) // 16 * 16):
                    h[u] = ZERO

    return cell


for _name, _units in (("lstm", _lstm_units), ("gru", _gru_units), ("relu", _relu_units), ("tanh", _tanh_units)):
    kernel(f"{_name}_cell")(_cell(_units))
