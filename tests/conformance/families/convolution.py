"""Convolution and its transpose."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from records import Case, Draw, Left, Operand, Record, maybe, pick

_LAYOUTS = {1: "NCW", 2: "NCHW", 3: "NCDHW"}


def _axes(draw: Draw, rank: int, low: int, high: int) -> tuple[int, ...]:
    return tuple(draw(st.integers(low, high)) for _ in range(rank))


def _convolution(draw: Draw) -> Case:
    rank, groups = pick(draw, 2, 1, 3), pick(draw, 1, 1, 2, 4)
    channels = groups * pick(draw, 1, 3, 8, 16)
    filters = groups * pick(draw, 1, 2, 5, 16)
    kernel = _axes(draw, rank, 1, 3)
    dilate = tuple(pick(draw, 1, 1, 2) for _ in kernel)
    pad = _axes(draw, rank, 0, 2)
    sizes = tuple(max(1, d * (k - 1) + 1 - 2 * p) + draw(st.integers(0, 6 if rank < 3 else 3))
                  for k, d, p in zip(kernel, dilate, pad, strict=True))
    attrs: dict[str, Any] = {"kernel": kernel, "num_filter": filters, "num_group": groups}
    attrs |= maybe(draw, stride=tuple(pick(draw, 1, 2, 3) for _ in kernel), layout=_LAYOUTS[rank], workspace=512,
                   no_bias=st.booleans(), cudnn_tune="off")
    return Case([Operand((pick(draw, 1, 2, 3), channels, *sizes))], {**attrs, "dilate": dilate, "pad": pad})


def _deconvolution(draw: Draw) -> Case:
    rank, groups = pick(draw, 2, 1, 3), pick(draw, 1, 1, 2, 4)
    channels = groups * pick(draw, 1, 3, 16)
    filters = groups * pick(draw, 1, 2, 5, 16)
    kernel, stride = _axes(draw, rank, 1, 4), tuple(pick(draw, 2, 1, 3) for _ in range(rank))
    dilate = tuple(pick(draw, 1, 1, 2) if rank < 3 else 1 for _ in kernel)  # in 3-D MXNet takes none
    reach = [d * (k - 1) + 1 for k, d in zip(kernel, dilate, strict=True)]
    sizes = _axes(draw, rank, 1, 6 if rank < 3 else 3)
    full = [s * (size - 1) + r for s, size, r in zip(stride, sizes, reach, strict=True)]
    pad = tuple(draw(st.integers(0, min(2, (f - 1) // 2))) for f in full)  # a result has elements
    attrs: dict[str, Any] = {"kernel": kernel, "num_filter": filters, "num_group": groups, "stride": stride,
                             "dilate": dilate, "pad": pad}
    attrs |= maybe(draw, layout=_LAYOUTS[rank], workspace=512, no_bias=st.booleans())
    if draw(st.booleans()):
        attrs["adj"] = tuple(draw(st.integers(0, s - 1)) for s in stride)
    elif all(f - 2 * p >= 1 for f, p in zip(full, pad, strict=True)) and draw(st.booleans()):
        attrs["target_shape"] = tuple(f - 2 * p for f, p in zip(full, pad, strict=True))
    return Case([Operand((pick(draw, 1, 2), channels, *sizes))], attrs)


def _k4s2p1(draw: Draw) -> Case:
    """What pose nets and segmenters use, and their like."""
    kernel, stride, pad = pick(draw, (4, 2, 1), (2, 2, 0), (3, 2, 1), (16, 8, 4), (8, 4, 2))
    groups = pick(draw, 1, 32)
    attrs = {"kernel": (kernel,) * 2, "stride": (stride,) * 2, "pad": (pad,) * 2, "num_filter": 32,
             "num_group": groups, "no_bias": draw(st.booleans())}
    return Case([Operand((pick(draw, 1, 2), 32, *_axes(draw, 2, 1, 9)))], attrs)


RECORDS = [
    Record("Convolution", _convolution),
    Record("Convolution_v1", lambda draw: Case([Operand((2, 4, 7, 6))], {
        "kernel": (3, 3), "num_filter": 6, "stride": pick(draw, (1, 1), (2, 1)), "pad": pick(draw, (0, 0), (1, 2)),
        "dilate": pick(draw, (1, 1), (2, 1)), "num_group": pick(draw, 1, 2), "no_bias": draw(st.booleans())})),
    Record("Deconvolution", _deconvolution),
    Record("Deconvolution", _k4s2p1, variant="usual"),
]
LEFT = [
    # MXNet itself raises for these on a CPU, and should.
    Left("Deconvolution", Case([Operand((1, 8, 8, 4))], {"kernel": (3, 3), "num_filter": 2, "layout": "NHWC"}),
         "layout"),
    Left("Deconvolution", Case([Operand((1, 4, 8, 8))], {"kernel": (3, 3), "num_filter": 2, "target_shape": (8, 8)}),
         "target_shape"),
]
