"""Random numbers from a counter: Philox4x32-10, as the op defines it (ops/random.py)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numba import float32, int32, types, uint8, uint32, uint64

from ngraph_mxnet.ops.random import KEY_STEPS, MULTIPLIERS, WORDS
from ngraph_mxnet.targets.cpu.kernels.pointers import inline, pointer, reader, shift
from ngraph_mxnet.targets.cpu.kernels.record import kernel
from ngraph_mxnet.targets.cpu.params.selection import RANDOM_MASK, RANDOM_UNIFORM

_MASK, _HALF = np.uint64(0xFFFFFFFF), np.uint64(32)
_FIRST, _SECOND = (np.uint64(multiplier) for multiplier in MULTIPLIERS)
_LOW, _HIGH = (np.uint64(step) for step in KEY_STEPS)
_DROPPED, _MIDDLE, _STEP = np.uint64(9), np.float32(0.5), np.float32(2.0**-23)


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


def _drawing(element: types.Type, read: Callable, number: Callable) -> Callable:
    """The kernel that writes `number(word, p)` for each element; element e has word e mod 4 of the counter (e div 4,
    stream, step)."""

    def draw(tensors, ints, floats, begin, end):
        """tensors: state (4 words: key and step, each its low one first), output. Tasks: ceil(count / chunk)."""
        p = read(ints, floats)
        state = pointer(tensors, 0, uint32)
        low, high, early, late = uint64(state[0]), uint64(state[1]), uint64(state[2]), uint64(state[3])
        stream = uint64(p.stream) & _MASK
        for task in range(begin, end):
            first = task * p.chunk
            out = shift(pointer(tensors, 1, element), first)
            count = min(p.chunk, p.count - first)
            blocks = count // WORDS
            for block in range(blocks):
                words = _philox((uint64(first // WORDS + block) & _MASK, stream, early, late), low, high)
                at = block * WORDS
                out[at], out[at + 1] = number(words[0], p), number(words[1], p)
                out[at + 2], out[at + 3] = number(words[2], p), number(words[3], p)
            if blocks * WORDS < count:
                words = _philox((uint64(first // WORDS + blocks) & _MASK, stream, early, late), low, high)
                at = blocks * WORDS
                out[at] = number(words[0], p)
                if at + 1 < count:
                    out[at + 1] = number(words[1], p)
                if at + 2 < count:
                    out[at + 2] = number(words[2], p)

    return draw


@inline
def _is_less(word, p):
    return word < uint64(p.threshold)


@inline
def _between_0_and_1(word, p):
    return (float32(int32(word >> _DROPPED)) + _MIDDLE) * _STEP


random_mask = kernel("random_mask")(_drawing(uint8, reader(RANDOM_MASK), _is_less))
random_uniform = kernel("random_uniform")(_drawing(float32, reader(RANDOM_UNIFORM), _between_0_and_1))
