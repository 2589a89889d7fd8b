"""Numbers of 8 bits, which the rules of every bridge compute in float32 between conversions."""

from __future__ import annotations

import numpy as np

from ngraph_mxnet.ir import Builder, Value
from ngraph_mxnet.ir.types import ElementType, i32

_LARGEST_I32 = float(np.nextafter(np.float32(2**31), np.float32(0)))


def limits(element: ElementType) -> tuple[float, float]:
    """The least and greatest number of an integer type, as float32 holds them within its range."""
    bounds = np.iinfo(element.numpy)
    return float(bounds.min), _LARGEST_I32 if element is i32 else float(bounds.max)


def saturated(b: Builder, whole: Value, element: ElementType) -> Value:
    """Whole float numbers as integers; those outside the type's range become its limits."""
    lower, upper = limits(element)
    return b.convert(b.clamp(whole, lower=lower, upper=upper), element=element)


def rounded(b: Builder, x: Value, element: ElementType) -> Value:
    """The nearest integers, halves to even, within the type's range.

    Bounded before it is rounded: so the bounds become those of the contraction that x comes from.
    """
    lower, upper = limits(element)
    return b.convert(b.round(b.clamp(x, lower=lower, upper=upper)), element=element)
