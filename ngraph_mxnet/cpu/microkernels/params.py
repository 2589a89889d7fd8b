"""The contract of the contraction kernels: operands, parameters and task numbering.

One frame serves convolution, matrix multiply and depthwise convolution. A kernel computes, for every image,
channel group, output channel `c` of the group and output pixel `p` (byte offsets throughout):

    acc[c, p] = bias[c] + sum over step s, lane k:  input[pixel_in[p] + step[s] + 4 k] * weights[s, k, c]
    y         = gate(clamp(acc + residual, lower, upper))                     -> output[pixel_out[p]]
    y2        = clamp(y * scale2[c] + shift2[c], lower2, upper2)              -> output2[pixel_out2[p]]

`residual`, gate and the second output are optional (`FLAG_*`). gate(x) is x * clamp(x * slope + offset, 0, 1) * scale +
shift, a hard swish. A clamp keeps NaN. Geometry lives in two constant
tables (`tables.py`): where a pixel starts, and where a kernel tap and an input channel (block) lie relative
to it. So stride, dilation, padding (through the input's zero halo) and layouts never reach the kernel.

Kinds, by what one entry of the step table stands for:
    k16        16 consecutive input floats: blocked inputs, or matrix rows with K a multiple of 16
    k1         one input float: plain NCHW inputs of few channels (the stem), blocked inputs whose blocks are not
               full, matrix rows of any K
    depthwise  16 consecutive floats multiplied lane by lane; a "group" is one 16-channel block

Variants ending in `_bf16` read inputs of k16 and depthwise as bf16: a block's pixel has 32 bytes, and channel k of a
step lies at 2 k. The weights of k16 are bf16 too, in pairs of input channels. Outputs and residuals are bf16 where
the flags say so; all else is float32. A store rounds to nearest, ties to even. Sums are float32; in which order
and with which intermediate roundings is up to the dot instruction, which also takes denormals for zeros.

Output, second output and residual are blocked: whole 16-channel blocks of 64 bytes a pixel (32 in bf16) are read
and written, at `block * *_block_stride + pixel_*[p]`. With an `oc_tile` of 8 weight tiles are half blocks; where a
group ends with the lower half, the upper one is written zeros. `residual` may be `output` itself unless the steps are
split into blocks, which a bf16 output does not allow: it can't hold the sums so far.

Symbols are `ng_contraction_<variant>__<isa>`; `tiles.choose_tiles` picks the variant. `oc_tile`, 8, 16 or
32, is the variant's number of output channels per weight tile. Weights are packed
`[groups][oc_groups][steps * lanes][oc_tile]`, or in bf16 `[groups][oc_groups][steps * 8][oc_tile][2]`
(`tests/cpu/packing_references.py`), and, as `bias`, `scale2` and `shift2`
(`[groups][oc_groups][oc_tile]`), 64-byte aligned and padded with zeros. Matrices of a batch are groups too;
they may share weights or channel vectors.

Tasks are numbered flat over (group, oc group, image, chunk) for `ORDER_CHANNELS`, and over
(image, group, chunk, oc group) for `ORDER_PIXELS`, last fastest. A chunk is `chunk_tiles` consecutive
tiles of at most M pixels; a row of `row_pixels` pixels is cut into `row_tiles` tiles whose sizes differ by
at most one, the larger first. Variants ending in `_rows` ask that the pixels of one row lie `pixel_stride`
bytes apart in the input; for the others a row may be the whole image.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import IntEnum

__all__ = [
    "BLOCK",
    "FLAG_GATE",
    "FLAG_OUTPUT2",
    "FLAG_OUTPUT2_BF16",
    "FLAG_OUTPUT_BF16",
    "FLAG_RESIDUAL",
    "FLAG_RESIDUAL_BF16",
    "FLOATS",
    "INTS",
    "ORDER_CHANNELS",
    "ORDER_PIXELS",
    "ContractionParams",
    "Operand",
]

BLOCK = 16
"""Channels in a block; 64 bytes of float32."""

ORDER_CHANNELS = 0
"""Weights stay in cache: output channels outermost."""
ORDER_PIXELS = 1
"""A chunk of the input stays in cache: pixels outermost."""

FLAG_RESIDUAL = 1
FLAG_OUTPUT2 = 2
FLAG_OUTPUT_BF16 = 4
FLAG_RESIDUAL_BF16 = 8
FLAG_OUTPUT2_BF16 = 16
FLAG_GATE = 32


class Operand(IntEnum):
    """Index of each pointer in `tensors`. A pointer whose flag is not set is never read."""

    INPUT = 0
    WEIGHTS = 1
    BIAS = 2
    OUTPUT = 3
    RESIDUAL = 4
    PIXELS = 5
    STEPS = 6
    OUTPUT2 = 7
    SCALE2 = 8
    SHIFT2 = 9


@dataclass(frozen=True, kw_only=True)
class ContractionParams:
    """The scalar parameters of one contraction; the field order is the order of `ints`, then `floats`.

    Strides are in bytes. A stride or clamp that the flags leave unused may stay at its default.
    """

    images: int = 1
    """Images that differ by `*_image_stride` only."""
    groups: int = 1
    """Channel groups (after merging into super-groups); for depthwise the number of 16-channel blocks."""
    oc_groups: int
    """Weight tiles of `oc_tile` output channels in a group: ceil(channels / oc_tile)."""
    out_blocks: int
    """16-channel output blocks in a group."""
    rows: int
    """Rows of pixels in an image; rows * row_pixels is the width of the pixel table."""
    row_pixels: int
    row_tiles: int
    """Tiles per row; ceil(row_pixels / row_tiles) must not exceed the variant's largest tile."""
    chunk_tiles: int
    """Tiles in a task, counted through the rows of an image."""
    order: int = ORDER_CHANNELS
    steps: int
    """Entries of the step table, at least 1."""
    step_block: int = 0
    """Steps that a task sums for all its tiles before it takes the next ones, so that their weights stay in
    L1; the output holds the sums so far. 0 for all steps at once."""
    flags: int = 0
    """Sum of `FLAG_*`."""
    pixel_stride: int = 0
    """Input bytes between neighbouring output pixels of a row; `_rows` variants only."""
    weight_group_stride: int = 0
    """Between the packed weights of two groups; 0 if they share them."""
    channel_group_stride: int = 0
    """The same for `bias`, `scale2` and `shift2`."""
    in_image_stride: int = 0
    in_group_stride: int = 0
    out_image_stride: int = 0
    out_group_stride: int = -1
    """-1 here and below: the groups' blocks follow each other."""
    out_block_stride: int
    res_image_stride: int = 0
    res_group_stride: int = -1
    res_block_stride: int = 0
    out2_image_stride: int = 0
    out2_group_stride: int = -1
    out2_block_stride: int = 0

    lower: float = float("-inf")
    upper: float = float("inf")
    lower2: float = float("-inf")
    upper2: float = float("inf")
    slope: float = 1 / 6
    offset: float = 0.5
    scale: float = 1.0
    shift: float = 0.0

    @property
    def chunks(self) -> int:
        """Tasks that the tiles of one image make, for one weight tile."""
        return -(-self.rows * self.row_tiles // self.chunk_tiles)

    @property
    def tasks(self) -> int:
        """Number of tasks of the whole contraction."""
        return self.images * self.groups * self.oc_groups * self.chunks

    def ints(self) -> list[int]:
        """The kernel's `ints`."""
        resolved: dict[str, int] = {"step_block": self.step_block or self.steps}
        for prefix in ("out", "res", "out2"):
            if getattr(self, f"{prefix}_group_stride") == -1:
                resolved[f"{prefix}_group_stride"] = self.out_blocks * getattr(self, f"{prefix}_block_stride")
        return [resolved.get(name, getattr(self, name)) for name in INTS]

    def floats(self) -> list[float]:
        """The kernel's `floats`."""
        return [getattr(self, name) for name in FLOATS]


INTS: tuple[str, ...] = tuple(f.name for f in fields(ContractionParams) if f.type == "int")
"""Name of each entry of `ints`, in order."""
FLOATS: tuple[str, ...] = tuple(f.name for f in fields(ContractionParams) if f.type == "float")
"""Name of each entry of `floats`, in order."""
