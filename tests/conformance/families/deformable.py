"""Convolution whose taps are where data says."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from records import Case, Draw, Left, Operand, Record, maybe, pick


def _modulated(draw: Draw) -> Case:
    groups, offset_groups = pick(draw, 1, 1, 2), pick(draw, 1, 1, 2)
    batch, channels, filters = pick(draw, 1, 2), *(groups * offset_groups * pick(draw, 1, 3) for _ in range(2))
    kernel, stride, dilate, pad = (tuple(draw(st.integers(low, high)) for _ in range(2))
                                   for low, high in ((1, 3), (1, 2), (1, 2), (0, 2)))
    sizes = tuple(max(2, d * (k - 1) + 1 - 2 * p) + draw(st.integers(0, 5))
                  for k, d, p in zip(kernel, dilate, pad, strict=True))
    out = tuple((n + 2 * p - d * (k - 1) - 1) // s + 1
                for n, k, s, d, p in zip(sizes, kernel, stride, dilate, pad, strict=True))
    taps = offset_groups * kernel[0] * kernel[1]
    reach = pick(draw, 0.5, 8.0)  # beyond the image too
    attrs: dict[str, Any] = {"kernel": kernel, "num_filter": filters, "num_group": groups, "dilate": dilate, "pad": pad,
                             "stride": stride, "num_deformable_group": offset_groups}
    attrs |= maybe(draw, no_bias=st.booleans(), im2col_step=batch, workspace=512)
    return Case([Operand((batch, channels, *sizes)), Operand((batch, 2 * taps, *out), low=-reach, high=reach),
                 Operand((batch, taps, *out), low=0.0, high=1.0)], attrs)


RECORDS = [Record("_contrib_ModulatedDeformableConvolution", _modulated)]

LEFT = [
    Left("_contrib_ModulatedDeformableConvolution",
         Case([Operand((1, 2, 1, 4)), Operand((1, 2, 1, 4)), Operand((1, 1, 1, 4))],
              {"kernel": (1, 1), "num_filter": 1}), "expected at least 2 rows and 2 columns"),
]
