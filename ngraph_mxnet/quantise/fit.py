"""The part of a recipe that is for a graph."""

from __future__ import annotations

from dataclasses import dataclass

from ngraph_mxnet.errors import CalibrationError, listed
from ngraph_mxnet.ir.graph import Graph
from ngraph_mxnet.quantise.layers import Outline, matched, outline
from ngraph_mxnet.quantise.products import products
from ngraph_mxnet.quantise.recipe import Recipe


def outline_of(graph: Graph) -> Outline:
    """Return the outline of an optimised graph, with the names of its products."""
    return outline(graph, {node: name for name, node in products(graph).items()})


@dataclass(frozen=True)
class Fit:
    """
    Attributes:
        graph: its name.
        recipe: what is for it, by the names of its own layers.
        layers: of the graph, by name: those that can be in 8 bits.
        told: how many layers the whole recipe tells of.
        by_names: the recipe has no outline: whoever makes one tries parts of it.
    """

    graph: str
    recipe: Recipe
    layers: tuple[str, ...]
    told: int
    by_names: bool = False

    @staticmethod
    def of(recipe: Recipe, graph: Graph) -> Fit:
        """For an optimised graph: by the recipe's outline, or where it has none by names."""
        found = products(graph)
        if recipe.outline is None:
            known = {name: name for name in found}
        else:
            pairs = matched(outline_of(graph), recipe.outline)
            known = {theirs: ours for ours, theirs in pairs.items()}
        told = len({*recipe.products, *recipe.kept})
        return Fit(graph.name, recipe.renamed(known), tuple(found), told, recipe.outline is None)

    @property
    def known(self) -> int:
        """How many of the graph's layers the recipe tells of: that they are in 8 bits, or stay in float."""
        return len({*self.recipe.products, *self.recipe.kept})

    @property
    def precision(self) -> str:
        """The precision that the graph is compiled to: `int8`, or `f32` where nothing is in 8 bits."""
        return "int8" if self.recipe.products else "f32"

    def __str__(self) -> str:
        return f"{len(self.recipe.products)} of {len(self.layers)} layers in 8 bits"

    @property
    def shortfall(self) -> str | None:
        """A sentence about the graph's layers that the recipe does not tell of. None where it tells of all, or of some
        by their names."""
        if self.known == len(self.layers) or (self.by_names and self.known):
            return None
        unknown = [name for name in self.layers if name not in {*self.recipe.products, *self.recipe.kept}]
        whole = f"the {len(self.layers)} layers of graph {self.graph} that can be in 8 bits"
        if not self.known:
            return (f"the recipe of quantisation, of {self.told} layers, fits none of {whole}, which run in float32: "
                    f"it is of another model. `quantize` makes one of this")
        return (f"the recipe of quantisation fits {self.known} of {whole}; {listed(unknown)} run in float32, and "
                f"{len(self.recipe.products)} in 8 bits: it is of another model. `quantize` makes one of this")

    def require(self) -> None:
        """Raises CalibrationError where the recipe tells of layers, the graph has some, and none is the same."""
        if self.told and not self.known:
            raise CalibrationError(f"option recipe: {self.shortfall or f'graph {self.graph} has no layer for it'}")
