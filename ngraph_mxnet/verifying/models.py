"""What is verified: graphs, MXNet symbols and ONNX models, each with what it can be compared with."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ngraph_mxnet.errors import ConfigError, ModelError, UnsupportedError, listed
from ngraph_mxnet.ir.graph import Graph
from ngraph_mxnet.ir.module import result_names
from ngraph_mxnet.ir.types import f16
from ngraph_mxnet.runtime.executable import Port, as_array, checked_array
from ngraph_mxnet.runtime.feeds import fitting_inputs, named_shapes
from ngraph_mxnet.verifying.traced import Traced
from ngraph_mxnet.verifying.traced_graph import Runner, TracedGraph

if TYPE_CHECKING:
    from ngraph_mxnet.bridges.mxnet.whole import WholeSymbol

Arrays = Mapping[str, np.ndarray]
Shapes = Mapping[str, Sequence[int]]
INTERPRETER = "interpreter"


class Model(ABC):
    """A model with weights for our run, weights for the reference's, and inputs for both.

    Attributes:
        framework: the reference beside the interpreter, None if there is none.
        output_names: in order.
        drawn: the inputs that were drawn at random.
        weights: where they are from, as text.
    """

    framework: str | None = None
    output_names: Sequence[str]
    inputs: Arrays
    drawn: Sequence[str] = ()
    weights = "the model's own"
    note: str | None = None
    """What else there is to tell of how it runs."""

    @abstractmethod
    def results(self, backend: str, options: Mapping[str, Any]) -> list[np.ndarray]:
        """Of our run of the whole model."""

    @abstractmethod
    def expected(self, against: str) -> list[np.ndarray]:
        """Of the reference's run of the whole model."""

    @abstractmethod
    def traced(self, against: str, backend: str, options: Mapping[str, Any]) -> tuple[Traced, list[Any]]:
        """The points that this reference knows, of what our run compiles, and the reference's arrays for these; other
        objects where its value is no tensor.

        Raises:
            UnsupportedError, ModelError: the model can't be cut into parts.
        """

    @property
    @abstractmethod
    def has_halves(self) -> bool:
        """Whether the model stores values in float16."""

    def default_reference(self) -> str:
        return self.framework or INTERPRETER

    def reference_title(self, against: str) -> str:
        """What the reference is called, with its version."""
        return "the interpreter of the IR"

    def differing_weights(self, names: Sequence[str]) -> list[str]:
        """Those of these parameters whose content for our run is not the reference's."""
        return []


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


def drawn(found: Mapping[str, Any], given: Mapping[str, Any]) -> list[str]:
    """The names of the arrays that are not among those given."""
    return [name for name, array in found.items() if not any(array is one for one in given.values())]


class GraphModel(Model):
    """A graph; it can be compared with what the interpreter makes of it."""

    def __init__(self, graph: Graph, weights: Arrays, reference_weights: Arrays, arrays: Arrays, seed: int, *,
                 constant: bool = True) -> None:
        """`constant`: whether the compiler is given the content of weights.

        Raises:
            ModelError: an input is missing, or one that is given belongs to none, or no weight of the reference's does.
            InputError: one does not fit.
        """
        if graph.symbols():
            raise ConfigError("the sizes of the graph's inputs are ranges: give a graph of one set of shapes")
        by_name = {parameter.name: Port(parameter.name, parameter.type) for parameter in graph.parameters}
        self.graph, self._constant = graph, constant
        self._weights = {name: checked_array(by_name[name], array, what="weight") for name, array in weights.items()
                         if name in by_name}
        self._reference_weights = {
            name: checked_array(by_name[name], reference_weights[name], what="weight of the reference")
            for name in self._weights if name in reference_weights}
        if reference_weights and not self._reference_weights:
            raise ModelError(f"none of the reference's weights {listed(reference_weights)} is one of the model's, "
                             f"which are {listed(self._weights, next(iter(reference_weights))) or 'none'}")
        ports = [port for name, port in by_name.items() if name not in self._weights]
        found = fitting_inputs(ports, arrays, {}, seed)
        self.inputs = {port.name: checked_array(port, found[port.name]) for port in ports}
        self.drawn = drawn(found, arrays)
        self.output_names = result_names(graph)

    @property
    def has_halves(self) -> bool:
        return any(value.type.element is f16 for value in self.graph.values())

    def results(self, backend: str, options: Mapping[str, Any]) -> list[np.ndarray]:
        return self._runner(backend, options).run_whole(self.graph)

    def expected(self, against: str) -> list[np.ndarray]:
        return self._interpreter().run_whole(self.graph)

    def traced(self, against: str, backend: str, options: Mapping[str, Any]) -> tuple[Traced, list[Any]]:
        found = TracedGraph.everywhere(self.graph, self._runner(backend, options))
        return found, found.run_on(self._interpreter(), found.points, {})

    def _runner(self, backend: str, options: Mapping[str, Any]) -> Runner:
        constant = frozenset(self._weights) if self._constant else frozenset[str]()
        return Runner(backend, options, {**self._weights, **self.inputs}, constant)

    def _interpreter(self) -> Runner:
        return self._runner("INTERPRETER", {}).with_arrays(self._reference_weights)

    def differing_weights(self, names: Sequence[str]) -> list[str]:
        return [name for name in names if name in self._reference_weights
                and not np.array_equal(self._weights[name], self._reference_weights[name], equal_nan=True)]


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

    @staticmethod
    def of(model: Any, file: str, params: Any, reference_params: Any, shapes: Shapes, dtypes: Mapping[str, str],
           arrays: Arrays, seed: int, backend: str) -> Model:
        """Of a symbol, its file or a Gluon block, compiled in regions if it can't be as a whole; arguments as those of
        `verify`.

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
            from ngraph_mxnet.verifying.partitioned import PartitionedModel

            weights = {name: as_array(array, name) for name, array in whole.weights.items()}
            found = PartitionedModel(whole.symbol, weights, others, shapes, dtypes, arrays, seed, str(error))
        found.weights = ("the block's own" if is_block(model) else "given" if params is not None else
                         "random, the same in every run")
        return found

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
