"""A record says how to draw applications of one MXNet operator; the families hold one record for each operator.

    Record("sum", drawn_reduction)                     # `drawn_reduction(draw)` gives a Case

A case lists the operands that a caller passes; parameters that MXNet adds by itself (weights, running statistics)
get the shapes that it infers. Draw what MXNet accepts: what it refuses belongs into `tests/plugin`, what we
leave to it on purpose into a `Left` row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

Draw = Callable[[st.SearchStrategy[Any]], Any]


@dataclass(frozen=True)
class Operand:
    """A tensor to draw: floats in [low, high), integers in [low, high] within their type, or `values` as they are."""

    shape: tuple[int, ...]
    dtype: str = "float32"
    low: float = -2.0
    high: float = 2.0
    values: Any = None

    def array(self, rng: np.random.Generator) -> np.ndarray:
        dtype = np.dtype(self.dtype)
        if self.values is not None:
            return np.asarray(self.values, dtype).reshape(self.shape)
        if dtype.kind == "f":
            return rng.uniform(self.low, self.high, self.shape).astype(dtype)
        if dtype.kind == "b":
            return rng.integers(0, 2, self.shape).astype(dtype)
        low = max(self.low, 0) if dtype.kind == "u" else self.low
        return rng.integers(int(low), int(max(self.high, low)) + 1, self.shape).astype(dtype)


@dataclass(frozen=True)
class Case:
    """One application. `parameters`: how to draw what MXNet adds, by the end of its name (`weight`, `moving_var`).

    `body`: of an operator that carries a graph, what that does to the first operand one after the other, each as
    (operator, attributes, how many more operands). `outputs`: how many it has then. `symbol`: of an operator that only
    Python functions make, what makes it of the operands.
    """

    operands: Sequence[Operand]
    attrs: dict[str, Any] = field(default_factory=dict)
    parameters: dict[str, Operand] = field(default_factory=dict)
    body: Sequence[tuple[str, dict[str, Any], int]] = ()
    outputs: int = 1
    symbol: Callable[..., Any] | None = None


@dataclass(frozen=True)
class Record:
    """`op`: the canonical name. `case` draws a Case. `outputs`: which to ask for; all when None.

    Backends must agree with MXNet within `tolerance`, relative to an element and to the largest of the tensor (at most
    1); it is for float32 and float64, while float16, be it of an input, gets 1e-2 if that is more. Integers must be
    equal, or with `steps` as near as that (and 1e-6 of the largest). `numpy` operators run under MXNet's NumPy
    semantics, where shapes of rank 0 and size 0 exist.
    """

    op: str
    case: Callable[[Draw], Case]
    tolerance: float = 1e-4
    outputs: tuple[int, ...] | None = None
    numpy: bool = False
    variant: str = ""
    steps: int = 0

    @property
    def name(self) -> str:
        return f"{self.op}-{self.variant}" if self.variant else self.op


@dataclass(frozen=True)
class Left:
    """An application that stays with MXNet on purpose; the verdict's text contains `reason`."""

    op: str
    case: Case
    reason: str
    numpy: bool = False


# ---- what records draw with ------------------------------------------------------------------------------

FLOATS = ("float32", "float16", "float64")
NUMBERS = ("float32", "float16", "float64", "int32", "int64", "int8", "uint8")


def pick(draw: Draw, *choices: Any) -> Any:
    """One of `choices`; draws shrink towards the first."""
    return draw(st.sampled_from(choices))


def dims(draw: Draw, least: int = 1, most: int = 4, largest: int = 6) -> tuple[int, ...]:
    """A shape of `least` to `most` axes, now and then past a vector's width in the last."""
    shape = draw(st.lists(st.integers(1, largest), min_size=least, max_size=most))
    if shape and draw(st.integers(0, 3)) == 3:
        shape[-1] = pick(draw, 16, 17, 33)
    return tuple(shape)


def strides_and_pads(draw: Draw, kernel: Sequence[int], *, rounded_up: bool) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Strides and padding with which no window lies in the padding alone; `rounded_up` if the number of windows is."""
    strides = tuple(draw(st.integers(1, size)) for size in kernel)
    pads = tuple(draw(st.integers(0, (size - stride) // 2 if rounded_up else size // 2))
                 for size, stride in zip(kernel, strides, strict=True))
    return strides, pads


def any_axis(draw: Draw, rank: int) -> int:
    """Counted from the front or from the back."""
    return draw(st.integers(-rank, rank - 1))


def some_axes(draw: Draw, rank: int, *, least: int = 0) -> tuple[int, ...]:
    """Distinct, in any order, counted from the front or the back."""
    axes = draw(st.lists(st.integers(0, rank - 1), unique=True, min_size=least, max_size=rank))
    return tuple(axis - rank if draw(st.booleans()) else axis for axis in axes)


def maybe(draw: Draw, **attrs: Any) -> dict[str, Any]:
    """Each attribute, half of the time: its default matters too. A strategy is drawn from."""
    return {name: draw(value) if isinstance(value, st.SearchStrategy) else value
            for name, value in attrs.items() if draw(st.booleans())}


def typed(case: Callable[[Draw], Case], *dtypes: str, among: Sequence[int] | None = None) -> Callable[[Draw], Case]:
    """`case` with its float32 operands (or those `among`, by position) in one of `dtypes`, by default of NUMBERS."""
    def drawn(draw: Draw) -> Case:
        found, dtype = case(draw), pick(draw, *(dtypes or NUMBERS))
        operands = [replace(operand, dtype=dtype)
                    if (operand.dtype == "float32" if among is None else i in among) else operand
                    for i, operand in enumerate(found.operands)]
        return replace(found, operands=operands)

    return drawn
