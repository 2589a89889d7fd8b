"""Einstein's sums."""

from __future__ import annotations

from hypothesis import strategies as st
from records import Case, Draw, Left, Operand, Record


def _einsum(draw: Draw) -> Case:
    names = "abcde"
    sizes = {name: draw(st.integers(1, 4)) for name in names}
    terms = ["".join(draw(st.lists(st.sampled_from(names), unique=True, min_size=1, max_size=3)))
             for _ in range(draw(st.integers(1, 3)))]
    known = sorted({*"".join(terms)})
    result = "".join(draw(st.lists(st.sampled_from(known), unique=True, min_size=1)))
    written = ",".join(terms) + "->" + result
    operands = [Operand(tuple(sizes[name] for name in term)) for term in terms]
    return Case(operands, {"subscripts": written, "optimize": draw(st.integers(0, 1))})


RECORDS = [Record("_npi_einsum", _einsum, numpy=True)]
LEFT = [
    Left("_npi_einsum", Case([Operand((3, 3, 2))], {"subscripts": "iij->j"}), "named twice", numpy=True),
    Left("_npi_einsum", Case([Operand((3, 2))], {"subscripts": "...i->...i"}), "an ellipsis", numpy=True),
]
