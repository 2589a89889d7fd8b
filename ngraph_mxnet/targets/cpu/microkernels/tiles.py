"""Choice of kernel variant, tiles, task size and task order for one contraction."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ngraph_mxnet.targets.cpu.microkernels.params import BLOCK, ORDER_CHANNELS, ORDER_PIXELS
from ngraph_mxnet.targets.cpu.microkernels.variants import Isa, Kind, Variant, symbol, variants

__all__ = ["ContractionSize", "TileChoice", "choose_tiles"]

_VECTORS: dict[Isa, int] = {"avx512": 1, "avx2": 2, "baseline": 4}
"""Registers that 16 floats take."""
_FOLD_PIXELS = 256
"""Images of fewer output pixels than this are folded into one pixel range, for fuller tiles."""
_TASKS_PER_THREAD = 8
_LEAST_PRODUCTS = 32 * 1024
"""Multiply-adds of a task, as far as each thread has one: about a microsecond."""
_L1_SHARE = 20 * 1024
"""Bytes of input that a chunk may keep in L1 while it meets every weight tile."""
_L2_SHARE = 256 * 1024
"""Bytes of packed weights that may stay in L2 beside the input."""
_WHOLE_PANEL: dict[Isa, int] = {"avx512": 512 * 1024, "avx2": 64 * 1024, "baseline": 64 * 1024}
"""Bytes of weights of one tile that are read from L2 for every tile of pixels; above, the steps are split. CPUs with
AVX-512 have an L2 of 1 MiB and more."""
_PANEL_BLOCK = 18 * 1024
"""Bytes of weights of 16 channels that stay in L1 while a block of steps meets all pixels of a task."""
_SPLIT_CHUNK = 12
"""Tiles that pay for fetching such a block of weights."""


@dataclass(frozen=True)
class TileChoice:
    """A variant and the `CONTRACTION` numbers that follow from it."""

    variant: Variant
    symbol: str
    fold_images: bool
    """Build the pixel table for all images (`pixel_table(images=N)`)."""
    images: int
    groups: int
    oc_groups: int
    out_blocks: int
    rows: int
    row_pixels: int
    row_tiles: int
    chunk_tiles: int
    order: int
    step_block: int = 0
    steps: int = 0

    @property
    def oc_tile(self) -> int:
        """Width of a packed weight tile."""
        return self.variant.oc_tile

    @property
    def kernel(self) -> str:
        """The symbol without the instruction set."""
        return f"contraction_{self.variant.name}"

    def fields(self) -> dict[str, int]:
        """Keyword arguments for `contraction_params`; each group has weights and channel vectors of its own."""
        shared = "images groups oc_groups out_blocks rows row_pixels row_tiles chunk_tiles order step_block"
        lanes = self.variant.lanes
        vector = self.oc_groups * self.oc_tile * 4
        strides = {"weight_group_stride": self.steps * lanes * vector, "channel_group_stride": vector}
        return {**{name: getattr(self, name) for name in shared.split()}, **strides}


@dataclass(frozen=True)
class ContractionSize:
    """A contraction of `out_h * out_w` pixels and `out_blocks` 16-channel blocks a group.

    `flat_input`: all output pixels of an image lie at one constant input stride (matrix rows; 1x1
    convolution of stride 1 without halo). `channels` are those of a group, if its last block is not full.
    `pixel_bytes` of the input, those of a matrix's row if not given, and `stride` (both axes' product)
    estimate the input's size.
    """

    images: int
    out_h: int
    out_w: int
    out_blocks: int
    steps: int
    groups: int = 1
    stride: int = 1
    flat_input: bool = False
    channels: int | None = None
    pixel_bytes: int | None = None

    @staticmethod
    def of_product(rows: int, out_blocks: int, steps: int, groups: int = 1) -> ContractionSize:
        """That of a matrix product of so many rows, or of several that are alike."""
        return ContractionSize(images=1, out_h=1, out_w=rows, out_blocks=out_blocks, steps=steps, groups=groups,
                               flat_input=True)


def choose_tiles(isa: Isa, kind: Kind, size: ContractionSize, *, threads: int = 1, bf16: bool = False,
                 splits: bool = True) -> TileChoice:
    """Tiles for a contraction of this size.

    `bf16` wants a variant of bf16; `splits` allows to split the steps (not with a bf16 output).
    """
    fold = size.images > 1 and size.out_h * size.out_w < _FOLD_PIXELS
    outer_images, out_rows = (1, size.images * size.out_h) if fold else (size.images, size.out_h)
    best: tuple[float, TileChoice] | None = None
    for variant in variants(isa):
        if (variant.kind, variant.bf16) != (kind, bf16):
            continue
        # Indexed tiles cross rows; those with a constant stride only where the input is one long row.
        one_row = not variant.rows or (size.flat_input and not fold)
        rows, row_pixels = (1, out_rows * size.out_w) if one_row else (out_rows, size.out_w)
        row_tiles = -(-row_pixels // variant.tile)
        oc_groups = -(-(size.channels or BLOCK * size.out_blocks) // variant.oc_tile)
        choice = TileChoice(
            variant, symbol(variant, isa), fold, outer_images, size.groups, oc_groups, size.out_blocks,
            rows, row_pixels, row_tiles, chunk_tiles=1, order=ORDER_CHANNELS, steps=size.steps,
        )
        cost = _cost(choice, _VECTORS[isa])
        if best is None or cost < best[0]:
            best = (cost, choice)
    if best is None:
        raise ValueError(f"no {kind} kernel{' of bf16' if bf16 else ''} for {isa}")
    pixel_bytes = size.pixel_bytes or size.steps * best[1].variant.lanes * 4
    return _schedule(best[1], isa, pixel_bytes=pixel_bytes * size.stride, threads=threads, splits=splits)


def _cost(choice: TileChoice, vectors: int) -> float:
    """Relative time: multiply-adds issued, plus the loads that small tiles do not hide; a block has `vectors`."""
    variant = choice.variant
    width = variant.oc_tile * vectors / BLOCK
    tiles = choice.rows * choice.row_tiles
    pixels = choice.rows * choice.row_pixels
    products = pixels * width
    loads = tiles * width + pixels
    # Two loads and two multiply-adds per cycle: a tile wants more arithmetic than loads.
    return choice.oc_groups * max(products + 0.1 * loads, loads)


def _schedule(choice: TileChoice, isa: Isa, *, pixel_bytes: int, threads: int, splits: bool) -> TileChoice:
    """Adds task order and size; `pixel_bytes` are those of the input for an output pixel."""
    variant = choice.variant
    tiles, steps = choice.rows * choice.row_tiles, choice.steps
    lanes = variant.lanes
    if variant.kind == "depthwise":
        # Nothing is shared between channel blocks: long runs of pixels.
        wanted = -(-4 * threads // (choice.images * choice.groups))
        return replace(choice, chunk_tiles=_even(tiles, -(-tiles // max(1, wanted))))
    panel = steps * lanes * variant.oc_tile * 4
    # A few tasks per thread beyond the channel split, for balance; of a small layer as many as are worth a call.
    shares = choice.images * choice.groups * choice.oc_groups
    products = choice.rows * choice.row_pixels * shares * variant.oc_tile * steps * lanes
    few = max(1, min(_TASKS_PER_THREAD, products // (_LEAST_PRODUCTS * threads))) * threads
    balanced = _even(tiles, -(-tiles // -(-few // shares)))
    weights = panel * choice.oc_groups
    tile_bytes = -(-choice.row_pixels // choice.row_tiles) * pixel_bytes
    # What a stride skips counts: the lines that are read share few of the caches' sets.
    inputs = tile_bytes * tiles * choice.images
    if splits and variant.kind == "k16" and panel >= _WHOLE_PANEL[isa] and tiles > 2:
        block = _PANEL_BLOCK * variant.oc_tile // BLOCK
        choice = replace(choice, step_block=_even(steps, steps * block // panel))
        if inputs > 2 * _L2_SHARE:
            return replace(choice, order=ORDER_PIXELS, chunk_tiles=_even(tiles, _SPLIT_CHUNK))
        return replace(choice, chunk_tiles=balanced)
    at_most = max(1, (_L1_SHARE if weights <= _L2_SHARE else _L2_SHARE) // tile_bytes)
    if threads > 1 and weights <= inputs:
        # A thread that keeps to its pixels mostly reads what it wrote in the layer before: its own caches have it.
        wanted = -(-few // (choice.images * choice.groups))
        return replace(choice, order=ORDER_PIXELS, chunk_tiles=_even(tiles, min(at_most, -(-tiles // wanted))))
    # Bytes that come from beyond L2 in either order; what fits L2 comes once.
    channels_outer = weights + inputs * (choice.oc_groups if inputs > _L2_SHARE else 1)
    pixels_outer = inputs + weights * (choice.images * -(-tiles // at_most) if weights > _L2_SHARE else 1)
    if pixels_outer < channels_outer:
        return replace(choice, order=ORDER_PIXELS, chunk_tiles=_even(tiles, at_most))
    return replace(choice, chunk_tiles=balanced)


def _even(tiles: int, at_most: int) -> int:
    """The size that cuts `tiles` (or steps) into chunks of nearly equal size, none above `at_most`."""
    chunks = -(-tiles // max(1, min(at_most, tiles)))
    return -(-tiles // chunks)
