"""Polynomials of sizes: what they are made of, their bounds and their text."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any
from weakref import WeakValueDictionary


class Atom:
    """What polynomials are made of: a symbol, or an operation that is no sum or product. Equal ones are one object."""

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
    """As Python would write it."""
    parts: list[str] = []
    for monomial, factor in sorted(terms.items(), key=printed_order):
        sign, factor = ("-", -factor) if factor < 0 else ("+", factor)
        numbers = [] if factor == 1 and monomial else [str(factor)]
        alone = len(monomial) + len(numbers) == 1 and (parts or sign == "+")
        factors = [atom.text if alone or atom.op not in _WEAK else f"({atom.text})" for atom in monomial]
        parts += [sign, "*".join([*numbers, *factors])]
    return " ".join(parts[1:] if parts[0] == "+" else [parts[0] + parts[1], *parts[2:]])


def symbols_of(atom: Atom) -> set[Atom]:
    """The symbols in it."""
    if atom.op == "symbol":
        return {atom}
    return set().union(*(arg.symbols for arg in atom.args if hasattr(arg, "terms")))


def quotient_bounds(size: tuple[int, int], by: tuple[int, int]) -> tuple[int, int]:
    """Those of a quotient, from those of its parts."""
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
