"""Images to another size."""

from __future__ import annotations

from hypothesis import strategies as st
from records import Case, Draw, Operand, Record, pick


def _nearest(draw: Draw) -> Case:
    scale, count = pick(draw, 2, 3, 4), pick(draw, 1, 2, 3)
    height, width = draw(st.integers(1, 6)), draw(st.integers(1, 6))
    batch, channels = pick(draw, 1, 2), pick(draw, 1, 3, 16)
    together = pick(draw, "concat", "sum")
    factors = [scale, *(pick(draw, 1, scale) for _ in range(count - 1))]
    operands = [Operand((batch, channels if together == "sum" else pick(draw, channels, 2),
                         height * scale // factor, width * scale // factor)) for factor in factors]
    return Case(operands, {"scale": scale, "sample_type": "nearest", "num_args": count, "multi_input_mode": together})


def _bilinear(draw: Draw) -> Case:
    scale, filters = pick(draw, 2, 3, 4, 1), pick(draw, 2, 1, 16)
    kernel = 2 * scale - scale % 2
    shape = (pick(draw, 1, 2), filters, draw(st.integers(1, 6)), draw(st.integers(1, 6)))
    return Case([Operand(shape), Operand((filters, 1, kernel, kernel))],
                {"scale": scale, "sample_type": "bilinear", "num_args": 2, "num_filter": filters})


RECORDS = [Record("UpSampling", _nearest), Record("UpSampling", _bilinear, variant="bilinear")]
