"""Whether a program's instructions are such as their kernels' records say, asked of the records themselves.

It is what csrc/core/validator.cc is held to, which runs code that is made of the records.

Checked of every instruction: that the kernel is one of the kernel library's, for an instruction set of this CPU; the
numbers of operands, ints and floats; that what counts is at least 1 and within bounds; the number of tasks; that an
operand's place exists and is aligned; that no byte outside an operand's memory is read or written, of which the
kernel's record tells; that nothing writes to inputs, or to constants (tables of offsets are among them), or where a
kernel keeps positions that it relies on while it runs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ngraph_mxnet.ir.sizes import MOST
from ngraph_mxnet.targets.cpu.machine.isa import supported
from ngraph_mxnet.targets.cpu.microkernels.params import CONTRACTION, CONTRACTIONS, Offsets, Table
from ngraph_mxnet.targets.cpu.microkernels.variants import Variant, symbol, variants
from ngraph_mxnet.targets.cpu.params import KERNELS, Kernels
from ngraph_mxnet.targets.cpu.params.record import ALIGNMENT, SLACK
from ngraph_mxnet.targets.cpu.program.instruction import Space

_SYMBOL = re.compile(r"ng_(\w+?)__([a-z0-9]+)")
_CALLERS = (Space.INPUT, Space.OUTPUT)
"""Memory of others: it ends where it ends."""
_FIXED = (Space.INPUT, Space.CONSTANT)
_ONE_EACH = (Space.ARENA, Space.PREPARED)


class Levels(NamedTuple):
    """What a Program is at given sizes."""

    levels: Sequence[Sequence[Any]]
    arena_bytes: int
    constants: Sequence[np.ndarray]


class _Written(NamedTuple):
    """Bytes of the arena that an instruction writes, and whether its kernel relies on them."""

    first: int
    last: int
    is_kept: bool
    kernel: str


class Validator:
    """For the Programs of one executable."""

    def __init__(self, inputs: Sequence[int], outputs: Sequence[int], prepared: int,
                 features: Mapping[str, bool] | None = None) -> None:
        """Bytes of each input and output, and of the prepared buffer; the features of the CPU that is to run them, this
        one if not given."""
        from ngraph_mxnet import _core

        self._features = _core.cpu_features() if features is None else features
        self._isas: list[str] = list(supported(self._features))
        self._kernels: dict[str, tuple[str, Kernels, Variant | None]] = {}
        # Where nothing is prepared there is no buffer, and nothing behind it.
        self._sizes: dict[int, Sequence[int]] = {Space.INPUT: inputs, Space.OUTPUT: outputs,
                                                 Space.PREPARED: [prepared] if prepared else []}

    def check(self, program: Levels) -> None:
        """Raises ValueError that names the instruction and what is wrong with it."""
        spaces = {**self._sizes, Space.ARENA: [count(program.arena_bytes)],
                  Space.CONSTANT: [array.nbytes for array in program.constants]}
        _check_lists(program.levels, *program.levels)
        for level in program.levels:
            written: list[_Written] = []
            for instruction in level:
                try:
                    written += self._check_instruction(instruction, spaces, program.constants)
                except (ArithmeticError, LookupError, TypeError, ValueError) as error:
                    name = instruction[0] if isinstance(instruction, list | tuple) and instruction else instruction
                    raise ValueError(f"instruction {name!r}: {error}") from error
            _check_kept(written)

    def check_kernels(self, kernels: Iterable[str]) -> None:
        """Raises ValueError for one that the library has not, or that the CPU does not run."""
        for kernel in kernels:
            if kernel not in self._kernels:
                self._kernels[kernel] = self._kernel(kernel)

    def _check_instruction(self, instruction: Sequence[Any], spaces: dict[int, Sequence[int]],
                           constants: Sequence[np.ndarray]) -> list[_Written]:
        """What it writes to the arena."""
        kernel, operands, numbers, floats, tasks, origin, operations, touched = instruction
        _check_lists(operands, numbers, floats)
        if type(kernel) is not str:
            raise ValueError("no such kernel")
        if kernel not in self._kernels:
            self._kernels[kernel] = self._kernel(kernel)
        name, record, variant = self._kernels[kernel]
        if not {int}.issuperset(map(type, numbers)) or (numbers and max(max(numbers), -min(numbers)) > MOST):
            raise ValueError(f"{numbers} are no whole numbers within bounds")
        if len(operands) != len(record.tensors):
            raise ValueError(f"{len(operands)} operands, the kernel has {len(record.tensors)}")
        if len(numbers) < len(record.ints):
            raise ValueError(f"{len(numbers)} ints, the kernel reads {len(record.ints)}")
        params = record.read(numbers)
        more_ints, more_floats = record.more(params) if record.more else (0, 0)
        least_ints, least_floats = len(record.ints) + more_ints, len(record.floats) + more_floats
        if len(numbers) < least_ints or len(floats) < least_floats:
            raise ValueError(f"{len(numbers)} ints and {len(floats)} floats, the kernel reads {least_ints} and "
                             f"{least_floats}")
        if not all(map(_is_real, (*floats, operations))):
            raise ValueError(f"floats {floats}, {operations} operations")
        if type(origin) is not str:
            raise ValueError(f"origin {origin!r}")
        count(touched)
        if min(numbers[:record.sizes]) < 1:
            raise ValueError(f"sizes {numbers[:record.sizes]}, each of which must be at least 1")
        wanted = record.tasks(params)
        if type(tasks) is not int or tasks != wanted or wanted > MOST:
            raise ValueError(f"{tasks} tasks, its ints make {wanted}")
        room = dict(zip(record.tensors, ((_place(operand, spaces), operand[0]) for operand in operands), strict=True))
        for operand in record.aligned(params) if record.aligned else ():
            (offset, _), space = room[operand]
            if offset % ALIGNMENT or space in _CALLERS:
                raise ValueError(f"operand {operand}: offset {offset} is not aligned to {ALIGNMENT}")
        told = (variant, _table(operands, constants)) if variant is not None else record.element_bytes[name]
        written = []
        for operand, first, last in record.reach(params, told):
            (offset, size), space = room[operand]
            if offset + first < 0 or offset + last > size + (SLACK if space not in _CALLERS else 0):
                raise ValueError(f"operand {operand}: bytes {offset + first} to {offset + last} of {size}")
            if operand in record.written:
                if space in _FIXED:
                    raise ValueError(f"operand {operand} is written, but no {Space(space).name.lower()} may be")
                if space == Space.ARENA:
                    written.append(_Written(offset + first, offset + last, operand in record.keeps, kernel))
                elif operand in record.keeps:
                    raise ValueError(f"operand {operand} must be of the arena, which a call has to itself")
        return written

    def _kernel(self, kernel: str) -> tuple[str, Kernels, Variant | None]:
        match = _SYMBOL.fullmatch(kernel)
        if match is None or match[1] not in KERNELS:
            raise ValueError("no such kernel")
        name, isa = match.groups()
        if isa not in self._isas:
            raise ValueError("this CPU does not run it")
        variant = next((v for v in variants(isa) if symbol(v, isa) == kernel), None)  # type: ignore[arg-type]
        if (name in CONTRACTIONS and variant is None) or not KERNELS[name].is_for(isa):
            raise ValueError("no such kernel")
        needs = KERNELS[name].needs if variant is None else variant.needs(isa)  # type: ignore[arg-type]
        for need in needs:
            if not self._features.get(need):
                raise ValueError(f"this CPU lacks {need}")
        return name, KERNELS[name], variant


def _check_kept(written: Sequence[_Written]) -> None:
    """Refuse a level, whose instructions run at once, in which one writes where another keeps positions that it relies
    on."""
    for kept in (one for one in written if one.is_kept):
        for other in written:
            if other is not kept and other.first < kept.last and kept.first < other.last:
                raise ValueError(f"instruction {other.kernel!r} writes where {kept.kernel!r} keeps what it relies on")


def _check_lists(*values: Any) -> None:
    if not {list, tuple}.issuperset(map(type, values)):
        raise ValueError(f"a list is missing: {values}")


def _is_real(value: Any) -> bool:
    return type(value) is float or (type(value) is int and abs(value) <= MOST)


def count(value: Any) -> int:
    """The value, if it can be a number of bytes or elements, else ValueError."""
    if type(value) is not int or not 0 <= value <= MOST:
        raise ValueError(f"{value!r} can't be a number of bytes or elements")
    return value


def _place(operand: Sequence[Any], spaces: dict[int, Sequence[int]]) -> tuple[int, int]:
    """An operand's offset, and the size of the memory that it points into."""
    space, index, offset = operand
    if {int, Space}.issuperset((type(space), type(index), type(offset))) and space in spaces:
        sizes = spaces[space]
    else:
        raise ValueError(f"no such place: {operand}")
    if space in _ONE_EACH:
        index = 0 if 0 <= index <= MOST else -1  # they have no numbers
    if not 0 <= index < len(sizes):
        raise ValueError(f"{Space(space).name.lower()} {index} does not exist, there are {len(sizes)}")
    if not 0 <= offset <= sizes[index]:
        raise ValueError(f"byte offset {offset} of {sizes[index]}")
    return offset, sizes[index]


def _table(operands: Sequence[Sequence[int]], constants: Sequence[np.ndarray]) -> Table:
    def table(operand: str, count: int) -> Offsets:
        space, index, offset = operands[CONTRACTION.tensors.index(operand)]
        if space != Space.CONSTANT:
            raise ValueError(f"operand {operand}: a table must be a constant")
        memory = constants[index].reshape(-1).view(np.uint8)
        if offset % 4 or offset + 4 * count > memory.size:
            raise ValueError(f"operand {operand}: a table of {count} entries at {offset} of {memory.size} bytes")
        return Offsets(memory[offset:offset + 4 * count].view(np.int32))

    return table
