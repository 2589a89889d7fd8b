"""MXNet symbols and Gluon blocks that are verified: against MXNet's own operators, or the interpreter."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ngraph_mxnet.errors import ConfigError, ModelError, UnsupportedError, listed
from ngraph_mxnet.runtime.executable import as_array
from ngraph_mxnet.runtime.feeds import named_shapes
from ngraph_mxnet.verifying.models import INTERPRETER, Arrays, GraphModel, Model, Shapes
from ngraph_mxnet.verifying.partitioned import PartitionedModel
from ngraph_mxnet.verifying.traced import Traced, TracedGraph

if TYPE_CHECKING:
    from ngraph_mxnet.bridges.mxnet.whole import WholeSymbol


def symbol_model(model: Any, file: str, params: Any, reference_params: Any, shapes: Shapes, dtypes: Mapping[str, str],
                 arrays: Arrays, seed: int, backend: str) -> Model:
    """Build the model to verify from a symbol, its file or a Gluon block. A model that can't be compiled as a whole is
    compiled in regions. The arguments are those of `verify`.

    Raises:
        ModelError, InputError, ConfigError: as `verify`.
    """
    from ngraph_mxnet.bridges.mxnet.symbols.symbol_inputs import check_inputs, inferred_shapes
    from ngraph_mxnet.bridges.mxnet.symbols.weights import random_weights
    from ngraph_mxnet.bridges.mxnet.whole import WholeSymbol, data_inputs, is_block, load_symbol

    if is_block(model):
        if params is not None:
            raise ConfigError("params: a Gluon block holds its own weights")
        names = list(shapes) or [name for name in arrays if not name.startswith("#")] or ["data"]
        arrays = _named(arrays, names)
        shapes = {**named_shapes(arrays), **shapes}
        whole = WholeSymbol.of_block(model, shapes, dtypes)
    else:
        if params is None and reference_params is not None:
            raise ConfigError("the reference has weights and the model has none: params= as an argument, --params "
                              "on the command line")
        symbol = load_symbol(Path(file)) if file else model
        given = _read_params(params)
        arrays = _named(arrays, data_inputs(symbol, given))
        shapes = {**named_shapes(arrays), **shapes}
        check_inputs(symbol, shapes, dtypes)
        wanted = {name: shape for name, shape in inferred_shapes(symbol, shapes).items() if name not in shapes}
        whole = WholeSymbol(symbol, given if params is not None else random_weights(wanted), dtypes)
    others = _read_params(reference_params)
    try:
        found: Model = SymbolModel(whole, others, shapes, dtypes, arrays, seed, backend)
    except UnsupportedError as error:
        weights = {name: as_array(array, name) for name, array in whole.weights.items()}
        found = PartitionedModel(whole.symbol, weights, others, shapes, dtypes, arrays, seed, str(error), backend)
    found.weights = ("the block's own" if is_block(model) else "given" if params is not None else
                     "random, the same in every run")
    return found


def _read_params(params: Any) -> dict[str, np.ndarray]:
    """By name, of a file or of arrays by name."""
    if params is None:
        return {}
    from ngraph_mxnet.bridges.mxnet.symbols.weights import read_params

    found = read_params(Path(params)) if isinstance(params, (str, os.PathLike)) else params
    return {name.removeprefix("arg:").removeprefix("aux:"): as_array(array, f"weight {name!r}")
            for name, array in found.items()}


def _named(arrays: Arrays, names: Sequence[str]) -> dict[str, np.ndarray]:
    """The arrays, those given by place called as the inputs."""
    found = {}
    for name, array in arrays.items():
        place = int(name[1:]) if name.startswith("#") else -1
        if place >= len(names):
            raise ModelError(f"found {len(arrays)} inputs, expected {len(names)}: {listed(names)}")
        found[names[place] if place >= 0 else name] = array
    return found


class SymbolModel(GraphModel):
    """An MXNet symbol, which is compiled as a whole; MXNet's own operators are a reference, too."""

    framework = "mxnet"

    def __init__(self, whole: WholeSymbol, reference_weights: Arrays, shapes: Shapes, dtypes: Mapping[str, str],
                 arrays: Arrays, seed: int, backend: str) -> None:
        """`shapes`: of the inputs that are no weights.

        Raises:
            ModelError, UnsupportedError: as `WholeSymbol.graph`.
        """
        self._symbol, self._shapes, self._dtypes = whole.symbol, shapes, dtypes
        graph, weights = whole.graph(backend, shapes)
        super().__init__(graph, weights, reference_weights, arrays, seed, constant=False)
        self._natives = {**{name: as_array(array, name) for name, array in whole.weights.items()},
                         **reference_weights, **self.inputs}
        self.output_names = whole.symbol.list_outputs()

    def expected(self, against: str) -> list[np.ndarray]:
        if against == INTERPRETER:
            return super().expected(against)
        from ngraph_mxnet.bridges.mxnet.native import native_results

        return native_results(self._symbol, self._natives)

    def traced(self, against: str, backend: str, options: Mapping[str, Any]) -> tuple[Traced, list[Any]]:
        if against == INTERPRETER:
            return super().traced(against, backend, options)
        from ngraph_mxnet.bridges.mxnet.native import native_results, operator_outputs
        from ngraph_mxnet.bridges.mxnet.symbols.weights import graph_of

        every = operator_outputs(self._symbol)
        graph, _ = graph_of(every, self._shapes, self._dtypes, self._weights)
        named = dict(zip(every.list_outputs(), graph.results, strict=True))
        found = TracedGraph(graph, named.items(), [named.get(name) for name in self.output_names],
                            self._runner(backend, options))
        expected = dict(zip(every.list_outputs(), native_results(every, self._natives), strict=True))
        return found, [expected[point.name] for point in found.points]

    def reference_title(self, against: str) -> str:
        if against == INTERPRETER:
            return super().reference_title(against)
        from ngraph_mxnet.bridges.mxnet.native import title

        return title()
