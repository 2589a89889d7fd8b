"""The checks of kernels, in code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ngraph_mxnet.targets.cpu.checks.symbols import Fork, Op, Symbol, Trace
from ngraph_mxnet.targets.cpu.machine.isa import NEEDS, Isa
from ngraph_mxnet.targets.cpu.microkernels.variants import symbol, variants
from ngraph_mxnet.targets.cpu.params import KERNELS, Kernels

_REFUSED = None
"""The code of what ends in ValueError."""


@dataclass(frozen=True)
class Check:
    """The check that each call of a kernel must pass. `written` and `kept` are sums of 1 << the tensor's number. `code`
    is the place of the first byte of the check's code."""

    tensors: int
    ints: int
    sizes: int
    floats: int
    written: int
    kept: int
    code: int


@dataclass
class Checks:
    """All that the library holds."""

    rows: list[Check] = field(default_factory=list)
    code: bytes = b""
    numbers: list[int] = field(default_factory=list)
    """The pool of numbers that steps name."""
    _places: dict[bytes, int] = field(default_factory=dict)

    def row(self, name: str, isa: Isa) -> int:
        """The number of the check of a kernel, which is named without its instruction set."""
        record = KERNELS[name]
        variant = next((v for v in variants(isa) if symbol(v, isa) == f"ng_{name}__{isa}"), None)
        told = record.element_bytes[name] if variant is None else variant
        code = _code(record, told, self)
        if code is _REFUSED:
            raise ValueError(f"{name} refuses all calls")
        if code not in self._places:
            self._places[code] = len(self.code)
            self.code += code
        found = Check(len(record.tensors), len(record.ints), record.sizes, len(record.floats),
                      _bits(record, record.written), _bits(record, record.keeps), self._places[code])
        if found not in self.rows:
            self.rows.append(found)
        return self.rows.index(found)

    def place(self, number: int) -> int:
        if number not in self.numbers:
            self.numbers.append(number)
        return self.numbers.index(number)


def made(kernels: Sequence[str]) -> tuple[Checks, dict[str, list[int | None]]]:
    """The checks of kernels, by their symbols; and by name the number of the check for each instruction set of `NEEDS`.

    Raises:
        KeyError: a kernel has no record.
    """
    checks, found = Checks(), dict[str, list[int | None]]()
    for kernel in kernels:
        name, _, isa = kernel.removeprefix("ng_").rpartition("__")
        numbers = found.setdefault(name, [None] * len(NEEDS))
        numbers[list(NEEDS).index(isa)] = checks.row(name, isa)  # type: ignore[arg-type]
    return checks, found


def _bits(record: Kernels, tensors: Sequence[str]) -> int:
    return sum(1 << record.tensors.index(name) for name in tensors)


def _code(record: Kernels, told: Any, checks: Checks, truths: tuple[bool, ...] = ()) -> bytes | None:
    """From behind the last of the conditions whose `truths` are given."""
    trace = Trace(len(record.ints), truths, checks.place)
    try:
        for name, first, last in _run(record, told, trace):
            trace.step(Op.SPAN, (record.tensors.index(name), trace.slot(first), trace.slot(last)))
    except ValueError:
        return _REFUSED
    except Fork as fork:
        condition = fork.slot
    else:
        return b"".join(trace.steps) + bytes((Op.END,))
    on, off = (_code(record, told, checks, (*truths, truth)) for truth in (True, False))
    if on is _REFUSED:
        end = off and bytes((Op.REFUSE_IF, condition)) + off
    elif off is _REFUSED:
        end = bytes((Op.REFUSE_UNLESS, condition)) + on
    else:
        end = bytes((Op.SKIP_UNLESS, condition, *len(on).to_bytes(2, "little"))) + on + off
    return end and b"".join(trace.steps) + end


def _run(record: Kernels, told: Any, trace: Trace) -> list[Any]:
    """Everything that the record demands but spans, which are told."""
    params = record.read(trace.symbols)  # type: ignore[arg-type]
    if record.more is not None:
        trace.step(Op.MORE, map(trace.slot, record.more(params)))
    trace.step(Op.TASKS, [trace.slot(record.tasks(params))])
    for name in record.aligned(params) if record.aligned else ():
        trace.step(Op.ALIGNED, [record.tensors.index(name)])
    if isinstance(told, int):
        return list(record.reach(params, told))

    def table(operand: str, count: Any) -> _Offsets:
        trace.step(Op.TABLE, (record.tensors.index(operand), trace.slot(count)))
        return _Offsets(trace, record.tensors.index(operand))

    return list(record.reach(params, (told, table)))


class _Offsets:
    """`Offsets` of a table that is not known yet."""

    def __init__(self, trace: Trace, tensor: int) -> None:
        self._trace, self._tensor = trace, tensor

    def extremes(self, *arguments: Any) -> list[Symbol]:
        return self._trace.step(Op.EXTREMES, (self._tensor, *map(self._trace.slot, arguments)), 2)

    def of_tiles(self, *arguments: Any) -> list[Symbol]:
        return self._trace.step(Op.TILES, (self._tensor, *map(self._trace.slot, arguments)), 2)
