"""Models that are verified, and what each can be compared with. Graphs of the IR are one kind."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ngraph_mxnet.errors import ConfigError, ModelError, listed
from ngraph_mxnet.ir.graph import Graph
from ngraph_mxnet.ir.module import result_names
from ngraph_mxnet.ir.types import f16
from ngraph_mxnet.runtime.draws import Draw, draws_of
from ngraph_mxnet.runtime.executable import Port, checked_array
from ngraph_mxnet.runtime.feeds import fitting_inputs
from ngraph_mxnet.verifying.traced import Runner, Traced, TracedGraph

Arrays = Mapping[str, np.ndarray]
Shapes = Mapping[str, Sequence[int]]
INTERPRETER = "interpreter"


class Model(ABC):
    """A model with weights for our run, weights for the reference's, and inputs for both.

    Attributes:
        framework: the reference beside the interpreter, None if there is none.
        output_names: in order.
        drawn: the inputs that were drawn at random.
        draws: what the model is made for, as far as it says.
        weights: where they are from, as text.
    """

    framework: str | None = None
    output_names: Sequence[str]
    inputs: Arrays
    drawn: Sequence[str] = ()
    draws: Mapping[str, Draw] = {}
    given = "given"
    """The origin of the inputs that were not drawn, as text."""
    weights = "the model's own"
    precision: str | None = None
    """The precision in which the model is compiled already, whatever the options say."""
    note: str | None = None
    """A further remark on how the model runs."""

    @abstractmethod
    def results(self, backend: str, options: Mapping[str, Any]) -> list[np.ndarray]:
        """Return the results of our run of the whole model."""

    @abstractmethod
    def expected(self, against: str) -> list[np.ndarray]:
        """Return the results of the reference's run of the whole model."""

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
        """True if the model stores values in float16."""

    def parts_agree(self) -> str:
        """Why outputs may differ though those of all parts agree."""
        return ("each output agrees when the model is cut behind it, with nothing else to compute: the difference is "
                "one of how the whole is compiled")

    def default_reference(self) -> str:
        return self.framework or INTERPRETER

    def reference_title(self, against: str) -> str:
        """Return the name of the reference, with its version."""
        return "the interpreter of the IR"

    def differing_weights(self, names: Sequence[str]) -> list[str]:
        """Return the names of the given parameters whose content for our run is not the reference's."""
        return []


def drawn(found: Mapping[str, Any], given: Mapping[str, Any]) -> list[str]:
    """The names of the arrays that are not among those given."""
    return [name for name, array in found.items() if not any(array is one for one in given.values())]


def require_common(weights: Arrays, reference_weights: Arrays) -> None:
    """Refuse weights for the reference of which none is the model's.

    Raises:
        ModelError: they are such.
    """
    if reference_weights and not weights.keys() & reference_weights.keys():
        raise ModelError(f"none of the reference's weights {listed(reference_weights)} is one of the model's, which "
                         f"are {listed(weights, next(iter(reference_weights))) or 'none'}")


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
        require_common(self._weights, reference_weights)
        ports = [port for name, port in by_name.items() if name not in self._weights]
        self.draws = draws_of(graph, self._weights)
        found = fitting_inputs(ports, arrays, {}, seed, self.draws)
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
