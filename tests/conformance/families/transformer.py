"""Operators of transformers."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import strategies as st
from records import Case, Draw, Operand, Record, dims, maybe, pick


def _sizes(draw: Draw) -> tuple[int, int, int, int]:
    """Length, batch, heads, units of a head: now and then past a vector's width."""
    length, units = (pick(draw, 1, 3, 7, 16, 33) for _ in range(2))
    return length, draw(st.integers(1, 3)), draw(st.integers(1, 4)), units


def _scores(parts: int) -> Callable[[Draw], Case]:
    """`parts` of the last projection: with two the queries have one of their own."""

    def case(draw: Draw) -> Case:
        length, batch, heads, units = _sizes(draw)
        keys = [Operand((pick(draw, length, 5, 20) if parts == 2 else length, batch, heads * parts * units))]
        queries = [Operand((length, batch, heads * units))] if parts == 2 else []
        return Case(queries + keys, {"heads": heads})

    return case


def _weighted(parts: int) -> Callable[[Draw], Case]:
    def case(draw: Draw) -> Case:
        length, batch, heads, units = _sizes(draw)
        queries = pick(draw, length, 5, 20) if parts == 2 else length
        return Case([Operand((length, batch, heads * parts * units)), Operand((batch * heads, queries, length))],
                    {"heads": heads})

    return case


def _div_sqrt_dim(draw: Draw) -> Case:
    return Case([Operand(dims(draw))])


def _arange_like(draw: Draw) -> Case:
    shape = dims(draw)
    attrs = maybe(draw, start=st.sampled_from([0.0, 2.5, -3.0]), step=st.sampled_from([1.0, 0.5, -2.0]),
                  axis=st.integers(-len(shape), len(shape) - 1))
    if draw(st.booleans()):  # MXNet counts wrongly beyond a repeat that divides the size
        size = shape[attrs["axis"]] if "axis" in attrs else _size(shape)
        attrs["repeat"] = draw(st.sampled_from([r for r in range(1, size + 1) if size % r == 0]))
    return Case([Operand(shape)], attrs)


def _size(shape: tuple[int, ...]) -> int:
    total = 1
    for size in shape:
        total *= size
    return total


def _gelu(draw: Draw) -> Case:
    # Below, 1 + erf(x / sqrt(2)) is the rounding of float32.
    return Case([Operand(dims(draw), low=-2, high=6)], {"act_type": "gelu"})


RECORDS = [
    Record("_contrib_interleaved_matmul_selfatt_qk", _scores(3)),
    Record("_contrib_interleaved_matmul_selfatt_valatt", _weighted(3)),
    Record("_contrib_interleaved_matmul_encdec_qk", _scores(2)),
    Record("_contrib_interleaved_matmul_encdec_valatt", _weighted(2)),
    Record("_contrib_div_sqrt_dim", _div_sqrt_dim),
    Record("_contrib_arange_like", _arange_like),
    Record("LeakyReLU", _gelu, variant="gelu"),
]
