"""MXNet symbols and Gluon blocks that are verified: against MXNet's own operators, or the interpreter.

A symbol that can't be compiled as a whole is compiled in regions, for MXNet runs some of its operators.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ngraph_mxnet.base.errors import ConfigError, NGraphError, UnsupportedError
from ngraph_mxnet.frontends.mxnet.importer import import_symbol
from ngraph_mxnet.frontends.mxnet.judgement import cut_region
from ngraph_mxnet.frontends.mxnet.model import SymbolModel
from ngraph_mxnet.frontends.mxnet.params import read_params
from ngraph_mxnet.frontends.mxnet.symbol_json import Edge, SymbolGraph, SymbolNode, parse_symbol
from ngraph_mxnet.ir.types import RANDOM_STATE, TensorType, element_type
from ngraph_mxnet.plugin.native import native_results, operator_outputs, partitioned_results, symbol_of, title
from ngraph_mxnet.program.executable import Port, as_array
from ngraph_mxnet.program.feeds import named_arrays, named_shapes
from ngraph_mxnet.tools.verifying.models import (
    INTERPRETER,
    Given,
    Point,
    PointArrays,
    Traced,
    TracedGraph,
    Verified,
    VerifiedGraph,
    marked_lines,
    require_common,
)


class TracedSymbol(Traced):
    """The points of a symbol whose outputs are all of its operators' outputs; a point is an edge of the symbol's
    graph."""

    def __init__(self, every: Any, output_names: Sequence[str], arrays: Mapping[str, np.ndarray], backend: str,
                 options: Mapping[str, Any]) -> None:
        self._graph: SymbolGraph = parse_symbol(every.tojson(remove_amp_cast=False))
        self._every, self._arrays, self._backend, self._options = every, arrays, backend, options
        points = {name: Point(name, self._graph.nodes[edge.node].origin, edge)
                  for name, edge in zip(every.list_outputs(), self._graph.heads, strict=True)}
        super().__init__(list(points.values()), [points.get(name) for name in output_names])

    def reads(self, value: Any) -> Iterable[Edge]:
        return self._graph.nodes[value.node].inputs

    def run(self, results: Sequence[Point], given: PointArrays) -> list[np.ndarray]:
        part, arrays = self._part(results, given)
        return partitioned_results(symbol_of(part, self._every), arrays, self._backend, self._options)

    def parameters(self, point: Point, given: Collection[Point]) -> list[str]:
        read = {edge.node for node in self._nodes([point], given) for edge in node.inputs}
        return [node.name for node in self._graph.nodes if node.index in read and node.is_variable]

    def text(self, point: Point, given: PointArrays) -> str:
        """The IR, or MXNet's operators where they are not lowered."""
        part, arrays = self._part([point], given)
        try:
            graph = import_symbol(part, {node.name: arrays[node.name].shape for node in part.arguments()},
                                  {node.name: str(arrays[node.name].dtype) for node in part.arguments()})
            return marked_lines(graph, graph.nodes)
        except NGraphError:
            return "\n".join(f"> {node.name}: {node.op} {dict(node.attrs)}" for node in part.operators())

    def _nodes(self, results: Iterable[Point], given: Iterable[Point]) -> list[SymbolNode]:
        """The operators that compute the results of what is given."""
        found = {edge.node for edge in self.way([point.value for point in results], given)}
        return [self._graph.nodes[index] for index in sorted(found) if not self._graph.nodes[index].is_variable]

    def _part(self, results: Sequence[Point], given: PointArrays) -> tuple[SymbolGraph, dict[str, np.ndarray]]:
        """A graph of its own, and arrays for its variables."""
        heads = [point.value for point in results]
        cut = cut_region(replace(self._graph, heads=tuple(heads)), [node.index for node in self._nodes(results, given)])
        part = replace(cut.graph, heads=tuple(cut.graph.heads[cut.outputs.index(head)] for head in heads))
        at = {point.value: array for point, array in given.items()}
        arrays = {node.name: at[source] if source in at else self._arrays[node.name]
                  for node, source in zip(part.arguments(), cut.sources, strict=True)
                  if source in at or node.name in self._arrays}
        return part, arrays


def _by_name(arrays: Mapping[str, Any]) -> dict[str, np.ndarray]:
    return {name: as_array(array, f"weight {name!r}") for name, array in arrays.items()}


_DRAWS = ("It draws random numbers. MXNet's come from its own generator and can't be compared; the interpreter draws "
          "the same ones of the same seed.")


class VerifiedSymbol(Verified):
    """An MXNet symbol, or a Gluon block. One that can't be compiled as a whole is compiled in regions, and MXNet runs
    the rest."""

    def __init__(self, model: SymbolModel, given: Given) -> None:
        """Raises:
            ConfigError: the reference has weights, and the model has none.
            ModelError, InputError: an input is missing, belongs to none or does not fit, or no weight of the
                reference's is the model's.
        """
        if given.reference_params is not None and not model.has_weights:
            raise ConfigError("the reference has weights and the model has none: params= as an argument, --params "
                              "on the command line")
        names = list(model.inputs()) or list(given.shapes) or [
            name for name in given.inputs if not name.startswith("#")] or ["data"]
        arrays = named_arrays({name: name for name in names}, given.inputs, {})
        seed, backend, dtypes = given.seed, given.backend, model.dtypes
        shapes = {**named_shapes(arrays), **given.shapes}
        if not model.has_weights:
            model, self.weights = model.with_random_weights(shapes), "random, the same in every run"
        elif model.given_weights is not None:
            self.weights = "given"
        others = _by_name(read_params(given.reference_params or {}))
        self._symbol, self._shapes, self._dtypes = model.symbol(shapes), shapes, dtypes
        self.framework = None if self._symbol is None else "mxnet"
        weights = _by_name(model.weights(shapes))
        self._whole: VerifiedGraph | None = None
        try:
            graph, held = model.graph(shapes, backend)()  # type: ignore[operator]  # they are numbers
            self._whole = VerifiedGraph(graph, held, others, arrays, seed, constant=False)
            self.inputs, self.drawn, self.draws = self._whole.inputs, self._whole.drawn, self._whole.draws
            if any(value.name == RANDOM_STATE for value in graph.parameters):
                self.framework, self.note = None, _DRAWS
        except UnsupportedError as error:
            if self._symbol is None:
                raise
            self._reason = str(error)
            self.note = f"It is compiled in regions, and MXNet runs the rest: {error}"
            require_common(weights, others)
            self.draws = model.draws(shapes, backend)
            self.take([Port(name, TensorType(element_type(dtypes.get(name, "float32")), tuple(shape)))
                       for name, shape in shapes.items()], arrays, seed)
        self.output_names = self._whole.output_names if self._whole is not None else self._symbol.list_outputs()
        self._ours = {**weights, **self.inputs}
        self._natives = {**self._ours, **others}

    @property
    def has_halves(self) -> bool:
        return self._whole.has_halves if self._whole is not None else any(
            array.dtype == np.float16 for array in self._ours.values())

    def results(self, backend: str, options: Mapping[str, Any]) -> list[np.ndarray]:
        if self._whole is not None:
            return self._whole.results(backend, options)
        return partitioned_results(self._symbol, self._ours, backend, options)

    def expected(self, against: str) -> list[np.ndarray]:
        if against != INTERPRETER:
            return native_results(self._symbol, self._natives)
        if self._whole is None:
            raise ConfigError(f"the interpreter runs whole models only: {self._reason}")
        return self._whole.expected(against)

    def traced(self, against: str, backend: str, options: Mapping[str, Any]) -> tuple[Traced, list[Any]]:
        if against == INTERPRETER and self._whole is not None:
            return self._whole.traced(against, backend, options)
        every = operator_outputs(self._symbol)
        found: Traced
        if self._whole is not None:
            arrays = self._whole.weight_arrays
            graph = import_symbol(
                every.tojson(remove_amp_cast=False),
                {**{name: array.shape for name, array in arrays.items()}, **self._shapes},
                {**{name: str(np.dtype(dtype)) for name, dtype in self._dtypes.items()},
                 **{name: str(array.dtype) for name, array in arrays.items()}})
            named = dict(zip(every.list_outputs(), graph.results, strict=True))
            found = TracedGraph(graph, named.items(), [named.get(name) for name in self.output_names],
                                self._whole.runner(backend, options))
        else:
            found = TracedSymbol(every, self.output_names, self._ours, backend, options)
        expected = dict(zip(every.list_outputs(), native_results(every, self._natives), strict=True))
        return found, [expected[point.name] for point in found.points]

    def reference_title(self, against: str) -> str:
        return super().reference_title(against) if against == INTERPRETER else title()

    def differing_weights(self, names: Sequence[str]) -> list[str]:
        return [name for name in names if name in self._natives
                and not np.array_equal(self._ours[name], self._natives[name], equal_nan=True)]
