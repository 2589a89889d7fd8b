"""Choice of kernel variant, tiles, task size and task order for one contraction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from ngraph_mxnet.ir.sizes import at_hand, both, cached, either, greatest, least, negated, where
from ngraph_mxnet.targets.cpu.microkernels.params import (
    BLOCK,
    CONTRACTION,
    FLAG_OUTPUT2,
    FLAG_OUTPUT2_NARROW,
    FLAG_OUTPUT_NARROW,
    FLAG_RESIDUAL,
    FLAG_RESIDUAL_NARROW,
    ORDER_CHANNELS,
    ORDER_PIXELS,
    TASK_LOOPS,
)
from ngraph_mxnet.targets.cpu.microkernels.variants import (
    ACTIVATIONS,
    PANEL_TILES,
    TILE_PIXELS,
    VECTORS,
    Isa,
    Kind,
    Tile,
    Variant,
    prefetches,
    symbol,
    variants,
)

__all__ = ["ContractionSize", "TileChoice", "Wanted", "choose_tiles", "loop_nest", "output_parts"]

_FOLD_PIXELS = 256
"""Images of fewer output pixels than this are folded into one pixel range, for fuller tiles."""
_NARROW, _NARROW_COST = {"k16_n16", "k16_n16_u8"}, 1.4
"""AVX-512 with two multiply-adds a cycle: of these variants they wait for the loads. Measured on an Intel Xeon: of five
and seven blocks tiles of two are faster with one block of zeros, by 0 to 0.2."""
_WIDE, _WIDE_COST, _WIDE_COST_OF_FEW, _FEW_PIXELS = 48, 0.97, 1.04, 16
"""Tiles of three blocks read less of the input for a multiply-add, and more weights. Measured on an Intel Xeon: of
equal products 0.8 to 1.02 of the time of tiles of two, with few pixels 1.0 to 1.1."""
_WORTH_A_CALL = 8 * 1024
"""Multiply-adds of vectors that take longer than a call of its own for some of the output blocks: some 1.5 us."""
_WORTH_PARTS = 0.03
"""The share of its time that a contraction must save by its parts: costs are not known more exactly."""
_TILE_PRODUCT, _TILE_LOADS, _TILE_COPY, _TILE_L1_SHARE = 16, (8, 16), 16, 40 * 1024
"""Cycles of AMX: of a product, of a load of a tile from L1 and from L2, and of the copy of a step of a tile's pixels.
And the bytes of input and weights for the tiles of sums that stay in L1."""
_COPIED_BYTES = 3
"""So many bytes are copied from L2 in the time in which one comes from beyond it."""
_TILE_BYTES = 1024
_TILE_L2_SHARE = 1536 * 1024
"""The same as `_L2_SHARE` on CPUs with AMX, whose L2 has 2 MiB."""
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
    table_images: int
    """Images of the pixel table: all where they are folded into one range of pixels, else 1."""
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
        vector = self.oc_groups * self.oc_tile * 4
        return {"images": self.images, "groups": self.groups, "oc_groups": self.oc_groups,
                "out_blocks": self.out_blocks, "rows": self.rows, "row_pixels": self.row_pixels,
                "row_tiles": self.row_tiles, "chunk_tiles": self.chunk_tiles, "order": self.order,
                "step_block": self.step_block, "channel_group_stride": vector,
                "weight_group_stride": self.steps * self.variant.lanes * vector}


class ContractionSize(NamedTuple):
    """A contraction of `out_h * out_w` pixels and `out_blocks` 16-channel blocks a group.

    `flat_input`: all output pixels of an image lie at one constant input stride (matrix rows; 1x1
    convolution of stride 1 without halo). `channels` are those of a group, if its last block is not full.
    `pixel_bytes` of the input, those of a matrix's row if not given, and `stride` (both axes' product)
    estimate the input's size. `joined`: the steps of a pixel lie one behind the other.
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
    joined: bool = False

    def at_hand(self) -> ContractionSize:
        """The size at hand, of one that is symbolic."""
        return self._replace(
            images=at_hand(self.images), out_h=at_hand(self.out_h), out_w=at_hand(self.out_w),
            steps=at_hand(self.steps), groups=at_hand(self.groups), out_blocks=at_hand(self.out_blocks),
            channels=None if self.channels is None else at_hand(self.channels))

    @staticmethod
    def of_product(rows: int, out_blocks: int, steps: int, groups: int = 1, *, joined: bool = False) -> ContractionSize:
        """That of a matrix product of so many rows, or of several that are alike."""
        return ContractionSize(images=1, out_h=1, out_w=rows, out_blocks=out_blocks, steps=steps, groups=groups,
                               flat_input=True, joined=joined)


class Wanted(NamedTuple):
    """The kernels that a contraction may have: of `bf16`, of `u8`, or else of float32."""

    isa: Isa
    bf16: bool = False
    u8: bool = False
    vnni: bool = False
    """The CPU has what `VNNI` says."""
    short: bool = False
    """Sums may be in 16 bits."""
    halves: bool = False
    """See `machine.isa.halves_avx512`."""
    amx: bool = False
    """The CPU has what `AMX` says."""


@cached(1024)  # chains of layers ask for the same again and again
def choose_tiles(wanted: Wanted, kind: Kind, size: ContractionSize, *, threads: int = 1,
                 splits: bool = True) -> TileChoice:
    """Tiles for a contraction of this size. `splits` allows to split the steps (not with a bf16 output, nor in u8)."""
    isa, (_, variant) = wanted.isa, _best(wanted, kind, size.at_hand())
    choice = _unscheduled(variant, isa, size)
    pixel_bytes = size.pixel_bytes or size.steps * variant.lanes * 4
    return _schedule(choice, isa, pixel_bytes=pixel_bytes * size.stride, threads=threads, splits=splits,
                     joined=size.joined)


def _best(wanted: Wanted, kind: Kind, size: ContractionSize) -> tuple[float, Variant]:
    """The variant that costs least, with its cost."""
    isa, bf16, u8, vnni, short, halves, amx = wanted
    fits = [variant for variant in variants(isa) if (variant.kind, variant.bf16, variant.u8) == (kind, bf16, u8)
            and not (halves and variant.oc_tile == _WIDE) and (amx or not variant.amx)]
    if u8 and kind == "k16":
        fits = of_bytes(fits, vnni=vnni, short=short)
    if not fits:
        raise ValueError(f"no {kind} kernel{' of bf16' if bf16 else ' of u8' if u8 else ''} for {isa}")
    costs = [(_cost(_unscheduled(variant, isa, size), isa, halves, size.joined), variant) for variant in fits]
    return min(costs, key=lambda cost: cost[0])


@cached(1024)
def output_parts(wanted: Wanted, kind: Kind, size: ContractionSize) -> tuple[int, ...]:
    """The output blocks of the contractions that together take least time: `out_blocks`, or a part with a tile width of
    its own, and the others, where one width for all would compute with blocks of zeros."""
    known = size.at_hand()
    channels = known.channels or BLOCK * known.out_blocks

    def cost(first: int, blocks: int) -> tuple[float, int]:
        part = known._replace(out_blocks=blocks, channels=min(channels - first * BLOCK, blocks * BLOCK))
        found, variant = _best(wanted, kind, part)
        return found, variant.lanes

    whole, lanes = cost(0, known.out_blocks)
    parts: tuple[int, ...] = (known.out_blocks,)
    saved = max(_WORTH_A_CALL / (known.images * known.steps * lanes), _WORTH_PARTS * whole)
    for first in (_WIDE // BLOCK, known.out_blocks - 1):
        if 0 < first < known.out_blocks:
            gain = whole - cost(0, first)[0] - cost(first, known.out_blocks - first)[0]
            if gain > saved:
                saved, parts = gain, (first, known.out_blocks - first)
    return parts


def of_bytes(fits: Sequence[Variant], *, vnni: bool, short: bool) -> list[Variant]:
    """The fastest of these variants of u8: with VNNI those that need it, else those of short sums where such are
    allowed, else those of wide weights."""
    for wanted, allowed in (((False, False), vnni), ((True, False), short), ((False, True), True)):
        found = [variant for variant in fits if allowed and (variant.short, variant.wide) == wanted]
        if found:
            return found
    return []


def _unscheduled(variant: Variant, isa: Isa, size: ContractionSize) -> TileChoice:
    """All but task order and size."""
    fold = both(size.images > 1, size.out_h * size.out_w < _FOLD_PIXELS)
    out_rows = where(fold, size.images * size.out_h, size.out_h)
    # Indexed tiles cross rows; those with a constant stride only where the input is one long row.
    one_row = either(not variant.rows, both(size.flat_input, negated(fold)))
    rows, row_pixels = where(one_row, 1, out_rows), where(one_row, out_rows * size.out_w, size.out_w)
    row_tiles = -(-row_pixels // variant.tile)
    oc_groups = -(-(size.channels or BLOCK * size.out_blocks) // variant.oc_tile)
    return TileChoice(variant, symbol(variant, isa), where(fold, size.images, 1), where(fold, 1, size.images),
                      size.groups, oc_groups, size.out_blocks, rows, row_pixels, row_tiles, chunk_tiles=1,
                      order=ORDER_CHANNELS, steps=size.steps)


def _cost(choice: TileChoice, isa: Isa, halves: bool, joined: bool) -> float:
    """Relative time: multiply-adds issued, plus the loads that small tiles do not hide."""
    variant = choice.variant
    if variant.amx:
        return _tile_cost(choice, joined)
    width = variant.oc_tile * VECTORS[isa] / BLOCK
    tiles = choice.rows * choice.row_tiles
    pixels = choice.rows * choice.row_pixels
    products = pixels * width
    # Two loads and two multiply-adds per cycle: a tile wants more arithmetic than loads.
    loads = tiles * width + pixels
    cost = choice.oc_groups * max(products + 0.1 * loads, loads)
    if variant.oc_tile == _WIDE:
        cost *= _WIDE_COST_OF_FEW if pixels <= _FEW_PIXELS else _WIDE_COST
    return cost * _NARROW_COST if isa == "avx512" and not halves and variant.name in _NARROW else cost


def _tile_cost(choice: TileChoice, joined: bool) -> float:
    """The same for AMX: cycles for a row of weights, of which a product has 16. Intel's AVX512_BF16 takes one for a
    multiply-add."""
    variant, steps = choice.variant, choice.steps
    inputs, weights = choice.rows * -(-choice.row_pixels // TILE_PIXELS), 4 * variant.oc_tile * variant.lanes * steps
    loads = inputs + choice.rows * choice.row_tiles * variant.blocks
    products = -(-steps * variant.lanes // BLOCK)
    is_far = weights + variant.pixel_tiles * products * _TILE_BYTES > _TILE_L1_SHARE
    cycles = max(_TILE_PRODUCT * inputs * variant.blocks, _TILE_LOADS[is_far] * loads)
    most = inputs if choice.oc_groups * weights > _TILE_L2_SHARE else variant.pixel_tiles
    copies = 0 if joined else _TILE_COPY * inputs * BLOCK // variant.lanes
    if products * most <= PANEL_TILES:
        return (choice.oc_groups * cycles + copies) / BLOCK
    return choice.oc_groups * (cycles + copies) / BLOCK


def _schedule(choice: TileChoice, isa: Isa, *, pixel_bytes: int, threads: int, splits: bool,
              joined: bool) -> TileChoice:
    """Adds task order and size; `pixel_bytes` are those of the input for an output pixel; `joined`: as in
    `ContractionSize`."""
    variant = choice.variant
    tiles, steps = choice.rows * choice.row_tiles, choice.steps
    lanes = variant.lanes
    if variant.kind == "depthwise":
        # Nothing is shared between channel blocks: long runs of pixels.
        wanted = -(-4 * threads // (choice.images * choice.groups))
        return replace(choice, chunk_tiles=_even(tiles, -(-tiles // greatest(1, wanted))))
    panel = steps * lanes * variant.oc_tile * 4
    # A few tasks per thread beyond the channel split, for balance; of a small layer as many as are worth a call.
    shares = choice.images * choice.groups * choice.oc_groups
    products = choice.rows * choice.row_pixels * shares * variant.oc_tile * steps * lanes
    few = greatest(1, least(_TASKS_PER_THREAD, products // (_LEAST_PRODUCTS * threads))) * threads
    balanced = _even(tiles, -(-tiles // -(-few // shares)))
    weights = panel * choice.oc_groups
    tile_bytes = -(-choice.row_pixels // choice.row_tiles) * pixel_bytes
    # What a stride skips counts: the lines that are read share few of the caches' sets.
    inputs = tile_bytes * tiles * choice.images
    split = both(splits and variant.kind == "k16" and not variant.amx and panel >= _WHOLE_PANEL[isa], tiles > 2)
    block = _PANEL_BLOCK * variant.oc_tile // BLOCK
    l2_share, kept_bytes = _L2_SHARE, tile_bytes
    if variant.amx:  # what stays is the copy of whole products
        l2_share, kept_bytes = _TILE_L2_SHARE, _TILE_BYTES * variant.pixel_tiles * -(-steps * lanes // BLOCK)
    at_most = greatest(1, where(weights <= l2_share, _L1_SHARE, _L2_SHARE) // kept_bytes)
    # A thread that keeps to its pixels mostly reads what it wrote in the layer before: its own caches have it.
    keeps = both(threads > 1, weights <= inputs)
    wanted = -(-few // (choice.images * choice.groups))
    # Bytes that come from beyond L2 in either order; what fits L2 comes once.
    channels_outer = weights + inputs * where(inputs > l2_share, choice.oc_groups, 1)
    pixels_outer = inputs + weights * where(weights > l2_share, choice.images * -(-tiles // at_most), 1)
    if variant.amx and not joined:  # the order of channels copies for each of them what the panel can't hold
        copied = choice.images * tiles * kept_bytes
        channels_outer += where(copied > _L2_SHARE, copied * (choice.oc_groups - 1) // _COPIED_BYTES, 0)
    outer = pixels_outer <= channels_outer if variant.amx else pixels_outer < channels_outer
    chunk = where(keeps, least(at_most, -(-tiles // wanted)), at_most)
    streams = inputs > 2 * _L2_SHARE
    by_pixels = either(both(split, streams), both(negated(split), either(keeps, outer)))
    return replace(choice, step_block=where(split, _even(steps, steps * block // panel), 0),
                   order=where(by_pixels, ORDER_PIXELS, ORDER_CHANNELS),
                   chunk_tiles=where(by_pixels, _even(tiles, where(split, _SPLIT_CHUNK, chunk)), balanced))


def _even(tiles: int, at_most: int) -> int:
    """The size that cuts `tiles` (or steps) into chunks of nearly equal size, none above `at_most`."""
    chunks = -(-tiles // greatest(1, least(at_most, tiles)))
    return -(-tiles // chunks)


def loop_nest(variant: Variant, isa: Isa, ints: Sequence[int]) -> str:
    """The loops of a call, outermost first, with what they keep in registers, and the epilogue: for people to read."""
    n = CONTRACTION.read(ints)
    tile, tiles = Tile(variant, isa, -(-n.row_pixels // n.row_tiles)), n.rows * n.row_tiles
    lanes, blocks = variant.lanes, variant.blocks
    sizes = {"image": n.images, "group": n.groups, "oc_group": n.oc_groups, "chunk": -(-tiles // n.chunk_tiles)}
    panel = 4 * n.steps * lanes * variant.oc_tile
    notes = {"oc_group": f"{variant.oc_tile} channels, whose weights are packed [{n.steps * lanes}]"
                         f"[{variant.oc_tile}], {panel} bytes"}
    lines = [f"contraction_{variant.name} on {isa}, {CONTRACTION.tasks_of(ints)} tasks"]
    depth = 0

    def add(text: str, note: str = "", *, opens: bool = False) -> None:
        nonlocal depth
        lines.append(f"{'    ' * depth}{text}{':' * opens}{f'  # {note}' if note else ''}")
        depth += opens

    for loop in TASK_LOOPS[n.order]:
        add(f"for {loop} in {sizes[loop]}", notes.get(loop, ""), opens=True)
    split = n.step_block < n.steps
    if split:
        add(f"for block of steps in {-(-n.steps // n.step_block)}",
            f"{panel * n.step_block // n.steps} bytes of weights stay in L1", opens=True)
    add(f"for tile in {n.chunk_tiles}", f"of {tiles}, in rows of {n.row_pixels} pixels and {n.row_tiles} tiles",
        opens=True)
    first = "bias" + " or output" * split

    def in_tiles() -> None:
        nonlocal depth
        parts, together = -(-n.row_pixels // TILE_PIXELS // n.row_tiles), BLOCK // lanes
        add(f"panel[{parts}] = input[pixels][{n.steps}]", "copied, unless it is there, or can be read in place")
        add(f"sums[{parts}][{blocks}] = 0", f"{parts * blocks} tiles of {TILE_PIXELS} pixels and {BLOCK} outputs")
        add(f"for product in {-(-n.steps // together)}", f"of {together} steps", opens=True)
        add(f"for part in {parts}", opens=True)
        add("x = panel[part][product]", "a tile")
        add(f"for block in {blocks}", opens=True)
        add("sums[part][block] += x * weights[product][block]", "a tile of weights")
        depth -= 3
        add(f"sums += {first}", "as all that follows, while the next tile's products are under way")

    def in_registers() -> None:
        nonlocal depth
        shape = f"[{tile.sets}]" * (tile.sets > 1) + f"[{tile.pixels}][{blocks}]"
        add(f"sums{shape} = {first}", f"{tile.sums * tile.sets * tile.vectors} registers")
        fetched = variant.prefetch_bytes * (prefetches(n.chunk_tiles, panel * n.oc_groups) if tile.repeats else 1)
        note = f"{fetched} bytes of the next block of weights are prefetched" if fetched else ""
        add(f"for step in {n.step_block}", note, opens=True)
        if lanes > 1:
            add(f"for lane in {lanes}", f"{tile.unroll} a turn", opens=True)
        lane = "[lane]" * (lanes > 1)
        add(f"w[{blocks}] = weights[step]{lane}", f"{blocks * tile.vectors} registers")
        add(f"for pixel in {tile.pixels}", opens=True)
        read = "16 channels" if variant.kind == "depthwise" else "in all lanes"
        add(f"sums{'[lane % sets]' * (tile.sets > 1)}[pixel] += input[pixel][step]{lane} * w", read)
        depth -= 2 + (lanes > 1)

    if variant.amx:
        in_tiles()
    else:
        in_registers()
    for text in _epilogue(variant, n.flags, n.activation):
        add(("in the last block: " if split and not text.startswith("output[") else "") + text)
    return "\n".join(lines) + "\n"


def _epilogue(variant: Variant, flags: int, activation: int) -> list[str]:
    """The lines on a tile's sums."""
    narrow = "u8" if variant.u8 else "bf16"

    def stored(name: str, flag: int) -> str:
        return f"{name}[pixel]{f' ({narrow})' if flags & flag else ''}"

    found = ["sums = sums * factor + addend"] * variant.u8
    if flags & FLAG_RESIDUAL:
        scale = " * residual_scale" * variant.u8
        found.append(f"sums += {stored('residual', FLAG_RESIDUAL_NARROW)}{scale}")
    found.append("sums = clamp(sums, lower, upper)")
    if activation:
        found.append(f"sums = {list(ACTIVATIONS)[activation]}(sums)")
    found.append(f"{stored('output', FLAG_OUTPUT_NARROW)} = sums")
    if flags & FLAG_OUTPUT2:
        found.append(f"{stored('output2', FLAG_OUTPUT2_NARROW)} = clamp(sums * scale2 + shift2, lower2, upper2)")
    return found
