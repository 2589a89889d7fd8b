"""The table of what draws a node of each ONNX operator; modules in `families` fill it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper

from fuzzing.values import sizes
from fuzzing.values.closeness import EXACT, Closeness
from fuzzing.values.drawing import Draw, chance, integer, pick
from fuzzing.values.nets import Net, Value

Drawn = tuple[Sequence[Value], Closeness]
"""Results, and how near they must be."""
OPERATORS: dict[str, Callable[[Net, str], Drawn]] = {}
OFTEN: list[str] = []
"""Their names, each as often as it is drawn."""
NEAR = Closeness(relative=2e-4, largest=2e-5)
SUMS = Closeness(relative=1e-3, largest=2e-4)
_SPECIAL = (0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, np.nan, np.inf, -np.inf, 1e-3, 30.0, -30.0, 1e-30, 3e38)


def operators(*names: str, weight: int = 2) -> Callable[[Callable[[Net, str], Drawn]], Callable[[Net, str], Drawn]]:
    """Register what draws the operators `names` of ONNX, or with a colon behind its domain. `weight`: how often, beside
    others; those with many modes more often."""

    def declare(drawn: Callable[[Net, str], Drawn]) -> Callable[[Net, str], Drawn]:
        for name in names:
            if name in OPERATORS:
                raise ValueError(f"the operator {name} is drawn twice")
            OPERATORS[name] = drawn
            OFTEN.extend([name] * weight)
        return drawn

    return declare


def allowed(op: str, opset: int, place: int = 0) -> list[np.dtype]:
    """Types of numbers and truth that the operator's input may have, float32 first."""
    schema = onnx.defs.get_schema(op, SINCE.get(op, opset))
    of = schema.inputs[place].type_str
    texts = next((list(each.allowed_type_strs) for each in schema.type_constraints if each.type_param_str == of), [of])
    found = []
    for text in texts:
        if text.startswith("tensor("):
            name = text[7:-1].upper()
            if hasattr(onnx.TensorProto, name) and name not in ("STRING", "BFLOAT16", "COMPLEX64", "COMPLEX128"):
                dtype = helper.tensor_dtype_to_np_dtype(getattr(onnx.TensorProto, name))
                if dtype.kind in "fiub" and dtype.itemsize <= 8 and dtype.name in _KNOWN:
                    found.append(dtype)
    return sorted(dict.fromkeys(found), key=lambda dtype: dtype != np.float32)


SINCE = {"CumProd": 26, "RMSNormalization": 23, "TensorScatter": 24, "BitCast": 26, "Upsample": 9,
         "Scatter": 10}
"""Versions of operators that came later than that of most models here, or went before it."""
_KNOWN = ("float32", "float64", "float16", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64",
          "bool")


def draw_type(draw: Draw, types: Sequence[np.dtype]) -> np.dtype:
    return types[0] if chance(draw) else np.dtype(pick(draw, *types))


def elements(dtype: Any, *, special: bool = False, low: float = -3, high: float = 3) -> Callable[..., np.ndarray]:
    """What makes arrays: floats, some of them special ones; integers in their range; truth."""
    dtype = np.dtype(dtype)

    def make(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        if dtype.kind == "b":
            return rng.integers(0, 2, shape).astype(bool)
        if dtype.kind in "iu":
            least = max(low, 0) if dtype.kind == "u" else low
            return rng.integers(int(least), int(high) + 1, shape).astype(dtype)
        array = rng.uniform(low, high, shape)
        if special:
            array = np.where(rng.random(shape) < 0.2, rng.choice(_SPECIAL, shape), array)
        with np.errstate(over="ignore"):
            return np.asarray(array).astype(dtype)

    return make


def draw_shape(draw: Draw, least: int = 0, most: int = 4) -> tuple[int, ...]:
    """Small but in one axis, which is about what registers, blocks and tasks take."""
    rank = integer(draw, least, most)
    shape = [pick(draw, 1, 2, 3, 5) for _ in range(rank)]
    if rank and chance(draw):
        shape[integer(draw, 0, rank - 1)] = sizes.draw_count(draw)
    if rank and chance(draw, 40):
        shape[integer(draw, 0, rank - 1)] = 0
    return tuple(shape)


def draw_axis(draw: Draw, rank: int) -> int:
    return integer(draw, -rank, rank - 1)


def exact_if_whole(dtype: np.dtype, near: Closeness = NEAR) -> Closeness:
    return near if dtype.kind == "f" else EXACT


def open_somewhere(draw: Draw, shape: Sequence[int], one_in: int = 8) -> dict[int, str]:
    """Some axes as symbols, rarely: only where all of an operator's attributes stay right for other sizes."""
    if not chance(draw, one_in):
        return {}
    return {axis: f"S{axis}" for axis, size in enumerate(shape) if size > 0 and chance(draw)}
