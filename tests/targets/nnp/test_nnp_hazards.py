"""Instructions that touch the same bytes wait for each other, others don't."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from hypothesis import given, settings
from nnp_checks import check, ended_before, share
from nnp_programs import DEVICE, programs

from ngraph_mxnet.base.errors import NGraphError
from ngraph_mxnet.targets.nnp.device import load_device
from ngraph_mxnet.targets.nnp.hazards import order
from ngraph_mxnet.targets.nnp.program import Buffer, Instruction, Program, Tile, whole
from ngraph_mxnet.targets.nnp.program import check as check_instruction


@settings(max_examples=40, deadline=None)
@given(programs())
def test_order_leaves_no_conflict(program: Program):
    given_after = [instruction.after for instruction in program.instructions]
    for number, instruction in enumerate(program.instructions):
        check_instruction(instruction, load_device(DEVICE), number)
    check(order(program))
    ended = ended_before(program.instructions)
    for index, kept in enumerate(given_after):
        assert all(ended[index] >> earlier & 1 for earlier in kept)


@settings(max_examples=25, deadline=None)
@given(programs(most=12))
def test_no_edge_follows_from_the_others(program: Program):
    order(program)
    for index, instruction in enumerate(program.instructions):
        for edge in instruction.after:
            fewer = tuple(e for e in instruction.after if e != edge)
            changed = [*program.instructions[:index], replace(instruction, after=fewer)]
            assert not ended_before(changed)[index] >> edge & 1


def fill(unit: str, buffer: Buffer, begin: tuple[int, ...], shape: tuple[int, ...]) -> Instruction:
    return Instruction(unit, "fill", (Tile(buffer, begin, shape),), (), {"value": 0.0})


def afters(*items: Instruction) -> list[tuple[int, ...]]:
    return [i.after for i in order(Program("p", DEVICE, list(items))).instructions]


def test_tiles_of_one_buffer_conflict_where_their_boxes_do():
    grid = Buffer("grid", "llc", 0, "f32", (4, 4))
    left, right, row = ((0, 0), (4, 2)), ((0, 2), (4, 2)), ((1, 0), (1, 4))
    assert afters(fill("ice0.dma0", grid, *left), fill("ice1.dma0", grid, *right),
                  fill("ice2.dma0", grid, *row)) == [(), (), (0, 1)]


def test_read_after_write_write_after_read_and_reads_together():
    a, b, c = (whole(Buffer(name, "llc", offset, "i8", (8,))) for name, offset in (("a", 0), ("b", 8), ("c", 16)))
    assert afters(Instruction("ice0.dma0", "fill", (a,), (), {"value": 0.0}),
                  Instruction("ice1.dma0", "copy", (b,), (a,)),
                  Instruction("ice2.dma0", "copy", (c,), (a,)),
                  Instruction("ice3.dma0", "fill", (a,), (), {"value": 0.0})) == [(), (0,), (0,), (1, 2)]


def test_buffers_that_share_bytes():
    old, new = Buffer("old", "llc", 0, "f32", (4,)), Buffer("new", "llc", 8, "i8", (16,))
    assert afters(fill("ice0.dma0", old, (0,), (2,)), fill("ice0.dma1", old, (2,), (2,)),
                  fill("ice1.dma0", new, (0,), (16,))) == [(), (), (1,)]


def test_a_buffer_written_in_strips_hides_what_was_there_before():
    old, new = Buffer("old", "llc", 0, "i8", (16,)), Buffer("new", "llc", 0, "i8", (4, 4))
    left, right, all_of_it = ((0, 0), (4, 2)), ((0, 2), (4, 2)), ((0, 0), (4, 4))
    assert afters(fill("ice0.dma0", old, (0,), (16,)), fill("ice1.dma0", new, *left),
                  fill("ice2.dma0", new, *right), fill("ice3.dma0", new, *all_of_it)) == [(), (0,), (0,), (1, 2)]


def test_check_refuses():
    near, far = Buffer("near", "llc", 0, "i8", (8,)), Buffer("far", "ice0.tcm", (256 << 10) - 4, "i8", (8,))
    loose = [fill("ice0.dma0", near, (0,), (4,)), fill("ice1.dma0", near, (3,), (4,))]
    with pytest.raises(NGraphError, match="1 may begin before 0 has ended, though both write of near in llc"):
        check(Program("p", DEVICE, loose))
    with pytest.raises(NGraphError, match=r"buffer far lies at bytes 262140 to 262148 of ice0.tcm, which has 262144"):
        check(Program("p", DEVICE, [fill("ice0.dma0", far, (0,), (8,))]))
    with pytest.raises(NGraphError, match=r"a tile of near: found \[8\] from \[1\]"):
        check(Program("p", DEVICE, [fill("ice0.dma0", near, (1,), (8,))]))
    with pytest.raises(NGraphError, match="instruction 0 waits for 0: expected an earlier one"):
        check(Program("p", DEVICE, [replace(loose[0], after=(0,))]))


def test_share_compares_bytes():
    rows, flat = Buffer("rows", "llc", 0, "i8", (4, 4)), Buffer("flat", "llc", 0, "i8", (16,))
    column = Tile(rows, (0, 1), (4, 1))
    assert share(column, Tile(flat, (5,), (1,))) and not share(column, Tile(flat, (6,), (3,)))


def pipeline(tiles_count: int) -> Program:
    """Tiles that go through two buffers of each of 12 engines, from and to the shared memories."""
    program = Program("pipeline", DEVICE)
    data, result = Buffer("data", "dram", 0, "i8", (tiles_count, 64, 64)), Buffer("r", "llc", 0, "i8", (8, 64, 64))
    for number in range(tiles_count):
        engine, half = f"ice{number % 12}", number // 12 % 2
        a = whole(Buffer(f"a{number}", f"{engine}.sram", half * 4096, "i8", (1, 64, 64)))
        b = whole(Buffer(f"b{number}", f"{engine}.sram", 8192 + half * 4096, "i8", (1, 64, 64)))
        program.instructions += [
            Instruction(f"{engine}.dma0", "copy", (a,), (Tile(data, (number, 0, 0), (1, 64, 64)),)),
            Instruction(f"{engine}.vector", "vector", (b,), (a,), {"op": "relu"}),
            Instruction(f"{engine}.dma1", "copy", (Tile(result, (number % 8, 0, 0), (1, 64, 64)),), (b,)),
        ]
    return program


def test_double_buffers_overlap():
    program = order(pipeline(96))
    check(program)
    load, compute, store = (program.instructions[3 * 48 + step] for step in range(3))  # the fifth tile of ice0
    assert load.after == (3 * 24 + 1,)  # its buffer's last reader, two tiles earlier, not the last tile's
    assert compute.after == (3 * 24 + 2, 3 * 48)
    assert len(store.after) == 2  # its operand, and the last writer of its place in the result


@pytest.mark.slow
def test_a_hundred_thousand_instructions():
    program = pipeline(33_333)
    start = time.process_time()
    order(program)
    assert time.process_time() - start < 20
