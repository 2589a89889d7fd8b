"""The keyed hash that stands for content, against its definition in plain arithmetic."""

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ngraph_mxnet import _core

_WORDS = _core.hash_key_bytes // 8
_KEY = np.random.default_rng(1).integers(0, 1 << 64, _WORDS, dtype=np.uint64)
_BLOCK, _PRIME = 1024, 2**127 - 1


def _definition(data: bytes, key: list[int]) -> int:
    def factor(place: int) -> int:
        start = _WORDS - 6 + 2 * place
        return (key[start] | key[start + 1] << 64) % _PRIME

    def sums(words: tuple[int, ...], shift: int) -> int:
        return sum((words[i] + key[i + shift]) % 2**64 * ((words[i + 1] + key[i + 1 + shift]) % 2**64)
                   for i in range(0, len(words), 2)) % 2**128

    both = [1, 1]
    for start in range(0, len(data), _BLOCK):
        block = data[start : start + _BLOCK]
        block += bytes(-len(block) % 16)
        words = struct.unpack(f"<{len(block) // 8}Q", block)
        both = [(both[i] * factor(i) + sums(words, 2 * i)) % _PRIME for i in range(2)]
    both = [(both[i] * factor(i) + len(data)) % _PRIME for i in range(2)]
    return (both[0] * factor(2) + both[1]) % _PRIME


def _hash(data: bytes, key: np.ndarray = _KEY) -> int:
    return int.from_bytes(_core.content_hash128(data, key.tobytes()), "little")


@pytest.mark.parametrize("size", [0, 1, 8, 15, 16, 17, 1023, 1024, 1025, 5000])
def test_definition(size: int) -> None:
    data = np.random.default_rng(size).bytes(size)
    assert _hash(data) == _definition(data, _KEY.tolist())


@pytest.mark.parametrize("fill", [0, 0xFF])
def test_extreme_numbers(fill: int) -> None:
    """Carries and reductions at their bounds."""
    data = bytes([fill]) * 3000
    for word in (0, 2**64 - 1, 2**63):
        key = np.full(_WORDS, word, np.uint64)
        assert _hash(data, key) == _definition(data, key.tolist())


@given(st.binary(max_size=3000), st.binary(max_size=40))
def test_what_differs_differs(data: bytes, rest: bytes) -> None:
    assert _hash(data) == _hash(bytes(data))
    if rest:
        assert _hash(data + rest) != _hash(data)
    for place in {0, len(data) // 2, len(data) - 1} if data else ():
        changed = bytearray(data)
        changed[place] ^= 1
        assert _hash(bytes(changed)) != _hash(data)


def test_a_chosen_word_cancels_nothing() -> None:
    """Under the hash without a key, a first word of zero after its constant made the second one vanish."""
    for place in range(0, 64, 8):
        for constant in (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0xD6E8FEB86659FD93, 0xA0761D6478BD642F):
            seen = set()
            for other in (0, 1, 2**63):
                words = [other] * 8
                words[place // 8] = constant
                seen.add(_hash(struct.pack("<8Q", *words)))
            assert len(seen) == 3


def test_arrays_are_hashed_in_their_order() -> None:
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    assert _core.content_hash128(array, _KEY.tobytes()) == _core.content_hash128(array.tobytes(), _KEY.tobytes())
    assert _core.content_hash128(array[:, :0], _KEY.tobytes()) == _core.content_hash128(b"", _KEY.tobytes())
    with pytest.raises(ValueError, match="not C-contiguous"):
        _core.content_hash128(array.T, _KEY.tobytes())
    with pytest.raises(ValueError, match="a key of 3 bytes"):
        _core.content_hash128(array, b"123")
