"""What is assumed of symbols while something is made for a range of sizes.

Whatever asks for the truth of a condition on sizes, or uses a size as an index, gets the answer for the sizes at hand,
and the answer is written down as a guard: what was made holds for all sizes for which every guard holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from ngraph_mxnet.errors import GraphError
from ngraph_mxnet.ir.answers import IN_FORCE, UnknownSize
from ngraph_mxnet.ir.dim_terms import Atom
from ngraph_mxnet.ir.dim_text import Symbols, parse_dim
from ngraph_mxnet.ir.dims import Dim
from ngraph_mxnet.ir.sizes import evaluate


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
        """Whether it leaves one value of a symbol only, or a few beside each other."""
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
    """What `str` of a guard wrote; None where it always holds.

    Raises:
        GraphError: it is no guard, or never holds.
    """
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
    """Whether it is 1 less a condition, or less a size that is 0 or 1."""
    return size.bounds == (0, 1) and all(factor < 0 for monomial, factor in size.terms.items() if monomial)


_FEW = 8
_RELATIONS = {"zero": ("!=", "=="), "positive": ("<=", ">")}


@dataclass
class Guards:
    """The sizes at hand, and what was asked of them so far.

    Without sizes, what was not told is refused with UnknownSize.
    """

    hint: Mapping[str, int] | None = None
    found: dict[Dim, Guard] = field(default_factory=dict)
    why: str = ""
    """What is at work: it becomes the reason of the guards that it makes."""
    remembered: dict[Any, Any] = field(default_factory=dict, repr=False, compare=False)
    """See `Answers`."""
    _known: dict[Atom, int] = field(default_factory=dict)

    @staticmethod
    def of(guards: Iterable[Guard]) -> Guards:
        """What is told by these alone."""
        return Guards(found={guard.condition: guard for guard in guards})

    def answer(self, size: Dim) -> int:
        """The value at the sizes at hand, which is assumed from now on."""
        if _is_negated(size):
            return 1 - self.answer(1 - size)
        if size not in self.found:
            if self.hint is None:
                raise UnknownSize(f"{size} is asked for, of which no guard tells; there are: "
                                  f"{', '.join(map(str, self.found.values())) or 'none'}")
            self.found[size] = Guard(size, evaluate(size, self.hint, self._known), self.why)
        return self.found[size].value

    def hinted(self, size: Dim) -> int:
        """The value at the sizes at hand, of which nothing is assumed."""
        if self.hint is None:
            raise UnknownSize(f"the value of {size} is asked for, and there are no sizes at hand")
        return evaluate(size, self.hint, self._known)


@contextmanager
def assuming(guards: Guards) -> Iterator[Guards]:
    """Within, conditions on sizes are answered by `guards`, which remember them."""
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
    """Within, guards have this reason; without guards in force nothing happens."""
    guards = IN_FORCE.get()
    return _reason(guards, why) if isinstance(guards, Guards) else _NOTHING


_NOTHING = nullcontext()


@contextmanager
def _reason(guards: Guards, why: Any) -> Iterator[None]:
    before, guards.why = guards.why, str(why)
    try:
        yield
    finally:
        guards.why = before
