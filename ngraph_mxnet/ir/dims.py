"""Who answers when the value of a size that is a symbol is asked for: the `Guards` in force (`guards.py`)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakValueDictionary

from ngraph_mxnet.errors import NGraphError


class UnknownSize(NGraphError):  # noqa: N818  (it is named for what is unknown)
    """The value of a size, or the truth of a condition on sizes, is asked for where nothing may be assumed."""


class Answers(Protocol):
    """A source of the values of sizes; see `sizes.Guards`."""

    remembered: dict[Any, Any]
    """Results of functions that were called while this source answered: see `sizes.cached`."""

    def answer(self, size: Any) -> int:
        """The value, which is relied on from now on."""

    def hinted(self, size: Any) -> int:
        """The value at the sizes at hand, which is not relied on."""

IN_FORCE: ContextVar[Answers | None] = ContextVar("answers", default=None)


def answer(size: Any, what: str, asked: Any) -> int:
    """The value of `asked`, a `Dim` that tells `what` of `size`. Raises UnknownSize: nobody answers."""
    answers = IN_FORCE.get()
    if answers is None:
        symbols = ", ".join(sorted(atom.text for atom in size.symbols))
        raise UnknownSize(f"{what} is asked for, which depends on {symbols}: expected sizes that are numbers")
    return answers.answer(asked)


class Atom:
    """A factor in the monomials of polynomials: a symbol, or an operation that is no sum or product. Equal atoms are
    one object."""

    __slots__ = ("__weakref__", "args", "high", "low", "op", "text")

    def __init__(self, op: str, args: tuple[Any, ...], low: int, high: int, text: str) -> None:
        self.op, self.args, self.low, self.high, self.text = op, args, low, high, text

    def __repr__(self) -> str:
        return self.text

_ATOMS: WeakValueDictionary[tuple[Any, ...], Atom] = WeakValueDictionary()

Terms = dict[tuple[Atom, ...], int]
"""Coefficients by their monomials, which are sorted by text; the constant's is empty. None is 0."""


def text_of(atom: Atom) -> str:
    return atom.text


def atom_of(op: str, args: tuple[Any, ...], low: int, high: int, text: str) -> Atom:
    """The one of this operation on these ints and `Dim`s."""
    key = (op, *(frozenset(arg.terms.items()) if hasattr(arg, "terms") else arg for arg in args))
    found = _ATOMS.get(key)
    if found is None:
        found = _ATOMS.setdefault(key, Atom(op, args, low, high, text))
    return found


def _ends(atom: Atom) -> tuple[int, int]:
    return atom.low, atom.high


def _span(atom: Atom) -> tuple[int, int]:
    """The bounds of what an atom is more than the least that it can be."""
    return 0, atom.high - atom.low


def _sum_bounds(terms: Terms, ends: Callable[[Atom], tuple[int, int]]) -> tuple[int, int]:
    low = high = 0
    for monomial, factor in terms.items():
        least, most = _product_bounds(monomial, ends)
        least, most = (least * factor, most * factor) if factor > 0 else (most * factor, least * factor)
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
            key = tuple(sorted(done, key=text_of))
            found[key] = found.get(key, 0) + amount
    return found


def _product_bounds(monomial: Iterable[Atom], ends: Callable[[Atom], tuple[int, int]]) -> tuple[int, int]:
    low = high = 1
    for atom in monomial:
        least, most = ends(atom)
        values = (low * least, low * most, high * least, high * most)
        low, high = min(values), max(values)
    return low, high


def bounds_of(terms: Terms) -> tuple[int, int]:
    """The least and the greatest value that the bounds of its atoms allow, or more than these."""
    low, high = _sum_bounds(terms, _ends)
    if len(terms) > 2 and min(terms.values()) < 0 < max(terms.values()):
        other_low, other_high = _sum_bounds(_from_least(terms), _span)
        low, high = max(low, other_low), min(high, other_high)
    return low, high


_WEAK = ("floordiv", "mod")
"""Operations whose text binds no tighter than a product."""


def printed_order(term: tuple[tuple[Atom, ...], int]) -> tuple[int, list[str]]:
    return -len(term[0]), [atom.text for atom in term[0]]


def text_of_terms(terms: Terms) -> str:
    parts: list[str] = []
    for monomial, factor in sorted(terms.items(), key=printed_order):
        sign, factor = ("-", -factor) if factor < 0 else ("+", factor)
        numbers = [] if factor == 1 and monomial else [str(factor)]
        alone = len(monomial) + len(numbers) == 1 and (parts or sign == "+")
        factors = [atom.text if alone or atom.op not in _WEAK else f"({atom.text})" for atom in monomial]
        parts += [sign, "*".join([*numbers, *factors])]
    return " ".join(parts[1:] if parts[0] == "+" else [parts[0] + parts[1], *parts[2:]])


def symbols_of(atom: Atom) -> set[Atom]:
    if atom.op == "symbol":
        return {atom}
    return set().union(*(arg.symbols for arg in atom.args if hasattr(arg, "terms")))


def quotient_bounds(size: tuple[int, int], by: tuple[int, int]) -> tuple[int, int]:
    """Return the bounds of a quotient, from the bounds of its parts."""
    if by[0] <= 0 <= by[1]:
        most = max(abs(size[0]), abs(size[1]))
        return -most, most
    ends = [a // b for a in size for b in by]
    return min(ends), max(ends)


def without(monomial: tuple[Atom, ...], part: tuple[Atom, ...]) -> tuple[Atom, ...] | None:
    """A monomial divided by a part of it; None if it is none."""
    rest = list(monomial)
    for atom in part:
        if atom not in rest:
            return None
        rest.remove(atom)
    return tuple(rest)


MOST = 1 << 46
"""No size in elements or bytes is larger; see `MOST` in targets/cpu/params/record.py."""

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
            self._bounds = bounds_of(self.terms)
        return self._bounds

    @property
    def symbols(self) -> set[Atom]:
        return set().union(*(symbols_of(atom) for monomial in self.terms for atom in monomial))

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
                monomial = tuple(sorted(left + right, key=text_of)) if left and right else left + right
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
        return bool(answer(self, f"whether {self} " + ("holds" if (low, high) == (0, 1) else "is 0"), asked))

    def __index__(self) -> int:
        return answer(self, f"the value of the size {self}", self)

    __int__ = __index__

    def __float__(self) -> float:
        return float(int(self))

    # ---- text -------------------------------------------------------------------------------------------

    def __str__(self) -> str:
        return text_of_terms(self.terms)

    def __repr__(self) -> str:
        return str(self)

    def __reduce__(self) -> Any:
        raise TypeError("a Dim is written as text")


def bounds(size: Any) -> tuple[int, int]:
    return size.bounds if isinstance(size, Dim) else (int(size), int(size))


def negated(condition: Any) -> Any:
    """Return the negation of a condition, as `not` does for a bool."""
    return 1 - condition if isinstance(condition, Dim) else not condition

def _operand(size: Any) -> str:
    """Return the size's text as an operand of `//` or `%`."""
    text = str(size)
    return text if text.isidentifier() or text.isdigit() else f"({text})"


def call_of(op: str, args: tuple[Any, ...], low: int, high: int, text: str) -> Any:
    return low if low == high else Dim({(atom_of(op, args, low, high, text),): 1})


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
    return call_of("zero", (difference,), 0, 1, f"({difference} == 0)")


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
    return call_of("positive", (difference,), 0, 1, f"({difference} > 0)")


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
    return min(((term for term in size.terms.items() if term[0])), key=printed_order)[1] < 0


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
    low, high = quotient_bounds(bounds(size), by.bounds)
    return call_of("floordiv", (size, by), low, high, f"{_operand(size)}//{_operand(by)}")


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
    (monomial, factor), *others = sorted(inner.terms.items(), key=printed_order)
    if len(monomial) == 1 and factor == 1 and monomial[0].op == "floordiv" and all(not other for other, _ in others):
        numerator, divisor = monomial[0].args
        if not isinstance(divisor, Dim):  # (x//a + c)//b = (x + a*c)//(a*b)
            return _by_number(numerator + divisor * inner.terms.get((), 0), divisor * by)
    return call_of("floordiv", (inner, by), low // by, high // by, f"{_operand(inner)}//{by}")


def _exactly(size: Any, by: Dim) -> Any:
    """The quotient of two polynomials if nothing remains, else None."""
    rest, quotient = size, 0
    (lead, factor), *_ = sorted(by.terms.items(), key=printed_order)
    for _ in range(64):
        if not isinstance(rest, Dim):
            return quotient if rest == 0 else None
        (monomial, amount), *_ = sorted(rest.terms.items(), key=printed_order)
        left = without(monomial, lead)
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
        return call_of("mod", (size, by), least_, most, f"{_operand(size)}%{_operand(by)}")
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
    return call_of("mod", (inner, by), 0, by - 1, f"{_operand(inner)}%{by}")
