"""The records of reductions, and of the position of an extreme."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from ngraph_mxnet.ir.sizes import are_same, is_one
from ngraph_mxnet.targets.cpu.params.record import BLOCK, Kernels, Params, Span, numbered, span

REDUCE_CODES = numbered("reduce_sum reduce_mean reduce_prod reduce_max reduce_min")
"""The ops of `reduce_f64` and `reduce_i64`, and their numbers."""


def _reach(p: Any, size: int) -> list[Span]:
    kept, reduced = p[:5], p[5:10]
    if any(size < 0 for size in reduced):
        raise ValueError(f"reduced sizes {reduced}")
    return [span("input", size, *zip(kept, p[10:15], strict=True), *zip(reduced, p[20:], strict=True)),
            span("output", size, *zip(kept, p[15:20], strict=True))]


def _record(kernels: dict[str, int], floats: str) -> Kernels:
    groups = ("kept", "reduced", "in_kept", "out_kept", "in_reduced")
    return Kernels(kernels, tensors="input >output", ints=" ".join(f"{name}{i}" for name in groups for i in range(5)),
                   sizes=5, floats=floats, tasks=lambda p: prod(p[:4]) * -(-p.kept4 // BLOCK), reach=_reach)


REDUCE = _record(dict.fromkeys(REDUCE_CODES, 4), "")
REDUCE_WIDE = _record({"reduce_f64": 8, "reduce_i64": 8}, "code")
"""Kept sizes, reduced sizes, input strides of the kept dimensions, output strides of the kept ones, input strides of
the reduced ones. `code` is one of `REDUCE_CODES`."""

ARG = Kernels(
    {f"{op}{suffix}": size for op in ("argmax", "argmin") for suffix, size in (("", 4), ("_f64", 8), ("_i64", 8))},
    tensors="input >output", ints="outer size inner in_outer in_axis in_inner out_outer out_inner", sizes=3,
    tasks=lambda p: p.outer * p.inner,
    reach=lambda p, size: [span("input", size, *zip(p[:3], p[3:6], strict=True)),
                           span("output", 8, (p.outer, p.out_outer), (p.inner, p.out_inner))],
)


def around(shape: Sequence[int], axis: int) -> dict[str, int]:
    """What lies before an axis, its size, and what lies behind it."""
    axis %= len(shape)
    return {"outer": prod(shape[:axis]), "size": shape[axis], "inner": prod(shape[axis + 1:])}


def reduced(record: Kernels, shape: Sequence[int], axes: Sequence[int], in_strides: Sequence[int],
            out_strides: Sequence[int], **floats: float) -> Params:
    """`out_strides` are those of the kept dimensions, in order.

    Raises:
        ValueError: more than five kept or five reduced dimensions remain after dropping those of size 1.
    """
    kept = [i for i in range(len(shape)) if i not in axes]
    rows = [(shape[i], in_strides[i], out) for i, out in zip(kept, out_strides, strict=True) if not is_one(shape[i])]
    columns = [(shape[i], in_strides[i]) for i in axes if not is_one(shape[i])]
    for index in range(len(columns) - 1, 0, -1):
        (outer, outer_stride), (inner, stride) = columns[index - 1 : index + 1]
        if are_same(outer_stride, inner * stride):
            columns[index - 1 : index + 1] = [(outer * inner, stride)]
    if len(rows) > 5 or len(columns) > 5:
        raise ValueError(f"reduction of {tuple(shape)} over {tuple(axes)} has too many dimensions")
    rows = [(1, 0, 0)] * (5 - len(rows)) + rows
    columns = [(1, 0)] * (5 - len(columns)) + columns
    numbers = zip(("kept", "in_kept", "out_kept", "reduced", "in_reduced"),
                  (*zip(*rows, strict=True), *zip(*columns, strict=True)), strict=True)
    return record(**{f"{name}{i}": number for name, group in numbers for i, number in enumerate(group)}, **floats)


def position(shape: Sequence[int], axis: int) -> Params:
    """The parameters of argmax or argmin of a contiguous tensor."""
    n = around(shape, axis)
    return ARG(**n, in_outer=n["size"] * n["inner"], in_axis=n["inner"], in_inner=1, out_outer=n["inner"], out_inner=1)
