"""The demands of kernels' records on a call, as code that the runtime library interprets (`csrc/core/validator.cc`).

The records' functions run on symbols in place of ints, numbers that are not known yet: what is computed with them is
written down. It happens when the library is built, and needs no compiler.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from ngraph_mxnet.targets.cpu.machine.isa import NEEDS
from ngraph_mxnet.targets.cpu.microkernels.variants import Isa, symbol, variants
from ngraph_mxnet.targets.cpu.params import KERNELS, Kernels


class Op(IntEnum):
    """A step of a check; `csrc/core/validator.cc` has the same numbers, from the table that the build writes."""

    END = 0
    NUMBER = 1
    """Operands: the place of a number in the pool."""
    ADD = 2
    SUBTRACT = 3
    MULTIPLY = 4
    DIVIDE = 5
    MODULO = 6
    """Both round as in Python, and refuse 0."""
    AND = 7
    LESS = 8
    AT_MOST = 9
    EQUAL = 10
    TABLE = 11
    """Operands: a tensor, the slot of a count. Refuses unless it is a constant with so many entries."""
    EXTREMES = 12
    """Operands: a tensor, the slots of the first entry and a count. Two results."""
    TILES = 13
    """Operands: a tensor, the slots of the arguments of `Offsets.of_tiles`. Two results."""
    TASKS = 14
    """Operands: the slot of the number of tasks."""
    MORE = 15
    """Operands: the slots of how many ints and floats there must be beyond those with names."""
    ALIGNED = 16
    """Operands: a tensor."""
    SPAN = 17
    """Operands: a tensor, the slots of its first byte and of one past its last."""
    REFUSE_IF = 18
    REFUSE_UNLESS = 19
    SKIP_UNLESS = 20
    """Operands: the slot of a condition, and how many bytes to skip, in two bytes, the lower one first."""


class Fork(Exception):  # noqa: N818  (it is no error)
    """The truth of a condition is asked for that has none yet."""

    def __init__(self, slot: int) -> None:
        super().__init__(slot)
        self.slot = slot


class Symbol:
    """A number in a slot."""

    __slots__ = ("_trace", "slot")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, trace: Trace, slot: int) -> None:
        self._trace, self.slot = trace, slot

    def __bool__(self) -> bool:
        return self._trace.truth(self.slot)

    def __add__(self, other: Any) -> Any:
        return self._made(Op.ADD, self, other)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return self._made(Op.SUBTRACT, self, other)

    def __rsub__(self, other: Any) -> Any:
        return self._made(Op.SUBTRACT, other, self)

    def __neg__(self) -> Any:
        return self._made(Op.SUBTRACT, 0, self)

    def __mul__(self, other: Any) -> Any:
        return self._made(Op.MULTIPLY, self, other)

    __rmul__ = __mul__

    def __floordiv__(self, other: Any) -> Any:
        return self._made(Op.DIVIDE, self, other)

    def __rfloordiv__(self, other: Any) -> Any:
        return self._made(Op.DIVIDE, other, self)

    def __mod__(self, other: Any) -> Any:
        return self._made(Op.MODULO, self, other)

    def __and__(self, other: Any) -> Any:
        return self._made(Op.AND, self, other)

    def __lt__(self, other: Any) -> Any:
        return self._made(Op.LESS, self, other)

    def __gt__(self, other: Any) -> Any:
        return self._made(Op.LESS, other, self)

    def __le__(self, other: Any) -> Any:
        return self._made(Op.AT_MOST, self, other)

    def __ge__(self, other: Any) -> Any:
        return self._made(Op.AT_MOST, other, self)

    def __eq__(self, other: Any) -> Any:
        return self._made(Op.EQUAL, self, other)

    def _made(self, op: Op, left: Any, right: Any) -> Any:
        return self._trace.computed(op, left, right)


class Trace:
    """One way through a function of symbols: its steps since the last condition whose truth is given in `truths`.

    Slots are numbered in the order in which they are filled, so that each run fills the same ones alike; what was
    computed once is not computed again.
    """

    def __init__(self, ints: int, truths: Sequence[bool], place: Callable[[int], int]) -> None:
        """The first slots hold the ints. `place` gives the place of a number in the pool."""
        self.steps: list[bytes] = []
        self.symbols = [Symbol(self, slot) for slot in range(ints)]
        self._truths, self._place = list(truths), place
        self._slots, self._known = ints, dict[tuple[Any, ...], int]()
        self._answered: dict[int, bool] = {}

    def truth(self, slot: int) -> bool:
        if slot not in self._answered:
            if not self._truths:
                raise Fork(slot)
            self._answered[slot] = self._truths.pop(0)
            self.steps.clear()
        return self._answered[slot]

    def computed(self, op: Op, left: Any, right: Any) -> Any:
        """Return the result of a step. Adding 0, multiplying by 1 and AND with the int 0 take no step."""
        if isinstance(right, int) and (op, right) in ((Op.ADD, 0), (Op.MULTIPLY, 1)):
            return left
        if op is Op.AND and isinstance(right, int) and right == 0:
            return 0
        return self.step(op, (self.slot(left), self.slot(right)), 1)[0]

    def step(self, op: Op, operands: Iterable[int], results: int = 0) -> list[Symbol]:
        """Do a step, if it was not done before."""
        key = (op, *operands)
        if key not in self._known:
            self._known[key] = self._slots
            self._slots += results
            self.steps.append(bytes(key))
        return [Symbol(self, self._known[key] + number) for number in range(results)]

    def slot(self, value: Any) -> int:
        """That of a symbol, or of a number."""
        if isinstance(value, Symbol):
            return value.slot
        return self.step(Op.NUMBER, (self._place(int(value)),), 1)[0].slot


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
    params = record.read(trace.symbols)
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
