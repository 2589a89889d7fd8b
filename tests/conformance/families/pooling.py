"""Pooling."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from records import Case, Draw, Left, Operand, Record, maybe, pick, strides_and_pads

_LAYOUTS = {1: ("NCW", "NWC"), 2: ("NCHW", "NHWC"), 3: ("NCDHW", "NDHWC")}


def _pooling(draw: Draw) -> Case:
    rank = pick(draw, 2, 1, 3)
    kind = pick(draw, "max", "avg", "sum", "lp")
    sizes = [draw(st.integers(3, 9 if rank < 3 else 5)) for _ in range(rank)]
    attrs: dict[str, Any] = {"pool_type": kind}
    low = -2.0
    if kind == "lp":
        attrs["p_value"] = pick(draw, 1, 2, 3)
        low = 0.1  # the cube root of a sum near 0 amplifies its rounding
    attrs |= maybe(draw, pooling_convention=pick(draw, "valid", "full"), cudnn_off=True)
    if kind == "avg":
        attrs |= maybe(draw, count_include_pad=st.booleans())
    layout = pick(draw, None, *_LAYOUTS[rank])
    if layout:
        attrs["layout"] = layout
    if draw(st.integers(0, 4)) == 4:
        attrs |= maybe(draw, kernel=(2,) * rank, pad=(1,) * rank) | {"global_pool": True}
    else:
        kernel = tuple(draw(st.integers(1, min(3, size))) for size in sizes)
        stride, pad = strides_and_pads(draw, kernel, rounded_up=attrs.get("pooling_convention") == "full")
        attrs |= {"kernel": kernel, "stride": stride, "pad": pad}
        if all(s == 1 for s in stride) and draw(st.booleans()):
            del attrs["stride"]
    channels = pick(draw, 1, 3, 16, 17)
    shape = (*sizes, channels) if layout in ("NWC", "NHWC", "NDHWC") else (channels, *sizes)
    return Case([Operand((pick(draw, 1, 2), *shape), low=low)], attrs)


def _old(draw: Draw) -> Case:
    kernel = tuple(draw(st.integers(1, 3)) for _ in range(2))
    stride, pad = strides_and_pads(draw, kernel, rounded_up=True)
    attrs = {"kernel": kernel, "stride": stride, "pad": pad, "pool_type": pick(draw, "max", "avg", "sum"),
             "global_pool": draw(st.integers(0, 4)) == 4, "pooling_convention": pick(draw, "valid", "full")}
    return Case([Operand((2, 3, *(draw(st.integers(3, 8)) for _ in kernel)))], attrs)


RECORDS = [Record("Pooling", _pooling), Record("Pooling_v1", _old)]
LEFT = [
    # MXNet itself raises for the convention `same` and for a kernel larger than its input.
    # MXNet gives the lowest float for the last column.
    Left("Pooling", Case([Operand((1, 2, 7, 6))], {"kernel": (3, 2), "stride": (2, 3), "pooling_convention": "full"}),
         "windows"),
    Left("Pooling", Case([Operand((1, 2, 7, 6))], {"kernel": (3, 2), "stride": (2, 3), "pooling_convention": "full",
                                                  "pool_type": "sum"}), "no data"),
]
