"""Random numbers from a counter: each is a function of a key, a step, a stream and its own place, so that it does not
matter who draws it, when, or beside which others.

The generator is Philox4x32-10 of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", 2011.
"""

from __future__ import annotations

from math import prod

import numpy as np

from ngraph_mxnet.ir.attributes import Float, Int, Ints
from ngraph_mxnet.ir.facts import by_result
from ngraph_mxnet.ir.opdef import Attrs, register_op
from ngraph_mxnet.ir.types import TensorType, boolean, i32
from ngraph_mxnet.ops.common import contiguous, require

WORDS = 4
"""Numbers of 32 bits that one counter gives."""
ROUNDS = 10
MULTIPLIERS = 0xD2511F53, 0xCD9E8D57
KEY_STEPS = 0x9E3779B9, 0xBB67AE85
MOST_STREAMS = 1 << 32
_MASK = 0xFFFFFFFF


def philox(counter: np.ndarray, key: np.ndarray) -> np.ndarray:
    """Philox4x32-10.

    Args:
        counter: uint64 [N, 4], each less than 2^32.
        key: uint64 [2], each less than 2^32.

    Returns:
        uint64 [N, 4], each less than 2^32.
    """
    a, b, c, d = (counter[:, word].astype(np.uint64) for word in range(WORDS))
    low, high = (int(word) for word in key)
    mask, half = np.uint64(_MASK), np.uint64(32)
    for _ in range(ROUNDS):
        first, second = a * np.uint64(MULTIPLIERS[0]), c * np.uint64(MULTIPLIERS[1])
        a, b, c, d = (second >> half) ^ b ^ np.uint64(low), second & mask, (first >> half) ^ d ^ np.uint64(
            high), first & mask
        low, high = (low + KEY_STEPS[0]) & _MASK, (high + KEY_STEPS[1]) & _MASK
    return np.stack([a, b, c, d], axis=1)


def threshold(attrs: Attrs) -> int:
    """A place of `random_mask` is true if its word is less than this, which is from 0 to 2^32."""
    return round(attrs["keep"] * 2**32)


@register_op("random_mask", operands=1, attrs={"shape": Ints(), "keep": Float(), "stream": Int(0)},
             work=by_result(simple=25))
def random_mask(types, attrs):
    """state i32[4], the low and high word of a key, then of a step -> bool[shape]: each true with probability `keep`.

    Element e in row-major order is true if word e mod 4 of philox(counter, key) is less than keep 2^32, where the
    counter is the words (e div 4, stream, the step's low and high word). Words are the bits of the state's elements.
    """
    require(types[0] == TensorType(i32, (4,)), "operand 0", types[0], "i32[4]")
    keep, stream, shape = attrs["keep"], attrs["stream"], attrs["shape"]
    require(0 <= keep <= 1, "keep", keep, "a number from 0 to 1")
    require(0 <= stream < MOST_STREAMS, "stream", stream, f"an integer from 0 up to {MOST_STREAMS - 1}")
    require(all(size >= 0 for size in shape) and prod(shape) <= WORDS << 32, "shape", list(shape),
            f"at most {WORDS << 32} elements")
    return TensorType(boolean, tuple(shape))


@random_mask.reference
def _(inputs, attrs):
    words = contiguous(inputs[0]).view(np.uint32).astype(np.uint64)
    count = prod(attrs["shape"])
    blocks = -(-count // WORDS)
    counter = np.empty((blocks, WORDS), np.uint64)
    counter[:, 0] = np.arange(blocks)
    counter[:, 1], counter[:, 2:] = attrs["stream"], words[2:]
    return (philox(counter, words[:2]).reshape(-1)[:count] < np.uint64(threshold(attrs))).reshape(attrs["shape"])
