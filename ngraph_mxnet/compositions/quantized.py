"""Whole numbers in float32, and the integers that they are stored as, for the rules of every bridge."""

from __future__ import annotations

import numpy as np

from ngraph_mxnet.ir import Builder, Value
from ngraph_mxnet.ir.types import ElementType, boolean, f32, i8, i32, u8

_BYTES = (u8, i8)
_LARGEST_I32 = float(np.nextafter(np.float32(2**31), np.float32(0)))


def widened(b: Builder, x: Value) -> Value:
    """Integers in float32."""
    if x.type.element in _BYTES:
        return b.dequantize(x, b.constant(np.float32(1)), b.constant(0, x.type.element))
    return b.convert(x, element=f32)


def limits(element: ElementType) -> tuple[float, float]:
    """The least and greatest number of an integer type, as float32 holds them within its range; 0 and 1 of bool."""
    if element is boolean:
        return 0.0, 1.0
    bounds = np.iinfo(element.numpy)
    return float(bounds.min), _LARGEST_I32 if element is i32 else float(bounds.max)


def saturated(b: Builder, whole: Value, element: ElementType) -> Value:
    """Whole float numbers as integers; those outside the type's range become its limits."""
    lower, upper = limits(element)
    return b.convert(b.clamp(whole, lower=lower, upper=upper), element=element)


def rounded(b: Builder, x: Value, element: ElementType) -> Value:
    """The nearest integers, halves to even, within the type's range.

    But for bytes they are bounded before they are rounded: so the bounds become those of the contraction that x is of.
    """
    if element in _BYTES:
        return b.quantize(x, b.constant(np.float32(1)), b.constant(0, element))
    lower, upper = limits(element)
    return b.convert(b.round(b.clamp(x, lower=lower, upper=upper)), element=element)
