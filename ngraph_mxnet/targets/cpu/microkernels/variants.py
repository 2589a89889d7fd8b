"""Which kernels exist for which ISA."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from ngraph_mxnet.base import registry

if TYPE_CHECKING:
    from llvmlite import ir

__all__ = [
    "ACTIVATIONS", "AMX", "FIRST_CALLED", "ISAS", "PAIRS", "PANEL_TILES", "TILE_PIXELS", "VECTORS", "VNNI", "Isa",
    "Kind", "Tile", "Variant", "symbol", "variants",
]


Isa = Literal["avx512", "avx2", "baseline"]
"""The instruction set of kernels; see `machine.isa.InstructionSet` for that of programs."""
Kind = Literal["k16", "k1", "depthwise"]

ISAS: tuple[Isa, ...] = ("avx512", "avx2", "baseline")
VECTORS: dict[Isa, int] = {"avx512": 1, "avx2": 2, "baseline": 4}
"""Registers that 16 floats take."""
VNNI: dict[Isa, str] = {"avx512": "avx512vnni", "avx2": "avxvnni"}
"""By LLVM's names the features with which a CPU multiplies u8 by i8 and adds up fours of products in 32 bits."""

PAIRS = ("avx512bf16",)
"""The same of those with which it multiplies bf16."""
AMX = ("amx-tile", "amx-bf16", "amx-int8", *PAIRS)
"""The same of those with which it multiplies bf16, and bytes, in tiles."""

ACTIVATIONS = {name: number for number, name in enumerate("none hard_swish prelu silu gelu sigmoid tanh".split())}
"""The activations that may follow the sums of a convolution's kernel, and the number of each."""
FIRST_CALLED = ACTIVATIONS["silu"]
"""From this on they are functions of what is stored (`activations.py`)."""


@dataclass(frozen=True)
class Variant:
    """One kernel: `oc_tile` output channels by up to `tile` pixels in registers.

    `rows`: the pixels of a tile lie at a constant input stride, which costs one address register in place
    of one per pixel, so that tiles can be larger.
    `bf16`: inputs of k16 and depthwise are bf16, and so are the weights of k16; outputs and residuals may be.
    `u8`: inputs are u8 and weights i8 in fours of input channels; depthwise has float32 weights. Without VNNI
    certain sums of products must fit 16 bits (`short`, see `ops.quantization`), or the weights are i16 (`wide`).
    `amx`: the sums are in the tiles of Intel's AMX (`amx.py`).
    """

    kind: Kind
    oc_tile: int
    """Output channels per packed weight tile: 8 (half a block), 16, 32, 48 or 64."""
    tile: int
    rows: bool = False
    bf16: bool = False
    u8: bool = False
    short: bool = False
    wide: bool = False
    amx: bool = False

    @property
    def name(self) -> str:
        """E.g. `k1_n8_rows`, `depthwise_bf16`."""
        tile = "" if self.kind == "depthwise" else f"_n{self.oc_tile}"
        return self.kind + tile + "_rows" * self.rows + "_bf16" * self.bf16 + "_u8" * self.u8 + (
            "_short" * self.short + "_wide" * self.wide + "_amx" * self.amx)

    @property
    def blocks(self) -> int:
        """16-channel blocks that a tile stores to."""
        return -(-self.oc_tile // 16)

    @property
    def half(self) -> bool:
        """A tile stores half a block."""
        return self.oc_tile == 8

    @property
    def lanes(self) -> int:
        """Rows of `oc_tile` weights of 4 bytes a step: one for each input channel, pair of them in bf16 or i16, four in
        i8."""
        if self.kind != "k16":
            return 1
        return 8 if self.bf16 or self.wide else 4 if self.u8 else 16

    @property
    def needs_vnni(self) -> bool:
        """Only with what `VNNI` says does it run."""
        return self.whole and not (self.short or self.wide or self.amx)

    def needs(self, isa: Isa) -> tuple[str, ...]:
        """The CPU features, by LLVM's names, without which it does not run, beyond those of its instruction set."""
        if self.amx:
            return AMX
        if self.bf16:
            return PAIRS
        return (VNNI[isa],) if self.needs_vnni else ()

    @property
    def whole(self) -> bool:
        """Sums are int32, exact."""
        return self.u8 and self.kind != "depthwise"

    @property
    def pixel_tiles(self) -> int:
        """The tiles of AMX for the pixels of the largest tile: with the blocks of outputs they make four tiles of
        sums."""
        return self.tile // TILE_PIXELS

    @property
    def prefetch_bytes(self) -> int:
        """The part of the next block's weights that a step of one of `PREFETCH_TILES` fetches."""
        return self.oc_tile * self.lanes * 4 // PREFETCH_TILES if self.kind == "k16" and self.oc_tile >= 16 else 0


TILE_PIXELS = 16
"""Pixels of a tile of AMX, which has a row for each."""
PANEL_TILES = 256
"""Tiles of input, of 1 KiB, for which a kernel for AMX has room: a part of L2."""
PREFETCH_TILES = 8
"""Tiles that fetch the next block of weights, each an equal part at its steps. Where a task has fewer tiles, each
fetches more; fetching all in fewer of many tiles costs more than it saves."""
KEPT_WEIGHTS = 512 * 1024
"""Bytes of weights that are thought to stay in L2 from one call to the next."""
_FEW_PIXELS = 4
"""Tiles of fewer pixels read their weights as fast as they come."""


def prefetches(tiles: int, weights: int) -> int:
    """How often each of a task's tiles fetches `Variant.prefetch_bytes` at a step, of so many bytes of weights."""
    return -(-PREFETCH_TILES // tiles) if tiles < PREFETCH_TILES and weights > KEPT_WEIGHTS else 1


_LATENCY_VECTORS = 8
"""Independent accumulators that hide the latency of two multiply-add pipes (4 cycles)."""
_LATENCY_VECTORS_BF16 = 12
"""The same for the dot product of bf16 (6 cycles); that of u8 takes 4 or 5."""


@dataclass(frozen=True)
class Tile:
    """The inner loops of a tile of `pixels` pixels, and what they keep in registers: the emitter makes them of this,
    and `tiles.loop_nest` prints it."""

    variant: Variant
    isa: Isa
    pixels: int

    @property
    def vectors(self) -> int:
        """Registers of a vector, which has 16 floats, of half blocks 8."""
        return max(1, VECTORS[self.isa] // (2 if self.variant.half else 1))

    @property
    def sums(self) -> int:
        """Vectors of sums in a set; of i16 a channel has two sums."""
        return self.pixels * self.variant.blocks * (2 if self.variant.wide else 1)

    @property
    def sets(self) -> int:
        """Sets of sums, among which the lanes of a step take turns."""
        sets = 1
        if self.variant.kind == "k16":
            enough = _LATENCY_VECTORS_BF16 if self.variant.bf16 else _LATENCY_VECTORS
            while self.pixels * self.variant.blocks * self.vectors * sets < enough:
                sets *= 2
        return sets

    @property
    def repeats(self) -> bool:
        """A step may fetch weights ahead more than once."""
        return self.variant.prefetch_bytes > 0 and self.pixels >= _FEW_PIXELS

    @property
    def unroll(self) -> int:
        """Lanes of a turn of the loop: the instruction scheduler spills some tiles of long bodies."""
        variant = self.variant
        if variant.kind != "k16" or variant.u8:
            return variant.lanes
        if self.pixels * variant.blocks > 24:
            return 4
        return 8 if variant.blocks == 1 and self.pixels == 5 else variant.lanes


# 32 registers of 16 floats: 20 accumulators, 2 weights, 2 broadcasts. Tiles are bounded by the 15 general registers:
# with more than 10 pixels the compiler groups the broadcasts by pixel, and spills. A tile of 14 pixels at a constant
# stride, which needs one register, was slower: L1 has 8 ways, and rows of 4 KiB, or parts of it, fall into one set.
_AVX512 = (
    Variant("k16", 32, 10),
    Variant("k16", 16, 10),
    Variant("k1", 32, 8),
    Variant("k1", 16, 10),
    Variant("depthwise", 16, 10),
)
_THREE_BLOCKS = Variant("k16", 48, 8)
"""24 accumulators, 3 weights, 2 broadcasts."""

_AMX = tuple(Variant("k16", outputs, pixels, bf16=not u8, u8=u8, amx=True)
             for u8 in (False, True) for outputs, pixels in ((64, 16), (48, 16), (32, 32), (16, 64)))
"""Four tiles of sums; the others are of input and weights."""

_VARIANTS: dict[Isa, tuple[Variant, ...]] = {
    # Those of bf16 are for CPUs that have AVX512_BF16 too, k16 of u8 for VNNI.
    "avx512": (*_AVX512, _THREE_BLOCKS, *(replace(variant, bf16=True) for variant in _AVX512),
               *(replace(variant, u8=True) for variant in (*_AVX512, _THREE_BLOCKS) if variant.kind != "k1"),
               Variant("k16", 16, 5, u8=True, wide=True), *_AMX),
    # 16 registers of 8 floats: 12 accumulators, 1 or 2 weights, 1 or 2 broadcasts. Half blocks are for numbers of
    # output channels that leave one.
    "avx2": (
        Variant("k16", 16, 6),
        Variant("k1", 16, 6),
        Variant("k1", 8, 12, rows=True),
        Variant("depthwise", 16, 6),
        Variant("k16", 16, 6, u8=True),
        # Products of bytes take more registers than the sums; of i16 a channel has two sums.
        Variant("k16", 16, 5, u8=True, short=True),
        Variant("k16", 16, 2, u8=True, wide=True),
        Variant("depthwise", 16, 6, u8=True),
    ),
    # 16 registers of 4 floats: 12 accumulators, 1 broadcast, 2 products.
    "baseline": (Variant("k16", 16, 3), Variant("k1", 16, 3), Variant("depthwise", 16, 3),
                 Variant("k16", 16, 1, u8=True, wide=True), Variant("depthwise", 16, 3, u8=True)),
}


def variants(isa: Isa) -> tuple[Variant, ...]:
    """All variants of an ISA; of those that fit a contraction an earlier one is preferred."""
    return _VARIANTS[isa]


def symbol(variant: Variant, isa: Isa) -> str:
    """Name of the kernel in the object file."""
    return f"ng_contraction_{variant.name}__{isa}"


Build = Callable[["ir.Module", str, Isa], None]
"""Adds a kernel, as a C function of this name, to the module for an instruction set."""

MICROKERNELS: dict[str, Build] = {}
"""By the kernel's name. This package's own are made by `contraction.build_module` and stand in the kernel library."""


def microkernel(name: str) -> Callable[[Build], Build]:
    """Decorator: what builds kernel `name`, whose record says what it takes. Two of a name are an error."""

    def declare(build: Build) -> Build:
        if name in MICROKERNELS:
            raise ValueError(f"the microkernel {name!r} is registered twice")
        MICROKERNELS[name] = build
        registry.note_outside(build)
        return build

    return declare
