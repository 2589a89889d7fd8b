"""The findings of a model's verification: as text for people, as JSON for programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from ngraph_mxnet.errors import listed
from ngraph_mxnet.verifying.comparison import Difference

_PARTS = "Parts of the model were compiled alone to find it, in which nodes may be fused otherwise than in the whole."


@dataclass(frozen=True)
class Operand:
    """A value that the node which is named reads, at once or through others that the reference does not know."""

    name: str
    origin: str
    difference: Difference


@dataclass(frozen=True)
class Diverging:
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

    def with_differing(self, names: Sequence[str]) -> Diverging:
        return replace(self, differing=names)

    def verdict(self) -> str:
        if not self.computes_wrong:
            return ("of the reference's operands it computes the right value: it carries an earlier difference, which "
                    "is within the tolerance before it and beyond it behind")
        if self.differing:
            return ("of the reference's operands it computes another value, with other weights: "
                    f"{listed(self.differing)}")
        return "of the reference's operands it computes another value: the difference begins here"

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name, "origin": self.origin, "ir": self.text.splitlines(),
            "computes_wrong": self.computes_wrong, "verdict": self.verdict(), "difference": self.difference.to_dict(),
            "alone": self.alone.to_dict(), "whole": self.whole.to_dict(), "parameters": list(self.parameters),
            "differing_weights": list(self.differing), "parts": self.parts,
            "operands": [{"name": one.name, "origin": one.origin, "difference": one.difference.to_dict()}
                         for one in self.operands],
        }

    def __rich__(self) -> RenderableType:
        title = Text("The first value that differs: ", style="bold").append(self.name, style="red")
        whole = ("agrees, so that the difference is one of how the part is fused" if self.whole.agrees
                 else f"differs, too, by {_share(self.whole)}")
        return Group(title.append(f" of {self.origin or 'a node without a name'}"), Text(self.text),
                     _statistics(self.difference), Text(_most(self.difference)), self._operands(),
                     Text(f"Verdict: {self.verdict()}.", style="bold"),
                     Text(f"In the whole model, as a further output, the value {whole}. {_PARTS}"))

    def _operands(self) -> Text:
        rows = [f"{one.name} of {one.origin or 'a node without a name'}, which differs by {_share(one.difference)}"
                for one in self.operands]
        return Text(f"Operands: {'; '.join(rows) or 'none'}. Parameters: {listed(self.parameters) or 'none'}.")


@dataclass(frozen=True)
class Verification:
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

    @property
    def agrees(self) -> bool:
        """True if all outputs agree."""
        return all(difference.agrees for _, difference in self.outputs)

    def with_diverging(self, found: Diverging | None, unnamed: str | None) -> Verification:
        return replace(self, diverging=found, unnamed=unnamed)

    def to_dict(self) -> dict[str, Any]:
        return {
            "agrees": self.agrees, "model": self.model, "backend": self.backend, "precision": self.precision,
            "reference": self.reference, "inputs": list(self.inputs), "weights": self.weights,
            "tolerance": self.tolerance, "note": self.note,
            "outputs": [{"name": name, **difference.to_dict()} for name, difference in self.outputs],
            "diverging": None if self.diverging is None else self.diverging.to_dict(), "unnamed": self.unnamed,
        }

    def __rich__(self) -> RenderableType:
        table = Table("output", "dtype", "shape", "largest difference", "elements beyond", "")
        for name, difference in self.outputs:
            ours = difference.ours
            table.add_row(escape(name), ours.dtype, escape(str(list(ours.shape))), _share(difference),
                          str(difference.beyond), "agrees" if difference.agrees else Text("differs", style="red"))
        told = "the outputs agree" if self.agrees else "the outputs differ"
        parts: list[RenderableType] = [
            Text(f"{self.model} on {self.backend} in {self.precision}, against {self.reference}: {told}", style="bold"),
            Text(f"inputs: {'; '.join(self.inputs) or 'none'}"), Text(f"weights: {self.weights}"),
            Text(f"tolerance: {self.tolerance}"), *([Text(self.note)] if self.note is not None else []), table]
        if self.diverging is not None:
            parts.append(self.diverging)
        if self.unnamed is not None:
            parts.append(Text(f"no node is named: {self.unnamed}", style="yellow"))
        return Group(*parts)


def _share(difference: Difference) -> str:
    return "another shape" if difference.share is None else f"{difference.share:.3g}"


def _statistics(difference: Difference) -> Table:
    table = Table("", "dtype", "shape", "min", "max", "mean", "norm", "NaN", "infinite")
    for name, about in (("ours", difference.ours), ("reference", difference.reference)):
        figures = ("-" if figure is None else f"{figure:.6g}"
                   for figure in (about.min, about.max, about.mean, about.norm))
        table.add_row(name, about.dtype, escape(str(list(about.shape))), *figures, str(about.nan), str(about.infinite))
    return table


def _most(difference: Difference) -> str:
    if difference.index is None:
        return "The shapes differ." if difference.share is None else "No element differs."
    return (f"{difference.beyond} of {prod(difference.reference.shape)} elements differ by more than the tolerance. "
            f"Most does {list(difference.index)}: ours {difference.element:.9g}, reference {difference.expected:.9g}, "
            f"by {difference.absolute:.3g}: {difference.relative:.3g} of the element, {difference.share:.3g} of the "
            "largest magnitude.")
