"""The records of reading and writing at positions that are data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ngraph_mxnet.ir.sizes import greatest, least
from ngraph_mxnet.targets.cpu.params.record import GRAIN, Kernels, Params, Span, numbered, span, whole
from ngraph_mxnet.targets.cpu.params.reduction import around
from ngraph_mxnet.targets.cpu.params.strided import LOOPS

SCATTER_CODES = numbered("add mul max min")
"""What the kernels `scatter_<f32, f64, i64>` do with an element and the update for it, and their numbers."""
_SIZES = (1, 2, 4, 8)


def _reach(p: Any, size: int) -> list[Span]:
    return [whole("data", size, p.outer, p.size, p.inner), whole("indices", 8, p.count),
            whole("output", size, p.outer, p.count, p.inner)]


GATHER = Kernels(
    {f"gather_{size}": size for size in _SIZES}, tensors="data indices >output",
    ints="outer size inner count rows wrap", sizes=5, tasks=lambda p: p.outer * -(-p.count // p.rows), reach=_reach,
)
"""Data is [outer][size][inner], indices [count], a task takes `rows` indices. `wrap`: indices outside are taken modulo
size; else they are clipped."""


def _scatter_record(kernels: dict[str, int], floats: str = "") -> Kernels:
    return Kernels(
        kernels, tensors="updates positions >output", ints="rows inner count columns", sizes=4, floats=floats,
        tasks=lambda p: -(-p.inner // p.columns),
        reach=lambda p, size: [whole("updates", size, p.count, p.inner), whole("positions", 8, p.count),
                               whole("output", size, p.rows, p.inner)],
    )


SCATTER = _scatter_record({f"scatter_{size}": size for size in _SIZES})
"""Updates are [count][inner], the output [rows][inner]; a task takes `columns` of each row. Updates for
positions outside are left out."""
SCATTER_INTO = _scatter_record({"scatter_f32": 4, "scatter_f64": 8, "scatter_i64": 8}, "code")
"""`code` is one of `SCATTER_CODES`."""

COORDINATE_POSITIONS = Kernels(
    "coordinate_positions", tensors="coordinates >output", ints="axes count points", sizes=3,
    tasks=lambda p: -(-p.count // p.points), more=lambda p: (p.axes, 0),
    reach=lambda p, _: [whole("coordinates", 8, p.axes, p.count), whole("output", 8, p.count)],
)
"""`points` are those of a task; then the size of each axis."""
ELEMENT_POSITIONS = Kernels(
    "element_positions", tensors="indices >output", ints="outer size inner count wrap", sizes=4,
    tasks=lambda p: p.outer,
    reach=lambda p, _: [whole(name, 8, p.outer, p.count, p.inner) for name in ("indices", "output")],
)
"""Data is [outer][size][inner], indices [outer][count][inner]."""


LOOKUP = Kernels(
    "lookup", tensors="a b >o", ints=" ".join(LOOPS[3].ints), sizes=7, tasks=LOOPS[3].tasks,
    reach=lambda p, _: [span(name, 1, *zip(p[2:7], p[at:at + 5], strict=True), last=last)
                        for name, at, last in (("a", 7, 1), ("b", 12, 256), ("o", 17, 1))],
    elements="a:u8 b:u8 o:u8",
)
"""Of the strided convention: bytes, where each one's table begins, and what stands there for the byte."""


def gathering(shape: Sequence[int], axis: int, count: int, *, wrap: bool = False) -> Params:
    """`count` indices into axis `axis` of a contiguous tensor of `shape`; those outside are clipped, or wrap."""
    places = around(shape, axis)
    rows = greatest(1, least(count, GRAIN // greatest(places["inner"], 1)))
    return GATHER(**places, count=count, rows=rows, wrap=wrap)


def scattered(rows: int, inner: int, count: int) -> dict[str, int]:
    """The ints that write `count` rows of `inner` elements each into a tensor of `rows` rows."""
    columns = greatest(1, least(inner, GRAIN // greatest(count, 1)))
    return {"rows": rows, "inner": inner, "count": count, "columns": columns}
