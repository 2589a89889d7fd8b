"""What the library takes of instructions, and what the package's validator takes: the same, from the same records."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import numpy as np
import pytest

pytest.importorskip("ngraph_mxnet", reason="the other Pythons have the runtime alone")
_ROOT = Path(__file__).resolve().parents[2]
sys.path += [str(_ROOT / "scripts"), str(_ROOT / "tests" / "targets" / "cpu"), str(_ROOT / "tests" / "program")]

import guarded  # noqa: E402
from artefact_runs import bound  # noqa: E402
from crafted import Crafted  # noqa: E402
from fuzzing.programs import GRAPHS, artefact  # noqa: E402
from record_checks import Levels, Validator  # noqa: E402

from ngraph_mxnet import _core  # noqa: E402
from ngraph_mxnet.ir.types import TensorType, element_type  # noqa: E402
from ngraph_mxnet.program.artefact import read  # noqa: E402
from ngraph_mxnet.targets.cpu.machine.isa import supported  # noqa: E402
from ngraph_mxnet.targets.cpu.microkernels.params import CONTRACTIONS  # noqa: E402
from ngraph_mxnet.targets.cpu.params import KERNELS, Kernels  # noqa: E402
from ngraph_mxnet.targets.cpu.params.record import ALIGNMENT, SLACK  # noqa: E402
from ngraph_mxnet.targets.cpu.program.instruction import Space  # noqa: E402
from ngraph_runtime import ModelError  # noqa: E402
from ngraph_runtime.library import library  # noqa: E402

CALLS = int(os.environ.get("CHECKED_CALLS", "6"))
"""So many for each kernel on each instruction set, and mutants of each instruction of a program."""
ISA = supported(_core.cpu_features())[0]
_NUMBERS = (0, 1, -1, 2, 3, 16, 64, 1 << 20, 1 << 40, -(1 << 20), 1 << 46, (1 << 46) + 1, -(1 << 46), 1 << 62,
            -(1 << 63))

_FAR = 1 << 30
"""Bytes from a pointer to what is touched; no test has more memory."""


class Memory(NamedTuple):
    """What a program may point to: bytes of inputs and outputs, and of its own."""

    inputs: list[int]
    outputs: list[int]
    arena: int
    constants: list[np.ndarray]


def refusals(memory: Memory, levels: Sequence[Sequence[Any]], path: Path) -> list[str]:
    """Those of the validator and of the library, each empty where it takes the program."""
    found = []
    try:
        Validator(memory.inputs, memory.outputs, 0).check(Levels(levels, memory.arena, memory.constants))
        found.append("")
    except ValueError as error:
        found.append(str(error))
    inputs, outputs = ([(f"{kind}{i}", TensorType(element_type("u8"), (size,))) for i, size in enumerate(sizes)]
                       for kind, sizes in (("x", memory.inputs), ("y", memory.outputs)))
    path.write_bytes(Crafted(ISA, inputs, outputs, memory.arena, memory.constants, levels).content())
    try:
        library().free(library().load(path))
        found.append("")
    except ModelError as error:
        found.append(str(error))
    return found


def placed(call: guarded.Call, random: Random, less: str = "") -> tuple[Memory, list[Any]]:
    """A call as an instruction, whose operands have memory that ends where they do: of `less` a byte before. The arena
    has a multiple of 64 bytes, so an aligned operand there may have some bytes more, or lack more."""
    memory, places, record = Memory([], [], 0, []), [], call.record
    aligned = record.aligned(record.read(call.ints)) if record.aligned else ()
    in_arena = record.keeps[0] if record.keeps else random.choice(record.tensors)
    for name in record.tensors:
        reached = [(first, last) for at, first, last in call.spans if at == name] or [(0, 0)]
        first, last = min(first for first, _ in reached), max(last for _, last in reached) - (name == less)
        offset = max(-first, 0)
        offset += -offset % ALIGNMENT if name in aligned else 0
        if name in call.tables:
            content = np.frombuffer(call.tables[name], np.uint8)[:max(last, 0)]
            space, index = Space.CONSTANT, len(memory.constants)
            memory.constants.append(content)
        elif name == in_arena:
            space, index, is_less = Space.ARENA, 0, name == less
            arena = max(offset + last + is_less - SLACK, offset)
            if name not in aligned:
                arena, offset = _rounded(arena), offset + _rounded(arena) - arena + is_less
            memory = memory._replace(arena=_rounded(arena) - ALIGNMENT * (is_less and name in aligned))
        elif name in aligned:
            space, index = Space.CONSTANT, len(memory.constants)
            memory.constants.append(np.zeros(max(offset + last - SLACK, offset), np.uint8))
        else:
            space, sizes = (Space.OUTPUT, memory.outputs) if name in record.written else (Space.INPUT, memory.inputs)
            index = len(sizes)
            sizes.append(max(offset + last, offset))
        places.append((int(space), index, offset))
    return memory, [call.kernel, places, call.ints, call.floats, record.tasks_of(call.ints), "", 0.0, 0]


def _rounded(size: int) -> int:
    return size + -size % ALIGNMENT


def mutant(instruction: Sequence[Any], random: Random) -> list[Any]:
    """With something else changed than what makes a call the right one. There is one arena, and at least one task, as
    instructions without tasks are left out."""
    kernel, operands, ints, floats, tasks, *rest = json.loads(json.dumps(instruction))
    for _ in range(random.choice((1, 1, 2))):
        kind = random.random()
        if kind < 0.6 and ints:
            at = random.randrange(len(ints))
            ints[at] = random.choice((*_NUMBERS, ints[at] + 1, ints[at] - 1, ints[at] * 2, -ints[at]))
        elif kind < 0.8 and operands:
            operand = random.choice(operands)
            at = random.randrange(3)
            operand[at] = random.choice((0, 1, 2, 3, operand[at] + 1, max(operand[at] - 1, 0), operand[at] + 64))
            operand[0] = min(operand[0], 3)
            operand[1] *= operand[0] != Space.ARENA
        elif kind < 0.9:
            held = random.choice((operands, ints, floats))
            held[:] = random.choice((held[:-1], [*held, *held[:1]]))
        else:
            tasks += random.choice((-1, 1))
    try:
        if random.random() < 0.8:
            tasks = KERNELS[kernel.removeprefix("ng_").rpartition("__")[0]].tasks_of(ints)
    except (ArithmeticError, IndexError, TypeError, ValueError):
        pass
    return [kernel, operands, ints, floats, max(min(tasks, 1 << 62), 1), *rest]


def fits(instruction: Sequence[Any]) -> bool:
    """Whether a file can hold it."""
    return all(-(1 << 63) <= number < 1 << 63 for number in instruction[2])


def agree(found: Sequence[str]) -> bool:
    """Python's ints have no end, so a product of absurd ones may still be nothing, times 0; the library refuses it."""
    ours, librarys = found
    return bool(ours) == bool(librarys) or "its ints are beyond all bounds" in librarys


@pytest.mark.timeout(100 + 20 * CALLS)
def test_both_take_and_refuse_the_same_calls(real_library: str, tmp_path: Path) -> None:
    """Random ones of every record, in memory that ends where they do; a byte less is refused by both."""
    random, taken, refused = Random(1), Counter[Kernels](), 0
    features = {name: there for name, there in _core.cpu_features().items() if there}
    for _, call in guarded.calls(1, CALLS):
        variant = CONTRACTIONS.get(call.kernel.removeprefix("ng_").rpartition("__")[0])
        isa = call.kernel.rpartition("__")[2]
        needs = call.record.needs if variant is None else variant.needs(isa)  # type: ignore[arg-type]
        if not features.keys() >= set(needs) or any(abs(first) > _FAR for _, first, _ in call.spans):
            taken[call.record] += 1
            continue
        memory, instruction = placed(call, random)
        assert refusals(memory, [[instruction]], tmp_path / "one") == ["", ""], (instruction, memory)
        taken[call.record] += 1
        for name in {name for name, _, last in call.spans if last > SLACK}:
            memory, shorter = placed(call, random, name)
            found = refusals(memory, [[shorter]], tmp_path / "one")
            assert all(found), (name, found, shorter, memory)
        for _ in range(2):
            changed = mutant(instruction, random)
            if fits(changed):
                found = refusals(memory, [[changed]], tmp_path / "one")
                assert agree(found), (found, changed, memory)
                refused += bool(found[0])
    wanted = [record for record in KERNELS.values()
              if not record.needs or "avx512bf16" in features]
    assert [record for record in wanted if taken[record] < CALLS] == [] and refused > 50


@pytest.mark.timeout(200 + 20 * CALLS)
def test_both_take_and_refuse_the_same_programs(real_library: str, tmp_path: Path) -> None:
    """Mutants of programs that together hold every family."""
    random, counts = Random(2), Counter[bool]()
    for make in GRAPHS:
        for one in read(artefact(make, [ISA])).sets:
            levels, arena_bytes, constants = bound(one).listed()
            memory = Memory(*([type_.bytes for _, type_ in ports] for ports in (one.inputs, one.outputs)), arena_bytes,
                            constants)
            instructions = [[*each[:7], 0] for level in levels for each in level]
            assert refusals(memory, [instructions[:1]], tmp_path / "one") == ["", ""]
            for instruction in instructions:
                for _ in range(CALLS // 2):
                    changed = mutant(instruction, random)
                    level = [changed, random.choice(instructions)]
                    if fits(changed):
                        found = refusals(memory, [level], tmp_path / "one")
                        assert agree(found), (found, level)
                        counts[bool(found[0])] += 1
    assert min(counts[True], counts[False]) > 50
