"""Sizes: ints, and integer expressions of symbols, with all operations on either.

What two sizes have in common is a bool where bounds or algebra decide it, else a condition, which is a size of 0 or 1.
The guards in force (`ranges.py`) answer for the value of a size, or the truth of a condition.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from functools import lru_cache, wraps
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar
from weakref import WeakValueDictionary

from ngraph_mxnet.base.errors import NGraphError, listed

MOST = 1 << 46
"""No size in elements or bytes is larger, and no other number of an instruction (`csrc/core/sizes.h` has the same)."""


class UnknownSize(NGraphError):  # noqa: N818  (it is named for what is unknown)
    """The value of a size, or the truth of a condition on sizes, is asked for where nothing may be assumed."""


IN_FORCE: ContextVar[Any] = ContextVar("guards", default=None)
"""The `Guards` that answer; None: nobody does."""


class Atom:
    """A factor in the monomials of polynomials: a symbol, or an operation that is no sum or product. Equal atoms are
    one object."""

    __slots__ = ("__weakref__", "args", "high", "low", "op", "text")

    def __init__(self, op: str, args: tuple[Any, ...], low: int, high: int, text: str) -> None:
        self.op, self.args, self.low, self.high, self.text = op, args, low, high, text

    def __repr__(self) -> str:
        return self.text

_TEXT = operator.attrgetter("text")
_ATOMS: WeakValueDictionary[tuple[Any, ...], Atom] = WeakValueDictionary()

Terms = dict[tuple[Atom, ...], int]
"""Coefficients by their monomials, which are sorted by text; the constant's is empty. None is 0."""


def _atom_of(op: str, args: tuple[Any, ...], low: int, high: int, text: str) -> Atom:
    """The one of this operation on these ints and `Dim`s."""
    key = (op, *(frozenset(arg.terms.items()) if hasattr(arg, "terms") else arg for arg in args))
    found = _ATOMS.get(key)
    if found is None:
        found = _ATOMS.setdefault(key, Atom(op, args, low, high, text))
    return found


def _sum_bounds(terms: Terms, ends: Callable[[Atom], tuple[int, int]]) -> tuple[int, int]:
    low = high = 0
    for monomial, factor in terms.items():
        least = most = factor
        for atom in monomial:
            a, b = ends(atom)
            found = (least * a, least * b, most * a, most * b)
            least, most = min(found), max(found)
        low, high = low + least, high + most
    return low, high


def _from_least(terms: Terms) -> Terms:
    """The same polynomial of what its atoms are more than their least: (a - 1) * (b - 1) is seen to be positive."""
    found: Terms = {}
    for monomial, factor in terms.items():
        parts: Terms = {(): factor}
        for atom in monomial:
            grown: Terms = {}
            for done, amount in parts.items():
                longer = (*done, atom)
                grown[longer] = grown.get(longer, 0) + amount
                if atom.low:
                    grown[done] = grown.get(done, 0) + amount * atom.low
            parts = grown
        for done, amount in parts.items():
            key = tuple(sorted(done, key=_TEXT))
            found[key] = found.get(key, 0) + amount
    return found


def _bounds_of(terms: Terms) -> tuple[int, int]:
    """The least and the greatest value that the bounds of its atoms allow, or more than these."""
    low, high = _sum_bounds(terms, lambda atom: (atom.low, atom.high))
    if len(terms) > 2 and min(terms.values()) < 0 < max(terms.values()):
        other_low, other_high = _sum_bounds(_from_least(terms), lambda atom: (0, atom.high - atom.low))
        low, high = max(low, other_low), min(high, other_high)
    return low, high


_WEAK = ("floordiv", "mod")
"""Operations whose text binds no tighter than a product."""


def _printed_order(term: tuple[tuple[Atom, ...], int]) -> tuple[int, list[str]]:
    return -len(term[0]), [atom.text for atom in term[0]]


def _text_of(terms: Terms) -> str:
    parts: list[str] = []
    for monomial, factor in sorted(terms.items(), key=_printed_order):
        sign, factor = ("-", -factor) if factor < 0 else ("+", factor)
        numbers = [] if factor == 1 and monomial else [str(factor)]
        alone = len(monomial) + len(numbers) == 1 and (parts or sign == "+")
        factors = [atom.text if alone or atom.op not in _WEAK else f"({atom.text})" for atom in monomial]
        parts += [sign, "*".join([*numbers, *factors])]
    return " ".join(parts[1:] if parts[0] == "+" else [parts[0] + parts[1], *parts[2:]])


def _without(monomial: tuple[Atom, ...], part: tuple[Atom, ...]) -> tuple[Atom, ...] | None:
    """A monomial divided by a part of it; None if it is none."""
    rest = list(monomial)
    for atom in part:
        if atom not in rest:
            return None
        rest.remove(atom)
    return tuple(rest)


if TYPE_CHECKING:
    _Integer = int  # to the type checker a Dim is an int, since it stands where ints stand
else:
    _Integer = object


def _of_numbers(method: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Wrap a method of a size to take other numbers, too. With a float it computes with the size's value, which is
    asked for."""

    def called(self: Any, other: Any) -> Any:
        if isinstance(other, (int, Dim)):
            return method(self, other)
        if isinstance(other, Integral):
            return method(self, int(other))
        return getattr(float(self), method.__name__)(float(other)) if isinstance(other, Real) else NotImplemented

    return called


class Dim(_Integer):
    """An integer expression of at least one symbol; immutable."""

    __slots__ = ("_bounds", "_hash", "terms")

    terms: Terms
    _bounds: tuple[int, int] | None
    _hash: int

    if TYPE_CHECKING:
        def __new__(cls, terms: Terms) -> Dim: ...
    else:
        def __init__(self, terms: Terms) -> None:
            self.terms = terms
            self._hash = hash(frozenset(terms.items()))
            self._bounds = None

    @property
    def bounds(self) -> tuple[int, int]:
        """The least and the greatest value that the symbols' bounds allow, or more than these."""
        if self._bounds is None:
            self._bounds = _bounds_of(self.terms)
        return self._bounds

    @property
    def symbols(self) -> set[Atom]:
        atoms = {atom for monomial in self.terms for atom in monomial}
        return {atom for atom in atoms if atom.op == "symbol"}.union(
            *(arg.symbols for atom in atoms for arg in atom.args if isinstance(arg, Dim)))

    # ---- arithmetic -------------------------------------------------------------------------------------

    @_of_numbers
    def __add__(self, other: Any) -> Any:
        terms = dict(self.terms)
        for monomial, factor in (other.terms if isinstance(other, Dim) else {(): int(other)} if other else {}).items():
            terms[monomial] = terms.get(monomial, 0) + factor
        return _made(terms)

    __radd__ = __add__

    def __neg__(self) -> Any:
        return Dim({monomial: -factor for monomial, factor in self.terms.items()})

    def __pos__(self) -> Dim:
        return self

    @_of_numbers
    def __sub__(self, other: Any) -> Any:
        return self + -other

    @_of_numbers
    def __rsub__(self, other: Any) -> Any:
        return -self + other

    @_of_numbers
    def __mul__(self, other: Any) -> Any:
        if not isinstance(other, Dim):
            return _made({monomial: factor * other for monomial, factor in self.terms.items()})
        terms: Terms = {}
        for left, a in self.terms.items():
            for right, b in other.terms.items():
                monomial = tuple(sorted(left + right, key=_TEXT)) if left and right else left + right
                terms[monomial] = terms.get(monomial, 0) + a * b
        return _made(terms)

    __rmul__ = __mul__

    @_of_numbers
    def __floordiv__(self, other: Any) -> Any:
        return _divided(self, other)

    @_of_numbers
    def __rfloordiv__(self, other: Any) -> Any:
        return _divided(other, self)

    @_of_numbers
    def __mod__(self, other: Any) -> Any:
        return _remainder(self, other)

    @_of_numbers
    def __rmod__(self, other: Any) -> Any:
        return _remainder(other, self)

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __pow__(self, power: int) -> Any:  # type: ignore[override]
        return math.prod([self] * power)

    def __truediv__(self, other: Any) -> Any:
        return int(self) / other

    def __rtruediv__(self, other: Any) -> Any:
        return other / int(self)

    # ---- comparisons ------------------------------------------------------------------------------------

    def __eq__(self, other: object) -> Any:
        if self is other:
            return True
        if not isinstance(other, (int, Dim)):
            return int(self) == other if isinstance(other, Real) else NotImplemented
        return True if isinstance(other, Dim) and self.terms == other.terms else _is_zero(self - other)

    def __ne__(self, other: object) -> Any:
        same = self.__eq__(other)
        return same if same is NotImplemented else negated(same)

    @_of_numbers
    def __lt__(self, other: Any) -> Any:
        return _is_positive(other - self)

    @_of_numbers
    def __gt__(self, other: Any) -> Any:
        return _is_positive(self - other)

    @_of_numbers
    def __le__(self, other: Any) -> Any:
        return _is_positive(other - self + 1)

    @_of_numbers
    def __ge__(self, other: Any) -> Any:
        return _is_positive(self - other + 1)

    def __hash__(self) -> int:
        return self._hash

    def __bool__(self) -> bool:
        low, high = self.bounds
        if low > 0 or high < 0:
            return True
        asked = self != 0
        if not isinstance(asked, Dim):
            return bool(asked)
        return bool(_answers(self, f"whether {self} " + ("holds" if (low, high) == (0, 1) else "is 0")).answer(asked))

    def __index__(self) -> int:
        return int(_answers(self).answer(self))

    __int__ = __index__

    def __float__(self) -> float:
        return float(int(self))

    # ---- text -------------------------------------------------------------------------------------------

    def __str__(self) -> str:
        return _text_of(self.terms)

    def __repr__(self) -> str:
        return str(self)

    def __reduce__(self) -> Any:
        raise TypeError("a Dim is written as text")


def _answers(size: Dim, what: str = "") -> Any:
    """The guards in force. Raises UnknownSize: there are none that `what` is asked of, without it the size's value."""
    guards = IN_FORCE.get()
    if guards is None:
        raise UnknownSize(f"{what or f'the value of the size {size}'} is asked for, which depends on "
                          f"{listed(atom.text for atom in symbols_in([size]))}: expected sizes that are numbers")
    return guards


def bounds(size: Any) -> tuple[int, int]:
    return size.bounds if isinstance(size, Dim) else (int(size), int(size))


def negated(condition: Any) -> Any:
    """Return the negation of a condition, as `not` does for a bool."""
    return 1 - condition if isinstance(condition, Dim) else not condition

def _operand(size: Any) -> str:
    """Return the size's text as an operand of `//` or `%`."""
    text = str(size)
    return text if text.isidentifier() or text.isdigit() else f"({text})"


def _call_of(op: str, args: tuple[Any, ...], low: int, high: int, text: str) -> Any:
    return low if low == high else Dim({(_atom_of(op, args, low, high, text),): 1})


def _made(terms: Terms) -> Any:
    kept = {monomial: factor for monomial, factor in terms.items() if factor}
    if not kept:
        return 0
    return kept[()] if len(kept) == 1 and () in kept else Dim(kept)


def _is_zero(difference: Any) -> Any:
    """Compare a difference with 0: return a bool where the answer is known, else the condition that it is 0."""
    if not isinstance(difference, Dim):
        return difference == 0
    low, high = difference.bounds
    if low > 0 or high < 0:
        return False
    if (low, high) == (0, 1):
        return 1 - difference
    common = math.gcd(*difference.terms.values())
    rest = {monomial: factor for monomial, factor in difference.terms.items() if monomial}
    if difference.terms.get((), 0) % math.gcd(*rest.values()):
        return False
    if common > 1:
        difference = _made({monomial: factor // common for monomial, factor in difference.terms.items()})
    if _leads_negative(difference):
        difference = -difference
    return _call_of("zero", (difference,), 0, 1, f"({difference} == 0)")


def _is_positive(difference: Any) -> Any:
    """Compare a difference with 0: return a bool where the answer is known, else the condition that it is more than
    0."""
    if not isinstance(difference, Dim):
        return difference > 0
    low, high = difference.bounds
    if low > 0:
        return True
    if high <= 0:
        return False
    if is_above(difference, 0):
        return True
    if _leads_negative(difference):
        return negated(_is_positive(1 - difference))
    common = math.gcd(*(factor for monomial, factor in difference.terms.items() if monomial))
    if common > 1:  # g*x + c > 0 where x > (-c)/g, that is x + ceil(c/g) > 0 for integers
        terms = {monomial: factor // common for monomial, factor in difference.terms.items() if monomial}
        terms[()] = -(-difference.terms.get((), 0) // common)
        difference = _made(terms)
    return _call_of("positive", (difference,), 0, 1, f"({difference} > 0)")


def is_above(size: Any, least: int) -> bool:
    """True if a size is provably more than `least`. Quotients are compared by what they have in common, too: 4 * (n//8)
    <= n//2."""
    if bounds(size)[0] > least:
        return True
    if not isinstance(size, Dim):
        return False
    below: Any = 0
    for monomial, factor in size.terms.items():
        term = Dim({monomial: factor}) if monomial else factor
        if factor < 0 and len(monomial) == 1 and monomial[0].op == "floordiv":
            numerator, divisor = monomial[0].args
            if not isinstance(divisor, Dim) and -factor % divisor == 0:
                term = numerator * (factor // divisor)
            elif not isinstance(divisor, Dim) and divisor % -factor == 0:
                term = -(numerator // (divisor // -factor))
        below = below + term
    return bounds(below)[0] > least


def _leads_negative(size: Any) -> bool:
    if not isinstance(size, Dim):
        return bool(size < 0)
    return min(((term for term in size.terms.items() if term[0])), key=_printed_order)[1] < 0


def _divided(size: Any, by: Any) -> Any:
    if not isinstance(by, Dim):
        if by == 0:
            raise ZeroDivisionError("a size is divided by 0")
        return _by_number(size, by) if by > 0 else _by_number(-size, -by)
    if not isinstance(size, Dim) and size == 0:
        return 0
    exact = _exactly(size, by)
    if exact is not None:
        return exact
    turned = by - size - 1
    if isinstance(size, Dim) and _leads_negative(size) and by.bounds[0] > 0 and not _leads_negative(turned):
        return -(turned // by)
    low, high = by.bounds
    ends = [end // divisor for end in bounds(size) for divisor in ((-1, 1) if low <= 0 <= high else (low, high))]
    return _call_of("floordiv", (size, by), min(ends), max(ends), f"{_operand(size)}//{_operand(by)}")


def _by_number(size: Any, by: int) -> Any:
    if by == 1 or not isinstance(size, Dim):
        return size // by if by != 1 else size
    whole = {monomial: factor // by for monomial, factor in size.terms.items() if factor % by == 0 or not monomial}
    rest = {monomial: factor for monomial, factor in size.terms.items() if factor % by and monomial}
    offset = size.terms.get((), 0) % by
    if not rest:
        return _made(whole)
    common = math.gcd(by, *rest.values())
    inner = _made({**{monomial: factor // common for monomial, factor in rest.items()}, (): offset // common})
    by //= common
    return _made(whole) + _simple_quotient(inner, by)


def _simple_quotient(inner: Any, by: int) -> Any:
    if by == 1:
        return inner
    if _leads_negative(inner):
        return -_by_number(by - 1 - inner, by)
    low, high = inner.bounds
    if low // by == high // by:
        return low // by
    (monomial, factor), *others = sorted(inner.terms.items(), key=_printed_order)
    if len(monomial) == 1 and factor == 1 and monomial[0].op == "floordiv" and all(not other for other, _ in others):
        numerator, divisor = monomial[0].args
        if not isinstance(divisor, Dim):  # (x//a + c)//b = (x + a*c)//(a*b)
            return _by_number(numerator + divisor * inner.terms.get((), 0), divisor * by)
    return _call_of("floordiv", (inner, by), low // by, high // by, f"{_operand(inner)}//{by}")


def _exactly(size: Any, by: Dim) -> Any:
    """The quotient of two polynomials if nothing remains, else None."""
    rest, quotient = size, 0
    (lead, factor), *_ = sorted(by.terms.items(), key=_printed_order)
    for _ in range(64):
        if not isinstance(rest, Dim):
            return quotient if rest == 0 else None
        (monomial, amount), *_ = sorted(rest.terms.items(), key=_printed_order)
        left = _without(monomial, lead)
        if left is None or amount % factor:
            return None
        part = _made({left: amount // factor})
        quotient, rest = quotient + part, rest - part * by
    return None


def _remainder(size: Any, by: Any) -> Any:
    if isinstance(by, Dim):
        if not isinstance(size, Dim) and size == 0:
            return 0
        if _exactly(size, by) is not None:
            return 0
        low, high = by.bounds
        if low > 0 and bounds(size)[0] >= 0 and (size < by) is True:
            return size
        least_, most = (0, high - 1) if low > 0 else (-max(abs(low), abs(high)), max(abs(low), abs(high)))
        return _call_of("mod", (size, by), least_, most, f"{_operand(size)}%{_operand(by)}")
    if by == 0:
        raise ZeroDivisionError("a size is divided by 0")
    if by < 0:
        return -(-size % -by)
    inner = _made({monomial: factor % by for monomial, factor in size.terms.items()})
    if not isinstance(inner, Dim):
        return inner % by
    low, high = inner.bounds
    if low >= 0 and high < by:
        return inner
    return _call_of("mod", (inner, by), 0, by - 1, f"{_operand(inner)}%{by}")


P = ParamSpec("P")
R = TypeVar("R")


def symbol(name: str, low: int = 1, high: int = MOST) -> Dim:
    """A size of which only bounds are known, both included. Symbols of one name and bounds are the same. Raises
    ValueError: the name is no identifier, or the bounds hold no two sizes."""
    if not name.isidentifier() or name in TEXT_FUNCTIONS:
        raise ValueError(f"symbol {name!r}: expected a name such as N")
    if not 0 <= low < high <= MOST:
        raise ValueError(f"symbol {name}: found bounds {low}..{high}, expected 0 <= low < high <= {MOST}")
    return Dim({(_atom_of("symbol", (name, low, high), low, high, name),): 1})


def is_symbolic(size: Any) -> bool:
    return isinstance(size, Dim)


def symbols_in(*shapes: Iterable[Any]) -> list[Atom]:
    """The symbols in the shapes, in the order in which they come."""
    return list(dict.fromkeys(atom for shape in shapes for size in shape if isinstance(size, Dim)
                              for atom in sorted(size.symbols, key=str)))


def number(size: Any) -> Any:
    """`size` as an int, or as it is if it is a `Dim`."""
    return size if isinstance(size, Dim) else int(size)


def least(*sizes: Any) -> Any:
    """The least of some; what `min` is to ints."""
    return _chosen("min", min, operator.le, sizes)


def greatest(*sizes: Any) -> Any:
    """The greatest of some; what `max` is to ints."""
    return _chosen("max", max, operator.ge, sizes)


def _chosen(op: str, of_ints: Callable[..., int], wins: Callable[[Any, Any], Any], sizes: tuple[Any, ...]) -> Any:
    if not any(isinstance(size, Dim) for size in sizes):
        return of_ints(sizes)
    best, *others = sizes
    for other in others:
        if is_true(wins(best, other)):
            continue
        if is_true(wins(other, best)):
            best = other
            continue
        (a, b), (c, d) = bounds(best), bounds(other)
        pair = tuple(sorted((best, other), key=str))
        best = _call_of(op, pair, of_ints(a, c), of_ints(b, d), f"{op}({pair[0]}, {pair[1]})")
    return best


def where(condition: Any, yes: Any, no: Any) -> Any:
    """`yes` where the condition holds, else `no`, without asking which."""
    if not isinstance(condition, Dim):
        return yes if condition else no
    low, high = condition.bounds
    if low > 0 or high < 0:
        return yes
    if type(yes) is type(no) and are_same(yes, no):
        return yes
    (a, b), (c, d) = bounds(yes), bounds(no)
    return _call_of("where", (condition, yes, no), min(a, c), max(b, d), f"where({condition}, {yes}, {no})")


TEXT_FUNCTIONS: dict[str, Callable[..., Any]] = {"min": least, "max": greatest, "where": where}
"""Functions in the text of sizes, by name."""


def both(*conditions: Any) -> Any:
    """Return the conjunction of the conditions, as `and` does for bools."""
    found: Any = True
    for condition in conditions:
        if not isinstance(condition, Dim):
            if not condition:
                return False
        else:
            found = condition if found is True else found * condition
    return found


def either(*conditions: Any) -> Any:
    """Return the disjunction of the conditions, as `or` does for bools."""
    return negated(both(*map(negated, conditions)))


Binding = Mapping[str, int]
"""A value for each symbol, by name."""


def evaluate(size: Any, binding: Binding, known: dict[Atom, int] | None = None) -> int:
    """The value of a size; `known` remembers those of its parts. Raises UnknownSize: a symbol has no value."""
    if not isinstance(size, Dim):
        return int(size)
    known = {} if known is None else known
    total = 0
    for monomial, factor in size.terms.items():
        for atom in monomial:
            if atom not in known:
                known[atom] = _value(atom, binding, known)
            factor *= known[atom]
        total += factor
    return total


def _value(atom: Atom, binding: Binding, known: dict[Atom, int]) -> int:
    if atom.op == "symbol":
        if atom.args[0] not in binding:
            raise UnknownSize(f"the size {atom} has no value; there are {', '.join(binding) or 'none'}")
        return int(binding[atom.args[0]])
    return int(FUNCTIONS[atom.op](*(evaluate(arg, binding, known) for arg in atom.args)))


def substituted(size: Any, sizes: Mapping[Atom, Any]) -> Any:
    """A size with these in place of its symbols; other symbols stay."""
    if not isinstance(size, Dim):
        return size
    total: Any = 0
    for monomial, factor in size.terms.items():
        product: Any = factor
        for atom in monomial:
            product = product * _replaced(atom, sizes)
        total = total + product
    return total


def _replaced(atom: Atom, sizes: Mapping[Atom, Any]) -> Any:
    if atom.op == "symbol":
        return sizes.get(atom, Dim({(atom,): 1}))
    args = [substituted(arg, sizes) for arg in atom.args]
    if not any(isinstance(arg, Dim) for arg in args):
        return FUNCTIONS[atom.op](*args)
    return _SYMBOLIC[atom.op](*args)


def _floor(a: int, b: int) -> int:
    """0 by 0, as of what a `where` does not choose: it is computed, too."""
    return a // b if b else 0

FUNCTIONS: dict[str, Callable[..., int]] = {
    "floordiv": _floor,
    "mod": lambda a, b: a - b * _floor(a, b),
    "min": min,
    "max": max,
    "positive": lambda a: a > 0,
    "zero": lambda a: a == 0,
    "where": lambda condition, yes, no: yes if condition else no,
}
"""Functions that atoms other than symbols compute, by op."""
_SYMBOLIC: dict[str, Callable[..., Any]] = {
    "floordiv": operator.floordiv,
    "mod": operator.mod,
    "min": lambda a, b: least(a, b),
    "max": lambda a, b: greatest(a, b),
    "positive": _is_positive,
    "zero": _is_zero,
    "where": lambda condition, yes, no: where(condition, yes, no),
}
"""The same for sizes with symbols."""


def at_hand(size: Any) -> int:
    """The value at the sizes at hand, for choices that any sizes allow: nothing is assumed by asking. Raises
    UnknownSize: nothing says it."""
    if not isinstance(size, Dim):
        return int(size)
    return int(_answers(size).hinted(size))


def scaled(size: Any, factor: float) -> Any:
    """`size * factor` rounded down, of a symbolic size and a factor for which that is a size: a whole number, or 1/2,
    1/4, ..; None for others."""
    if not isinstance(size, Dim) or factor <= 0:
        return None
    if factor == int(factor):
        return size * int(factor)
    parts = int(1 / factor)
    return size // parts if parts * factor == 1 and parts & (parts - 1) == 0 else None


def is_true(condition: Any) -> bool:
    """True if a condition provably holds, whatever the symbols are."""
    return condition.bounds[0] > 0 if isinstance(condition, Dim) else bool(condition)


def is_one(size: Any) -> bool:
    return not isinstance(size, Dim) and size == 1


def is_zero(size: Any) -> bool:
    return not isinstance(size, Dim) and size == 0


def are_same(a: Any, b: Any) -> bool:
    return a.terms == b.terms if isinstance(a, Dim) and isinstance(b, Dim) else a is b or (
        not isinstance(a, Dim) and not isinstance(b, Dim) and a == b)


def are_same_shape(a: Sequence[Any], b: Sequence[Any]) -> bool:
    return a is b or (len(a) == len(b) and all(map(are_same, a, b)))


def cached(most: int) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """`functools.lru_cache` for what may ask of sizes. While somebody answers, what is asked is asked of him once: what
    follows from it is remembered there."""

    def decorated(function: Callable[P, R]) -> Callable[P, R]:
        remembered = lru_cache(most)(function)

        @wraps(function)
        def called(*args: P.args, **kwargs: P.kwargs) -> R:
            answers = IN_FORCE.get()
            if answers is None:
                return remembered(*args, **kwargs)  # type: ignore[arg-type]
            key = (function, args, *kwargs.items())
            if key not in answers.remembered:
                answers.remembered[key] = function(*args, **kwargs)
            return answers.remembered[key]

        return called

    return decorated
