"""The records of recurrent cells' gates."""

from __future__ import annotations

from functools import partial
from typing import Any

from ngraph_mxnet.targets.cpu.params.record import BLOCK, Kernels, Span, span

CHUNK = 128
"""Units in a task at most, each some ten times as much work as a simple element."""

_GATES = {"lstm": 4, "gru": 3, "relu": 1, "tanh": 1}


_SLOPES = {"lstm": 6, "gru": 5, "relu": 1, "tanh": 1}


def _rows(p: Any, size: int, lengths: dict[str, int]) -> list[Span]:
    return [span(name, size, (p.rows, getattr(p, f"{name}_row")), last=length) for name, length in lengths.items()]


def _whole(columns: Any) -> Any:
    return -(-columns // BLOCK) * BLOCK


def _reach(gates: int, slopes: int, p: Any, size: int) -> list[Span]:
    lengths = {"x": gates * p.units, "p": gates * p.units, "h": _whole(p.units)}
    if gates > 1:
        lengths["before"] = p.units
    if gates == _GATES["lstm"]:
        lengths["c"] = p.units
    if slopes:
        lengths["slopes"] = slopes * p.units
    return _rows(p, size, lengths)


def _gradient_reach(gates: int, slopes: int, p: Any, size: int) -> list[Span]:
    lengths = {"slopes": slopes * p.units, "head": p.units, "product": p.units, "x": _whole(gates * p.units)}
    if gates > 1:
        lengths.update(before=p.units, carry=p.units)
    if gates == _GATES["gru"]:
        lengths["sums"] = lengths["x"]
    return _rows(p, size, lengths)


def _tasks(p: Any) -> Any:
    return p.rows * -(-p.units // p.chunk)


_ROWS = "rows units chunk x_row p_row before_row h_row c_row"
CELLS = {
    cell: Kernels(
        f"{cell}_cell", tensors="x p before >h >c?", ints=_ROWS, sizes=3, tasks=_tasks,
        reach=partial(_reach, gates, 0),
    ) for cell, gates in _GATES.items()
}
"""`chunk`, a multiple of 16, is the units of a task, the last five are strides between rows."""


def _half_reach(gates: int, p: Any, size: int) -> list[Span]:
    sums = gates * p.units
    return _rows(p, size, {"x": sums, "p": sums, "before": p.units, "h": _whole(p.units), "c": p.units})


GRU_RESET = Kernels("gru_reset_cell", tensors="x p before >h >c", ints=_ROWS, sizes=3, tasks=_tasks,
                    reach=partial(_half_reach, 2))
"""The first half of a step of `gru_reset_first`: `h` is the second product's operand, `c` is z."""
GRU_UPDATE = Kernels("gru_update_cell", tensors="x p before >h c", ints=_ROWS, sizes=3, tasks=_tasks,
                     reach=partial(_half_reach, 1))
"""The second half, behind that product: `x` is the last third alone."""

TRAINING_CELLS = {
    cell: Kernels(
        f"{cell}_cell_training", tensors="x p before >h >c? >slopes", ints=f"{_ROWS} slopes_row", sizes=3,
        tasks=_tasks, reach=partial(_reach, gates, _SLOPES[cell]),
    ) for cell, gates in _GATES.items()
}
"""The same, and what the way back needs."""

CELL_GRADIENTS = {
    cell: Kernels(
        f"{cell}_cell_gradient", tensors="slopes head product before? >carry? >x >sums?",
        ints="rows units chunk slopes_row head_row product_row before_row carry_row x_row sums_row", sizes=3,
        tasks=_tasks, reach=partial(_gradient_reach, _GATES[cell], _SLOPES[cell]),
    ) for cell in ("lstm", "gru", "tanh")
}
"""A step back; that of `tanh` serves relu too, as the slopes are all that differs."""
