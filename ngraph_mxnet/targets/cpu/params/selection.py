"""The records of gathers, orders, boxes and random masks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ngraph_mxnet.ir.sizes import greatest, least
from ngraph_mxnet.targets.cpu.params.record import GRAIN, Kernels, Params, Span, numbered, span, whole
from ngraph_mxnet.targets.cpu.params.reduction import around
from ngraph_mxnet.targets.cpu.params.strided import LOOPS

SCATTER_CODES = numbered("add mul max min")
"""The operations of the kernels `scatter_<f32, f64, i64>` on an element and the update for it, and their numbers."""
OUTSIDE_CODES = numbered("clip wrap from_end")
"""The number of each way to take an index outside; see the op `gather`."""
_SIZES = (1, 2, 4, 8)


def _reach(p: Any, size: int) -> list[Span]:
    return [whole("data", size, p.outer, p.size, p.inner), whole("indices", 8, p.count),
            whole("output", size, p.outer, p.count, p.inner)]


GATHER = Kernels(
    {f"gather_{size}": size for size in _SIZES}, tensors="data indices >output",
    ints="outer size inner count rows outside", sizes=5, tasks=lambda p: p.outer * -(-p.count // p.rows), reach=_reach,
)
"""Data is [outer][size][inner], indices [count], a task takes `rows` indices. `outside`: see `OUTSIDE_CODES`."""


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
    "element_positions", tensors="indices >output", ints="outer size inner count outside", sizes=4,
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
"""The record of a table lookup, on the strided convention. `a` holds bytes, and `b` is where each byte's table begins.
`o` gets what stands in the table for the byte."""


def gathering(shape: Sequence[int], axis: int, count: int, mode: str = "clip") -> Params:
    """`count` indices into axis `axis` of a contiguous tensor of `shape`; `mode` is that of the op `gather`."""
    places = around(shape, axis)
    rows = greatest(1, least(count, GRAIN // greatest(places["inner"], 1)))
    return GATHER(**places, count=count, rows=rows, outside=OUTSIDE_CODES[mode])


def scattered(rows: int, inner: int, count: int) -> dict[str, int]:
    """The ints that write `count` rows of `inner` elements each into a tensor of `rows` rows."""
    columns = greatest(1, least(inner, GRAIN // greatest(count, 1)))
    return {"rows": rows, "inner": inner, "count": count, "columns": columns}


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


NUMBERS = 6
"""How many numbers the kernel stores for each row that it looks at."""


def _boxes_reach(p: Any, size: int) -> list[Span]:
    inside = 0 <= p.coordinates <= p.columns - 4 and 0 <= p.score < p.columns and p.id < p.columns
    if not inside or (p.in_place and p.id < 0):
        raise ValueError(f"coordinates, score and id at {p.coordinates}, {p.score} and {p.id} of {p.columns} columns")
    return [whole("rows", size, p.n, p.rows, p.columns), whole("output", size, p.n, p.rows, p.columns),
            whole("order", 8, p.n, p.topk), whole("numbers", size, p.n, NUMBERS, p.topk)]


BOX_NMS = Kernels(
    "box_nms", tensors="rows >output >order >numbers",
    ints="n rows columns topk coordinates score id background across_ids center in_place keep", sizes=4,
    floats="overlap valid", tasks=lambda p: p.n, reach=_boxes_reach, keeps="order",
)
"""`topk` is at most `rows`; an `id` below 0 says that there is no such column, a `keep` below 0 that all are kept."""


RANDOM_MASK = Kernels(
    "random_mask", tensors="state >output", ints="count chunk stream threshold", sizes=2,
    tasks=lambda p: -(-p.count // p.chunk),
    reach=lambda p, _: [whole("state", 4, 4), whole("output", 1, p.count)],
)
"""A task draws `chunk` of the elements, which is a multiple of 4; `threshold` is at most 2^32."""

RANDOM_UNIFORM = Kernels(
    "random_uniform", tensors="state >output", ints="count chunk stream", sizes=2, tasks=RANDOM_MASK.tasks,
    reach=lambda p, size: [whole("state", 4, 4), whole("output", size, p.count)],
)
