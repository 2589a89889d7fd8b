"""What resampling reads (`ops.resize.Taps`) as constant tables: first elements int64, weights f32."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ngraph_mxnet.ir.sizes import ceil_divided, is_symbolic
from ngraph_mxnet.ops.resize import adaptive_taps, resize_taps
from ngraph_mxnet.targets.cpu.microkernels.tables import TableRecipe

_MODES = ("nearest", "bilinear", "corners")
"""Their places stand in the numbers of the recipes."""


@dataclass(frozen=True)
class AxisTaps:
    """Of one axis: both tables, and how many weights each output has."""

    first: np.ndarray | TableRecipe
    weights: np.ndarray | TableRecipe
    taps: int


class FirstRecipe(TableRecipe):
    """The first elements. Numbers: the axis' size, that of the result, the mode's place or -1 for means, and the
    taps."""

    kind = "first_taps"

    @property
    def nbytes(self) -> int:
        return 8 * self.numbers[1]

    def table(self, numbers: Sequence[int]) -> np.ndarray:
        return _made(numbers)[0].astype(np.int64)


class WeightRecipe(TableRecipe):
    """The weights, of the same numbers."""

    kind = "tap_weights"

    @property
    def nbytes(self) -> int:
        return 4 * self.numbers[1] * self.numbers[3]

    def table(self, numbers: Sequence[int]) -> np.ndarray:
        weights = _made(numbers)[1]
        return np.pad(weights, ((0, 0), (0, numbers[3] - weights.shape[1])))


def _made(numbers: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    size, out, mode, _ = numbers
    if mode < 0:
        return adaptive_taps(size, out)
    return resize_taps(size, out, "nearest" if mode == 0 else "bilinear", _MODES[mode] == "corners")


def taps_of_resize(size: int, out: int, mode: str, corners: bool) -> AxisTaps:
    """What `resize` reads."""
    if not is_symbolic(size) and not is_symbolic(out):
        return of_arrays(*resize_taps(size, out, mode, corners))
    numbers = size, out, _MODES.index("corners" if corners and mode == "bilinear" else mode), 1 + (mode == "bilinear")
    return AxisTaps(FirstRecipe(numbers), WeightRecipe(numbers), numbers[3])


def taps_of_means(size: int, out: int) -> AxisTaps:
    """What `adaptive_avg_pool` reads."""
    if not is_symbolic(size) and not is_symbolic(out):
        return of_arrays(*adaptive_taps(size, out))
    numbers = size, out, -1, ceil_divided(size, out) + 1
    return AxisTaps(FirstRecipe(numbers), WeightRecipe(numbers), numbers[3])


def of_arrays(first: np.ndarray, weights: np.ndarray) -> AxisTaps:
    return AxisTaps(first, weights, weights.shape[1])
