"""The records of recurrent cells' gates."""

from __future__ import annotations

from functools import partial
from typing import Any

from ngraph_mxnet.targets.cpu.params.record import BLOCK, Kernels, Span, span

CHUNK = 128
"""Units in a task at most, each some ten times as much work as a simple element."""

_GATES = {"lstm": 4, "gru": 3, "relu": 1, "tanh": 1}


def _reach(gates: int, p: Any, size: int) -> list[Span]:
    lengths = {"x": gates * p.units, "p": gates * p.units, "h": -(-p.units // BLOCK) * BLOCK}
    if gates > 1:
        lengths["before"] = p.units
    if gates == _GATES["lstm"]:
        lengths["c"] = p.units
    return [span(name, size, (p.rows, getattr(p, f"{name}_row")), last=length) for name, length in lengths.items()]


CELLS = {
    cell: Kernels(
        f"{cell}_cell", tensors="x p before >h >c?", ints="rows units chunk x_row p_row before_row h_row c_row",
        sizes=3, tasks=lambda p: p.rows * -(-p.units // p.chunk), reach=partial(_reach, gates),
    ) for cell, gates in _GATES.items()
}
"""`chunk`, a multiple of 16, is the units of a task, the last five are strides between rows."""
