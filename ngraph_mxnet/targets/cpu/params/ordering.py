"""The records of sorting and running sums."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ngraph_mxnet.targets.cpu.params.record import Kernels

DIGITS = 256
"""Values of a digit of the keys by which long lines are sorted."""

_ELEMENTS = {"f32": 4, "f64": 8, "i64": 8}


def _first_line(p: Any, _: int) -> int:
    if not 1 <= p.count <= p.size:
        raise ValueError(f"the first {p.count} of {p.size}")
    return 8 * p.count


def _record(op: str, result: Callable[[Any, int], int], keeps: str = "", elements: str = "f32 f64 i64") -> Kernels:
    """The record of `op`'s kernels; `result` gives the bytes of one line of the output."""
    return Kernels(
        {f"{op}_{element}": _ELEMENTS[element] for element in elements.split()}, tensors="data >output",
        ints="outer size inner descending count", sizes=3, tasks=lambda p: p.outer * p.inner, keeps=keeps,
        reach=lambda p, size: [("data", 0, size * p.outer * p.size * p.inner),
                               ("output", 0, p.outer * p.inner * result(p, size))],
    )


ARGSORT = _record("argsort", lambda p, size: 16 * p.size, "output")
ARGSORT_DIGITS = _record("argsort_digits", lambda p, size: 8 * (2 * p.size + DIGITS), "output", "f32")
FIRST = _record("first", _first_line, "output")
CUMSUM = _record("cumsum", lambda p, size: size * p.size)
"""Data is [outer][size][inner]. Running sums use no ints but these three, full sorts all but `count`. What sorts
by digits numbers positions in 32 bits."""
