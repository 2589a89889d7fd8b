"""Levels of instructions, what is known of each, and that any number of branches gives the same bits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ngraph_mxnet import compile
from ngraph_mxnet.ir import Builder, Graph, Value
from ngraph_mxnet.targets.cpu.program.builder import ProgramBuilder
from ngraph_mxnet.targets.cpu.program.instruction import Instruction, Space


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


def assign(instructions: list[Instruction], branches: int = 0) -> None:
    """The levels of a Program of these."""
    builder = ProgramBuilder(branches=branches, instructions=instructions)
    builder.planned(builder.program().plan())


def earliest(instructions: list[Instruction]) -> dict[Instruction, int]:
    """Right after what each waits for."""
    found: dict[Instruction, int] = {}
    for instruction in instructions:
        found[instruction] = 1 + max((found[writer] for writer in instruction.waits), default=-1)
    return found


@given(programs(), st.integers(1, 4))
def test_levels_respect_waits_and_the_number_of_branches(instructions, branches):
    assign(instructions, branches)
    for instruction in instructions:
        assert all(writer.level < instruction.level for writer in instruction.waits)
    for level in {instruction.level for instruction in instructions}:
        assert len({i.node for i in instructions if i.level == level}) <= branches
    if branches == 1:
        assert [i.node for i in sorted(instructions, key=lambda i: i.level)] == [i.node for i in instructions]


@given(programs())
def test_only_what_waits_for_nobody_else_moves_and_no_further_than_its_readers(instructions):
    assign(instructions)
    first = earliest(instructions)
    levels = sorted({instruction.level for instruction in instructions})
    assert levels == list(range(len(levels)))
    if len(levels) <= max(first.values()):
        return  # a level whose instructions all moved is gone, and the others have other numbers
    for instruction in instructions:
        readers = [other for other in instructions if instruction in other.waits]
        assert all(instruction.level < reader.level for reader in readers)
        if instruction.level != first[instruction]:
            assert instruction.level > first[instruction]
            assert instruction.level == min(reader.level for reader in readers) - 1
            assert all(writer.level > first[writer] for writer in instruction.waits)


def test_what_is_read_late_is_made_late():
    load, first = (Instruction("kernel", [], [], [], 1, []) for _ in range(2))
    second = Instruction("kernel", [], [], [], 1, [first])
    double = Instruction("kernel", [], [], [], 1, [load])
    third = Instruction("kernel", [], [], [], 1, [second])
    last = Instruction("kernel", [], [], [], 1, [double, third])
    instructions = [load, first, double, second, third, last]
    assign(instructions)
    assert [i.level for i in instructions] == [1, 0, 2, 1, 2, 3]


@given(programs())
def test_enough_branches_are_as_early_as_without_a_limit(instructions):
    assign(instructions, len(instructions))
    assert {instruction: instruction.level for instruction in instructions} == earliest(instructions)


@st.composite
def weights(draw: st.DrawFn) -> ProgramBuilder:
    """What prepares pieces, each by a chain of its own or by part of another's, and some that no piece needs."""
    builder = ProgramBuilder(wave_bytes=draw(st.integers(1, 2000)))
    before: list[Instruction] = []
    for _ in range(draw(st.integers(1, 8))):
        waits = draw(st.lists(st.sampled_from(before), max_size=2)) if before else []
        for _ in range(draw(st.integers(0, 3))):
            each = Instruction("kernel", [(builder.arena(draw(st.integers(1, 900))), 0)], [], [], 1, waits)
            builder.instructions.append(each)
            waits = [each]
        if draw(st.booleans()):
            builder.instructions.append(Instruction("kernel", [(builder.prepared(64), 0)], [], [], 1, waits))
        before = list(builder.instructions)
    return builder


@given(weights())
def test_weights_are_prepared_in_waves_and_what_none_needs_is_left_out(builder):
    results = [each for each in builder.instructions if each.operands[0][0].space == Space.PREPARED]
    needed, stack = set(), list(results)
    while stack:
        each = stack.pop()
        needed.add(each)
        stack.extend(each.waits)
    order = [each for each in builder.instructions if each in needed]
    builder.planned(builder.program().plan())
    assert builder.instructions == order
    for each in order:
        assert all(writer.level < each.level for writer in each.waits)
    done: set[Instruction] = set()
    used, end = 0, -1
    for result in results:  # what a wave makes has more than its bytes before the next one begins
        chain, stack = set(), [result]
        while stack:
            each = stack.pop()
            if each not in done | chain:
                chain.add(each)
                stack.extend(each.waits)
        if used > builder.wave_bytes:
            assert all(each.level > end for each in chain)
            used = 0
        done |= chain
        end = max([end, *(each.level for each in chain)])
        used += sum(each.operands[0][0].bytes for each in chain if each.operands[0][0].space == Space.ARENA)


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
    from ngraph_mxnet.base import config
    from ngraph_mxnet.base.errors import ConfigError

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
