"""Sizes at which the planner chooses otherwise, found by asking it."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import cache

from fuzzing.values.drawing import Draw, chance, integer, pick
from ngraph_mxnet.targets.cpu.microkernels.tiles import ContractionSize, Wanted, choose_tiles
from ngraph_mxnet.targets.cpu.microkernels.variants import Isa
from ngraph_mxnet.targets.cpu.params.record import GRAIN
from ngraph_mxnet.targets.cpu.params.sequences import BLOCK_KEYS, MOST_KEYS, MOST_NEAR, MOST_SCORES
from ngraph_mxnet.targets.cpu.planning.algorithm import Layer, choose_tile
from ngraph_mxnet.targets.cpu.planning.view import BLOCK

MOST_CHANNELS = 128
ISAS: tuple[Isa, ...] = ("avx2", "baseline", "avx512")


def crossings(choice: Callable[[int], Hashable], least: int, most: int) -> tuple[int, ...]:
    """The sizes at which the choice is another than for the size below."""
    choices = [choice(size) for size in range(least, most + 1)]
    return tuple(least + place for place in range(1, len(choices)) if choices[place] != choices[place - 1])


@cache
def image_sizes(inputs: int, outputs: int, isa: Isa, threads: int, most: int) -> tuple[int, ...]:
    """Heights of square images from which on another algorithm computes a 3x3 convolution."""
    return crossings(lambda size: choose_tile(Layer(1, inputs, outputs, size, size), isa, threads), 1, most)


@cache
def product_rows(columns: int, steps: int, isa: Isa, most: int) -> tuple[int, ...]:
    """Rows of matrices from which on another kernel, or another cut, computes a product."""
    def choice(rows: int) -> Hashable:
        size = ContractionSize.of_product(rows, -(-columns // BLOCK), steps)
        made = choose_tiles(Wanted(isa), "k16", size, threads=2)
        return made.variant, made.order, made.step_block > 0

    return crossings(choice, 1, most)


def draw_channels(draw: Draw, most: int = MOST_CHANNELS) -> int:
    """About blocks, where what is whole and what is cut off are told apart, or any number."""
    kind = integer(draw, 0, 5)
    if kind <= 1:
        return min(pick(draw, 1, 2, 3, 4, 8), most)
    if kind <= 4:
        blocks = integer(draw, 1, max(1, most // BLOCK))
        return max(1, min(most, blocks * BLOCK + pick(draw, 0, 0, 0, -1, 1)))
    return integer(draw, 1, most)


def draw_image(draw: Draw, inputs: int, outputs: int, most: int, least: int = 1) -> int:
    """A height or width; of large layers often one at which the algorithm changes."""
    edges = [size for size in image_sizes(inputs, outputs, pick(draw, *ISAS), pick(draw, 1, 2), most) if size > least]
    if edges and chance(draw):
        return int(pick(draw, *edges)) - pick(draw, 0, 1)
    return integer(draw, least, max(least, min(most, pick(draw, 5, 9, 12, most))))


def draw_rows(draw: Draw, columns: int, steps: int, most: int) -> int:
    edges = product_rows(columns, steps, pick(draw, *ISAS), most)
    if edges and chance(draw):
        return int(pick(draw, *edges)) - pick(draw, 0, 1)
    return integer(draw, 1, most)


def draw_count(draw: Draw) -> int:
    """Elements of a vector: about the width of registers and the grain of tasks."""
    if chance(draw, 8):
        return GRAIN + pick(draw, -1, 0, 1, 17)
    return pick(draw, 1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 64, 65, 129)


def draw_keys(draw: Draw) -> int:
    """Of attention: about the numbers beyond which it is taken apart."""
    if chance(draw, 12):
        return int(pick(draw, BLOCK_KEYS, BLOCK_KEYS + 1, 3 * BLOCK_KEYS - 1, MOST_KEYS, MOST_KEYS + 1,
                        MOST_SCORES // BLOCK, MOST_NEAR // BLOCK + 1))
    return pick(draw, 1, 3, 7, 16, 17, 33, 64)
