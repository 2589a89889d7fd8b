"""What MXNet's int8 operators share: numbers of 8 bits, and the range of reals that they stand for.

A tensor travels with two others of one element each, the least and the greatest real. Its scale is the reach of its
type over the larger magnitude of these two; there is no zero point. (src/operator/quantization/quantization_utils.h of
MXNet 1.9.) Scales are computed in float32 in MXNet's order of operations: where a number lies halfway between two
integers, the last bit of a scale decides which one it becomes.
"""

from __future__ import annotations

import numpy as np

from ngraph_mxnet.bridges.mxnet.rules.registry import Types
from ngraph_mxnet.bridges.mxnet.symbols.attrs import Attrs
from ngraph_mxnet.compositions.tensors import reshaped
from ngraph_mxnet.errors import UnsupportedError
from ngraph_mxnet.ir import Builder, Value
from ngraph_mxnet.ir.types import ElementType, i8, u8

QUANTIZED = Types(("f32", "i8", "u8", "i32"), in_f32=())
"""Every type that int8 operators have, as it is: a rule sees to the types of its results."""

CALIBRATED = ("min_calib_range", "max_calib_range")
REACH = {"i8": 127.5, "u8": 255.5}
"""What the larger end of the range becomes before it is rounded: half a step more, so that the last integer stands for
a whole step of reals, as the others do."""
REACH_I32 = 2.0**31

Range = tuple[Value, Value]


def number(b: Builder, value: float) -> Value:
    return b.constant(np.float32(value))


def calibration(attrs: Attrs) -> tuple[float, float] | None:
    """The range that calibration found, if both ends are set."""
    low, high = (attrs.float(name, None) for name in CALIBRATED)
    return None if low is None or high is None else (low, high)


def ends(b: Builder, least: Value | float, greatest: Value | float) -> Range:
    """A range as MXNet hands it on: two tensors of one element."""
    low, high = (b.constant(np.full(1, end, np.float32)) if isinstance(end, float) else reshaped(b, end, (1,))
                 for end in (least, greatest))
    return low, high


def magnitude(b: Builder, least: Value | float, greatest: Value | float) -> Value:
    """The larger absolute value of two ends, of rank 0."""
    if isinstance(least, float) and isinstance(greatest, float):
        return number(b, max(abs(least), abs(greatest)))
    low, high = (number(b, end) if isinstance(end, float) else reshaped(b, end, ()) for end in (least, greatest))
    return b.maximum(b.abs(low), b.abs(high))


def scale(b: Builder, element: ElementType, size: Value) -> Value:
    """How many steps of the integer type make up 1.0, for reals up to `size`; 2^31 if `size` is 0.

    (MXNet's GetQuantizeScale.)
    """
    if element.name not in REACH:
        raise UnsupportedError(f"found {element.name}, expected i8 or u8")
    steps = b.divide(number(b, REACH[element.name]), size)
    return b.select(b.equal(size, number(b, 0)), number(b, REACH_I32), steps)


def product_range(b: Builder, element: ElementType, size: Value, weight_size: Value) -> Range:
    """The range of 32-bit sums of products of data in `element`, up to `size`, and weights in i8, up to `weight_size`.

    (MXNet's QuantizationRangeForMultiplication. Unlike in `REACH`, the last integer of a type is the end of the range.)
    """
    step = b.multiply(b.divide(size, number(b, 255 if element is u8 else 127)), b.divide(weight_size, number(b, 127)))
    top = b.multiply(step, number(b, REACH_I32))
    return ends(b, b.negative(top), top)


def out_element(attrs: Attrs, default: str, calibrated: tuple[float, float] | None) -> ElementType:
    """What the attribute `out_type` names; `auto` is unsigned where calibration found nothing negative."""
    kind = attrs.choice("out_type", default, ("int8", "uint8", "auto"))
    if kind == "auto":
        return u8 if calibrated is not None and calibrated[0] >= 0 else i8
    return u8 if kind == "uint8" else i8
