"""Winograd's F(2x2, 3x3) and F(4x4, 3x3): points, the weights' matrix, and how an image is cut into tiles."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ngraph_mxnet.ir.sizes import greatest, least

POINTS = (0.625, 1.5)
"""F(4x4) interpolates at 0, both of these with either sign, and infinity; F(2x2) at 0, 1, -1 and infinity.

All constants of the transforms are exact in float32, and errors are half of those with the usual 1 and 2.
"""


def weight_matrix(tile: int) -> np.ndarray:
    """G of F(tile x tile, 3x3), float64 `[tile + 2][3]`: weights w become G w G^T."""
    a, b = POINTS
    points = [0.0, 1.0, -1.0] if tile == 2 else [0.0, a, -a, b, -b]
    rows = [[p**k / np.prod([p - q for q in points if q != p]) for k in range(3)] for p in points]
    return np.array([*rows, [0.0, 0.0, 1.0]])


@dataclass(frozen=True)
class Strip:
    """`count` rows of output tiles from `first` on, counted through the images; an image has `tile_rows`."""

    tile_rows: int
    tile_columns: int
    first: int
    count: int

    @property
    def tiles(self) -> int:
        return self.count * self.tile_columns


@dataclass(frozen=True)
class Cut:
    """An image cut into strips of nearly equal size, none longer than the first."""

    tile_rows: int
    tile_columns: int
    total: int
    """Rows of tiles of all images."""
    rows: int
    """Of a strip."""

    @property
    def count(self) -> int:
        """How many strips there are."""
        return -(-self.total // self.rows)

    def strips(self) -> list[Strip]:
        return [self.strip(number) for number in range(self.count)]

    def strip(self, number: int) -> Strip:
        first = number * self.rows
        return Strip(self.tile_rows, self.tile_columns, first, least(self.rows, self.total - first))


def cut(images: int, height: int, width: int, tile: int, most_tiles: int) -> Cut:
    """Into strips of about `most_tiles` tiles at most."""
    tile_rows, tile_columns = -(-height // tile), -(-width // tile)
    total = images * tile_rows
    strips = -(-total // greatest(1, most_tiles // tile_columns))
    return Cut(tile_rows, tile_columns, total, -(-total // strips))
