"""Settings that a graph is compiled for, and the version that results: stored, lowered, loaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ngraph_mxnet.ir.graph import Graph, Value
from ngraph_mxnet.targets.nnp.isa.program import Program
from ngraph_mxnet.targets.nnp.lower.lowering import Lowered
from ngraph_mxnet.targets.nnp.lower.places import Resources
from ngraph_mxnet.targets.nnp.quantization import Quantization
from ngraph_mxnet.targets.nnp.simulate.functional import FunctionalSimulator

Arrays = Sequence[np.ndarray]


@dataclass(frozen=True)
class Settings:
    """The settings of a compilation.

    Products are in i8 if `narrow`. They are calibrated on `samples` (arrays for all inputs, weights too), or else on
    the arrays of the first call. The batch is cut into `instances` parts, each on engines of its own. `devices` is the
    number of devices.
    """

    resources: Resources
    instances: int
    narrow: bool = False
    samples: tuple[Arrays, ...] = ()
    devices: int = 1


@dataclass(frozen=True)
class Version:
    """The main graph, perhaps with conversions, as it is stored and lowered."""

    graph: Graph
    weights: frozenset[Value]
    quantization: Quantization
    lowered: Lowered

    @property
    def program(self) -> Program:
        """The Program, its constants still empty."""
        return self.lowered.program

    def loaded(self, contents: Mapping[Value, np.ndarray]) -> FunctionalSimulator:
        """A device that holds the weights and constants of `contents`."""
        store = self.quantization.store
        constants = {buffer: store(value, contents[value]).tobytes() for value, buffer in self.lowered.weights.items()}
        for node, buffer in self.lowered.scales.items():
            constants[buffer] = self.quantization.sum_scale(node).astype(np.float32).tobytes()
        return FunctionalSimulator(replace(self.program, constants=constants))
