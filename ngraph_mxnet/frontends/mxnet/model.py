"""An MXNet model: a symbol and its weights, from files or text, read and lowered without MXNet.

What MXNet itself must do (run the model in part, tell types of operators that have no rule) is in `plugin/whole.py`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, partial
from math import prod, sqrt
from typing import Any, ClassVar

import numpy as np

from ngraph_mxnet.base.errors import ConfigError, ModelError, NGraphError, UnsupportedError, listed
from ngraph_mxnet.base.installation import has_mxnet
from ngraph_mxnet.base.registry import loaded
from ngraph_mxnet.frontends.model import Model, Shapes, Sizes
from ngraph_mxnet.frontends.mxnet.importer import (
    check_names,
    data_variables,
    dtype_name,
    import_symbol,
    other_results,
    refusals,
    why_not_dense,
    with_results,
)
from ngraph_mxnet.frontends.mxnet.judgement import judged_by_rules, pins_of
from ngraph_mxnet.frontends.mxnet.params import read_params
from ngraph_mxnet.frontends.mxnet.symbol_json import SymbolGraph, read_symbol
from ngraph_mxnet.frontends.verdicts import Explanation
from ngraph_mxnet.ir.graph import Graph, Value
from ngraph_mxnet.ir.types import RANDOM_STATE, TensorType, element_type
from ngraph_mxnet.program.backend import get_backend
from ngraph_mxnet.program.compile import Ranged, Weighted
from ngraph_mxnet.program.executable import as_array
from ngraph_mxnet.program.feeds import Draw, draws_of, named_arrays, named_dtypes, named_shapes
from ngraph_mxnet.program.ranges import (
    ChangingShapes,
    RangeExplanation,
    Template,
    check_axes,
    require_fixed_weights,
    told_by_place,
)

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

    def with_random_weights(self, sizes: Shapes) -> SymbolModel:
        """What a file of weights lacks is drawn, too, in float32."""
        self.require_sizes(sizes)
        try:
            graph = self._imported(sizes, self.weights(sizes))
        except UnsupportedError as error:  # the shapes behind an operator that has no rule are MXNet's to tell
            return self.in_mxnet(error).with_random_weights(sizes)
        wanted = {value.name: value.shape for value in _unsized(graph, sizes)}
        self._require_all(wanted)
        found: Any = self.holding({**random_weights(wanted), **self._weights}, None)  # of this class
        return found

    def fed(self, arrays: Mapping[str, np.ndarray]) -> Model:
        return self.holding(None, {**named_dtypes(arrays), **self.dtypes})

    def graph(self, sizes: Sizes, backend: str | None = None, *, keep_loops: bool = False) -> Weighted | Ranged:
        self.require_sizes(sizes)
        return self.for_sizes(partial(self._graph, backend, keep_loops), sizes)

    def _graph(self, backend: str | None, keep_loops: bool, shapes: Shapes) -> tuple[Graph, dict[str, np.ndarray]]:
        """Where sizes are symbols, guards are in force, which know sizes at hand."""
        weights = self.weights(shapes)
        try:
            graph = self._imported(shapes, weights, keep_loops=keep_loops)
        except UnsupportedError as error:
            found = refusals(self.graph_of_symbol, *self._known(shapes, weights), get_backend(backend))
            lines = [f"{verdict.name} {verdict.op}: {verdict.reason}" for verdict in found] or [str(error)]
            from ngraph_mxnet.program.export import listing  # imports the compiler

            alone = other_results(self.graph_of_symbol, {verdict.name for verdict in found})
            raise UnsupportedError("the model can't be compiled as a whole" + alone + ":\n" + listing(lines)) from None
        unsized = _unsized(graph, shapes)
        changing = [value.name for value in unsized if value.type.is_symbolic]
        if changing:
            raise ModelError(f"the shape of {listed(changing)} changes with sizes that are ranges: give it")
        self._require_all([value.name for value in unsized])
        return graph, {value.name: as_array(weights[value.name], f"weight {value.name!r}")
                       for value in graph.parameters if value.name in weights}

    def _imported(self, shapes: Shapes, weights: Mapping[str, Any], *, keep_loops: bool = False) -> Graph:
        """The graph without labels, unless their shapes are told."""
        self.check_inputs(shapes)
        graph = import_symbol(self.graph_of_symbol, *self._known(shapes, weights), keep_loops=keep_loops)
        read = {value for node in graph.nodes for value in node.inputs}
        graph.parameters = [value for value in graph.parameters
                            if value.name in shapes or value.name in weights or value in read]
        return graph

    def check_inputs(self, shapes: Sizes) -> None:
        """Raises ModelError: shapes or dtypes are told of inputs that the symbol has not."""
        check_names([node.name for node in self.graph_of_symbol.arguments()], {*shapes, *self.dtypes})

    def _known(self, shapes: Shapes, weights: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
        """The shapes and the dtypes of inputs and weights."""
        dtypes = {name: dtype_name(name, dtype) for name, dtype in self.dtypes.items()}
        held = {node.name: weights[node.name] for node in self.graph_of_symbol.arguments() if node.name in weights}
        return ({**{name: tuple(array.shape) for name, array in held.items()}, **shapes},
                {**dtypes, **{name: str(np.dtype(array.dtype)) for name, array in held.items()}})

    def require_weights(self, sizes: Sizes | None = None) -> None:
        """Weights whose shapes are told are inputs; some symbols have no weights."""
        if self.has_weights:
            return
        told = {*(sizes or ()), *data_variables(self.graph_of_symbol)}
        if any(node.name not in told and not node.name.endswith("label") for node in self.graph_of_symbol.arguments()):
            super().require_weights()

    def executable(self, sizes: Sizes, backend: str | None, options: Mapping[str, Any]) -> Any:
        self.require_weights(sizes)
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
        except UnsupportedError as error:
            return self.in_mxnet(error).draws(sizes, backend)

    def in_mxnet(self, why: NGraphError) -> SymbolModel:
        """The model as an object of MXNet's. Raises `why`: MXNet is not installed."""
        if not has_mxnet():
            raise why
        found: SymbolModel = loaded(LIVE)(self.source, self.given_weights, self.dtypes, self.path, self.results)
        return found

    def symbol(self, sizes: Sizes) -> Any:
        """MXNet's object, of models that are one; else None."""
        return None

    def reference(self, given: Any) -> Any:
        """Of the model as MXNet's object, where MXNet is installed."""
        return Model.reference(self.in_mxnet(_needs("runs its operators")) if has_mxnet() else self, given)

    def profile(self, sizes: Shapes, arrays: Mapping[str, np.ndarray], rounds: int, backend: str | None,
                options: Mapping[str, Any]) -> Any:
        """In MXNet, as a script would run it, or alone where MXNet is not installed."""
        if has_mxnet():
            return self.in_mxnet(_needs("profiles symbols")).profile(sizes, arrays, rounds, backend, options)
        shapes = {**named_shapes(named_arrays({name: name for name in self.inputs()}, arrays, sizes)), **sizes}
        return Model.profile(self.with_random_weights(shapes), shapes, arrays, rounds, backend, options)

    def verdicts(self, sizes: Shapes, backend: str | None, *, kernels: bool,
                 options: Mapping[str, Any]) -> Explanation:
        """With the types that rules tell. Where an operator has no rule, MXNet tells those behind it, if it is
        installed; and it runs all of a symbol that has sparse variables."""
        planner = get_backend(backend)
        self.check_inputs(sizes)
        found = judged_by_rules(self.graph_of_symbol, *self._known(sizes, self.weights(sizes)), planner)
        is_known = all(node.types and None not in node.types for node in found.graph.nodes)
        if has_mxnet() and not (is_known and why_not_dense(json.dumps(self.graph_of_symbol.to_json())) is None):
            return self.in_mxnet(_needs("tells types")).verdicts(sizes, backend, kernels=kernels, options=options)
        pins = [pins_of(cut.graph, planner.devices) for cut in found.cuts]
        regions = [(graph, {"pins": pin} if planner.devices else {})
                   for graph, pin in zip(found.graphs, pins, strict=True)]
        return Explanation.of(found.partition, regions, planner, kernels=kernels, options=options)

    def range_verdicts(self, sizes: Shapes, axes: Mapping[str, Sequence[int]], backend: str | None) -> Any:
        """As regions of MXNet's, or as a whole where MXNet is not installed."""
        if has_mxnet():
            return self.in_mxnet(_needs("cuts regions")).range_verdicts(sizes, axes, backend)
        planner = get_backend(backend)
        self.check_inputs(sizes)
        check_axes(axes, sizes)
        types = {name: TensorType(element_type(self.dtypes.get(name, "float32")), tuple(shape))
                 for name, shape in sizes.items()}
        told = told_by_place(axes, [(name, (None,) * len(shape)) for name, shape in sizes.items()])

        def make(shapes: Shapes) -> Template | None:
            graph = self._imported(shapes, self.weights(sizes))
            require_fixed_weights(graph)
            return planner.template(graph, {})

        last = self.graph_of_symbol.nodes[self.graph_of_symbol.heads[0].node]
        return RangeExplanation.of_whole(last.name, types, ChangingShapes(told, at_once=True), make)

    def training_verdicts(self, sizes: Shapes) -> Any:
        return self.in_mxnet(_needs("trains models")).training_verdicts(sizes)


def _unsized(graph: Graph, shapes: Sizes) -> list[Value]:
    """The parameters whose shapes are not told: weights and labels, but not the state of random numbers."""
    return [value for value in graph.parameters if value.name not in shapes and value.name != RANDOM_STATE]


def _needs(what: str) -> ConfigError:
    return ConfigError(f"MXNet {what}, and it is not installed here: pip install mxnet==1.9.1, on Python 3.12 or older")
