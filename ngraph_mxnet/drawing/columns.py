"""A layered drawing in columns beside each other, so that a deep graph is no narrow band."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import sqrt

from ngraph_mxnet.drawing.layers import Layers

BOX_WIDTH, BOX_HEIGHT = 214, 38
PASSING_WIDTH = 12
"""Of an edge that passes a row."""
GAP_X, GAP_Y = 26, 40
GUTTER = 60
"""Between columns; edges from one to the next go there."""
_SHAPE = 1.5
"""The width over the height that is aimed at."""
_MOST_COLUMNS = 8
_WINDOW = 6
"""Rows around an even cut, among which the one behind the fewest places is chosen: edges go on from these."""


@dataclass(frozen=True)
class Placed:
    """The middle of each place, its column, and the sides of each column; all from 0, 0 on."""

    x: dict[int, float]
    y: dict[int, float]
    column: dict[int, int]
    left: list[float]
    width: float
    height: float


def place(layers: Layers) -> Placed:
    """The rows of `layers` in as many columns as give a picture of about the shape of a screen."""
    x: dict[int, float] = {}
    y: dict[int, float] = {}
    column: dict[int, int] = {}
    left: list[float] = []
    right = height = 0.0
    for number, rows in enumerate(_cut(layers)):
        across = _across(rows, layers)
        low = min((at - wide(item, layers.count) / 2 for item, at in across.items()), default=0.0)
        begin = right + GUTTER if number else 0.0
        left.append(begin)
        for depth, row in enumerate(rows):
            for item in row:
                x[item] = begin + across[item] - low
                y[item] = depth * (BOX_HEIGHT + GAP_Y) + BOX_HEIGHT / 2
                column[item] = number
                right = max(right, x[item] + wide(item, layers.count) / 2)
        height = max(height, len(rows) * (BOX_HEIGHT + GAP_Y) - GAP_Y)
    return Placed(x, y, column, left, right, height)


def wide(item: int, nodes: int) -> int:
    """A node's box, or an edge that passes."""
    return BOX_WIDTH if item < nodes else PASSING_WIDTH


def _cut(layers: Layers) -> list[list[list[int]]]:
    rows = layers.rows
    widest = max((sum(wide(item, layers.count) + GAP_X for item in row) for row in rows), default=1) + GUTTER
    height = len(rows) * (BOX_HEIGHT + GAP_Y)
    wanted = min(max(round(sqrt(_SHAPE * height / widest)), 1), _MOST_COLUMNS, max(len(rows), 1))
    cuts = [0]
    for number in range(1, wanted):
        even = round(number * len(rows) / wanted)
        near = range(max(even - _WINDOW, cuts[-1] + 1), min(even + _WINDOW, len(rows) - 1) + 1)
        if near:
            cuts.append(min(near, key=lambda row: (len(rows[row - 1]), abs(row - even))))
    return [rows[begin:end] for begin, end in zip(cuts, [*cuts[1:], len(rows)], strict=True)]


def _across(rows: Sequence[Sequence[int]], layers: Layers) -> dict[int, float]:
    """Each item as near to the mean of what it is joined to as the widths in its row allow."""
    joined: dict[int, list[list[int]]] = {item: [[], []] for row in rows for item in row}
    for path in layers.paths.values():
        for upper, lower in pairwise(path):
            if upper in joined and lower in joined and upper not in joined[lower][0]:
                joined[lower][0].append(upper)
                joined[upper][1].append(lower)
    x = {item: 0.0 for row in rows for item in row}
    for turn in range(6):
        for row in rows if turn % 2 == 0 else rows[::-1]:
            wanted = []
            for item in row:
                near = joined[item][turn % 2]
                wanted.append(sum(x[other] for other in near) / len(near) if near else x[item])
            x.update(zip(row, spread(wanted, [wide(item, layers.count) for item in row]), strict=True))
    return x


def spread(wanted: Sequence[float], widths: Sequence[float]) -> list[float]:
    """Middles in this order, GAP_X apart by their widths, with the least sum of squared distances from what is wanted:
    neighbours that are too near are pooled, and share the mean of what they want."""
    offsets, pools = [0.0], list[tuple[float, int]]()
    for before, width in pairwise(widths):
        offsets.append(offsets[-1] + (before + width) / 2 + GAP_X)
    for want, offset in zip(wanted, offsets, strict=False):
        total, size = want - offset, 1
        while pools and pools[-1][0] / pools[-1][1] > total / size:
            before_total, before_size = pools.pop()
            total, size = total + before_total, size + before_size
        pools.append((total, size))
    means = [total / size for total, size in pools for _ in range(size)]
    return [mean + offset for mean, offset in zip(means, offsets, strict=False)]
