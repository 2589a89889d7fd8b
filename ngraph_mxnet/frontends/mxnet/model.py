"""An MXNet model as a symbol and its weights, of which graphs for sets of shapes are made, without MXNet."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from math import prod, sqrt
from typing import Any

import numpy as np

from ngraph_mxnet.base.errors import ModelError, UnsupportedError, listed, require_shapes
from ngraph_mxnet.frontends.mxnet.importer import data_variables, import_symbol, refusals
from ngraph_mxnet.frontends.mxnet.params import read_params
from ngraph_mxnet.frontends.mxnet.symbol_json import SymbolGraph, read_symbol
from ngraph_mxnet.ir.graph import Graph
from ngraph_mxnet.ir.types import element_type
from ngraph_mxnet.program.backend import Backend
from ngraph_mxnet.program.export import listing

Shapes = Mapping[str, Sequence[Any]]
"""Of the data inputs, by name; sizes may be symbols."""
_SEED = 7


class SymbolModel:
    """A symbol with its weights, by name; `told` is what messages call the weights."""

    def __init__(self, symbol: SymbolGraph, weights: Mapping[str, Any], dtypes: Mapping[str, Any] | None = None, *,
                 told: str = "the weights") -> None:
        self.symbol, self.weights, self._told = symbol, dict(weights), told
        self._dtypes = {name: _dtype_name(name, dtype) for name, dtype in (dtypes or {}).items()}

    @staticmethod
    def of_files(model: str | os.PathLike[str], params: str | os.PathLike[str] | Mapping[str, Any] | None,
                 dtypes: Mapping[str, Any] | None = None) -> SymbolModel:
        """Read `model-symbol.json` and `model-0000.params`.

        Raises:
            ModelError: a file can't be read, or a dtype is none.
        """
        told = "the weights" if params is None or isinstance(params, Mapping) else os.fspath(params)
        weights = {} if params is None else read_params(params)
        return SymbolModel(read_symbol(model), weights, dtypes, told=told)

    def inputs(self) -> list[str]:
        """The names of the data, in order: no weights, and no labels, which inference does not read."""
        return [name for name in data_variables(self.symbol) if name not in self.weights]

    def graph(self, shapes: Shapes, backend: Backend, *, random: bool = False) -> tuple[Graph, dict[str, np.ndarray]]:
        """For a set of shapes, and the weights that it reads. Where sizes are symbols, guards are in force.

        Args:
            random: draw the weights that there are not.

        Raises:
            ModelError: a shape or a weight is missing or does not fit.
            UnsupportedError: naming all nodes that can't be lowered, or that `backend` does not run, with the reasons.
        """
        require_shapes(shapes)
        names = [node.name for node in self.symbol.arguments()]
        unknown = sorted({*shapes, *self._dtypes} - set(names))
        if unknown:
            raise ModelError(f"no input is called {listed(unknown)}; the inputs: {listed(names, unknown[0])}")
        known = {name: array.shape for name, array in self.weights.items() if name in names}
        types = {name: str(self.weights[name].dtype) for name in known}
        try:
            graph = import_symbol(self.symbol, {**known, **shapes}, {**self._dtypes, **types})
        except UnsupportedError as error:
            found = refusals(self.symbol, {**known, **shapes}, {**self._dtypes, **types}, backend)
            lines = [f"{verdict.name} {verdict.op}: {verdict.reason}" for verdict in found] or [str(error)]
            raise UnsupportedError("the model can't be compiled as a whole:\n" + listing(lines)) from None
        read = {value for node in graph.nodes for value in node.inputs}
        graph.parameters = [value for value in graph.parameters  # a label is not read
                            if value.name in shapes or value.name in known or value in read]
        self._refuse_changing(graph, shapes)
        return graph, self._weights_of(graph, shapes, random=random)

    def _weights_of(self, graph: Graph, shapes: Shapes, *, random: bool) -> dict[str, np.ndarray]:
        rng = np.random.default_rng(_SEED)
        found, missing = {}, []
        for value in graph.parameters:
            if value.name in self.weights:
                found[value.name] = np.asarray(self.weights[value.name])
            elif value.name not in shapes and random:
                found[value.name] = _random(rng, value.name, value.shape).astype(value.type.element.numpy)
            elif value.name not in shapes and not value.name.endswith("label"):
                missing.append(value.name)
        if missing:
            raise ModelError(f"{self._told} lack {listed(missing)}")
        return found

    def _refuse_changing(self, graph: Graph, shapes: Shapes) -> None:
        changing = [value.name for value in graph.parameters if value.type.is_symbolic and value.name not in shapes]
        if changing:
            raise ModelError(f"the shape of {listed(changing)} changes with sizes that are ranges: give it")


def _dtype_name(name: str, dtype: Any) -> str:
    try:
        return str(element_type(dtype).numpy)
    except (KeyError, TypeError):
        raise ModelError(f"input {name}: found dtype {dtype!r}, expected one such as float32 or int8") from None


def _random(rng: np.random.Generator, name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Numbers of a scale that keeps activations near one: a value that overflows or dies out may take other time."""
    if name.endswith(("gamma", "var")):
        return rng.uniform(0.8, 1.2, shape)
    if name.endswith(("beta", "mean", "bias")):
        return rng.uniform(-0.2, 0.2, shape)
    return rng.standard_normal(shape) * (sqrt(2 / prod(shape[1:])) if name.endswith("weight") else 1.0)
