"""How a contraction of u8 computes so that what it stores needs no more scaling: in units of its first output."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import Any

from ngraph_mxnet.ir.graph import Value
from ngraph_mxnet.targets.cpu.planning.quantized import Affine

Gate = tuple[float, float, float, float]
"""Slope, offset, scale and shift of a hard swish (`microkernels/params.py`)."""


@dataclass(frozen=True)
class Activation:
    """What follows the clamp. `op` is one of `microkernels.variants.ACTIVATIONS`."""

    op: str = "none"
    gate: Gate = (0.0, 0.0, 1.0, 0.0)
    """Of a hard swish."""
    slopes: Value | float = 1.0
    """Of prelu: one for each channel, or one for all."""


NO_ACTIVATION = Activation()


@dataclass(frozen=True)
class Linear:
    """What a vector of the graph becomes: times a number, plus a number."""

    times: float = 1.0
    plus: float = 0.0


AS_IT_IS = Linear()


@dataclass(frozen=True)
class Storing:
    """The kernel's numbers by name, and what becomes of the vectors."""

    numbers: dict[str, Any] = field(default_factory=dict)
    factor: Linear = AS_IT_IS
    addend: Linear = AS_IT_IS
    scale: Linear = AS_IT_IS
    shift: Linear = AS_IT_IS

    @staticmethod
    def of(stored: tuple[Affine | None, ...], residual: Affine | None, activation: Activation,
           bounds: dict[str, float]) -> Storing:
        """`stored`: how the outputs are stored as u8; `residual`: of one that is u8; `bounds`: lower, upper, lower2 and
        upper2 of real numbers."""
        first, second = (*stored, None, None)[:2]
        gate = activation.gate if activation.op == "hard_swish" else None
        # Units are positive, so that what slopes do is the same in all.
        unit = first.scale if first is not None and gate is None else 1.0
        lower, upper = bounds["lower"] / unit, bounds["upper"] / unit
        numbers: dict[str, Any] = {"lower": lower, "upper": upper, "residual_scale": 1 / unit, "zero_point": 0.0,
                                   "zero_point2": 0.0, "lower2": bounds["lower2"], "upper2": bounds["upper2"]}
        plus = 0.0
        if residual is not None:
            numbers["residual_scale"] = residual.scale / unit
            plus = -residual.scale * residual.zero_point / unit
        least, most = (lower, upper) if activation.op == "none" else (-inf, inf)
        if first is not None:
            numbers["zero_point"] = float(first.zero_point)
            if gate is not None:
                slope, offset, scale, shift = gate
                gate = slope, offset, scale / first.scale, shift / first.scale
        numbers["least"], numbers["most"] = _within(least, most, first)
        if gate is not None:
            numbers |= dict(zip(("slope", "offset", "scale", "shift"), gate, strict=True))
        step = second.scale if second is not None else 1.0
        if second is not None:
            numbers["zero_point2"] = float(second.zero_point)
            numbers["lower2"], numbers["upper2"] = _within(bounds["lower2"] / step, bounds["upper2"] / step, second)
        return Storing(numbers, Linear(1 / unit), Linear(1 / unit, plus), Linear(unit / step), Linear(1 / step))


def _within(lower: float, upper: float, affine: Affine | None) -> tuple[float, float]:
    """The bounds, such that the zero point added to what is within is a byte."""
    if affine is None:
        return lower, upper
    least, most = -float(affine.zero_point), 255.0 - affine.zero_point
    return min(max(lower, least), most), max(min(upper, most), least)
