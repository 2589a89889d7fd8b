"""Normalizations."""

from __future__ import annotations

from hypothesis import strategies as st
from records import Case, Draw, Operand, Record, any_axis, dims, maybe


def _layer_norm(draw: Draw) -> Case:
    shape = dims(draw)
    return Case([Operand(shape)], maybe(draw, axis=any_axis(draw, len(shape)), eps=st.sampled_from([1e-5, 1e-12, 0.1]),
                                        output_mean_var=True))


RECORDS = [Record("LayerNorm", _layer_norm)]
