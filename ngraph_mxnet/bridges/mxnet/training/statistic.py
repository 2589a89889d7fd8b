"""Variables that a training graph writes: moving statistics, fixed gammas.

This module imports no adjoints: a program from the cache needs none.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Statistic:
    """A statistic that moves with each backward pass in training mode through its batch norm. As in MXNet, forward
    passes write no statistics. A backward pass writes those of the nodes that it comes through, whatever the gradient
    is there.

    Attributes:
        name: the variable, which becomes itself * momentum + the batch's * (1 - momentum).
        of: names of the wanted parameters, a gradient of any of which comes through the batch norm.
    """

    name: str
    momentum: float
    of: tuple[str, ...]


@dataclass(frozen=True)
class Gamma:
    """A gamma that a forward pass overwrites with ones; `name` of the variable, `of` as in `Statistic`."""

    name: str
    of: tuple[str, ...]
