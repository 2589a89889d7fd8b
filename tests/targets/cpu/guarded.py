"""Calls kernels where a byte beyond an operand's memory ends the process: around it are pages that nobody may touch.

`main` draws numbers at random, on memory that is exactly what the kernels' records say they touch; `try_mutants` runs
mutants of programs' instructions that the validator takes. Both are run in a process of their own, and keep in a file
what they are about to call.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf, nan, prod
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from tile_machine import emulated_tiles

from ngraph_mxnet import _core
from ngraph_mxnet.ir.sizes import MOST
from ngraph_mxnet.program.package import Package
from ngraph_mxnet.program.program import Program as Plain
from ngraph_mxnet.targets.cpu.machine.isa import supported
from ngraph_mxnet.targets.cpu.microkernels.params import (
    BF16_WEIGHT_GRADIENTS,
    CONTRACTION,
    QUANTIZED_CONTRACTION,
    Offsets,
)
from ngraph_mxnet.targets.cpu.microkernels.variants import Variant, symbol, variants
from ngraph_mxnet.targets.cpu.params import KERNELS, Kernels
from ngraph_mxnet.targets.cpu.params.layout import ROI_ALIGN
from ngraph_mxnet.targets.cpu.params.record import Span
from ngraph_mxnet.targets.cpu.program.instruction import Space
from ngraph_mxnet.targets.cpu.program.programs import Programs

_CONTRACTIONS = (CONTRACTION, QUANTIZED_CONTRACTION)
_ROOM, _GUARD = 1 << 20, 1 << 26
_SIZES = (1, 1, 1, 2, 2, 3, 4, 5, 7, 16, 17, 33)
_OTHERS = (0, 0, 1, 1, 1, 2, 3, 5, 7, 16, 20, 48, 80, -1, -2, -16, -48)
_ABSURD = (1 << 20, 1 << 33, MOST, MOST - 1, -(1 << 20), -(1 << 33), -MOST, 4096, -4096)
_FLOATS = (0.0, 1.0, 0.5, 2.0, 3.0, 7.0, 12.0, -1.0, nan, inf, 1e30)
_USUAL = {**{f"pad.{side}": (0, 0, 0, 1, 2, -1, 16) for side in ("front", "top", "left", "back", "bottom", "right")},
          "lanes": (1, 4, 16), "oc_tile": (8, 16, 32, 48), "flags": range(64), "tile_rows": (1, 2, 3),
          "code": range(40),
          "in_place": (0, 1), "first_row": (0, 1, 5), "step.row": (1, 2, 3), "step.column": (1, 2, 3), "side": (4, 6),
          "key_rows": (16, 32, 48), "depth": (1, 3, 16, 17, 20, 33, 64), "wide": (0, 1), "activation": range(7),
          "narrow.data": (0, 1), "narrow.head": (0, 1)}
"""What to draw for numbers that records mostly refuse otherwise."""
_SMALL = (1, 1, 2, 3)
_CLIPPED = ("kernel.", "chunk", "columns", "rows", "points", "tile_rows", "count_")
"""The beginnings of sizes of windows and tasks, which alone make no call long."""
_STEPS = ("stride.", "dilation.")
_MOST_WORK = 1 << 22

_KERNEL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
_NO_ACCESS, _NO_RESERVE = 0, 0x4000
_SLACK = 64
"""Bytes that may be touched behind a Program's own buffers; csrc/core/aligned_buffer.h has them."""


class Slot:
    """The memory of an operand, and what it is filled with."""

    def __init__(self, random: np.random.Generator) -> None:
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE
        guard = _libc.mmap(None, _ROOM + 2 * _GUARD, _NO_ACCESS, flags, -1, 0)
        self.begin, self.end = guard + _GUARD, guard + _GUARD + _ROOM
        if _libc.mprotect(ctypes.c_void_p(self.begin), _ROOM, mmap.PROT_READ | mmap.PROT_WRITE):
            raise OSError(ctypes.get_errno(), "mprotect")
        values = random.uniform(-9, 9, _ROOM // 4).astype(np.float32)
        values[random.integers(0, values.size, values.size // 50)] = np.nan
        self._content = values.tobytes()

    def place(self, first: int, last: int, *, at_end: bool, alignment: int = 1, content: bytes | None = None) -> int:
        """A pointer whose bytes from `first` to `last` are the memory's last, or its first."""
        if at_end:
            pointer = (self.end - last) // alignment * alignment
        else:
            pointer = -(-(self.begin - first) // alignment) * alignment
        content = self._content[:max(last - first, 0)] if content is None else content
        ctypes.memmove(pointer + first, content, len(content))
        return pointer


def _call(kernel: str, pointers: Sequence[int], ints: Sequence[int], floats: Sequence[float], tasks: int) -> None:
    _KERNEL(_core.kernel_address(kernel))(
        (ctypes.c_void_p * len(pointers))(*pointers), (ctypes.c_int64 * len(ints))(*ints),
        (ctypes.c_double * max(len(floats), 1))(*floats), 0, tasks)


@dataclass
class Call:
    """A call of `kernel`, as an instruction of a Program would make it."""

    kernel: str
    record: Kernels
    ints: list[int]
    floats: list[float]
    spans: list[Span]
    tables: dict[str, bytes]

    def run(self, slots: Sequence[Slot], *, at_end: bool) -> None:
        extents = {name: (min(first for at, first, _ in self.spans if at == name),
                          max(last for at, _, last in self.spans if at == name)) for name, *_ in self.spans}
        pointers = []
        for slot, name in zip(slots, self.record.tensors, strict=False):
            if name not in extents:
                pointers.append(slot.end)
                continue
            alignment = 64 if self.record in _CONTRACTIONS and name == "weights" else 1
            pointers.append(slot.place(*extents[name], at_end=at_end, alignment=alignment,
                                       content=self.tables.get(name)))
        _call(self.kernel, pointers, self.ints, self.floats, self.record.tasks_of(self.ints))


def _ints(record: Kernels, random: Random) -> list[int]:
    sizes = _SMALL if record.sizes > 7 else _SIZES
    ints = [random.choice(_USUAL.get(name, sizes if at < record.sizes else _OTHERS))
            for at, name in enumerate(record.ints)]
    if record in _CONTRACTIONS:
        for at, name in enumerate(record.ints):
            if name.endswith("_stride") or "." in name:
                ints[at] *= 64 if name.startswith("weight") else 4
    if record in BF16_WEIGHT_GRADIENTS.values():  # rows and columns of taps are whole lines and pairs
        numbers = dict(zip(record.ints, ints, strict=True))
        numbers |= {name: abs(numbers[name]) for name in ("shift", "lines.row", "lines.tap")}
        unit, step, phases = random.choice((4, 64, 64, 64)), numbers["lines.step"], random.randint(1, numbers["taps.w"])
        numbers |= {"lanes": 16, "phases": phases, "data.pixel": phases * unit,
                    "tap.column": 2 * numbers["shift"] * unit, "data.row": numbers["lines.row"] * step,
                    "tap.row": numbers["lines.tap"] * step}
        ints = list(numbers.values())
    for _ in range(random.choice((0, 0, 0, 0, 0, 0, 1, 1, 1, 2))):
        at = random.randrange(len(ints))
        ints[at] = random.choice(_ABSURD) + ints[at] * random.randrange(2)
    return ints


def _work(record: Kernels, ints: Sequence[int]) -> int:
    """About how many elements are looked at: not each number that is absurd must take years."""
    inner = (max(1, number) for at, (name, number) in enumerate(zip(record.ints, ints, strict=False))
             if (at < record.sizes or name.startswith("reduced") or name in ("inner", "columns", "samples"))
             and not (name.startswith(_CLIPPED) and number > 99) and not name.startswith(_STEPS)
             and not (name in "dhw" and "kernel.h" in record.ints))
    return max(prod(inner), record.tasks_of(ints))


def _draw(kernel: str, record: Kernels, told: Any, random: Random) -> Call | None:
    """A call that its record lets pass, or None."""
    ints = _ints(record, random)
    params = record.read(ints)
    if min(ints[:record.sizes]) < 1 or max(map(abs, ints)) > MOST:
        return None
    tables: dict[str, bytes] = {}

    def table(operand: str, count: int) -> Offsets:
        if count > 4096:
            raise ValueError(count)
        numbers = np.array([4 * random.randrange(-50, 500) for _ in range(count)], np.int32)
        tables[operand] = numbers.tobytes()
        return Offsets(numbers)

    try:
        spans = record.reach(params, (told, table) if isinstance(told, Variant) else told)
        if not 0 <= record.tasks(params) <= _MOST_WORK or _work(record, ints) > _MOST_WORK:
            return None
    except ValueError:
        return None
    more_ints, more_floats = record.more(params) if record.more else (0, 0)
    if max(more_ints, more_floats, *(last - first for _, first, last in spans)) > _ROOM - 128:
        return None
    ints += [random.choice(_OTHERS) for _ in range(more_ints)]
    floats = [float(random.choice(_USUAL.get(name, _FLOATS))) for name in (*record.floats, *"." * more_floats)]
    spans += [(name, 0, len(content)) for name, content in tables.items()]
    return Call(kernel, record, ints, floats, spans, tables)


def _is_there(needs: Sequence[str], features: Mapping[str, bool]) -> bool:
    """The tiles of AMX may be emulated."""
    return all(features.get(need) for need in needs if not need.startswith("amx"))


def _kernels() -> Iterator[tuple[str, str, Kernels, Any]]:
    """A kernel of each record and instruction set, its symbol, and what the record's `reach` is told of it."""
    features = _core.cpu_features()
    for isa in supported(features):
        met = set()
        for name, record in KERNELS.items():
            element = record.element_bytes[name]
            if not record.is_for(isa) or not _is_there(record.needs, features):
                continue
            if record not in _CONTRACTIONS and (id(record), element, name.rstrip("_0123456789fi")) not in met:
                met.add((id(record), element, name.rstrip("_0123456789fi")))
                yield name, f"ng_{name}__{isa}", record, element
        for variant in variants(isa):
            if _is_there(variant.needs(isa), features):
                name = f"contraction_{variant.name}"
                yield name, symbol(variant, isa), KERNELS[name], variant


def calls(seed: int, count: int) -> Iterator[tuple[str, Call]]:
    """So many for each kernel, and their names."""
    for name, kernel, record, told in _kernels():
        random = Random(f"{seed} {kernel}")
        found = (_draw(kernel, record, told, random) for _ in range(60 * count))
        for _, call in zip(range(count), filter(None, found), strict=False):
            yield name, call


class Journal:
    """What is about to be called, in a file that outlives this process."""

    _BYTES = 4000

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)

    def write(self, text: str) -> None:
        os.pwrite(self._file, text.encode().ljust(self._BYTES)[:self._BYTES], 0)


def main(path: str, seed: int, count: int, only: str = "", less: int = 0) -> None:
    """Prints how many calls were made of each kernel. `only` of one, whose operands have so many bytes `less`."""
    fill, journal = np.random.default_rng(seed), Journal(path)
    slots = [Slot(fill) for _ in range(max(len(record.tensors) for record in KERNELS.values()))]
    made: Counter[str] = Counter()
    for name, call in calls(seed, count):
        if only in ("", name):
            journal.write(f"{call.kernel} {call.record.text(call.ints, call.floats)} {call.spans}")
            call.spans = [(operand, first, last - less) for operand, first, last in call.spans]
            with emulated_tiles():
                for at_end in (True, False):
                    call.run(slots, at_end=at_end)
            made[name] += 1
    print(json.dumps(made))


_CHANGES = (0, 1, -1, 2, 3, 16, 64, 1 << 20, 1 << 40, -(1 << 20))


class Program:
    """One of a package, for mutants of its instructions one by one, in guarded memory."""

    def __init__(self, whole: Programs, program: Plain, slots: Sequence[Slot]) -> None:
        inputs, outputs = ([value.type.bytes for value in values] for values in (whole.flow.inputs, whole.flow.results))
        levels, self._arena, self._constants = program.native(_core.kernel_address).bind().listed()
        self.instructions = [instruction for level in levels for instruction in level]
        self._around = inputs, outputs, whole.prepared_bytes
        own = {(Space.ARENA, 0): self._arena, (Space.PREPARED, 0): whole.prepared_bytes,
               **{(Space.CONSTANT, i): array.nbytes for i, array in enumerate(self._constants)}}
        sizes = {**{place: size + _SLACK for place, size in own.items()},
                 **{(Space.INPUT, i): size for i, size in enumerate(inputs)},
                 **{(Space.OUTPUT, i): size for i, size in enumerate(outputs)}}
        self._places = {(int(space), index): (slot, size, space) for slot, ((space, index), size) in
                        zip(slots, sizes.items(), strict=False)}
        assert len(self._places) == len(sizes), "more slots, please"

    def check(self, instruction: Sequence[Any]) -> None:
        kernel, *rest = instruction
        try:
            made = _core.BoundProgram([[(kernel, _core.kernel_address(kernel), *rest)]], self._arena, self._constants)
        except (RuntimeError, TypeError) as error:  # numbers that fit no C++ type
            raise ValueError(str(error)) from error
        made.check(*self._around)

    def takes(self, instruction: Sequence[Any]) -> bool:
        """Whether the validator does, and a call does not last too long."""
        try:
            self.check(instruction)
        except ValueError:
            return False
        record = KERNELS[instruction[0].removeprefix("ng_").rpartition("__")[0]]
        if record is ROI_ALIGN and record.read(instruction[2]).samples < 1:
            return False  # a point for each pixel, of regions that are garbage
        return _work(record, instruction[2]) <= _MOST_WORK

    def _pointer(self, operand: Sequence[int], placed: dict[tuple[int, int], int], at_end: bool) -> int:
        space, index, offset = operand
        place = (space, 0 if space in (Space.ARENA, Space.PREPARED) else index)
        if place not in placed:
            slot, size, _ = self._places[place]
            content = self._constants[index].tobytes() if space == Space.CONSTANT else None
            alignment = 1 if space in (Space.INPUT, Space.OUTPUT) else 64
            placed[place] = slot.place(0, size, at_end=at_end, alignment=alignment, content=content)
        return placed[place] + offset

    def run(self, instruction: Sequence[Any]) -> None:
        kernel, operands, ints, floats, tasks, *_ = instruction
        for at_end in (True, False):
            placed: dict[tuple[int, int], int] = {}
            _call(kernel, [self._pointer(operand, placed, at_end) for operand in operands], ints, floats, tasks)


def _mutant(instruction: Sequence[Any], others: Sequence[Sequence[Any]], random: Random) -> list[Any]:
    """With a number or two changed, or an operand where another has one, and with the tasks that fit."""
    kernel, operands, ints, floats, _, *rest = json.loads(json.dumps(instruction))
    for _ in range(random.choice((1, 1, 2, 3))):
        target = random.choice((ints, ints, ints, *operands))
        at = random.randrange(len(target))
        old = target[at]
        target[at] = random.choice((*_CHANGES, old + 1, old - 1, old * 2, old + 64, -old))
        if random.random() < 0.1:
            operands[random.randrange(len(operands))] = list(random.choice(random.choice(others)[1]))
    try:
        tasks = KERNELS[kernel.removeprefix("ng_").rpartition("__")[0]].tasks_of(ints)
    except (ArithmeticError, ValueError):
        tasks = 0
    return [kernel, operands, ints, floats, tasks, *rest]


def try_mutants(path: str, contents: Sequence[str], held: Mapping[str, np.ndarray], seed: int, count: int) -> None:
    """Prints how many mutants of the instructions of kept programs, files, were taken and so run, by kernel."""
    fill, journal, random = np.random.default_rng(seed), Journal(path), Random(seed)
    slots = [Slot(fill) for _ in range(90)]
    packed = [Programs.of(Package.from_bytes(Path(content).read_bytes(), held)) for content in contents]
    programs = [Program(whole, program, slots) for whole in packed for program in (whole.main, whole.prepare)
                if program]
    ran: Counter[str] = Counter()
    for program in programs:
        for instruction in program.instructions:
            program.check(instruction)
            for _ in range(count):
                mutant = _mutant(instruction, program.instructions, random)
                if program.takes(mutant):
                    journal.write(str(mutant))
                    program.run(mutant)
                    ran[mutant[0].removeprefix("ng_").rpartition("__")[0]] += 1
    print(json.dumps(ran))
