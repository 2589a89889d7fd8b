"""A convolution of data with zeros between its elements, cut into an ordinary one for each phase of its result.

Output y meets the data where `y + tap * dilation - pad` is a multiple of the data's dilation s. Outputs of one phase
y mod s meet it with the same taps, in steps of one element: a convolution of stride 1 with those taps alone. Nothing is
multiplied with the zeros (Shi et al., "Is the deconvolution layer the same as a convolutional layer?", 2016).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import gcd

from ngraph_mxnet.targets.cpu.planning.view import Halo


@dataclass(frozen=True)
class AxisPhase:
    """Outputs `first`, `first + s`, ... (`count` of them) on one axis.

    They are the convolution with the `taps` taps `tap`, `tap + tap_step`, ... that lie `dilation` elements apart in the
    data, padded with `pad` elements at the beginning; a negative `pad` skips elements. Where strides leave out places
    that no tap reaches, as those of 1x1 do, there are 0 taps.
    """

    first: int
    count: int
    tap: int
    tap_step: int
    taps: int
    dilation: int
    pad: int

    def reach(self) -> int:
        """One past the last element that is read."""
        if self.taps == 0:
            return 0
        return self.count + (self.taps - 1) * self.dilation - self.pad


@dataclass(frozen=True)
class Phases:
    """All phases in two dimensions, the zero border of the data that serves them all, and the data's dilations."""

    pairs: tuple[tuple[AxisPhase, AxisPhase], ...]
    halo: Halo
    steps: tuple[int, int]


def axis_phases(out: int, kernel: int, dilation: int, step: int, pad: int) -> list[AxisPhase]:
    """The phases of an axis of `out` outputs."""
    result = []
    tap_step = step // gcd(step, dilation)
    for first in range(min(step, out)):
        met = [tap for tap in range(kernel) if (first + tap * dilation - pad) % step == 0]
        count = -(-(out - first) // step)
        if not met:
            result.append(AxisPhase(first, count, 0, tap_step, 0, 1, 0))
            continue
        result.append(AxisPhase(first, count, met[0], tap_step, len(met), tap_step * dilation // step,
                                -((first + met[0] * dilation - pad) // step)))
    return result


def cut(size: tuple[int, int], out: tuple[int, int], kernel: tuple[int, int], dilations: tuple[int, int],
        steps: tuple[int, int], pads: tuple[int, int]) -> Phases:
    """The phases of a convolution of stride 1; each argument is of height and width."""
    rows, columns = (axis_phases(*row) for row in zip(out, kernel, dilations, steps, pads, strict=True))
    before = [max(0, *(phase.pad for phase in axis)) for axis in (rows, columns)]
    after = [max(0, *(phase.reach() - length for phase in axis))
             for axis, length in zip((rows, columns), size, strict=True)]
    return Phases(tuple(product(rows, columns)), Halo(before[0], after[0], before[1], after[1]), steps)
