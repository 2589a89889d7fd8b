"""Counts what layers do in AMX's tiles, against the least that their sizes allow: `python tile_counts.py`.

No CPU with AMX is needed: tiles are emulated, and each instruction is counted. The rows that are copied into panels
follow from the kernels' numbers.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np
import pytest
from bf16_machine import amx
from op_records import array_of
from test_quantized_products import arrays_of as arrays_of_bytes
from test_quantized_products import product_operands, quantized
from tile_machine import emulated_tiles

from ngraph_mxnet import compile
from ngraph_mxnet.ir import Builder, Graph
from ngraph_mxnet.targets.cpu.microkernels.params import BLOCK, CONTRACTION, CONTRACTIONS, ORDER_PIXELS
from ngraph_mxnet.targets.cpu.microkernels.tables import TableRecipe
from ngraph_mxnet.targets.cpu.microkernels.variants import PANEL_TILES, TILE_PIXELS
from ngraph_mxnet.targets.cpu.program.instruction import Instruction

_TILE = {"bf16": 16 * 16 * 32, "int8": 16 * 16 * 64}
"""Multiply-adds of a product of full tiles."""


_PRODUCT, _LOAD, _COPY = 16, 8, 1
"""Cycles of a product, of a tile's load from L1, and of the copy of a piece of a pixel."""
_LAST, _RESULTS = 52, 48
"""Cycles from a last product to its sums, and from a tile of those to results: 16 to store it, two for each row."""


class Count(NamedTuple):
    """What one call of a layer does; `ideal`: the products of full tiles that are as many multiply-adds."""

    products: float
    loads: float
    copies: float
    sums: float
    """Tiles of sums."""
    last: float
    """Those whose results follow no other tile's products."""
    ideal: float

    def __str__(self) -> str:
        """Products and estimated cycles of the ideal; loads and copied pieces a product; cycles of the ideal that
        results add."""
        busy = max(_PRODUCT * self.products, _LOAD * self.loads)
        results = max(0, _RESULTS * self.sums - busy) + (_LAST / 4 + _RESULTS) * self.last
        cycles = (busy + _COPY * self.copies) / self.ideal / _PRODUCT
        return (f"{self.products / self.ideal:8.2f}{cycles:8.2f}{self.loads / self.products:8.2f}"
                f"{self.copies / self.products:8.2f}{results / self.ideal / _PRODUCT:8.2f}")


class Layer(NamedTuple):
    """A convolution of square images (`size` of the input), or a product of `size` rows where `kernel` is 0."""

    channels: int
    outputs: int
    kernel: int
    size: int
    stride: int = 1

    def __str__(self) -> str:
        if not self.kernel:
            return f"{self.size} x {self.channels} x {self.outputs}"
        strided = f" by {self.stride}" * (self.stride > 1)
        return f"{self.kernel}x{self.kernel}{strided}, {self.channels} to {self.outputs}, {self.size} pixels"


class Heads(NamedTuple):
    """Attention of so many heads' queries to as many keys, in bf16."""

    count: int
    tokens: int
    depth: int

    def __str__(self) -> str:
        return f"attention, {self.count} heads of {self.depth}, {self.tokens} tokens"


RESNET_50: dict[Layer, int] = {
    Layer(64, 64, 1, 56): 1, Layer(64, 64, 3, 56): 3, Layer(64, 256, 1, 56): 4, Layer(256, 64, 1, 56): 2,
    Layer(256, 128, 1, 56): 1, Layer(128, 128, 3, 56, 2): 1, Layer(256, 512, 1, 56, 2): 1, Layer(128, 512, 1, 28): 4,
    Layer(512, 128, 1, 28): 3, Layer(128, 128, 3, 28): 3,
    Layer(512, 256, 1, 28): 1, Layer(256, 256, 3, 28, 2): 1, Layer(512, 1024, 1, 28, 2): 1, Layer(256, 1024, 1, 14): 6,
    Layer(1024, 256, 1, 14): 5, Layer(256, 256, 3, 14): 5,
    Layer(1024, 512, 1, 14): 1, Layer(512, 512, 3, 14, 2): 1, Layer(1024, 2048, 1, 14, 2): 1, Layer(512, 2048, 1, 7): 3,
    Layer(2048, 512, 1, 7): 2, Layer(512, 512, 3, 7): 2,
}
"""How often ResNet-50 v2 has each convolution, but for the first one."""
BERT_12: dict[Layer, int] = {Layer(768, 768, 0, 128): 48, Layer(768, 3072, 0, 128): 12, Layer(3072, 768, 0, 128): 12}
"""The products of BERT-12 with weights, for 128 words."""


HEADS = {Heads(12, 128, depth): 1 for depth in (16, 40, 48, 64, 72, 80)}


def graph_of(layer: Layer | Heads, precision: str, batch: int) -> Graph:
    """The layer alone, of `precision` bf16 or int8."""
    b = Builder()
    if isinstance(layer, Heads):
        return b.results(b.attention(*(b.parameter(name, (batch, *layer)) for name in "qkv")))
    channels, outputs, kernel, size, stride = layer
    if not kernel:
        rows = batch * size
        if precision == "bf16":
            return b.results(b.matmul(b.parameter("x", (rows, channels)), b.weight("w", (channels, outputs))))
        x = b.parameter("x", (rows, channels), "u8")
        return b.results(b.quantized_matmul(x, *product_operands(b, (outputs, channels), outputs), transpose_b=True))
    x, shape = b.parameter("x", (batch, channels, size, size)), (outputs, channels, kernel, kernel)
    pads = [kernel // 2] * 2
    attrs = {"pads_begin": pads, "pads_end": pads, "strides": [stride] * 2}
    if precision == "bf16":
        return b.results(b.convolution(x, b.weight("w", shape), **attrs))
    return b.results(b.quantized_convolution(quantized(b, x), *product_operands(b, shape, outputs), **attrs))


def count(layer: Layer | Heads, precision: str, batch: int = 1, threads: int = 1) -> Count:
    """Runs the layer on emulated tiles, which must be those of a process whose CPU has none."""
    graph = graph_of(layer, precision, batch)
    random = np.random.default_rng(1)
    arrays = (arrays_of_bytes(graph, 1, 127) if precision == "int8"
              else [array_of(value.type, random) for value in graph.parameters])
    with emulated_tiles() as ran:
        executable = compile(graph, "CPU", threads=threads, precision="bf16" if precision == "bf16" else "f32")
        executable(*arrays)
        found = ran()
    main: Any = executable.main  # type: ignore[attr-defined]
    calls = [each for level in main.levels() for each in level
             if each.name in CONTRACTIONS and each.name.endswith("_amx")]
    copies = sum(copied_pieces(each, main.constants) for each in calls)
    sums, last = found["tilestored"], min(4 * threads * len(calls), found["tilestored"])
    if isinstance(layer, Heads):
        sums = last = 0  # of which the softmax makes results
        operations = 2 * batch * prod((*layer, layer.tokens))
    else:
        operations = graph.results[0].type.size * layer.channels * max(layer.kernel, 1) ** 2
    ideal = operations / _TILE[precision]
    return Count(found["tdpbf16ps"] + found["tdpbusd"], found["tileloadd"], copies, sums, last, ideal)


def copied_pieces(instruction: Instruction, constants: Sequence[TableRecipe]) -> int:
    """The pieces of pixels, of one step or two, that one thread copies into its panel if it has all tasks."""
    variant, n = CONTRACTIONS[instruction.name], CONTRACTION.read(instruction.ints)
    in_product = BLOCK // variant.lanes
    products, tiles = -(-n.steps // in_product), n.rows * n.row_tiles
    chunks = -(-tiles // n.chunk_tiles)
    stays = n.chunk_tiles * products * variant.pixel_tiles <= PANEL_TILES
    pixels, steps = (constants[instruction.operands[CONTRACTION.tensors.index(name)][0].index].table().reshape(-1)
                     for name in ("pixels", "steps"))
    follows = np.diff(steps[:n.steps]) == 4 * variant.lanes
    joined = n.steps % in_product == 0 and follows.all()
    pieces = n.steps - follows[:n.steps // in_product * in_product:2].sum()
    ends = np.cumsum(np.repeat([n.row_pixels // n.row_tiles + 1, n.row_pixels // n.row_tiles],
                               [n.row_pixels % n.row_tiles, n.row_tiles - n.row_pixels % n.row_tiles]))
    parts = [pixels[row * n.row_pixels:][first:last] for row in range(n.rows)
             for first, last in zip((0, *ends), ends, strict=False)]
    sizes = [0 if joined and len(part) % TILE_PIXELS == 0 and not np.diff(part, 2).any() else len(part)
             for part in parts]
    copied, there = 0, None
    for task in range(instruction.tasks):
        if n.order == ORDER_PIXELS:
            chunk = task // n.oc_groups
            place = chunk % chunks
        else:
            place, rest = task % chunks, task // chunks
            image, group = rest % n.images, rest // n.images // n.oc_groups
            chunk = (image * n.groups + group) * chunks + place
        if chunk != there:
            copied += pieces * sum(sizes[place * n.chunk_tiles:(place + 1) * n.chunk_tiles])
        there = chunk if stays else None
    return copied


def table(layers: Mapping[Layer | Heads, int], precision: str, batch: int) -> Iterator[str]:
    """A row for each layer, and the sum of all."""
    total = np.zeros(len(Count._fields))
    for layer, times in layers.items():
        found = count(layer, precision, batch)
        total += times * np.array(found)
        yield f"{times:3} {layer!s:42}{found}"
    yield f"    {'all':42}{Count(*total)}"


def main() -> None:
    with pytest.MonkeyPatch.context() as patch, amx(patch):
        for precision in sys.argv[1:] or _TILE:
            models: dict[str, Mapping[Any, int]] = {"ResNet-50": RESNET_50, "BERT-12": BERT_12}
            for name, layers in {**models, **({"attention": HEADS} if precision == "bf16" else {})}.items():
                for batch in (1, 8):
                    print(f"{name}, {precision}, batch {batch}: products, cycles; loads, copies of a product; results")
                    for row in table(layers, precision, batch):
                        print(row, flush=True)


if __name__ == "__main__":
    main()
