"""The model that is quantised: its inputs, its graph with the weights as constants, what is compiled of it, and how
long calls of that take, by turns, so that what else the machine does is in all of them."""

from __future__ import annotations

import math
import operator
import os
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ngraph_mxnet.errors import ConfigError, ModelError, UnsupportedError, listed
from ngraph_mxnet.exporting import graphs_of
from ngraph_mxnet.ir.graph import Graph
from ngraph_mxnet.ir.parser import parse_graph
from ngraph_mxnet.model_kinds import Kind, kind_of
from ngraph_mxnet.passes.base import PassManager
from ngraph_mxnet.quantisation.apply import observed, outline_of, products
from ngraph_mxnet.quantisation.division import DivideData, factors_of
from ngraph_mxnet.quantisation.layers import Outline, data_axis
from ngraph_mxnet.quantisation.observe import Channels
from ngraph_mxnet.quantisation.recipe import Numbers, Recipe
from ngraph_mxnet.runtime.artefact import Ranged, Weighted
from ngraph_mxnet.runtime.backend import get_backend
from ngraph_mxnet.runtime.compile import bind_weights, compile
from ngraph_mxnet.runtime.executable import Executable, Usage

BACKEND = "CPU"


@dataclass(frozen=True)
class Source:
    """A model as the caller has it. `inputs`: their names; `fixed`: the sizes that it says of each itself."""

    model: Any
    params: Any
    dtypes: Mapping[str, str]
    inputs: Sequence[str]
    fixed: Mapping[str, Sequence[Any]] = field(default_factory=dict)

    @staticmethod
    def of(model: Any, params: Any, dtypes: Mapping[str, str] | None, shapes: Mapping[str, Any],
           example: Any) -> Source:
        """`example`: an item of the samples, by which the inputs of a Gluon block are counted or named where `shapes`
        does not.

        Raises:
            ModelError, ConfigError: the model can't be read, or its weights are missing.
        """
        dtypes = dict(dtypes or {})
        kind, model = kind_of(model)
        if kind in (Kind.COMPILED, Kind.PACKAGE):
            raise ConfigError(f"a {kind.value} is compiled already: quantise the model itself")
        if kind in (Kind.GRAPH, Kind.TEXT):
            model = parse_graph(model) if kind is Kind.TEXT else model
            held = {name: np.asarray(array) for name, array in (params or {}).items()}
            own = {one.name: one.type.shape for one in model.parameters if one.name not in held}
            return Source(model, held, dtypes, list(own), own)
        if kind is Kind.SYMBOL:
            from ngraph_mxnet.bridges.mxnet.symbols.weights import read_params
            from ngraph_mxnet.bridges.mxnet.whole import data_inputs, load_symbol

            if params is None:
                raise ModelError("a symbol needs its weights: params= as an argument, --params MODEL-0000.params on "
                                 "the command line")
            symbol = load_symbol(Path(model)) if isinstance(model, (str, os.PathLike)) else model
            weights = read_params(Path(params)) if isinstance(params, (str, os.PathLike)) else params
            return Source(symbol, weights, dtypes, data_inputs(symbol, weights))
        if kind is Kind.BLOCK:
            return Source(model, params, dtypes, list(shapes) or _names(example))
        if params is not None:
            raise ConfigError("params= is for symbols and graphs; other models hold their weights")
        from ngraph_mxnet.bridges.onnx.inputs import input_types
        from ngraph_mxnet.bridges.onnx.model import read_model

        read = read_model(model)
        types = input_types(read)
        return Source(model, None, dtypes, list(types), {name: one.dims for name, one in types.items() if one.dims})

    def graph(self, shapes: Mapping[str, Sequence[int | str]]) -> tuple[Weighted | Ranged, bool]:
        """Return what makes the graph for these shapes, and whether its weights are prepared
        (`exporting.graphs_of`)."""
        one = {} if isinstance(self.model, Graph) else shapes
        (found,), prepares = graphs_of(self.model, [one], self.params, self.dtypes, BACKEND)
        return found, prepares


def _names(example: Any) -> list[str]:
    """Return the names of a block's inputs: those of a mapping, or Gluon's names. The last of several arrays is
    labels."""
    if isinstance(example, Mapping):
        return [name for name in example if name not in ("labels", "label")]
    if hasattr(example, "data") and hasattr(example, "pad"):
        count = len(example.data)
    else:
        count = max(len(example) - 1, 1) if isinstance(example, (tuple, list)) else 1
    return ["data"] if count == 1 else [f"data{number}" for number in range(count)]


class Subject:
    """A graph whose weights are constants, and what is compiled of it for the CPU."""

    def __init__(self, graph: Graph, weights: Mapping[str, Any], threads: int) -> None:
        """Raises:
            UnsupportedError: the CPU does not run a node, or nothing can be in 8 bits.
        """
        backend = get_backend(BACKEND)
        self.graph, self.threads = bind_weights(graph, weights), threads
        backend.require_support(self.graph)
        self._optimised = self.graph.clone()
        PassManager(backend.pipeline()).run(self._optimised)
        self.layers = {name: node.origin for name, node in products(self._optimised).items()}
        """The names of the products that can be in 8 bits, and the origins of their nodes."""
        if not self.layers:
            raise UnsupportedError(f"graph {graph.name}: no convolution or matrix product of it, with weights that do "
                                   "not depend on inputs, can be in 8 bits: there is nothing to quantise")
        self.inputs = {one.name: one.type for one in self.graph.parameters}

    def compiled(self, recipe: Recipe | None = None) -> Executable:
        """In float32, or as the recipe says."""
        return self._compile(self.graph, recipe)

    def roughly(self, recipe: Recipe) -> Executable:
        """Compile the optimised graph with the recipe: sooner than `compiled`."""
        return self._compile(self._optimised, recipe)

    def outline(self) -> Outline:
        """Return the outline of the graph, with the layers' names."""
        return outline_of(self._optimised)

    def observed(self, factors: Mapping[str, Numbers] | None = None) -> tuple[Executable, list[list[str]]]:
        """Return an executable that gives the data of all products, and the names of these products
        (`apply.observed`). Some data is divided by these factors."""
        divided = self._optimised.clone()
        DivideData(factors or {}, {}).run(divided)
        graph, names = observed(divided)
        return self._compile(graph, None), names

    def channels(self) -> Channels:
        """For the channels of all products' data, of which nothing was seen yet."""
        return Channels({name: data_axis(node) for name, node in products(self._optimised).items()})

    def factors(self, channels: Channels) -> dict[str, dict[str, Numbers]]:
        """By which data may be divided (`division.factors_of`)."""
        return factors_of(self._optimised, channels)

    def _compile(self, graph: Graph, recipe: Recipe | None) -> Executable:
        how: dict[str, Any] = {"precision": "f32"} if recipe is None else {"precision": "int8", "recipe": recipe}
        return compile(graph, BACKEND, threads=self.threads, **how)

    def require_layers(self, names: Sequence[str]) -> None:
        """Raises:
            ConfigError: one is no product that can be in 8 bits.
        """
        unknown = [name for name in names if name not in self.layers]
        if unknown:
            raise ConfigError(f"keep: found {listed(unknown)}, expected some of the layers that can be in 8 bits: "
                              f"{listed(self.layers, unknown[0])}")

    def by_layer(self, seconds: Mapping[str, float]) -> dict[str, float]:
        """Return the seconds of each layer, from seconds by origin. Layers of one origin share them evenly."""
        origins = list(self.layers.values())
        return {name: seconds.get(origin, 0.0) / origins.count(origin) for name, origin in self.layers.items()}


_TURN_SECONDS = 0.005
"""The least seconds of a turn."""
_FEWEST_ROUNDS, _MOST_ROUNDS, _SECONDS = 5, 25, 8.0
"""How often each has its turn: of large models less often, so that all take about so long."""
_BUSY_ALONE, _BUSY_BESIDE = 2.0, 1.25
"""How many times as long as its thread works a call may take: of calls on one thread, whose CPU time counts, and of
others."""
_PROFILED, _TURNS = 10, 3
"""Calls of a turn whose kernels are timed, and turns."""


class Stopwatch:
    """Times calls that run on so many threads, and notices whether others had the cores meanwhile.

    What runs on one thread is timed by that thread's CPU time, which does not count what others take. On several
    threads it is the wall clock: then what else the machine does shows in how much longer a call takes than its thread
    works.
    """

    def __init__(self, threads: int) -> None:
        self._clock = time.thread_time if threads == 1 else time.perf_counter
        self._most_busy = _BUSY_ALONE if threads == 1 else _BUSY_BESIDE
        self._busy: list[float] = []

    @property
    def doubt(self) -> str | None:
        """Why times are not to be believed, as a sentence; None if they are."""
        busy = statistics.median(self._busy) if self._busy else 1.0
        if busy <= self._most_busy:
            return None
        return (f"The machine was too busy for these times to be believed: calls took {busy:.1f} times as long as "
                "their thread had a core. Run it again where nothing else runs, or with --even-if-slower")

    def seconds_of(self, executables: Sequence[Executable], arrays: Mapping[str, np.ndarray]) -> list[float]:
        """Return the seconds of a call of each executable: the median over turns. Turns are about equally long and
        follow each other. Otherwise, where others use the cores too, the few quiet moments would tell of one executable
        alone."""
        single = [self._turn(one, arrays, 2) for one in executables]
        calls = [max(1, math.ceil(_TURN_SECONDS / max(seconds, 1e-9))) for seconds in single]
        rounds = round(_SECONDS / max(sum(map(operator.mul, single, calls)), 1e-9))
        turns = [[self._turn(one, arrays, count) for one, count in zip(executables, calls, strict=True)]
                 for _ in range(max(_FEWEST_ROUNDS, min(_MOST_ROUNDS, rounds)))]
        return [statistics.median(found) for found in zip(*turns, strict=True)]

    def _turn(self, executable: Executable, arrays: Mapping[str, np.ndarray], calls: int) -> float:
        wall, cpu, start = time.perf_counter(), time.thread_time(), self._clock()
        for _ in range(calls):
            executable(arrays)
        seconds = self._clock() - start
        self._busy.append((time.perf_counter() - wall) / max(time.thread_time() - cpu, 1e-9))
        return seconds / calls


def usages_of(executables: Sequence[Executable], arrays: Mapping[str, np.ndarray]) -> list[Usage]:
    """Return the usage of each executable: the median over turns for each node."""
    given = [one.checked((arrays,)) for one in executables]
    turns = [[one.usage(inputs, _PROFILED) for one, inputs in zip(executables, given, strict=True)]
             for _ in range(_TURNS)]
    return [_median(list(found)) for found in zip(*turns, strict=True)]


def _median(turns: Sequence[Usage]) -> Usage:
    origins = dict.fromkeys(origin for usage in turns for origin in usage.seconds)
    seconds = {origin: statistics.median(usage.seconds.get(origin, 0.0) for usage in turns) for origin in origins}
    return Usage(seconds, turns[0].weight_bytes, turns[0].arena_bytes)
