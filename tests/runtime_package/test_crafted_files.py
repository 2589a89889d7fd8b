"""Files whose checks fit and whose content does not: each is refused, with the name of what is wrong."""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

pytest.importorskip("ngraph_mxnet", reason="the other Pythons have the runtime alone")
sys.path.append(str(Path(__file__).resolve().parents[2] / "scripts"))
sys.path.append(str(Path(__file__).resolve().parents[1] / "program"))

from crafted import Crafted
from fuzzing import artefacts

import ngraph_runtime
from ngraph_mxnet.base.files import FieldReader
from ngraph_mxnet.ir.types import TensorType, element_type
from ngraph_mxnet.program.artefact import HEADER, SECTION, Kind, Reference, check
from ngraph_mxnet.program.program import read_programs
from ngraph_mxnet.targets.cpu.params.strided import strided
from ngraph_runtime import ModelError

ARENA, INPUT, OUTPUT, CONSTANT = range(4)


def program(**changes: Any) -> Crafted:
    """A relu of eight numbers."""
    params = strided("relu", (8,), (1,), (1,))
    call = ("ng_relu__baseline", [(INPUT, 0, 0), (OUTPUT, 0, 0)], params.ints(), [], params.tasks, "node", 0.0, 0.0)
    port = TensorType(element_type("f32"), (8,))
    made = Crafted("baseline", [("x", port)], [("y", port)], 0, [np.zeros(8, np.float32)], [[call]])
    return replace(made, **changes)


def with_call(**changes: Any) -> Crafted:
    names = ("kernel", "operands", "ints", "floats", "tasks")
    (call,) = program().levels[0]
    return program(levels=[[(*(changes.get(name, call[at]) for at, name in enumerate(names)), *call[5:])]])


@pytest.fixture
def load(real_library: str, tmp_path: Path) -> Callable[[Crafted | bytes], ngraph_runtime.Model]:
    def made(content: Crafted | bytes) -> ngraph_runtime.Model:
        path = tmp_path / "model.ngraph"
        path.write_bytes(content if isinstance(content, bytes) else content.content())
        return ngraph_runtime.load(path)

    return made


def test_as_it_was_it_runs(load):
    x = np.linspace(-1, 1, 8, dtype=np.float32)
    np.testing.assert_array_equal(load(program())(x)[0], np.maximum(x, 0))


@pytest.mark.parametrize("type_", ["f32[8]", "i64[4]"])
def test_a_state_of_another_size_is_refused(load, type_):
    element, size = type_[:-1].split("[")
    inputs = [("random.state", TensorType(element_type(element), (int(size),)))]
    with pytest.raises(ModelError, match=r"input random\.state is no i32\[4\]"):
        load(program(inputs=inputs))


@pytest.mark.parametrize(("changes", "text"), [
    ({"kernel": "ng_relo__baseline"}, "has no kernel 'ng_relo__baseline'"),
    ({"kernel": "relu"}, "has no kernel 'relu'"),
    ({"kernel": "ng_relu__avx1024"}, "has no kernel"),
    ({"kernel": "ng_peak_multiply_add__baseline"}, "has no kernel"),
    ({"kernel": "ng_add__baseline"}, "2 operands, the kernel has 3"),
    ({"operands": [(INPUT, 0, 4), (OUTPUT, 0, 0)]}, "operand 0: bytes 4 to 36 of 32"),
    ({"operands": [(INPUT, 0, 0), (OUTPUT, 0, 4)]}, "operand 1: bytes 4 to 36 of 32"),
    ({"operands": [(INPUT, 0, 0), (INPUT, 0, 0)]}, "it is written, but no input or constant may be"),
    ({"operands": [(INPUT, 0, 0), (CONSTANT, 0, 0)]}, "it is written, but no input or constant may be"),
    ({"operands": [(INPUT, 0, 0), (OUTPUT, 1, 0)]}, "output 1 does not exist"),
    ({"operands": [(INPUT, 0, 0), (4, 0, 0)]}, "space 4"),
    ({"ints": [1, 8, 1, 1, 1, 1, 8]}, "7 ints and 0 floats, the kernel reads 17 and 0"),
    ({"ints": [1, 8, 1, 1, 1, 1, 0, *[1] * 10]}, "its int 6 is 0"),
    ({"ints": [1, 8, 1, 1, 1, 1, 8, *[(1 << 46) + 1] * 10]}, "its int 7 is 70368744177665"),
    ({"ints": [1, 1, *[1 << 46] * 5, *[1] * 10], "tasks": 1}, "beyond all bounds"),
    ({"tasks": 2}, "2 tasks, its ints make 1"),
])
def test_instructions_that_are_refused(load, changes, text):
    with pytest.raises(ModelError, match=text):
        load(with_call(**changes))


def test_slack_is_of_own_memory_alone(load):
    """A kernel's last vector may reach 64 bytes behind the arena, and no further."""
    def call(offset: int, arena_bytes: int, size: int = 8) -> Crafted:
        params = strided("relu", (size,), (0,), (1,))
        return replace(with_call(operands=[(INPUT, 0, 0), (ARENA, 0, offset)], ints=params.ints(), tasks=params.tasks),
                       arena_bytes=arena_bytes)

    load(call(64, 64))
    load(call(96, 128, 24))
    for offset, reached in ((97, "97 to 193"), (100, "100 to 196")):
        with pytest.raises(ModelError, match=f"operand 1: bytes {reached} of 128"):
            load(call(offset, 128, 24))
    with pytest.raises(ModelError, match="beyond the arena"):
        load(call(65, 64))


def test_an_arena_that_no_machine_has(load):
    x = np.zeros(8, np.float32)
    call = with_call(operands=[(INPUT, 0, 0), (ARENA, 0, 0)])
    with pytest.raises(MemoryError, match="not enough memory"):
        load(replace(call, arena_bytes=1 << 46))(x)
    with pytest.raises(ModelError, match="a size of 70368744177665"):
        load(replace(call, arena_bytes=(1 << 46) + 1))


@pytest.mark.parametrize(("shape", "text"), [
    ((1,) * 33, "port x has rank 33"), ((0, 1 << 40, 1 << 40), "a size is beyond all bounds"),
    ((1 << 59,), "a size of 576460752303423488")])
def test_shapes_that_are_none(load, shape, text):
    with pytest.raises(ModelError, match=text):
        load(program(inputs=(("x", TensorType(element_type("f32"), shape)),)))


@pytest.mark.parametrize("value", [1 << 20, (1 << 32) - 1])
def test_counts_beyond_the_file(load, value):
    """Whatever is counted: inputs, symbols, programs, steps, constants, texts, instructions, operands, numbers."""
    content = program().content()
    number = next(i for i, section in enumerate(artefacts.sections(content)) if section.kind == Kind.PROGRAM)
    code = artefacts.sections(content)[number].content
    counts = counts_in(code, artefacts.sections(content))
    assert len(counts) > 20
    for at in counts:
        found = artefacts.sections(content)
        found[number].content = code[:at] + struct.pack("<I", value) + code[at + 4:]
        with pytest.raises(ModelError):
            load(artefacts.assembled(found))


def counts_in(code: bytes, sections: list[artefacts.Section]) -> list[int]:
    """Where the numbers stand that count something, of the one instruction too."""
    places, content = [], memoryview(code)
    (data,) = (section.content for section in sections if section.kind == Kind.DATA)

    class Recorded(FieldReader):
        def numbers(self, form: str) -> tuple[Any, ...]:
            at = self._position
            counted = {"I": range(1), "12I": range(2, 7)}.get(form, ())
            places.extend(at + 4 * place for place in counted)
            return super().numbers(form)

    with mock.patch("ngraph_mxnet.program.program.FieldReader", Recorded):
        read_programs("baseline", 0, content, memoryview(data))
    return places


def test_sections_that_lie_in_each_other(load):
    """One program could be read thousands of times."""
    content = bytearray(program().content())
    count = HEADER.unpack_from(content)[2]
    rows = [list(SECTION.unpack_from(content, HEADER.size + i * SECTION.size)) for i in range(count)]
    meta = next(row for row in rows if row[0] == Kind.META)
    code = next(row for row in rows if row[0] == Kind.PROGRAM)
    code[2:5] = meta[2:5]
    table = b"".join(SECTION.pack(*row) for row in rows)
    content[HEADER.size:HEADER.size + len(table)] = table
    struct.pack_into("16s", content, 32, check(table))
    with pytest.raises(ModelError, match=r"PROGRAM at \d+ lies in META at"):
        load(bytes(content))


def test_where_positions_are_kept_nothing_else_of_the_level_writes(load):
    """A stable sort reads its positions again; what another instruction writes there would be followed."""
    ints = [1, 4, 1, 0, 0]
    sort = ("ng_argsort_f32__baseline", [(INPUT, 0, 0), (ARENA, 0, 0)], ints, [], 1, "", 0.0, 0.0)
    (relu,) = program().levels[0]
    writes = (relu[0], [(INPUT, 0, 0), (ARENA, 0, 60)], *relu[2:])
    load(program(arena_bytes=128, levels=[[sort], [writes]]))
    with pytest.raises(ModelError, match="writes where 'ng_argsort_f32__baseline' keeps"):
        load(program(arena_bytes=128, levels=[[sort, writes]]))
    with pytest.raises(ModelError, match="it must be of the arena"):
        load(program(levels=[[(sort[0], [(INPUT, 0, 0), (OUTPUT, 0, 0)], [1, 2, 1, 0, 0], *sort[3:])]]))


@pytest.mark.parametrize(("inputs", "outputs", "text"), [
    ([8], [8, 8], "has 1 inputs and 2 outputs, expected 1 and 1"),
    ([7], [8], "has 28 bytes for x, expected 32"),
    ([8], [9], "has 36 bytes for y, expected 32"),
])
def test_references_that_do_not_fit(load, inputs, outputs, text):
    """They are looked at when they are asked for."""
    arrays = [[np.zeros(size, np.float32) for size in sizes] for sizes in (inputs, outputs)]
    model = load(program().content(Reference(0, *arrays)))
    with pytest.raises(ModelError, match=rf"model\.ngraph: REFERENCE at \d+ {text}"):
        model.reference()
    assert not model(np.zeros(8, np.float32))[0].any()


def test_references_that_are_cut_off(load):
    zeros = [np.zeros(8, np.float32)]
    content = program().content(Reference(0, zeros, zeros))
    size = next(len(one.content) for one in artefacts.sections(content) if one.kind == Kind.REFERENCE)
    for kept in range(size):
        found = artefacts.sections(content)
        reference = next(one for one in found if one.kind == Kind.REFERENCE)
        reference.content = reference.content[:kept]
        with pytest.raises(ModelError, match=r"REFERENCE at \d+ is cut off"):
            load(artefacts.assembled(found)).reference()
