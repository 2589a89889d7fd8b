"""Which algorithm computes a 3x3 convolution, and Winograd's matrices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ngraph_mxnet.ir.sizes import both, greatest, least, negated, where
from ngraph_mxnet.targets.cpu.microkernels.variants import Isa
from ngraph_mxnet.targets.cpu.planning.view import BLOCK

__all__ = ["ALGORITHMS", "Layer", "choose_tile", "conditions", "estimate"]


ALGORITHMS = {0: "direct", 2: "F(2x2)", 4: "F(4x4)"}
"""By the size of the output tile."""


class _Rates(NamedTuple):
    """The rates of one core, in a microsecond."""

    multiply_adds: float
    transforms: dict[int, tuple[float, float]]
    """By tile: microseconds for one tile of 16 channels, into and out of its matrices."""
    exchanged: float = 8.75e3
    """Bytes of matrices that a core gets from the others in a microsecond: tiles of some rows are transformed by one,
    the products of some matrices are another's."""


_RATES: dict[Isa, _Rates] = {
    # Fitted to measurements for avx2; scaled from it for the others.
    "avx512": _Rates(100e3, {2: (0.034, 0.029), 4: (0.097, 0.088)}),
    "avx2": _Rates(50e3, {2: (0.062, 0.053), 4: (0.16, 0.145)}),
    "baseline": _Rates(20e3, {2: (0.090, 0.077), 4: (0.30, 0.28)}),
}
_HALVES = _Rates(57e3, {2: (0.030, 0.024), 4: (0.075, 0.070)}, exchanged=4.5e3)
"""The rates of avx512 on a CPU that computes it in halves, measured on Zen 4, whose cores may lie on two dies."""
_PACKED = 4e3
"""Bytes of weights that one core packs in a microsecond, where they change with every call."""
_BYTES = 30e3
"""Bytes of weights that one core reads in a microsecond; n cores read sqrt(n) times as much, 8 or more sqrt(8)."""
_PRODUCTS = 0.87
"""Speed of the matrix products, whose sums are shorter, beside that of a direct convolution."""
_CALLS = 1.0
"""Microseconds that two more kernel calls cost one thread."""
_BARRIERS = 3.0
"""The same for several: two more levels of the Program, and shares of work that do not come out even."""
_MARGIN_PERCENT = 95
"""A faster algorithm must win by so much: estimates err, and its weights take more memory."""


class Layer(NamedTuple):
    """A 3x3 convolution of stride 1 without groups; sizes are the output's. Of a dilated one a phase is an image."""

    images: int
    inputs: int
    outputs: int
    height: int
    width: int
    prepared: bool = True
    """The weights are packed in advance, and not in each call."""

    @property
    def blocks(self) -> tuple[int, int]:
        """Input and output blocks of 16 channels."""
        return -(-self.inputs // BLOCK), -(-self.outputs // BLOCK)

    def tiles(self, tile: int) -> int:
        """Output tiles of `tile` x `tile` pixels."""
        return self.images * -(-self.height // tile) * -(-self.width // tile)


class _Line(NamedTuple):
    """Picoseconds: so many for each pixel (or, of Winograd's algorithm, each tile) of the output, and so many at all.
    They are integers, for sizes that are symbols."""

    each: int
    constant: int

    @staticmethod
    def of(each: float, constant: float) -> _Line:
        """Build a line from microseconds."""
        return _Line(round(each * 1e6), round(constant * 1e6))


def _line(layer: Layer, tile: int, isa: Isa, threads: int, halves: bool) -> _Line:
    rates, (inputs, outputs) = _HALVES if halves and isa == "avx512" else _RATES[isa], layer.blocks
    bandwidth = _BYTES * min(threads, 8) ** 0.5
    pairs = inputs * outputs * BLOCK * BLOCK
    matrices = (tile + 2) ** 2 if tile else 9
    constant = matrices * pairs * 4 / bandwidth + _packing(layer, matrices, threads)
    if not tile:
        return _Line.of(9 * pairs / rates.multiply_adds / threads, constant)
    into, out = rates.transforms[tile]
    each = (matrices * pairs / (rates.multiply_adds * _PRODUCTS) + inputs * into + outputs * out) / threads
    if threads == 1:
        return _Line.of(each, constant + _CALLS)
    from_others = matrices * (inputs + outputs) * BLOCK * 4 * (1 - 1 / threads) / threads
    return _Line.of(each + from_others / rates.exchanged, constant + _BARRIERS)


def _packing(layer: Layer, numbers: int, threads: int) -> float:
    """Microseconds for packing so many numbers of each pair of channels, where that is part of a call."""
    inputs, outputs = layer.blocks
    return 0.0 if layer.prepared else inputs * outputs * BLOCK * BLOCK * numbers * 4 / _PACKED / threads


def _picoseconds(layer: Layer, tile: int, isa: Isa, threads: int, halves: bool) -> int:
    line = _line(layer, tile, isa, threads, halves)
    return line.each * layer.tiles(tile or 1) + line.constant


def estimate(layer: Layer, tile: int, isa: Isa, threads: int, halves: bool = False) -> float:
    """Microseconds that `ALGORITHMS[tile]` takes. `halves`: see `machine.isa.halves_avx512`."""
    return _picoseconds(layer, tile, isa, threads, halves) / 1e6


def conditions(layer: Layer, isa: Isa, threads: int, halves: bool = False,
               tiles: Sequence[int] = (2, 4)) -> dict[int, int]:
    """For a key of `ALGORITHMS` whether it is chosen: of 0 and then `tiles`, the next one where it is faster by a
    margin. One of them holds; of a layer of symbolic sizes they are conditions."""
    found: dict[int, int] = {0: True}
    best = _picoseconds(layer, 0, isa, threads, halves)
    for tile in tiles:
        time = _picoseconds(layer, tile, isa, threads, halves)
        wins = 100 * time < _MARGIN_PERCENT * best
        found = {**{other: both(holds, negated(wins)) for other, holds in found.items()}, tile: wins}
        best = where(wins, time, best)
    return found


def choose_tile(layer: Layer, isa: Isa, threads: int, halves: bool = False) -> int:
    """The key of `ALGORITHMS` whose condition holds."""
    return next(tile for tile, holds in conditions(layer, isa, threads, halves).items() if holds)


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

    @property
    def numbers(self) -> dict[str, int]:
        """The strip among the numbers of the kernels that transform it."""
        return {"strip_rows": self.count, "tile_rows": self.tile_rows, "tile_columns": self.tile_columns,
                "first_row": self.first}


@dataclass(frozen=True)
class Cut:
    """An image cut into strips of nearly equal size, none longer than the first."""

    tile_rows: int
    tile_columns: int
    total: int
    """Rows of tiles of all images."""
    rows: int
    """Rows of tiles of a strip."""

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
