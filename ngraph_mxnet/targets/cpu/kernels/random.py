"""Random numbers from a counter: Philox4x32-10, as the op defines it (ops/training.py)."""

from __future__ import annotations

import numpy as np
from numba import uint8, uint32, uint64

from ngraph_mxnet.ops.training import KEY_STEPS, MULTIPLIERS, WORDS
from ngraph_mxnet.targets.cpu.kernels.pointers import inline, pointer, reader, shift
from ngraph_mxnet.targets.cpu.kernels.record import kernel
from ngraph_mxnet.targets.cpu.params.selection import RANDOM_MASK

read_random_mask = reader(RANDOM_MASK)

_MASK, _HALF = np.uint64(0xFFFFFFFF), np.uint64(32)
_FIRST, _SECOND = (np.uint64(multiplier) for multiplier in MULTIPLIERS)
_LOW, _HIGH = (np.uint64(step) for step in KEY_STEPS)


@inline
def _round(words, low, high):
    """One round; words are uint64, so that a product of two is one instruction for each lane."""
    a, b, c, d = words
    first, second = a * _FIRST, c * _SECOND
    return (second >> _HALF) ^ b ^ low, second & _MASK, (first >> _HALF) ^ d ^ high, first & _MASK


@inline
def _next(low, high):
    """The key of the next round."""
    return (low + _LOW) & _MASK, (high + _HIGH) & _MASK


@inline
def _five_rounds(words, low, high):
    """Without a loop, so that LLVM takes several counters at once."""
    words = _round(words, low, high)
    low, high = _next(low, high)
    words = _round(words, low, high)
    low, high = _next(low, high)
    words = _round(words, low, high)
    low, high = _next(low, high)
    words = _round(words, low, high)
    low, high = _next(low, high)
    words = _round(words, low, high)
    low, high = _next(low, high)
    return words, low, high


@inline
def _philox(words, low, high):
    """The four words that a counter gives."""
    words, low, high = _five_rounds(words, low, high)
    words, low, high = _five_rounds(words, low, high)
    return words


@kernel("random_mask")
def random_mask(tensors, ints, floats, begin, end):
    """out[e] = whether word e mod 4 of the counter (e div 4, stream, step) is less than the threshold.

    tensors: state (4 words: key and step, each its low one first), output (a byte for each element).
    Tasks: ceil(count / chunk).
    """
    p = read_random_mask(ints, floats)
    state = pointer(tensors, 0, uint32)
    low, high, early, late = uint64(state[0]), uint64(state[1]), uint64(state[2]), uint64(state[3])
    stream, limit = uint64(p.stream) & _MASK, uint64(p.threshold)
    for task in range(begin, end):
        first = task * p.chunk
        out = shift(pointer(tensors, 1, uint8), first)
        count = min(p.chunk, p.count - first)
        blocks = count // WORDS
        for block in range(blocks):
            words = _philox((uint64(first // WORDS + block) & _MASK, stream, early, late), low, high)
            at = block * WORDS
            out[at], out[at + 1] = words[0] < limit, words[1] < limit
            out[at + 2], out[at + 3] = words[2] < limit, words[3] < limit
        if blocks * WORDS < count:
            words = _philox((uint64(first // WORDS + blocks) & _MASK, stream, early, late), low, high)
            at = blocks * WORDS
            out[at] = words[0] < limit
            if at + 1 < count:
                out[at + 1] = words[1] < limit
            if at + 2 < count:
                out[at + 2] = words[2] < limit
