"""Who answers when the value of a size that is a symbol is asked for: the `Guards` in force (`guards.py`)."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any, Protocol

from ngraph_mxnet.errors import NGraphError


class UnknownSize(NGraphError):  # noqa: N818  (it is named for what is unknown)
    """The value of a size, or the truth of a condition on sizes, is asked for where nothing may be assumed."""


class Answers(Protocol):
    """What knows values of sizes; see `guards.Guards`."""

    remembered: dict[Any, Any]
    """What functions gave while it answered: see `sizes.cached`."""

    def answer(self, size: Any) -> int:
        """The value, which is relied on from now on."""

    def hinted(self, size: Any) -> int:
        """The value at the sizes at hand, which is not relied on."""

IN_FORCE: ContextVar[Answers | None] = ContextVar("answers", default=None)


def answer(size: Any, what: str, asked: Any) -> int:
    """The value of `asked`, a `Dim` that tells `what` of `size`.

    Raises:
        UnknownSize: nobody answers.
    """
    answers = IN_FORCE.get()
    if answers is None:
        symbols = ", ".join(sorted(atom.text for atom in size.symbols))
        raise UnknownSize(f"{what} is asked for, which depends on {symbols}: expected sizes that are numbers")
    return answers.answer(asked)
