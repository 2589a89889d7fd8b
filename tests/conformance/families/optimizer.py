"""Steps of training."""

from __future__ import annotations

from hypothesis import strategies as st
from records import Case, Draw, Operand, Record, dims, maybe, pick, typed


def _sgd(draw: Draw) -> Case:
    shape = dims(draw)
    attrs = {"lr": draw(st.floats(1e-3, 1.0))}
    attrs |= maybe(draw, wd=pick(draw, 0.0, 1e-4, 0.1), rescale_grad=draw(st.floats(0.01, 2.0)),
                   clip_gradient=draw(st.floats(0.1, 2.0)))
    return Case([Operand(shape), Operand(shape)], attrs)


RECORDS = [Record("sgd_update", typed(_sgd, "float32", "float64", "float16"))]
