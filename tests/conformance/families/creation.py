"""Tensors made of attributes."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from records import Case, Draw, Left, Operand, Record, dims, maybe, pick

DTYPES = ("float32", "int32", "int64")


def _filled(**attrs: Any) -> Any:
    def case(draw: Draw) -> Case:
        return Case([], {"shape": dims(draw)} | attrs | maybe(draw, dtype=pick(draw, *DTYPES), ctx="cpu(0)"))

    return case


def _full_like(draw: Draw) -> Case:
    return Case([Operand(dims(draw))], {"fill_value": 2.5} | maybe(draw, dtype=pick(draw, *DTYPES)))


def _arange(draw: Draw, *, repeat: int = 3) -> Case:
    start, step = draw(st.integers(-5, 5)) / 2, pick(draw, 1.0, 2.0, 0.5, -1.5)
    stop = start + step * draw(st.integers(1, 9)) - pick(draw, 0.0, step / 4)
    attrs = {"start": start, "stop": stop, "step": step}
    if draw(st.booleans()):
        attrs = {"start": draw(st.integers(1, 9))}
    return Case([], attrs | maybe(draw, repeat=draw(st.integers(1, repeat)), dtype=pick(draw, *DTYPES)))


def _space(draw: Draw, **attrs: Any) -> Case:
    ends = {"start": draw(st.integers(-3, 3)), "stop": draw(st.integers(-3, 3)), "num": draw(st.integers(1, 9))}
    return Case([], ends | maybe(draw, endpoint=st.booleans(), dtype=pick(draw, *DTYPES), **attrs))


def _eye(draw: Draw, *, none: Any = 0) -> Case:
    attrs = maybe(draw, M=pick(draw, none, 1, 4, 7), k=draw(st.integers(-3, 3)), dtype=pick(draw, *DTYPES))
    return Case([], {"N": draw(st.integers(1, 6))} | attrs)


def _identity(draw: Draw) -> Case:
    size = draw(st.integers(1, 9))
    return Case([], {"shape": (size, size)} | maybe(draw, dtype=pick(draw, *DTYPES)))


def _square(draw: Draw) -> Case:
    return Case([Operand((draw(st.integers(1, 5)),) * draw(st.integers(2, 4)))])


def _indices(draw: Draw) -> Case:
    return Case([], {"dimensions": dims(draw, 1, 3), "dtype": pick(draw, *DTYPES)})


def _window(draw: Draw) -> Case:
    """Not of two points, which are 0 but for rounding."""
    return Case([], {"M": pick(draw, 1, 3, 4, 7, 20)} | maybe(draw, dtype="float32"))


RECORDS = [
    Record("_zeros", _filled()),
    Record("_npi_zeros", _filled(), numpy=True),
    Record("_npi_diag_indices_from", _square, numpy=True),
    Record("_ones", _filled()),
    Record("_npi_ones", _filled(), numpy=True),
    Record("_full", _filled(value=-1.25)),
    Record("_npi_full_like", _full_like, numpy=True),
    Record("_arange", _arange),
    Record("_npi_arange", lambda draw: _arange(draw, repeat=1), numpy=True),
    Record("_linspace", _space),
    Record("_npi_logspace", lambda draw: _space(draw, base=2.0), numpy=True),
    Record("_eye", _eye),
    Record("_npi_eye", lambda draw: _eye(draw, none=None), numpy=True),
    Record("_npi_identity", _identity, numpy=True),
    Record("_npi_indices", _indices, numpy=True),
    *(Record(f"_npi_{name}", _window, numpy=True) for name in ("blackman", "hamming", "hanning")),
]
LEFT = [Left("_npi_hanning", Case([], {"M": 15, "dtype": "int64"}), "only f16, f32 and f64", numpy=True)]
