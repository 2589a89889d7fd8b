"""Sizes that are not known yet: integers as expressions of symbols.

A `Dim` stands wherever an int that says how many may stand: in a shape, a stride, a count of tasks. Arithmetic gives
another `Dim`, or an int where the symbols cancel. Two that are equal as polynomials of their parts are the same, so
`(H * W) // W` is `H`, and comparing what is computed in two ways mostly needs no value.

A comparison gives a bool where the symbols' bounds decide it, else a `Dim` that is 0 or 1. Whoever asks for its truth,
or uses a `Dim` as an index, is answered by the `Guards` that are in force (`ir/guards.py`). `ir/sizes.py` has what ints
have as functions: the least of some, a choice between two, the value where symbols have one.

It prints as Python would write it, and `ir/dim_text.py` reads that back.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

from ngraph_mxnet.ir.answers import answer
from ngraph_mxnet.ir.dim_terms import (
    Atom,
    Terms,
    atom_of,
    bounds_of,
    printed_order,
    quotient_bounds,
    symbols_of,
    text_of,
    text_of_terms,
    without,
)

MOST = 1 << 46
"""No size in elements or bytes is larger; see `MOST` in targets/cpu/params/record.py."""

if TYPE_CHECKING:
    _Integer = int  # to the type checker a Dim is an int, since it stands where ints stand
else:
    _Integer = object


def _of_numbers(method: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """What is computed with a float is computed of the size's value, which is asked for."""

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
        """The symbols in it."""
        return set().union(*(symbols_of(atom) for monomial in self.terms for atom in monomial))

    # ---- arithmetic -------------------------------------------------------------------------------------

    @_of_numbers
    def __add__(self, other: Any) -> Any:
        terms = dict(self.terms)
        for monomial, factor in _terms(other).items():
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
    """The least and the greatest value."""
    return size.bounds if isinstance(size, Dim) else (int(size), int(size))


def negated(condition: Any) -> Any:
    """What `not` is to a bool."""
    return 1 - condition if isinstance(condition, Dim) else not condition

def _operand(size: Any) -> str:
    """As an operand of `//` or `%`."""
    text = str(size)
    return text if text.isidentifier() or text.isdigit() else f"({text})"


def call_of(op: str, args: tuple[Any, ...], low: int, high: int, text: str) -> Any:
    return low if low == high else Dim({(atom_of(op, args, low, high, text),): 1})


def _terms(size: Any) -> Terms:
    return size.terms if isinstance(size, Dim) else {(): int(size)} if size else {}


def _made(terms: Terms) -> Any:
    kept = {monomial: factor for monomial, factor in terms.items() if factor}
    if not kept:
        return 0
    return kept[()] if len(kept) == 1 and () in kept else Dim(kept)


def same(a: Any, b: Any) -> bool:
    return a.terms == b.terms if isinstance(a, Dim) and isinstance(b, Dim) else a is b or (
        not isinstance(a, Dim) and not isinstance(b, Dim) and a == b)


def _is_zero(difference: Any) -> Any:
    """Whether it is 0, as a bool or a condition."""
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
    """Whether it is more than 0, as a bool or a condition."""
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
    """Whether a size is known to be more than `least`, also of what quotients have in common: 4 * (n//8) <= n//2."""
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
    """`size // by`, simplified."""
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
