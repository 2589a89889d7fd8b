"""Probability densities."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import strategies as st
from records import Case, Draw, Operand, Record, dims, maybe

Range = tuple[float, float]


def _density(samples: Range, *parameters: Range) -> Callable[[Draw], Case]:
    """Each from its range; the shape of the parameters is how that of the samples begins."""
    def case(draw: Draw) -> Case:
        shape = dims(draw)
        lead = shape[: draw(st.integers(1, len(shape)))]
        operands = [Operand(shape, low=samples[0], high=samples[1])]
        operands += [Operand(lead, low=low, high=high) for low, high in parameters]
        return Case(operands, maybe(draw, is_log=st.booleans()))

    return case


def _dirichlet(draw: Draw) -> Case:
    """Each density in MXNet is of two or more axes."""
    shape = dims(draw, 2)
    lead = shape[: draw(st.integers(0, len(shape) - 1))]
    operands = [Operand(shape, low=0.1, high=1.0), Operand((*lead, shape[-1]), low=0.5, high=2.0)]
    return Case(operands, maybe(draw, is_log=st.booleans()))


def _record(name: str, *ranges: Range) -> Record:
    return Record(f"_random_pdf_{name}", _density(*ranges))


RECORDS = [
    _record("uniform", (0.0, 3.0), (-1.0, 1.0), (1.5, 4.0)),
    _record("normal", (-3.0, 3.0), (-1.0, 1.0), (0.5, 2.0)),
    _record("gamma", (0.2, 3.0), (0.5, 4.0), (0.5, 2.0)),
    _record("exponential", (0.0, 3.0), (0.3, 3.0)),
    _record("poisson", (0.0, 6.0), (0.3, 4.0)),
    _record("negative_binomial", (0.0, 6.0), (0.5, 4.0), (0.1, 0.9)),
    _record("generalized_negative_binomial", (0.0, 6.0), (0.5, 4.0), (0.3, 2.0)),
    Record("_random_pdf_dirichlet", _dirichlet),
]
