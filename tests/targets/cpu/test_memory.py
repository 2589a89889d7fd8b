"""The memory plan: buffers that live at once never share a byte, and little is wasted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ngraph_mxnet.targets.cpu.params.record import ALIGNMENT
from ngraph_mxnet.targets.cpu.program.builder import ProgramBuilder, align
from ngraph_mxnet.targets.cpu.program.instruction import Instruction

Lifetime = tuple[int, int, int]
"""Bytes, and the first and the last level."""

lifetimes = st.lists(st.builds(lambda size, first, length: (size, first, first + length),
                               st.integers(1, 5000), st.integers(0, 20), st.integers(0, 20)), max_size=25)


def plan(requests: Sequence[Lifetime]) -> dict[str, Any]:
    """Of a chain of instructions, in which each buffer is used from its first level to its last. Offsets are in the
    order of the requests."""
    builder = ProgramBuilder()
    buffers = [builder.arena(size) for size, _, _ in requests]
    for level in range(1 + max((last for _, _, last in requests), default=-1)):
        used = [(buffer, 0) for buffer, (_, first, last) in zip(buffers, requests, strict=True)
                if first <= level <= last]
        builder.instructions.append(Instruction("kernel", used, [], [], 1, builder.instructions[-1:]))
    found = builder.program().plan()
    builder.planned(found)
    return {**found, "offsets": [buffer.offset for buffer in buffers]}


@given(lifetimes)
def test_buffers_that_meet_do_not_overlap(requests):
    found = plan(requests)
    offsets, total = found["offsets"], found["arena_bytes"]
    assert all(offset % ALIGNMENT == 0 for offset in offsets)
    for a, (size, first, last) in enumerate(requests):
        assert offsets[a] + size <= total
        for b in range(a):
            other, from_level, to_level = requests[b]
            if first <= to_level and from_level <= last:
                assert offsets[a] + size <= offsets[b] or offsets[b] + other <= offsets[a]


@given(lifetimes)
def test_total_lies_between_the_peak_and_no_sharing(requests):
    found = plan(requests)
    alive = [sum(align(size) for size, first, last in requests if first <= level <= last) for level in range(42)]
    assert found["peak_bytes"] == max(alive)
    assert found["separate_bytes"] == sum(align(size) for size, _, _ in requests)
    assert found["peak_bytes"] <= found["arena_bytes"] <= found["separate_bytes"]


def test_a_chain_needs_two_neighbours_only():
    found = plan([(640, level, level + 1) for level in range(10)])
    assert found["arena_bytes"] == found["peak_bytes"] == 2 * 640


def test_thousands_of_buffers_are_planned_at_once():
    found = plan([(640 + 64 * (level % 7), level, level + 1) for level in range(20_000)])
    assert found["arena_bytes"] <= 4 * 1024
