"""Joins, repetition and padding."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from records import FLOATS, Case, Draw, Left, Operand, Record, any_axis, dims, maybe, pick, typed


def _joined(draw: Draw, axis: int, shape: tuple[int, ...]) -> list[Operand]:
    """Tensors that differ in one axis only."""
    sizes = draw(st.lists(st.integers(1, 9), min_size=1, max_size=4))
    at = axis % len(shape)
    return [Operand((*shape[:at], size, *shape[at + 1:])) for size in sizes]


def _concat(draw: Draw) -> Case:
    shape = dims(draw, 2)
    axis = any_axis(draw, len(shape))
    attrs = {} if axis == 1 and draw(st.booleans()) else {"dim": axis}
    return Case(_joined(draw, axis, shape), attrs)


def _concatenate(draw: Draw) -> Case:
    shape = dims(draw)
    axis = any_axis(draw, len(shape))
    return Case(_joined(draw, axis, shape), {"axis": pick(draw, axis, axis, None)})


def _stack(draw: Draw) -> Case:
    shape = dims(draw, 1, 3)
    operands = [Operand(shape)] * draw(st.integers(1, 4))
    return Case(operands, maybe(draw, axis=any_axis(draw, len(shape) + 1)))


def _stacked(axis: int, vector_axis: int | None) -> Any:
    """Along `axis`; vectors differ along `vector_axis`, or not at all: MXNet infers no shape for those."""
    def case(draw: Draw) -> Case:
        if draw(st.booleans()):
            return Case(_joined(draw, axis, dims(draw, 2, 4)))
        if vector_axis is not None:
            return Case(_joined(draw, vector_axis, (1,)))
        return Case([Operand(dims(draw, 1, 1))] * draw(st.integers(1, 4)))

    return case


def _dstack(draw: Draw) -> Case:
    if draw(st.booleans()):
        return Case([Operand(dims(draw, 1, 2))] * draw(st.integers(1, 4)))
    return Case(_joined(draw, 2, dims(draw, 3, 4)))


def _tile(draw: Draw) -> Case:
    """MXNet broadcasts at most six axes, two for each that is tiled; beyond, its results are wrong."""
    reps = draw(st.lists(st.integers(1, 3), min_size=1, max_size=3))
    return Case([Operand(dims(draw, 1, 2 if len(reps) > 2 else 3))], {"reps": tuple(reps)})


def _repeat(draw: Draw) -> Case:
    shape = dims(draw)
    return Case([Operand(shape)], {"repeats": draw(st.integers(1, 4))} | maybe(draw, axis=any_axis(draw, len(shape))))


def _narrow(draw: Draw, shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(1 if draw(st.booleans()) else size for size in shape)


def _broadcast_to(draw: Draw) -> Case:
    shape = dims(draw)
    own = _narrow(draw, shape)
    kept = tuple(0 if size == new and draw(st.booleans()) else new for size, new in zip(own, shape, strict=True))
    return Case([Operand(own)], {"shape": kept})


def _np_broadcast_to(draw: Draw) -> Case:
    shape = dims(draw)
    return Case([Operand(_narrow(draw, shape[draw(st.integers(0, len(shape) - 1)):]))], {"shape": shape})


def _broadcast_axis(draw: Draw) -> Case:
    shape = list(dims(draw))
    axes = draw(st.lists(st.integers(0, len(shape) - 1), unique=True, min_size=1))
    for axis in axes:
        shape[axis] = 1
    return Case([Operand(tuple(shape))], {"axis": tuple(axes), "size": tuple(draw(st.integers(1, 4)) for _ in axes)})


def _broadcast_like(draw: Draw) -> Case:
    shape = dims(draw)
    if draw(st.booleans()):
        return Case([Operand(_narrow(draw, shape)), Operand(shape)])
    axis, own = any_axis(draw, len(shape)), list(dims(draw))
    at = any_axis(draw, len(own))
    own[at] = 1
    return Case([Operand(tuple(own)), Operand(shape)], {"lhs_axes": (at,), "rhs_axes": (axis,)})


def _pad(draw: Draw) -> Case:
    """MXNet pads the axes behind the second, of rank 4 and 5."""
    mode, shape = pick(draw, "constant", "edge", "reflect"), (draw(st.integers(1, 3)), draw(st.integers(1, 3)))
    shape += tuple(draw(st.integers(2, 6)) for _ in range(pick(draw, 2, 3)))
    most = [0 if axis < 2 else size - 1 if mode == "reflect" else 3 for axis, size in enumerate(shape)]
    widths = tuple(draw(st.integers(0, m)) for m in most for _ in range(2))
    return Case([Operand(shape)], {"mode": mode, "pad_width": widths} | maybe(draw, constant_value=1.5))


def _np_pad(draw: Draw) -> Case:
    """Tensors of rank 2 and more: for vectors MXNet reads `pad_width` wrong."""
    shape = tuple(draw(st.integers(2, 6)) for _ in range(draw(st.integers(2, 4))))
    mode = pick(draw, "constant", "edge", "reflect", "symmetric", "maximum", "minimum")
    most = [size - 1 if mode in ("reflect", "symmetric") else 3 for size in shape]
    widths = tuple((draw(st.integers(0, m)), draw(st.integers(0, m))) for m in most)
    attrs: dict[str, Any] = {"pad_width": widths, "mode": mode}
    return Case([Operand(shape)], attrs | maybe(draw, constant_value=1.5))


RECORDS = [
    Record("Concat", typed(_concat)),
    Record("_npi_concatenate", typed(_concatenate), numpy=True),
    Record("stack", typed(_stack)),
    Record("_npi_stack", typed(_stack), numpy=True),
    Record("_npi_vstack", typed(_stacked(0, None)), numpy=True),
    Record("_npi_hstack", typed(_stacked(1, 0)), numpy=True),
    Record("_npi_dstack", typed(_dstack), numpy=True),
    Record("_npi_column_stack", typed(_stacked(1, None)), numpy=True),
    Record("tile", typed(_tile)),
    Record("repeat", typed(_repeat)),
    Record("broadcast_to", typed(_broadcast_to)),
    Record("_npi_broadcast_to", typed(_np_broadcast_to), numpy=True),
    Record("broadcast_axis", typed(_broadcast_axis)),
    Record("broadcast_like", typed(_broadcast_like)),
    Record("Pad", typed(_pad, *FLOATS)),
    Record("_npi_pad", typed(_np_pad), numpy=True),
]
LEFT: list[Left] = []
