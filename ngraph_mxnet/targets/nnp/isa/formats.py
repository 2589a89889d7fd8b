"""The number formats of the simulated device: how an element is stored, widened and rounded.

The device computes in float32 (and int32) and rounds where it stores. Everything here is NumPy; this text and the code
are the definition that the simulation is bit-exact to.

* `f16` and `f32` are IEEE 754's binary16 and binary32. `bf16` is the upper half of a binary32, kept as uint16.
* Rounding is to nearest, ties to even. What is beyond the largest finite number by half a unit or more becomes an
  infinity, denormals are kept, and NaN becomes the quiet NaN without sign.
* What overflows may raise NumPy's warning: what runs whole programs and graphs turns it off.
* `i8` and `i32` round to the nearest integer, ties to even, and saturate: i8 to [-128, 127]. NaN becomes 0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ngraph_mxnet.ir.types import ELEMENT_TYPES


@dataclass(frozen=True)
class Format:
    """`storage` is the NumPy dtype of a stored element, `size` its bytes."""

    name: str
    storage: np.dtype
    # Both on contiguous arrays of rank 1 or more.
    _widen: Callable[[np.ndarray], np.ndarray]
    _round: Callable[[np.ndarray], np.ndarray]

    @property
    def size(self) -> int:
        return self.storage.itemsize

    @property
    def is_float(self) -> bool:
        """True if an element stands for a real number by itself; an i8 does so only with a scale."""
        return self.name == "bf16" or self.storage.kind == "f"

    def to_float32(self, stored: np.ndarray) -> np.ndarray:
        """The stored elements as float32, exactly but for integers beyond 2**24 and f64. A copy, unless f32."""
        return self._widen(np.ascontiguousarray(stored)).reshape(stored.shape)

    def round_to(self, values: np.ndarray) -> np.ndarray:
        """float32 `values`, rounded, as stored elements. A copy, unless f32."""
        return self._round(np.ascontiguousarray(values, np.float32)).reshape(values.shape)


def _bf16_to_float32(stored: np.ndarray) -> np.ndarray:
    bits = stored.astype(np.uint32)
    bits <<= np.uint32(16)
    return bits.view(np.float32)


def _float32_to_bf16(values: np.ndarray) -> np.ndarray:
    """Half a unit of the last place kept, less one where that place is even, carries into it when it should."""
    result = _half_to_even(values.view(np.uint32), 16).astype(np.uint16)
    return _with_nan(result, values, np.uint16(0x7FC0))


_F16_VALUES = np.arange(1 << 16).astype(np.uint16).view(np.float16).astype(np.float32)
"""By bit pattern: looking numbers up is faster than NumPy's conversion."""


def _f16_to_float32(stored: np.ndarray) -> np.ndarray:
    return _F16_VALUES[stored.view(np.uint16)]


def _float32_to_f16(values: np.ndarray) -> np.ndarray:
    """Round float32 values to f16.

    Where f16 is normal, bits are dropped as for bf16. Smaller values are added to 0.5, and the addition rounds: the
    last place of 0.5 in float32 is f16's smallest number.
    """
    bits = values.view(np.uint32)
    sign = (bits >> np.uint32(16)) & np.uint32(0x8000)
    magnitude = bits & np.uint32(0x7FFFFFFF)
    result = _half_to_even(magnitude, 13)
    result -= np.uint32(112 << 10)
    small = magnitude < np.uint32(113 << 23)
    if small.any():
        summed = (magnitude.view(np.float32) + np.float32(0.5)).view(np.uint32)
        summed -= np.uint32(126 << 23)
        np.copyto(result, summed, where=small)
    np.minimum(result, np.uint32(0x7C00), out=result)
    result |= sign
    return _with_nan(result.astype(np.uint16), values, np.uint16(0x7E00)).view(np.float16)


def _half_to_even(bits: np.ndarray, dropped: int) -> np.ndarray:
    """uint32 `bits` without the last `dropped` ones, rounded to the nearest, ties to even."""
    result = bits >> np.uint32(dropped)
    result &= np.uint32(1)
    result += np.uint32((1 << (dropped - 1)) - 1)
    result += bits
    result >>= np.uint32(dropped)
    return result


def _with_nan(result: np.ndarray, values: np.ndarray, pattern: np.uint16) -> np.ndarray:
    """`result`, `pattern` where `values` are NaN."""
    if values.size and np.isnan(np.min(values)):
        result[np.isnan(values)] = pattern
    return result


def _as_float32(stored: np.ndarray) -> np.ndarray:
    return stored.astype(np.float32)


def _to_integer(dtype: np.dtype) -> Callable[[np.ndarray], np.ndarray]:
    """To the nearest integer that `dtype` has; in float64, which has them all up to 32 bits, where float32 hasn't."""
    info = np.iinfo(dtype)
    wide = np.float32 if dtype.itemsize <= 2 else np.float64

    def rounded(values: np.ndarray) -> np.ndarray:
        whole = np.rint(values, dtype=wide)
        np.maximum(whole, wide(info.min), out=whole)
        np.minimum(whole, wide(info.max), out=whole)
        if np.isnan(np.min(whole, initial=0)):
            whole[np.isnan(whole)] = 0
        return whole.astype(dtype)

    return rounded


def _formats() -> dict[str, Format]:
    table = {"bf16": Format("bf16", np.dtype(np.uint16), _bf16_to_float32, _float32_to_bf16)}
    for name, element in ELEMENT_TYPES.items():
        dtype = element.numpy
        to: Callable[[np.ndarray], np.ndarray]
        if name == "f16":
            to = _float32_to_f16
        elif name == "f32":
            to = _as_it_is
        elif dtype.kind in "iu" and element.size <= 4:
            to = _to_integer(dtype)
        else:
            to = _as_dtype(dtype)
        table[name] = Format(name, dtype, {"f16": _f16_to_float32, "f32": _as_it_is}.get(name, _as_float32), to)
    return table


def _as_it_is(values: np.ndarray) -> np.ndarray:
    return values


def _as_dtype(dtype: np.dtype) -> Callable[[np.ndarray], np.ndarray]:
    """f64, bool and 64-bit integers: NumPy's conversion; the device only moves them."""

    def converted(values: np.ndarray) -> np.ndarray:
        return values.astype(dtype)

    return converted


FORMATS: dict[str, Format] = _formats()
"""By name: bf16 and the IR's element types."""


def quantized(values: np.ndarray, scale: float | np.ndarray) -> np.ndarray:
    """float32 `values` as i8 numbers q that stand for q * scale: values / scale in float32, rounded, saturated."""
    return FORMATS["i8"].round_to(np.asarray(values, np.float32) / np.asarray(scale, np.float32))


def dequantized(stored: np.ndarray, scale: float | np.ndarray) -> np.ndarray:
    """i8 numbers as float32: q * scale, rounded to float32."""
    return stored.astype(np.float32) * np.asarray(scale, np.float32)
