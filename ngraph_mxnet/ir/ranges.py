"""Ranges of sizes: the guards that say for which sizes a graph holds, and the texts of sizes, guards and shapes."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from math import isqrt
from typing import Any

from ngraph_mxnet.base.errors import ConfigError, GraphError
from ngraph_mxnet.ir.sizes import (
    IN_FORCE,
    MOST,
    TEXT_FUNCTIONS,
    Atom,
    Dim,
    UnknownSize,
    evaluate,
    symbol,
    symbols_in,
)

Symbols = Mapping[str, Dim]

_OPERATORS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod, ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Gt: operator.gt, ast.LtE: operator.le,
}


_LONGEST = 1 << 12
"""Letters of a size: Python's parser takes memory and depth of its own for each."""


def parse_dim(text: str, symbols: Symbols) -> Any:
    """The size that `text` writes: an int, or a `Dim` of these symbols. Raises GraphError: it is no size, or names a
    symbol that there is not."""
    try:
        if text.isdigit():
            return int(text)
        if len(text) > _LONGEST:
            raise ValueError(f"it has {len(text)} letters")
        return _read(ast.parse(text.strip(), mode="eval").body, symbols)
    except (SyntaxError, ValueError, TypeError, ZeroDivisionError, RecursionError) as error:
        raise GraphError(f"size {text!r:.80}: found what is no size, expected such as (H + 1)//2: {error}") from None


def parse_dims(text: str, symbols: Symbols) -> tuple[Any, ...]:
    return tuple(parse_dim(part, symbols) for part in split_sizes(text))


def split_sizes(text: str) -> list[str]:
    """The parts between commas outside parentheses."""
    if "(" not in text:
        return [part for part in text.split(",") if part]
    parts, depth, start = [], 0, 0
    for place, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if letter == "," and depth == 0:
            parts.append(text[start:place])
            start = place + 1
    return [part for part in (*parts, text[start:]) if part]


def _read(node: ast.AST, symbols: Symbols) -> Any:
    match node:
        case ast.Constant(value=int() as number) if not isinstance(number, bool):
            return number
        case ast.Name(id=name):
            if name not in symbols:
                raise ValueError(f"there is no symbol {name}, only {', '.join(symbols) or 'none'}")
            return symbols[name]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_read(operand, symbols)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](_read(left, symbols), _read(right, symbols))
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](_read(left, symbols), _read(right, symbols))
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in TEXT_FUNCTIONS:
            return TEXT_FUNCTIONS[name](*(_read(arg, symbols) for arg in args))
    raise ValueError(f"found {ast.unparse(node)}")


@dataclass(frozen=True)
class Guard:
    """`condition` has to be `value`; `why` names what asked."""

    condition: Dim
    value: int
    why: str = ""

    def holds(self, binding: Mapping[str, int]) -> bool:
        return evaluate(self.condition, binding) == self.value

    @property
    def is_narrow(self) -> bool:
        """True if the guard leaves only one value of a symbol, or a few beside each other."""
        size, atom = self.condition, _atom(self.condition)
        if atom is not None and atom.op == "zero" and self.value == 1:
            size = atom.args[0]
        monomials = [monomial for monomial in size.terms if monomial]
        return len(monomials) == 1 and len(monomials[0]) == 1 and _is_nearly_symbol(monomials[0][0])

    def __str__(self) -> str:
        atom = _atom(self.condition)
        if atom is not None and atom.op in _RELATIONS:
            return f"{atom.args[0]} {_RELATIONS[atom.op][self.value]} 0"
        return f"{self.condition} is {self.value}"


def parse_guard(text: str, symbols: Symbols) -> Guard | None:
    """Return the guard that `str` wrote as this text; None where the guard always holds. Raises GraphError: it is no
    guard, or never holds."""
    size, _, number = text.rpartition(" is ")
    if size and number.lstrip("-").isdigit():
        found, value = parse_dim(size, symbols), int(number)
    else:
        found, value = parse_dim(text, symbols), 1
    if not isinstance(found, Dim):
        if int(found) != value:
            raise GraphError(f"guard {text!r} never holds")
        return None
    if _is_negated(found):
        found, value = 1 - found, 1 - value
    return Guard(found, value)


def _atom(size: Dim) -> Atom | None:
    """The only one that the size is made of: it is no sum, no product and no multiple."""
    ((monomial, factor), *others) = size.terms.items()
    return monomial[0] if not others and len(monomial) == factor == 1 else None


def _is_nearly_symbol(atom: Atom) -> bool:
    if atom.op != "floordiv":
        return atom.op == "symbol"
    size, by = atom.args
    return not isinstance(by, Dim) and 0 < int(by) <= _FEW and isinstance(size, Dim) and (
        (found := _atom(size)) is not None and found.op == "symbol")


def _is_negated(size: Dim) -> bool:
    """True if the size is 1 less a condition, or 1 less a size that is 0 or 1."""
    return size.bounds == (0, 1) and all(factor < 0 for monomial, factor in size.terms.items() if monomial)


_FEW = 8
_RELATIONS = {"zero": ("!=", "=="), "positive": ("<=", ">")}


@dataclass
class Guards:
    """The sizes at hand, and what was asked of them so far.

    A new question is refused with UnknownSize unless there are sizes at hand and somebody says what it is for
    (`because`).
    """

    hint: Mapping[str, int] | None = None
    found: dict[Dim, Guard] = field(default_factory=dict)
    why: str = ""
    """The work under way, which becomes the reason of the guards that it makes."""
    remembered: dict[Any, Any] = field(default_factory=dict, repr=False, compare=False)
    """Results of functions that asked: see `cached`."""
    _known: dict[Atom, int] = field(default_factory=dict)

    @staticmethod
    def of(guards: Iterable[Guard]) -> Guards:
        """Return `Guards` that answer by these guards alone."""
        return Guards(found={guard.condition: guard for guard in guards})

    def answer(self, size: Dim) -> int:
        """The value at the sizes at hand, which is a guard from now on."""
        if _is_negated(size):
            return 1 - self.answer(1 - size)
        if size not in self.found:
            if self.hint is None:
                raise UnknownSize(f"{size} is asked for, of which no guard tells; there are: "
                                  f"{', '.join(map(str, self.found.values())) or 'none'}")
            if not self.why:
                raise UnknownSize(f"{size} is asked for where nothing may be assumed: expected a choice that any size "
                                  "allows, or `because`, which says what for")
            self.found[size] = Guard(size, evaluate(size, self.hint, self._known), self.why)
        return self.found[size].value

    def hinted(self, size: Dim) -> int:
        """The value at the sizes at hand, of which nothing is assumed."""
        if self.hint is None:
            raise UnknownSize(f"the value of {size} is asked for, and there are no sizes at hand")
        return evaluate(size, self.hint, self._known)


@contextmanager
def assuming(guards: Guards) -> Iterator[Guards]:
    """Within, `guards` are in force."""
    token = IN_FORCE.set(guards)
    try:
        yield guards
    finally:
        IN_FORCE.reset(token)


@contextmanager
def relying(guards: Sequence[Guard]) -> Iterator[None]:
    """Within, a graph's own guards answer, unless others are in force already, which know more."""
    if not guards or IN_FORCE.get() is not None:
        yield
        return
    with assuming(Guards.of(guards)):
        yield


def because(why: Any) -> AbstractContextManager[None]:
    """Within, what is asked of sizes becomes a guard with this reason; elsewhere a new question is an error. Without
    guards in force nothing happens."""
    guards = IN_FORCE.get()
    return _NO_REASON if guards is None else _reason(guards, why)


_NO_REASON = nullcontext()


@contextmanager
def _reason(guards: Guards, why: Any) -> Iterator[None]:
    before, guards.why = guards.why, str(why)
    try:
        yield
    finally:
        guards.why = before


Shapes = Mapping[str, Sequence[Any]]
"""Shapes of inputs, by name."""

_SIZE = re.compile(r"(?:([^\W\d]\w*)(?::|\Z))?(?:(\d+)\.\.(\d*))?\Z")
_AXES = {1: "N", 2: "NT", 3: "NTC", 4: "NCHW", 5: "NCDHW"}
"""Names of the axes' sizes, by rank."""
_LARGE = 4096
"""Without an upper bound, sizes are thought of as up to so many times the lower one."""


def has_ranges(shapes: Shapes) -> bool:
    return any(isinstance(size, (str, Dim)) for shape in shapes.values() for size in shape)


def checked_shape(name: str, shape: Sequence[Any]) -> tuple[int | str, ...]:
    """The sizes of input `name`: ints, and texts of ranges; what is written as a number is one. Raises ConfigError: a
    size is none; the text names the input, what was found and what is expected."""
    return tuple(_checked(name, size) for size in shape)


def fixed_shapes(shapes: Shapes | None) -> dict[str, tuple[int, ...]]:
    """The shapes, all of whose sizes are numbers. Raises ConfigError: one is none."""
    found: dict[str, tuple[int, ...]] = {}
    for name, shape in (shapes or {}).items():
        sizes = checked_shape(name, shape)
        for size in sizes:
            if isinstance(size, str):
                raise ConfigError(f"input {name!r}: found the size {size!r}, expected a number")
        found[name] = tuple(map(int, sizes))
    return found


def symbolic_shapes(shapes: Shapes) -> dict[str, tuple[Any, ...]]:
    """The shapes with symbols for sizes that are ranges; one without a name gets that of its axis. Raises ConfigError:
    as for `checked_shape`, or a name has two ranges."""
    sizes = {name: checked_shape(name, shape) for name, shape in shapes.items()}
    declared = _declared(sizes)
    taken = set(declared)

    def of(size: int | str, rank: int, axis: int) -> Any:
        if isinstance(size, int):
            return size
        called, low, high = _parts(size)
        if called:
            return declared[called]
        taken.add(name := axis_name(rank, axis, taken))
        return symbol(name, low, high)

    return {name: tuple(of(size, len(shape), axis) for axis, size in enumerate(shape)) for name, shape in sizes.items()}


def axis_name(rank: int, axis: int, taken: Collection[str]) -> str:
    """A name for the size of an axis that is not taken yet."""
    letter = _AXES[rank][axis] if rank in _AXES else "D"
    number, name = 2, letter
    while name in taken:
        number, name = number + 1, f"{letter}{number}"
    return name


def range_of(low: int, high: int) -> str:
    return f"{low}..{'' if high >= MOST else high}"


def bounds_text(symbols: Iterable[Atom]) -> str:
    """The symbols with their bounds, as in `N: 1..32, H: 1..`."""
    return ", ".join(f"{atom.text}: {range_of(atom.low, atom.high)}" for atom in symbols)


def described(shapes: Shapes) -> str:
    """All that there is to say of shapes whose sizes may be symbols, for keys."""
    symbols = bounds_text(symbols_in(*shapes.values()))
    return repr(({name: tuple(map(str, shape)) for name, shape in shapes.items()}, symbols))


def some_shapes(sets: Sequence[Shapes]) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the set with the fewest symbols, with numbers for the symbols that may be tried first."""
    found = min(map(symbolic_shapes, sets), key=lambda one: len(symbols_in(*one.values())))
    binding = next(bindings_to_try(symbols_in(*found.values())))
    return {name: tuple(evaluate(size, binding) for size in shape) for name, shape in found.items()}


def bindings_to_try(symbols: Sequence[Atom]) -> Iterator[dict[str, int]]:
    """Values for which something may be compiled first, the best to guess with before others: sizes in the middle, then
    large ones, for what has to be large enough, and small ones."""
    most = {atom.text: min(atom.high, max(atom.low, 1) * _LARGE) for atom in symbols}
    least = {atom.text: max(atom.low, 1) for atom in symbols}
    middle = {name: isqrt(least[name] * high) for name, high in most.items()}
    yield middle
    yield {name: isqrt(middle[name] * high) for name, high in most.items()}
    yield most
    yield {name: isqrt(middle[name] * low) for name, low in least.items()}
    yield {atom.text: atom.low for atom in symbols}


def sizes_to_try(atom: Atom, most: int) -> list[int]:
    """About so many values of a symbol: all, or its ends and what lies between, further and further apart."""
    low, high = atom.low, min(atom.high, max(atom.low, 1) * _LARGE)
    if high - low < most:
        return list(range(low, high + 1))
    ratio = (high - low) ** (1 / (most - 1))
    return sorted({low, high, *(low + round(ratio ** power) for power in range(most - 1))})


def _declared(sizes: Mapping[str, Sequence[int | str]]) -> dict[str, Dim]:
    """The symbols that have names. Only one of the places where a name stands need have bounds."""
    bounds: dict[str, tuple[int, int]] = {}
    for size in (size for shape in sizes.values() for size in shape if isinstance(size, str)):
        called, low, high = _parts(size)
        if called and (":" in size or called not in bounds):
            before = bounds.get(called, (low, high))
            if ":" in size and before not in ((1, MOST), (low, high)):
                raise ConfigError(f"size {called}: found {range_of(low, high)} and {range_of(*before)}, expected one "
                                  "range")
            bounds[called] = low, high
    return {name: symbol(name, *ends) for name, ends in bounds.items()}


def _checked(name: str, size: Any) -> int | str:
    if isinstance(size, str):
        text = size.strip()
        if text.isdigit():
            return int(text)
        try:
            called, low, high = _parts(text)
            if low == high and not called:
                return low
            symbol(called or "N", low, high)
            return text
        except ValueError:
            pass
    elif not isinstance(size, (bool, float)):
        try:
            if int(size) >= 0:
                return int(size)
        except (TypeError, ValueError):
            pass
    raise ConfigError(f"input {name!r}: found the size {size!r}, expected a number, a range as '1..32', a name as "
                      "'H', or both as 'H:8..640'")


def _parts(text: str) -> tuple[str, int, int]:
    """The name, empty if there is none, and the bounds. Raises ValueError."""
    match = _SIZE.match(text)
    if match is None or not text or text.endswith(":"):
        raise ValueError(f"{text!r} is no range")
    called, low, high = match.groups()
    return called or "", int(low) if low else 1, int(high) if high else MOST
