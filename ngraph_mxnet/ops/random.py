"""Ops that draw random numbers. Each number is a function of a state, the op's stream and the number's place.

Two draws of a graph have two streams, so they are independent, and no pass takes them for the same.
"""

from __future__ import annotations

from math import prod

import numpy as np

from ngraph_mxnet.ir import Builder, Value
from ngraph_mxnet.ir.opdef import Attrs, by_result, register_op
from ngraph_mxnet.ir.sizes import at_hand
from ngraph_mxnet.ir.types import RANDOM_STATE, Attribute, Float, Int, Ints, TensorType, boolean, f32, i32
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


_DRAW: dict[str, Attribute] = {"shape": Ints(), "stream": Int(0)}


def _require_draw(types: list[TensorType], attrs: Attrs) -> None:
    stream, shape = attrs["stream"], attrs["shape"]
    require(types[0] == TensorType(i32, (4,)), "operand 0", types[0], "i32[4]")
    require(0 <= stream < MOST_STREAMS, "stream", stream, f"an integer from 0 up to {MOST_STREAMS - 1}")
    require(all(size >= 0 for size in shape) and at_hand(prod(shape)) <= WORDS << 32, "shape", list(shape),
            f"at most {WORDS << 32} elements")


def _words(state: np.ndarray, attrs: Attrs) -> np.ndarray:
    """A word of 32 bits for each element, as uint64."""
    words, count = contiguous(state).view(np.uint32).astype(np.uint64), prod(attrs["shape"])
    blocks = -(-count // WORDS)
    counter = np.empty((blocks, WORDS), np.uint64)
    counter[:, 0] = np.arange(blocks)
    counter[:, 1], counter[:, 2:] = attrs["stream"], words[2:]
    return philox(counter, words[:2]).reshape(-1)[:count].reshape(attrs["shape"])


def threshold(attrs: Attrs) -> int:
    """A place of `random_mask` is true if its word is less than this, which is from 0 to 2^32."""
    return round(attrs["keep"] * 2**32)


@register_op("random_mask", operands=1, attrs={**_DRAW, "keep": Float()}, work=by_result(simple=25))
def random_mask(types, attrs):
    """state i32[4], the low and high word of a key, then of a step -> bool[shape]: each true with probability `keep`.

    Element e in row-major order is true if word e mod 4 of philox(counter, key) is less than keep 2^32, where the
    counter is the words (e div 4, stream, the step's low and high word). Words are the bits of the state's elements.
    """
    require(0 <= attrs["keep"] <= 1, "keep", attrs["keep"], "a number from 0 to 1")
    _require_draw(types, attrs)
    return TensorType(boolean, tuple(attrs["shape"]))


@random_mask.reference
def _(inputs, attrs):
    return _words(inputs[0], attrs) < np.uint64(threshold(attrs))


@register_op("random_uniform", operands=1, attrs=_DRAW, work=by_result(simple=25))
def random_uniform(types, attrs):
    """state i32[4], as that of random_mask -> f32[shape]: each uniform between 0 and 1, never 0 or 1.

    It is (w + 1/2) / 2^23, where w is the upper 23 bits of the element's word, which is that of random_mask. So the
    numbers are exact, and as far from 0 as from 1.
    """
    _require_draw(types, attrs)
    return TensorType(f32, tuple(attrs["shape"]))


@random_uniform.reference
def _(inputs, attrs):
    return uniform_of(_words(inputs[0], attrs))


def uniform_of(words: np.ndarray) -> np.ndarray:
    """The f32 between 0 and 1 that words of 32 bits, as uint64, become."""
    return (((words >> np.uint64(9)) + 0.5) * 2.0**-23).astype(np.float32)


def state_of(b: Builder) -> Value:
    """The graph's state, which is a parameter."""
    known = [parameter for parameter in b.graph.parameters if parameter.name == RANDOM_STATE]
    return known[0] if known else b.parameter(RANDOM_STATE, (4,), "i32")


def next_stream(b: Builder) -> int:
    """A stream from which the graph does not draw yet."""
    return sum("stream" in node.attrs for node in b.graph.nodes)
