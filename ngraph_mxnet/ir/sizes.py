"""What is done with sizes, be they ints or `Dim`s."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, wraps
from typing import Any, ParamSpec, TypeVar

from ngraph_mxnet.ir.answers import IN_FORCE, UnknownSize
from ngraph_mxnet.ir.dim_terms import Atom, atom_of
from ngraph_mxnet.ir.dims import MOST, Dim, bounds, call_of, negated, same

P = ParamSpec("P")
R = TypeVar("R")

_FUNCTIONS = ("min", "max", "where")
"""Names that text gives a meaning."""


def symbol(name: str, low: int = 1, high: int = MOST) -> Dim:
    """A size of which only bounds are known, both included. Symbols of one name and bounds are the same.

    Raises:
        ValueError: the name is no identifier, or the bounds hold no two sizes.
    """
    if not name.isidentifier() or name in _FUNCTIONS:
        raise ValueError(f"symbol {name!r}: expected a name such as N")
    if not 0 <= low < high <= MOST:
        raise ValueError(f"symbol {name}: found bounds {low}..{high}, expected 0 <= low < high <= {MOST}")
    return Dim({(atom_of("symbol", (name, low, high), low, high, name),): 1})


def is_symbolic(size: Any) -> bool:
    return isinstance(size, Dim)


def number(size: Any) -> Any:
    """`size` as an int, or as it is if it is a `Dim`."""
    return size if isinstance(size, Dim) else int(size)


def least(*sizes: Any) -> Any:
    """The least of some; what `min` is to ints."""
    return _chosen("min", min, lambda a, b: a <= b, sizes)


def greatest(*sizes: Any) -> Any:
    """The greatest of some; what `max` is to ints."""
    return _chosen("max", max, lambda a, b: a >= b, sizes)


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
        best = call_of(op, pair, of_ints(a, c), of_ints(b, d), f"{op}({pair[0]}, {pair[1]})")
    return best


def where(condition: Any, yes: Any, no: Any) -> Any:
    """`yes` where the condition holds, else `no`, without asking which."""
    if not isinstance(condition, Dim):
        return yes if condition else no
    low, high = condition.bounds
    if low > 0 or high < 0:
        return yes
    if type(yes) is type(no) and same(yes, no):
        return yes
    (a, b), (c, d) = bounds(yes), bounds(no)
    return call_of("where", (condition, yes, no), min(a, c), max(b, d), f"where({condition}, {yes}, {no})")


def both(*conditions: Any) -> Any:
    """What `and` is to bools."""
    found: Any = True
    for condition in conditions:
        if not isinstance(condition, Dim):
            if not condition:
                return False
        else:
            found = condition if found is True else found * condition
    return found


def either(*conditions: Any) -> Any:
    """What `or` is to bools."""
    return negated(both(*map(negated, conditions)))


def ceil_divided(size: Any, by: Any) -> Any:
    """`size / by`, rounded up."""
    return -(-size // by)

Binding = Mapping[str, int]
"""A value for each symbol, by name."""


def evaluate(size: Any, binding: Binding, known: dict[Atom, int] | None = None) -> int:
    """The value of a size; `known` remembers those of its parts.

    Raises:
        UnknownSize: a symbol has no value.
    """
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
"""What atoms other than symbols compute."""


def at_hand(size: Any) -> int:
    """The value at the sizes at hand, for choices that any sizes allow: nothing is assumed by asking.

    Raises:
        UnknownSize: nothing says it.
    """
    if not isinstance(size, Dim):
        return int(size)
    answers = IN_FORCE.get()
    if answers is None:
        raise UnknownSize(f"the value of the size {size} is asked for: expected sizes that are numbers")
    return answers.hinted(size)


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
    """Whether a condition is known to hold, whatever the symbols are."""
    return condition.bounds[0] > 0 if isinstance(condition, Dim) else bool(condition)


def is_one(size: Any) -> bool:
    """Whether a size is known to be 1."""
    return not isinstance(size, Dim) and size == 1


def is_zero(size: Any) -> bool:
    """Whether a size is known to be 0."""
    return not isinstance(size, Dim) and size == 0


def are_same(a: Any, b: Any) -> bool:
    """Whether two sizes are known to be the same."""
    return same(a, b)


def are_same_shape(a: Sequence[Any], b: Sequence[Any]) -> bool:
    """Whether two shapes are known to be the same."""
    return a is b or (len(a) == len(b) and all(map(same, a, b)))


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
