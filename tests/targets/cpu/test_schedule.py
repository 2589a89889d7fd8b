"""Levels of instructions, what is known of each, and that any number of branches gives the same bits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ngraph_mxnet import compile
from ngraph_mxnet.ir import Builder, Graph, Value
from ngraph_mxnet.targets.cpu.planning.schedule import assign_branches, assign_earliest, wait_for_readers
from ngraph_mxnet.targets.cpu.program.instruction import Instruction


@st.composite
def programs(draw: st.DrawFn) -> list[Instruction]:
    """Instructions of some nodes, each after some of those before."""
    made: list[Instruction] = []
    for node in range(draw(st.integers(1, 12))):
        before = list(made)
        for _ in range(draw(st.integers(1, 3))):
            waits = draw(st.lists(st.sampled_from(before), max_size=3)) if before else []
            made.append(Instruction("kernel", [], [], [], 1, waits, node=node))
    return made


@given(programs(), st.integers(1, 4))
def test_levels_respect_waits_and_the_number_of_branches(instructions, branches):
    assign_branches(instructions, branches)
    for instruction in instructions:
        assert all(writer.level < instruction.level for writer in instruction.waits)
    for level in {instruction.level for instruction in instructions}:
        assert len({i.node for i in instructions if i.level == level}) <= branches
    if branches == 1:
        assert [i.node for i in sorted(instructions, key=lambda i: i.level)] == [i.node for i in instructions]


@given(programs())
def test_only_what_waits_for_nobody_else_moves_and_no_further_than_its_readers(instructions):
    assign_earliest(instructions)
    earliest = {instruction: instruction.level for instruction in instructions}
    wait_for_readers(instructions)
    for instruction in instructions:
        readers = [other for other in instructions if instruction in other.waits]
        assert all(instruction.level < reader.level for reader in readers)
        if instruction.level != earliest[instruction]:
            assert instruction.level > earliest[instruction]
            assert instruction.level == min(reader.level for reader in readers) - 1
            assert all(writer.level > earliest[writer] for writer in instruction.waits)


def test_what_is_read_late_is_made_late():
    load, first = (Instruction("kernel", [], [], [], 1, []) for _ in range(2))
    second = Instruction("kernel", [], [], [], 1, [first])
    double = Instruction("kernel", [], [], [], 1, [load])
    third = Instruction("kernel", [], [], [], 1, [second])
    last = Instruction("kernel", [], [], [], 1, [double, third])
    instructions = [load, first, double, second, third, last]
    assign_earliest(instructions)
    wait_for_readers(instructions)
    assert [i.level for i in instructions] == [1, 0, 2, 1, 2, 3]


@given(programs())
def test_enough_branches_are_as_without_a_limit(instructions):
    assign_branches(instructions, len(instructions))
    limited = [instruction.level for instruction in instructions]
    assign_earliest(instructions)
    assert limited == [instruction.level for instruction in instructions]


def branches_graph() -> Graph:
    """Three branches of convolutions and a pooling, concatenated."""
    b = Builder()
    x = b.parameter("x", (1, 32, 12, 12))
    parts = [b.max_pool(x, kernel=(3, 3), pads_begin=(1, 1), pads_end=(1, 1))]
    for number in range(3):
        y = x
        for step in range(number + 1):
            weights = b.weight(f"w{number}_{step}", (32, 32, 3, 3))
            y = b.convolution(y, weights, pads_begin=(1, 1), pads_end=(1, 1))
        parts.append(b.relu(y))
    return b.results(b.concat(*parts, axis=1))


def test_the_variable_decides(monkeypatch):
    graph = branches_graph()
    rng = np.random.default_rng(3)
    inputs = [rng.standard_normal(p.shape).astype(np.float32) for p in graph.parameters]
    widest, results = {}, []
    for value in ("", "0", "1", "2"):
        monkeypatch.setenv("NGRAPH_INTER_OP_PARALLELISM", value)
        executable = compile(graph, "CPU", threads=2)
        levels = executable.main.levels()  # type: ignore[attr-defined]
        widest[value] = max(len({i.node for i in level}) for level in levels)
        results.append(executable(*inputs)[0])
    assert widest == {"": 4, "0": 4, "1": 1, "2": 2}
    for result in results[1:]:
        np.testing.assert_array_equal(result, results[0])


@pytest.mark.parametrize("text", ["-1", "some"])
def test_other_values_are_refused(monkeypatch, text):
    from ngraph_mxnet import config
    from ngraph_mxnet.errors import ConfigError

    monkeypatch.setenv("NGRAPH_INTER_OP_PARALLELISM", text)
    with pytest.raises(ConfigError, match="0 or a positive integer"):
        config.VARIABLES["NGRAPH_INTER_OP_PARALLELISM"].checked()


def counted(b: Builder, result: Value) -> list[tuple[float, int]]:
    """Operations and bytes of the instructions that have multiply-adds."""
    executable = compile(b.results(result), "CPU", threads=2)
    instructions = executable.main.instructions  # type: ignore[attr-defined]
    return [(i.operations, i.bytes) for i in instructions if i.operations]


def test_operations_and_bytes_are_counted():
    b = Builder()
    y = b.matmul(b.parameter("a", (5, 16, 32)), b.parameter("b", (5, 32, 24)))
    assert counted(b, y) == [(2 * 5 * 16 * 24 * 32, 4 * 5 * (16 * 32 + 32 * 24 + 16 * 24))]
    b = Builder()
    y = b.matmul(b.parameter("a", (5, 16, 32)), b.parameter("b", (32, 24)))
    assert counted(b, y) == [(2 * 5 * 16 * 24 * 32, 4 * (5 * 16 * 32 + 32 * 24 + 5 * 16 * 24))]
    b = Builder()
    y = b.convolution(b.parameter("x", (2, 32, 9, 9)), b.parameter("w", (64, 4, 3, 3)), groups=8)
    assert counted(b, y) == [(2 * 2 * 64 * 7 * 7 * 4 * 9, 4 * (2 * 32 * 81 + 64 * 4 * 9 + 2 * 64 * 49))]
