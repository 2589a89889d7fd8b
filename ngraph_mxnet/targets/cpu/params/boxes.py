"""The record of non-maximum suppression."""

from __future__ import annotations

from typing import Any

from ngraph_mxnet.targets.cpu.params.record import Kernels, Span, whole

NUMBERS = 6
"""How many numbers the kernel stores for each row that it looks at."""


def _reach(p: Any, size: int) -> list[Span]:
    inside = 0 <= p.coordinates <= p.columns - 4 and 0 <= p.score < p.columns and p.id < p.columns
    if not inside or (p.in_place and p.id < 0):
        raise ValueError(f"coordinates, score and id at {p.coordinates}, {p.score} and {p.id} of {p.columns} columns")
    return [whole("rows", size, p.n, p.rows, p.columns), whole("output", size, p.n, p.rows, p.columns),
            whole("order", 8, p.n, p.topk), whole("numbers", size, p.n, NUMBERS, p.topk)]


BOX_NMS = Kernels(
    "box_nms", tensors="rows >output >order >numbers",
    ints="n rows columns topk coordinates score id background across_ids center in_place keep", sizes=4,
    floats="overlap valid", tasks=lambda p: p.n, reach=_reach, keeps="order",
)
"""`topk` is at most `rows`; an `id` below 0 says that there is no such column, a `keep` below 0 that all are kept."""
