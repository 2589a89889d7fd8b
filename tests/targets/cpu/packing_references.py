"""The packed layouts of a contraction's constants, and bf16, defined in NumPy."""

from __future__ import annotations

import numpy as np

from ngraph_mxnet.targets.cpu.microkernels.params import BLOCK, super_groups


def pack_weights_reference(weights: np.ndarray, *, groups: int, oc_tile: int, lanes: int) -> np.ndarray:
    """`[OC][IC / groups][KH][KW]` to float32 `[super-groups][oc_groups][steps * lanes][oc_tile]`.

    Steps are (input channel block, kh, kw) for `lanes` 16 (k16) and (input channel, kh, kw) for 1 (k1).
    A fully connected weight `[OC][IC]` is `weights[:, :, None, None]`.
    """
    oc, icg, kh, kw = weights.shape
    supers = super_groups(groups, icg * groups, oc, lanes)
    merged, ocg = groups // supers, oc // groups
    oc_groups = -(-merged * ocg // oc_tile)
    blocks = -(-merged * icg // lanes)
    dense = np.zeros((supers, oc_groups * oc_tile, blocks * lanes, kh, kw), np.float32)
    split = weights.reshape(supers, merged, ocg, icg, kh, kw)
    for i in range(merged):
        dense[:, i * ocg : (i + 1) * ocg, i * icg : (i + 1) * icg] = split[:, i]
    tiles = dense.reshape(supers, oc_groups, oc_tile, blocks, lanes, kh, kw)
    packed = tiles.transpose(0, 1, 3, 5, 6, 4, 2)
    return np.ascontiguousarray(packed.reshape(supers, oc_groups, blocks * kh * kw * lanes, oc_tile))


def round_bf16_reference(values: np.ndarray) -> np.ndarray:
    """float32 to the bits of bf16 (uint16): to nearest, ties to even; NaN becomes quiet."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    rounded = (bits + (0x7FFF + (bits >> 16 & 1))) >> 16
    return np.where(np.isnan(values), bits >> 16 | 0x40, rounded).astype(np.uint16)


def pack_pairs_reference(packed: np.ndarray) -> np.ndarray:
    """What `pack_weights_reference` gives, in pairs: uint16 `[super-groups][oc_groups][steps * 8][oc_tile][2]`."""
    supers, oc_groups, lanes, oc_tile = packed.shape
    pairs = packed.reshape(supers, oc_groups, lanes // 2, 2, oc_tile).swapaxes(-1, -2)
    return np.ascontiguousarray(round_bf16_reference(pairs))


def pack_depthwise_reference(weights: np.ndarray) -> np.ndarray:
    """`[C][1][KH][KW]` to float32 `[C16][KH * KW][16]`."""
    channels = weights.shape[0]
    padded = np.zeros((-(-channels // BLOCK) * BLOCK, weights[0].size), np.float32)
    padded[:channels] = weights.reshape(channels, -1)
    return np.ascontiguousarray(padded.reshape(-1, BLOCK, padded.shape[1]).transpose(0, 2, 1))


def pack_channels_reference(values: np.ndarray, *, groups: int, oc_tile: int) -> np.ndarray:
    """Per-channel values `[OC]` (bias, scale2, shift2) to float32 `[groups][oc_groups][oc_tile]`.

    `groups` counts super-groups; for depthwise pass 1 group and `oc_tile` 16.
    """
    per_group = values.reshape(groups, -1)
    oc_groups = -(-per_group.shape[1] // oc_tile)
    packed = np.zeros((groups, oc_groups * oc_tile), np.float32)
    packed[:, : per_group.shape[1]] = per_group
    return packed.reshape(groups, oc_groups, oc_tile)
