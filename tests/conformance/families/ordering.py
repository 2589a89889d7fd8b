"""Orders. Where positions show, values are distinct: MXNet does not say in which order it leaves equal ones."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from hypothesis import strategies as st
from records import Case, Draw, Left, Operand, Record, any_axis, dims, maybe, pick, typed

DTYPES = ("float32", "int32", "int64")
LARGE = ("float32", "float64", "int32", "int64")
SEEDS = st.integers(0, 2**16)


def _distinct(draw: Draw, shape: tuple[int, ...]) -> Operand:
    return Operand(shape, values=np.random.default_rng(draw(SEEDS)).permutation(prod(shape)) - prod(shape) // 2)


def _with_equals(draw: Draw, shape: tuple[int, ...]) -> Operand:
    return Operand(shape, values=np.random.default_rng(draw(SEEDS)).integers(-4, 5, shape))


def _axis(draw: Draw, shape: tuple[int, ...]) -> dict[str, Any]:
    return maybe(draw, axis=pick(draw, any_axis(draw, len(shape)), None))


def _topk(draw: Draw) -> Case:
    shape = dims(draw, 1, 3)
    attrs: dict[str, Any] = _axis(draw, shape)
    axis = attrs.get("axis", -1)
    most = prod(shape) if axis is None else shape[axis]
    attrs |= maybe(draw, is_ascend=st.booleans(), ret_typ=pick(draw, "indices", "value", "both", "mask"),
                   dtype=pick(draw, *DTYPES), k=draw(st.integers(0, most)))
    return Case([_distinct(draw, shape)], attrs)


def _sort(draw: Draw) -> Case:
    shape = dims(draw, 1, 3)
    return Case([_with_equals(draw, shape)], _axis(draw, shape) | maybe(draw, is_ascend=st.booleans()))


def _argsort(draw: Draw) -> Case:
    shape = dims(draw, 1, 3)
    attrs = _axis(draw, shape) | maybe(draw, is_ascend=st.booleans(), dtype=pick(draw, *DTYPES))
    return Case([_distinct(draw, shape)], attrs)


def _cumsum(draw: Draw) -> Case:
    shape = dims(draw, 1, 3)
    return Case([Operand(shape)], maybe(draw, axis=draw(st.integers(0, len(shape) - 1)), dtype="float32"))


RECORDS = [
    Record("topk", typed(_topk, *LARGE)),
    Record("sort", typed(_sort, *LARGE, "int8", "uint8")),
    Record("argsort", typed(_argsort, *LARGE)),
    Record("_np_cumsum", _cumsum, numpy=True),
]
LEFT: list[Left] = []
