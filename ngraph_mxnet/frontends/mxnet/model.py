"""An MXNet model: a symbol and its weights, from files or text, read and lowered without MXNet.

What MXNet itself must do (run the model in part, tell types of operators that have no rule) is in `plugin/whole.py`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, partial
from math import prod, sqrt
from typing import Any, ClassVar

import numpy as np

from ngraph_mxnet.base.errors import ModelError, UnsupportedError, listed
from ngraph_mxnet.base.registry import loaded
from ngraph_mxnet.frontends.model import Model, Shapes, Sizes
from ngraph_mxnet.frontends.mxnet.importer import (
    check_names,
    data_variables,
    dtype_name,
    import_symbol,
    other_results,
    refusals,
    with_results,
)
from ngraph_mxnet.frontends.mxnet.params import read_params
from ngraph_mxnet.frontends.mxnet.symbol_json import SymbolGraph, read_symbol
from ngraph_mxnet.ir.graph import Graph
from ngraph_mxnet.program.backend import get_backend
from ngraph_mxnet.program.compile import Ranged, Weighted
from ngraph_mxnet.program.executable import as_array
from ngraph_mxnet.program.feeds import Draw, draws_of, named_dtypes

LIVE = "ngraph_mxnet.plugin.whole:LiveSymbolModel"
"""The same model as MXNet's object."""
_SEED = 7


def random_weights(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, np.ndarray]:
    """Weights of these shapes by name, in float32."""
    rng = np.random.default_rng(_SEED)
    return {name: _random(rng, name, tuple(shape)).astype(np.float32) for name, shape in shapes.items()}


def _random(rng: np.random.Generator, name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Numbers of a scale that keeps activations near one: a value that overflows or dies out may take other time."""
    if name.endswith(("gamma", "var")):
        return rng.uniform(0.8, 1.2, shape)
    if name.endswith(("beta", "mean", "bias")):
        return rng.uniform(-0.2, 0.2, shape)
    return rng.standard_normal(shape) * (sqrt(2 / prod(shape[1:])) if name.endswith("weight") else 1.0)


class SymbolModel(Model):
    """An MXNet symbol: its JSON, or a file of that; with weights by name or in a file."""

    kind = "symbol"
    takes: ClassVar[tuple[str, ...]] = ("weights", "shapes", "dtypes", "results")
    needs_sizes = "data inputs"
    prepares = True
    verified = "ngraph_mxnet.tools.verifying.symbols:VerifiedSymbol"

    @property
    def has_weights(self) -> bool:  # type: ignore[override]
        return self.given_weights is not None

    @cached_property
    def graph_of_symbol(self) -> SymbolGraph:
        """Raises ModelError: a file can't be read, or is corrupt, or has no such result."""
        try:
            found = read_symbol(self.source)
            return with_results(found, self.results) if self.results else found
        except ModelError as error:
            raise ModelError(f"{self.path}: {error}" if self.path and self.path not in str(error) else str(error)
                             ) from None

    @cached_property
    def _weights(self) -> dict[str, Any]:
        return read_params(self.given_weights or {})

    def weights(self, sizes: Sizes) -> Mapping[str, Any]:
        return self._weights

    def inputs(self) -> Mapping[str, Sequence[Any]]:
        """Labels, which inference does not read, are left out."""
        return {name: () for name in data_variables(self.graph_of_symbol) if name not in self._weights}

    def with_random_weights(self, sizes: Shapes) -> Model:
        """What a file of weights lacks is drawn, too, in float32."""
        self.require_sizes(sizes)
        try:
            graph = self._imported(sizes, self.weights(sizes))
        except UnsupportedError:  # the shapes behind an operator that has no rule are MXNet's to tell
            return self.in_mxnet().with_random_weights(sizes)
        self._require_all([value.name for value in graph.parameters if value.name not in sizes])
        wanted = {value.name: value.shape for value in graph.parameters if value.name not in sizes}
        return self.holding({**random_weights(wanted), **self._weights}, None)

    def fed(self, arrays: Mapping[str, np.ndarray]) -> Model:
        return self.holding(None, {**named_dtypes(arrays), **self.dtypes})

    def graph(self, sizes: Sizes, backend: str | None = None) -> Weighted | Ranged:
        self.require_sizes(sizes)
        return self.for_sizes(partial(self._graph, backend), sizes)

    def _graph(self, backend: str | None, shapes: Shapes) -> tuple[Graph, dict[str, np.ndarray]]:
        """Where sizes are symbols, guards are in force, which know sizes at hand."""
        weights = self.weights(shapes)
        try:
            graph = self._imported(shapes, weights)
        except UnsupportedError as error:
            found = refusals(self.graph_of_symbol, *self._known(shapes, weights), get_backend(backend))
            lines = [f"{verdict.name} {verdict.op}: {verdict.reason}" for verdict in found] or [str(error)]
            from ngraph_mxnet.program.export import listing  # imports the compiler

            alone = other_results(self.graph_of_symbol, {verdict.name for verdict in found})
            raise UnsupportedError("the model can't be compiled as a whole" + alone + ":\n" + listing(lines)) from None
        changing = [value.name for value in graph.parameters if value.type.is_symbolic and value.name not in shapes]
        if changing:
            raise ModelError(f"the shape of {listed(changing)} changes with sizes that are ranges: give it")
        self._require_all([value.name for value in graph.parameters if value.name not in shapes])
        return graph, {value.name: as_array(weights[value.name], f"weight {value.name!r}")
                       for value in graph.parameters if value.name in weights}

    def _imported(self, shapes: Shapes, weights: Mapping[str, Any]) -> Graph:
        """The graph without labels, unless their shapes are told."""
        check_names([node.name for node in self.graph_of_symbol.arguments()], {*shapes, *self.dtypes})
        graph = import_symbol(self.graph_of_symbol, *self._known(shapes, weights))
        read = {value for node in graph.nodes for value in node.inputs}
        graph.parameters = [value for value in graph.parameters
                            if value.name in shapes or value.name in weights or value in read]
        return graph

    def _known(self, shapes: Shapes, weights: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
        """The shapes and the dtypes of inputs and weights."""
        dtypes = {name: dtype_name(name, dtype) for name, dtype in self.dtypes.items()}
        held = {node.name: weights[node.name] for node in self.graph_of_symbol.arguments() if node.name in weights}
        return ({**{name: tuple(array.shape) for name, array in held.items()}, **shapes},
                {**dtypes, **{name: str(np.dtype(array.dtype)) for name, array in held.items()}})

    def executable(self, sizes: Sizes, backend: str | None, options: Mapping[str, Any]) -> Any:
        """Weights whose shapes are told are inputs."""
        told = {*sizes, *data_variables(self.graph_of_symbol)}
        if not self.has_weights and any(node.name not in told and not node.name.endswith("label")
                                        for node in self.graph_of_symbol.arguments()):
            self.require_weights()
        return super().executable(sizes, backend, options)

    def _require_all(self, names: Iterable[str]) -> None:
        """Raises ModelError: weights were given, and one of these is missing; a label may be."""
        missing = sorted(name for name in names if name not in self.weights({}) and not name.endswith("label"))
        if missing and self.has_weights:
            file = self.given_weights
            raise ModelError((f"{file} has no " if isinstance(file, (str, os.PathLike)) else "no weights for ")
                             + listed(missing))

    def draws(self, sizes: Shapes, backend: str | None = None) -> dict[str, Draw]:
        try:
            return draws_of(self._imported(sizes, self.weights(sizes)))
        except UnsupportedError:
            return self.in_mxnet().draws(sizes, backend)

    def in_mxnet(self) -> Model:
        """The model as an object of MXNet's."""
        found: Model = loaded(LIVE)(self.source, self.given_weights, self.dtypes, self.path, self.results)
        return found

    def reference(self, given: Any) -> Any:
        return self.in_mxnet().reference(given)

    def profile(self, sizes: Shapes, arrays: Mapping[str, np.ndarray], rounds: int, backend: str | None,
                options: Mapping[str, Any]) -> Any:
        return self.in_mxnet().profile(sizes, arrays, rounds, backend, options)

    def verdicts(self, sizes: Shapes, backend: str | None, *, kernels: bool, options: Mapping[str, Any]) -> Any:
        return self.in_mxnet().verdicts(sizes, backend, kernels=kernels, options=options)

    def range_verdicts(self, sizes: Shapes, axes: Mapping[str, Sequence[int]], backend: str | None) -> Any:
        return self.in_mxnet().range_verdicts(sizes, axes, backend)

    def training_verdicts(self, sizes: Shapes) -> Any:
        return self.in_mxnet().training_verdicts(sizes)
