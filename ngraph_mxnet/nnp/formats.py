"""The number formats of the simulated device: how an element is stored, widened and rounded.

The device computes in float32 (and int32) and rounds where it stores. Everything here is NumPy; this text and the code
are the definition that the simulation is bit-exact to.

* `f16` and `f32` are IEEE 754's binary16 and binary32. `bf16` is the upper half of a binary32, kept as uint16.
* Rounding is to nearest, ties to even. What is beyond the largest finite number by half a unit or more becomes an
  infinity, denormals are kept, and NaN stays NaN (a quiet one).
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
    _widen: Callable[[np.ndarray], np.ndarray]
    _round: Callable[[np.ndarray], np.ndarray]

    @property
    def size(self) -> int:
        return self.storage.itemsize

    @property
    def is_float(self) -> bool:
        """Whether it stands for a real number by itself; an i8 does with a scale only."""
        return self.name == "bf16" or self.storage.kind == "f"

    def to_float32(self, stored: np.ndarray) -> np.ndarray:
        """The stored elements as float32, exactly but for integers beyond 2**24 and f64. A copy, unless f32."""
        return self._widen(stored)

    def round_to(self, values: np.ndarray) -> np.ndarray:
        """float32 `values`, rounded, as stored elements. A copy, unless f32."""
        return self._round(values)


def _bf16_to_float32(stored: np.ndarray) -> np.ndarray:
    bits = stored.astype(np.uint32)
    bits <<= np.uint32(16)
    return bits.view(np.float32)


def _float32_to_bf16(values: np.ndarray) -> np.ndarray:
    """Half a unit of the last place kept, less one where that place is even, carries into it when it should."""
    bits = np.asarray(values, np.float32, order="C").view(np.uint32)
    rounded = bits >> np.uint32(16)
    quiet = rounded | np.uint32(0x40)
    rounded &= np.uint32(1)
    rounded += np.uint32(0x7FFF)
    rounded += bits
    rounded >>= np.uint32(16)
    return np.where(np.isnan(values), quiet, rounded).astype(np.uint16)


def _float32_to_f16(values: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        return values.astype(np.float16)


def _as_float32(stored: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        return stored.astype(np.float32)


def _to_integer(dtype: np.dtype) -> Callable[[np.ndarray], np.ndarray]:
    """To the nearest integer that `dtype` has; in float64, which has them all up to 32 bits, where float32 hasn't."""
    info = np.iinfo(dtype)
    wide = np.float32 if dtype.itemsize <= 2 else np.float64

    def rounded(values: np.ndarray) -> np.ndarray:
        whole = np.rint(np.asarray(values, wide))
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
        table[name] = Format(name, dtype, _as_it_is if name == "f32" else _as_float32, to)
    return table


def _as_it_is(values: np.ndarray) -> np.ndarray:
    return values


def _as_dtype(dtype: np.dtype) -> Callable[[np.ndarray], np.ndarray]:
    """f64, bool and 64-bit integers: NumPy's conversion; the device only moves them."""

    def converted(values: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            return values.astype(dtype)

    return converted


FORMATS: dict[str, Format] = _formats()
"""By name: bf16 and the IR's element types."""


def quantized(values: np.ndarray, scale: float | np.ndarray) -> np.ndarray:
    """float32 `values` as i8 numbers q that stand for q * scale: values / scale in float32, rounded, saturated."""
    with np.errstate(all="ignore"):
        return FORMATS["i8"].round_to(np.asarray(values, np.float32) / np.asarray(scale, np.float32))


def dequantized(stored: np.ndarray, scale: float | np.ndarray) -> np.ndarray:
    """i8 numbers as float32: q * scale, rounded to float32."""
    return stored.astype(np.float32) * np.asarray(scale, np.float32)
