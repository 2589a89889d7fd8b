"""The findings of a model's verification: as text for people, as JSON for programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from ngraph_mxnet.base.errors import listed
from ngraph_mxnet.base.rendered import Facts
from ngraph_mxnet.program.differences import Difference


@dataclass(frozen=True)
class Operand:
    """A value that the node which is named reads, at once or through others that the reference does not know."""

    name: str
    origin: str
    difference: Difference


@dataclass(frozen=True, repr=False)
class Diverging(Facts):
    """The first value that differs.

    Attributes:
        name, origin: the framework's, of the value and of the node that computes it.
        text: the IR that computes it of the operands, marked with `>`, and what computes these.
        difference: of the model that is cut behind the value.
        alone: of the IR that computes it, run on the reference's arrays of the operands.
        whole: of the whole model with the value as a further output.
        parameters: weights and inputs that it reads beside the operands; `differing`: the weights whose content is not
            the reference's.
        parts: of the model that were compiled to find it.
    """

    name: str
    origin: str
    text: str
    difference: Difference
    alone: Difference
    whole: Difference
    operands: Sequence[Operand]
    parameters: Sequence[str]
    parts: int
    differing: Sequence[str] = ()

    @property
    def computes_wrong(self) -> bool:
        """True if the node computes a wrong value of the reference's operands. Else it only carries an earlier
        difference."""
        return not self.alone.agrees

    def verdict(self) -> str:
        if not self.computes_wrong:
            return ("of the reference's operands it computes the right value: it carries an earlier difference, which "
                    "is within the tolerance before it and beyond it behind")
        if self.differing:
            return ("of the reference's operands it computes another value, with other weights: "
                    f"{listed(self.differing)}")
        return "of the reference's operands it computes another value: the difference begins here"

    renamed: ClassVar[Mapping[str, str | None]] = {"text": None, "differing": "differing_weights"}
    derived = ("ir", "computes_wrong", "verdict")
    layout = "diverging"

    @property
    def ir(self) -> list[str]:
        return self.text.splitlines()


@dataclass(frozen=True, repr=False)
class Verification(Facts):
    """Prints as tables; `to_dict` is for programs.

    Attributes:
        inputs, weights: where they are from, as text.
        note: what else there is to tell of how the model runs.
        tolerance: how differences are measured, and how large they may be.
        outputs: of the model by name, as ours differ from the reference's.
        diverging: where they diverge; None if they agree, or if no node could be named, `unnamed` being the reason.
    """

    model: str
    backend: str
    precision: str
    reference: str
    inputs: Sequence[str]
    weights: str
    tolerance: str
    outputs: Sequence[tuple[str, Difference]]
    note: str | None = None
    diverging: Diverging | None = None
    unnamed: str | None = None

    layout = "verification"

    @property
    def agrees(self) -> bool:
        return all(difference.agrees for _, difference in self.outputs)

    def to_dict(self) -> dict[str, Any]:
        return {**super().to_dict(), "agrees": self.agrees,
                "outputs": [{"name": name, **difference.to_dict()} for name, difference in self.outputs]}
