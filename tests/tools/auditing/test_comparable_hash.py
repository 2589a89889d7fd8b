"""The hash that stands for content in audits, against its definition in plain arithmetic: the same on every CPU."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ngraph_mxnet import _core

CODES = _core.tensor_codes()
_WORD, _PRIME = 2**64, 2**127 - 1
_ROW, _GROUP, _BLOCK = 128, 1024, 4096


def _key() -> list[int]:
    words, state = [], 0
    for _ in range(4 * 9 * 16 + 6):
        state = (state + 0x9E3779B97F4A7C15) % _WORD
        word = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 % _WORD
        word = (word ^ word >> 27) * 0x94D049BB133111EB % _WORD
        words.append(word ^ word >> 31)
    return words


_KEY = _key()


def _product(a: int, b: int) -> int:
    """Of polynomials over GF(2)."""
    product = 0
    for bit in range(64):
        if b >> bit & 1:
            product ^= a << bit
    return product


def _block(block: bytes) -> tuple[int, int]:
    first = second = 0
    for number, begin in enumerate(range(0, len(block), _GROUP)):
        group = block[begin:begin + _GROUP]
        group += bytes(-len(group) % _ROW)
        rows = np.frombuffer(group, "<u8").reshape(-1, _ROW // 8)
        rows = np.concatenate([rows, np.bitwise_xor.reduce(rows, keepdims=True)])
        sums = 0
        for place, row in enumerate(rows.tolist()):
            sums = (sums << 1 & (_WORD - 2)) | ((sums >> 64) << 1 & (_WORD - 1)) << 64
            for i in range(0, len(row), 2):
                at = (number * 9 + place) * 16 + i
                product = _product(row[i] ^ _KEY[at], row[i + 1] ^ _KEY[at + 1])
                first ^= product
                sums ^= product
        second ^= sums
    return first, second


def _definition(data: bytes) -> bytes:
    factors = [(_KEY[at] | _KEY[at + 1] << 64) % _PRIME for at in range(len(_KEY) - 6, len(_KEY), 2)]
    both = [1, 1]
    for begin in range(0, len(data), _BLOCK):
        sums = _block(data[begin:begin + _BLOCK])
        both = [(both[i] * factors[i] + sums[i]) % _PRIME for i in range(2)]
    both = [(both[i] * factors[i] + len(data)) % _PRIME for i in range(2)]
    return ((both[0] * factors[2] + both[1]) % _PRIME).to_bytes(16, "little")


def _hash(data: bytes | np.ndarray, code: str | None = None) -> bytes:
    found: bytes = _core.statistics_and_hash(np.frombuffer(data, np.uint8), "u8", code)[1]
    return found


def _bytes(size: int) -> bytes:
    return np.random.default_rng(size).bytes(size)


@pytest.mark.parametrize("code", CODES)
def test_definition(code: str) -> None:
    for size in (*range(301), 1023, 1024, 1025, 1152, 4095, 4096, 4097, 8191, 8192, 8193, 20000):
        assert _hash(_bytes(size), code) == _definition(_bytes(size)), size


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("size", [16, 300, 5000])
def test_memory_need_not_be_aligned(code: str, size: int) -> None:
    data = _bytes(size)
    for offset in range(1, 17):
        assert _hash(np.frombuffer(bytes(offset) + data, np.uint8)[offset:], code) == _hash(data)


def test_of_any_element() -> None:
    """The content counts, not what it is of."""
    data = _bytes(9600)
    for dtype, element in (("f2", "f16"), ("f4", "f32"), ("f8", "f64"), ("i8", "i64")):
        assert _core.statistics_and_hash(np.frombuffer(data, dtype), element)[1] == _hash(data)


def test_it_never_changes() -> None:
    """It stands in files: whoever changes it raises its version."""
    assert _hash(np.arange(9, dtype=np.float32).tobytes()).hex() == "76fbe743c832e60ac4816ea5806f4a19"
    assert _core.comparable_hash_version == 2


@given(st.binary(max_size=3000), st.data())
def test_what_differs_differs(data: bytes, draw: st.DataObject) -> None:
    seen = {_hash(data), _hash(data + b"\0"), _hash(data + bytes(16)), _hash(data + bytes(4096))}
    assert len(seen) == 4
    if data:
        place, bit = draw.draw(st.integers(0, len(data) - 1)), draw.draw(st.integers(0, 7))
        changed = bytearray(data)
        changed[place] ^= 1 << bit
        assert _hash(bytes(changed)) not in seen


@pytest.mark.parametrize("unit", [4, 8, 16, 128, 1024, 4096])
def test_the_order_counts(unit: int) -> None:
    """Of words, lanes, rows, groups and blocks."""
    data = _bytes(5 * unit)
    units = [data[at:at + unit] for at in range(0, len(data), unit)]
    seen = {_hash(data)}
    for i in range(5):
        for j in range(i):
            swapped = list(units)
            swapped[i], swapped[j] = units[j], units[i]
            seen.add(_hash(b"".join(swapped)))
    assert len(seen) == 11


def test_changes_that_a_check_alone_does_not_see() -> None:
    """The same words are changed in two rows of a lane, so that the exclusive or of the rows stays."""
    data = np.frombuffer(_bytes(1024), "<u8").reshape(8, 16)
    seen = {_hash(data.tobytes())}
    for lane in range(16):
        for row in range(1, 8):
            changed = data.copy()
            changed[[0, row], lane] ^= np.uint64(1)
            seen.add(_hash(changed.tobytes()))
    assert len(seen) == 1 + 16 * 7


def test_numbers_that_are_all_equal() -> None:
    """Equal content in other lengths, and fills that are one bit apart."""
    fills = [bytes([fill]) * size for fill in (0, 1, 0x80, 0xFF) for size in range(1, 300)]
    assert len({_hash(fill) for fill in fills}) == len(fills)


def test_a_code_that_there_is_not() -> None:
    with pytest.raises(ValueError, match="this CPU has no code named sse5"):
        _hash(b"", "sse5")
