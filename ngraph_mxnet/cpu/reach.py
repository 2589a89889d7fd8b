"""The bytes that an instruction reads and writes of each operand, from its `ints`: the first, and one past the last.

`REACH` has the families whose reach follows from `ints` and constant tables. That of the others (pools, resampling,
regions, Winograd's transforms, attention, recurrent cells, box_nms, lrn), and of rows that positions in memory name
(scatter), is not worked out here: `validate` checks their numbers only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from ngraph_mxnet.cpu.microkernels.params import (
    FLAG_OUTPUT2,
    FLAG_OUTPUT2_BF16,
    FLAG_OUTPUT_BF16,
    FLAG_RESIDUAL,
    FLAG_RESIDUAL_BF16,
    INTS,
    Operand,
)
from ngraph_mxnet.cpu.microkernels.variants import Variant
from ngraph_mxnet.cpu.signatures import CONTRACTIONS, SIGNATURES

Ints = Sequence[int]
Span = tuple[int, int, int]
"""An operand's number; its first byte, from where it points, and one past its last."""
Table = Callable[[int, int], np.ndarray]
"""So many int32 at an operand that is a constant."""

_BLOCK_BYTES = 64


def span(operand: int, size: int, *axes: tuple[int, int], last: int = 1) -> Span:
    """Elements of `size` bytes along `axes`, (how many, stride in elements); at every place are `last` of them."""
    reach = [(count - 1) * stride for count, stride in axes]
    return (operand, size * sum(min(r, 0) for r in reach), size * (sum(max(r, 0) for r in reach) + last))


def strided(elements: Ints, ints: Ints) -> list[Span]:
    """A kernel of the strided convention; see `kernels/strided.py`."""
    sizes = ints[2:7]
    return [span(number, size, *zip(sizes, ints[7 + 5 * number:12 + 5 * number], strict=True))
            for number, size in enumerate(elements)]


def _layout(plain: int, ints: Ints) -> list[Span]:
    """`to_blocked` (operand 0 is `plain`) and `from_blocked`."""
    images, channels, height, width = ints[:4]
    strides = ints[4:8], ints[8:12]
    counts = [images, -(-channels // 16), height, width]
    blocked = span(1 - plain, 4, *zip(counts, strides[1 - plain], strict=True), last=16)
    return [span(plain, 4, *zip(ints[:4], strides[plain], strict=True)), blocked]


def _zero_halo(ints: Ints) -> list[Span]:
    planes, height, width, top, bottom, left, right, words = ints
    return [(0, 0, 4 * planes * (height + top + bottom) * (width + left + right) * words)]


def _pack_contraction(size: int, ints: Ints) -> list[Span]:
    supers, merged, outputs, inputs, height, width, tile, lanes = ints[:8]
    oc, ic, kh, kw, super_ = ints[8:]
    if size == 2:
        lanes = 16
    packed = supers * -(-merged * outputs // tile) * -(-merged * inputs // lanes) * height * width * lanes * tile
    return [span(0, 4, (supers, super_), (merged * outputs, oc), (inputs, ic), (height, kh), (width, kw)),
            (1, 0, packed * size)]


def _pack_depthwise(ints: Ints) -> list[Span]:
    return [span(0, 4, *zip(ints[:3], ints[3:], strict=True)), (1, 0, -(-ints[0] // 16) * ints[1] * ints[2] * 64)]


def _pack_channels(ints: Ints) -> list[Span]:
    groups, per_group, tile, stride = ints
    return [span(0, 4, (groups * per_group, stride)), (1, 0, 4 * groups * -(-per_group // tile) * tile)]


def _gather(size: int, ints: Ints) -> list[Span]:
    outer, axis, inner, count = ints[:4]
    return [(0, 0, size * outer * axis * inner), (1, 0, 8 * count), (2, 0, size * outer * count * inner)]


def _softmax(ints: Ints) -> list[Span]:
    return [span(number, 4, *zip(ints[:3], ints[3 + 3 * number:6 + 3 * number], strict=True)) for number in range(2)]


def _layer_norm(ints: Ints) -> list[Span]:
    rows, columns, in_row, out_row = ints
    return [span(0, 4, (rows, in_row), last=columns), (1, 0, 4 * columns), (2, 0, 4 * columns),
            span(3, 4, (rows, out_row), last=columns)]


def _reduce(size: int, ints: Ints) -> list[Span]:
    kept, reduced = ints[:5], ints[5:10]
    return [span(0, size, *zip(kept, ints[10:15], strict=True), *zip(reduced, ints[20:25], strict=True)),
            span(1, size, *zip(kept, ints[15:20], strict=True))]


def _arg(size: int, ints: Ints) -> list[Span]:
    outer, axis, inner, *strides = ints
    return [span(0, size, *zip((outer, axis, inner), strides[:3], strict=True)),
            span(1, 8, (outer, strides[3]), (inner, strides[4]))]


def _ordering(op: str, size: int, ints: Ints) -> list[Span]:
    outer, axis, inner, _, count = ints
    results = {"argsort": 16 * axis, "first": 8 * count, "cumsum": size * axis}[op]
    return [(0, 0, size * outer * axis * inner), (1, 0, outer * inner * results)]


def _scale_shift(size: int, ints: Ints) -> list[Span]:
    blocks = ints[1]
    return [span(0, size, *zip(ints[:4], ints[4:8], strict=True), last=16), (1, 0, 64 * blocks), (2, 0, 64 * blocks),
            span(3, size, *zip(ints[:4], ints[8:12], strict=True), last=16)]


def _product(ints: Ints) -> list[Span]:
    batch, rows, inner, columns = ints[:4]
    return [span(0, 8, (batch, ints[4]), (rows, ints[5]), (inner, ints[6])),
            span(1, 8, (batch, ints[7]), (columns, ints[8]), (inner, ints[9])), (2, 0, 8 * batch * rows * columns)]


def _depthwise(stride: int, ints: Ints) -> list[Span]:
    images, blocks, height, width, _, first, *strides = ints[:12]
    planes = (images, strides[0]), (blocks, strides[1])
    _, low, high = span(0, 1, *planes, ((height - 1) * stride + 3, strides[2]), ((width - 1) * stride + 3, 64), last=64)
    return [(0, low + first, high + first), (1, 0, blocks * 9 * 64), (2, 0, blocks * 64),
            span(3, 1, (images, strides[3]), (blocks, strides[4]), (height, strides[5]), (width, 64), last=64)]


def contraction(variant: Variant, ints: Ints, table: Table) -> list[Span]:
    """See `microkernels/params.py`. Raises ValueError for tiles that the variant has not."""
    n = dict(zip(INTS, ints, strict=False))
    pixels = n["rows"] * n["row_pixels"]
    tile, larger = divmod(n["row_pixels"], n["row_tiles"])
    first_block = (n["oc_groups"] - 1) // 2 if variant.half else (n["oc_groups"] - 1) * variant.blocks
    if not 1 <= tile <= tile + bool(larger) <= variant.tile or first_block >= n["out_blocks"]:
        raise ValueError(f"no tiles of {variant.name} for {n['row_pixels']} pixels in {n['row_tiles']} tiles, "
                         f"{n['oc_groups']} groups of outputs for {n['out_blocks']} blocks")
    offsets = table(Operand.PIXELS, 4 * pixels).reshape(4, pixels)
    steps = table(Operand.STEPS, n["steps"])

    def around(operand: Operand, low: int, high: int, *axes: tuple[int, int]) -> Span:
        number, first, last = span(operand, 1, *axes, last=0)
        return number, first + low, last + high

    inputs = offsets[0]
    if variant.rows:
        numbers = np.arange(n["row_tiles"])
        starts = (numbers * tile + np.minimum(numbers, larger) + np.arange(n["rows"])[:, None] * n["row_pixels"])
        ends = (tile + (numbers < larger) - 1) * n["pixel_stride"] + inputs[starts].astype(np.int64)
        inputs = np.concatenate((inputs[starts], ends), axis=None)
    lane_bytes = 4 if variant.kind == "k1" else 32 if variant.bf16 else 64
    spans = [around(Operand.INPUT, int(inputs.min()) + int(steps.min()),
                    int(inputs.max()) + int(steps.max()) + lane_bytes,
                    (n["images"], n["in_image_stride"]), (n["groups"], n["in_group_stride"]))]
    panel = 4 * variant.oc_tile * n["steps"] * variant.lanes
    channels = (n["groups"], n["channel_group_stride"])
    vector = 4 * variant.oc_tile * n["oc_groups"]
    spans += [around(Operand.WEIGHTS, 0, panel * n["oc_groups"], (n["groups"], n["weight_group_stride"])),
              around(Operand.BIAS, 0, vector, channels)]
    results = [(Operand.OUTPUT, "out", 1, 0, FLAG_OUTPUT_BF16), (Operand.RESIDUAL, "res", 2, FLAG_RESIDUAL,
               FLAG_RESIDUAL_BF16), (Operand.OUTPUT2, "out2", 3, FLAG_OUTPUT2, FLAG_OUTPUT2_BF16)]
    for operand, prefix, column, flag, narrow in results:
        if n["flags"] & flag == flag:
            spans.append(around(
                operand, int(offsets[column].min()),
                int(offsets[column].max()) + _BLOCK_BYTES // (2 if n["flags"] & narrow else 1),
                (n["images"], n[f"{prefix}_image_stride"]), (n["groups"], n[f"{prefix}_group_stride"]),
                (n["out_blocks"], n[f"{prefix}_block_stride"])))
    if n["flags"] & FLAG_OUTPUT2:
        spans += [around(operand, 0, vector, channels) for operand in (Operand.SCALE2, Operand.SHIFT2)]
    return spans


def _factors(ints: Ints) -> list[Span]:
    return [(number, 0, 4 * ints[0]) for number in range(6)]


def _families() -> dict[str, Callable[[Ints], list[Span]]]:
    sizes = {"f32": 4, "f64": 8, "i64": 8}

    def size_of(name: str) -> int:
        return sizes.get(name[-3:], 4)

    return {
        "to_blocked": partial(_layout, 0), "from_blocked": partial(_layout, 1), "zero_halo": _zero_halo,
        "pack_depthwise": _pack_depthwise, "pack_channels": _pack_channels,
        "pack_contraction": partial(_pack_contraction, 4), "pack_contraction_bf16": partial(_pack_contraction, 2),
        "softmax": _softmax, "log_softmax": _softmax, "layer_norm": _layer_norm, "batch_norm_factors": _factors,
        "scale_shift_blocked": partial(_scale_shift, 4), "scale_shift_blocked_bf16": partial(_scale_shift, 2),
        "product_f64": _product, "product_i64": _product,
        "depthwise3x3_s1": partial(_depthwise, 1), "depthwise3x3_s2": partial(_depthwise, 2),
        **{f"gather_{size}": partial(_gather, size) for size in (1, 2, 4, 8)},
        **{name: partial(_reduce, size_of(name)) for name in SIGNATURES if name.startswith("reduce_")},
        **{name: partial(_arg, size_of(name)) for name in SIGNATURES if name.startswith(("argmax", "argmin"))},
        **{f"{op}_{element}": partial(_ordering, op, size)
           for op in ("argsort", "first", "cumsum") for element, size in sizes.items()},
        **{name: partial(strided, signature.elements)
           for name, signature in SIGNATURES.items() if signature.elements},
    }


REACH = _families()
"""By the kernel's name; contractions are apart, as they need their tables."""


def reach_of(name: str, ints: Ints, table: Table, variant: Variant | None = None) -> list[Span] | None:
    """The spans of an instruction's operands, None for a kernel of which they are not known; `variant` that of the
    instruction set, for contractions."""
    if name in CONTRACTIONS:
        return contraction(variant or CONTRACTIONS[name], ints, table)
    known = REACH.get(name)
    return known(ints) if known else None
