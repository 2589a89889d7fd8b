"""Offsets in one memory: what is in use at once never overlaps and never ends beyond the memory."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ngraph_mxnet.targets.nnp.places import ALIGNMENT, Allocator, padded


@given(st.integers(0, 4096), st.booleans(), st.lists(st.tuples(st.booleans(), st.integers(0, 1500)), max_size=60))
def test_what_is_in_use_is_apart_and_inside(size: int, rotating: bool, steps: list[tuple[bool, int]]):
    memory = Allocator("m", size, rotating=rotating)
    live: dict[int, int] = {}
    for frees, number in steps:
        if frees and live:
            offset = sorted(live)[number % len(live)]
            memory.free(offset)
            del live[offset]
            continue
        offset = memory.allocate(number)
        if offset is None:
            gaps = _gaps(live, size)
            assert all(gap < padded(number) for gap in gaps)
            continue
        assert offset % ALIGNMENT == 0
        assert offset >= 0 and offset + padded(number) <= size <= max(size, memory.peak)
        assert all(offset >= at + n or at >= offset + padded(number) for at, n in live.items())
        live[offset] = padded(number)
    assert memory.used == sum(live.values())
    assert memory.largest == max(_gaps(live, size))


def _gaps(live: dict[int, int], size: int) -> list[int]:
    ends = [0, *(at + n for at, n in sorted(live.items()))]
    return [begin - end for end, begin in zip(ends, [*sorted(live), size], strict=True)]


def test_a_rotating_memory_gives_out_last_what_was_freed_last():
    memory = Allocator("m", 4 * ALIGNMENT, rotating=True)
    first = memory.allocate(ALIGNMENT)
    memory.free(first)
    assert [memory.allocate(ALIGNMENT) for _ in range(5)] == [64, 128, 192, 0, None]


def test_a_copy_goes_on_by_itself():
    memory = Allocator("m", 4 * ALIGNMENT)
    memory.allocate(1)
    twin = memory.copy()
    assert twin.allocate(1) == memory.allocate(1) == ALIGNMENT
    twin.free(0)
    with pytest.raises(KeyError):
        twin.free(0)
    assert memory.used == 2 * ALIGNMENT
