"""A symbol and its weights, from files, from a Gluon block, or random: as one graph, and profiled."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from math import prod, sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ngraph_mxnet.base.errors import ConfigError, ModelError, NGraphError, UnsupportedError, listed, require_shapes
from ngraph_mxnet.frontends.mxnet.importer import import_symbol, weights_of
from ngraph_mxnet.frontends.mxnet.symbol_json import parse_symbol
from ngraph_mxnet.ir.graph import Graph
from ngraph_mxnet.ir.ranges import has_ranges
from ngraph_mxnet.plugin.arrays import brief, settled
from ngraph_mxnet.plugin.explain import all_dtypes, explain, load_symbol, region_graphs
from ngraph_mxnet.plugin.inference import at_hand_shapes, check_inputs, inferred_shapes, shapes_that_change
from ngraph_mxnet.program.backend import get_backend
from ngraph_mxnet.program.feeds import SEED, Draw, draws_of, random_array

if TYPE_CHECKING:
    from mxnet.executor import Executor
    from mxnet.ndarray import NDArray
    from mxnet.symbol import Symbol


_SEED = 7

Shapes = Mapping[str, Sequence[int]]


def random_weights(shapes: Shapes) -> dict[str, np.ndarray]:
    """By name, in float32."""
    rng = np.random.default_rng(_SEED)
    return {name: _random(rng, name, tuple(shape)).astype(np.float32) for name, shape in shapes.items()}


def _random(rng: np.random.Generator, name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Numbers of a scale that keeps activations near one: a value that overflows or dies out may take other time."""
    if name.endswith(("gamma", "var")):
        return rng.uniform(0.8, 1.2, shape)
    if name.endswith(("beta", "mean", "bias")):
        return rng.uniform(-0.2, 0.2, shape)
    return rng.standard_normal(shape) * (sqrt(2 / prod(shape[1:])) if name.endswith("weight") else 1.0)


def read_params(params: Any) -> dict[str, Any]:
    """The arrays of a file or a mapping, by name without `arg:` and `aux:`. Raises ModelError: the file can't be
    read."""
    import mxnet as mx

    try:
        found = mx.nd.load(os.fspath(params)) if isinstance(params, (str, os.PathLike)) else params
        return {name.removeprefix("arg:").removeprefix("aux:"): array for name, array in found.items()}
    except (mx.base.MXNetError, AttributeError) as error:
        raise ModelError(f"can't read parameters by name from {params}: {brief(error)}") from None


def read_weights(path: str | os.PathLike[str], wanted: Shapes) -> dict[str, NDArray]:
    """Read the weights of these names and shapes. A label, which inference does not read, may be missing. Raises
    ModelError: the file can't be read, or lacks one, or has it in another shape."""
    found = read_params(path)
    missing = sorted(name for name in set(wanted) - set(found) if not name.endswith("label"))
    if missing:
        raise ModelError(f"{path} has no {', '.join(missing[:8])}{', ...' if len(missing) > 8 else ''}")
    for name, shape in wanted.items():
        if name in found and found[name].shape != tuple(shape):
            raise ModelError(f"{path}: {name} is {found[name].shape}, the model expects {tuple(shape)}")
    return {name: found[name] for name in wanted if name in found}


def graph_of(symbol: Symbol, shapes: Shapes, dtypes: Mapping[str, str],
             weights: Mapping[str, np.ndarray]) -> tuple[Graph, dict[str, np.ndarray]]:
    """The graph of a whole symbol, and its parameters among `weights`. Raises UnsupportedError: a node
    can't be lowered; the text names it and the reason."""
    found = inferred_shapes(symbol, shapes)
    types = {name: str(np.dtype(dtype)) for name, dtype in all_dtypes(symbol, dtypes).items()}
    types.update({name: str(array.dtype) for name, array in weights.items()})
    graph = import_symbol(symbol.tojson(remove_amp_cast=False), found, types)
    held = {parameter.name for parameter in graph.parameters}
    return graph, {name: array for name, array in weights.items() if name in held}


class WholeSymbol:
    """A symbol and its weights, of which graphs for sets of shapes are made."""

    def __init__(self, symbol: Symbol, weights: Mapping[str, Any], dtypes: Mapping[str, str] | None = None) -> None:
        self.symbol = symbol
        self.weights = read_params(weights)
        self._dtypes = dict(dtypes or {})

    @staticmethod
    def of_files(model: str | os.PathLike[str], params: str | os.PathLike[str] | None, shapes: Shapes,
                 dtypes: Mapping[str, str] | None = None, *, random: bool = False) -> WholeSymbol:
        """Load a WholeSymbol from `model-symbol.json` and `model-0000.params`.

        Args:
            shapes: of the data inputs, of one set.
            random: draw the weights that no file holds.

        Raises:
            ModelError: a file can't be read or does not fit, or MXNet can't infer the model's shapes.
        """
        symbol = load_symbol(model)
        check_inputs(symbol, shapes, dtypes)
        wanted = {name: shape for name, shape in inferred_shapes(symbol, shapes).items() if name not in shapes}
        weights: dict[str, Any] = random_weights(wanted) if random else {}
        if params is not None:
            weights.update(read_weights(params, wanted))
        return WholeSymbol(symbol, weights, dtypes)

    @staticmethod
    def of_block(block: Any, shapes: Shapes, dtypes: Mapping[str, str] | None = None) -> WholeSymbol:
        """Build a WholeSymbol from a Gluon block. `shapes` names the block's inputs in order. The shapes of its
        parameters may still be open. Raises ModelError: it can't be made a symbol, or its parameters have no values."""
        import mxnet as mx

        numpy_like = mx.util.is_np_array()
        dtypes = dtypes or {}
        try:
            inputs = [mx.sym.var(name) for name in shapes]
            found = block(*(each.as_np_ndarray() for each in inputs) if numpy_like else inputs)
            if any(parameter._deferred_init for parameter in block.collect_params().values()):
                zeros = (mx.np if numpy_like else mx.nd).zeros
                block(*(zeros(shape, dtype=dtypes.get(name, "float32")) for name, shape in shapes.items()))
            weights = {name: parameter.list_data()[0] for name, parameter in block.collect_params().items()}
        except (AssertionError, AttributeError, RuntimeError, TypeError, ValueError) as error:
            raise ModelError(f"{type(block).__name__} called with {listed(shapes)} makes no symbol with weights: "
                             f"{error}") from error
        flat = _flat(found)
        return WholeSymbol(flat[0] if len(flat) == 1 else mx.sym.Group(flat), weights, dtypes)

    def graph(self, backend: str, shapes: Shapes) -> tuple[Graph, dict[str, np.ndarray]]:
        """For a set of shapes, and the weights that it reads. Where sizes are symbols, guards are in force, which know
        sizes at hand.

        Raises:
            ModelError: a shape or a weight is missing or does not fit.
            UnsupportedError: naming all nodes that can't be lowered, or that `backend` does not run, with the reasons.
        """
        require_shapes(shapes)
        check_inputs(self.symbol, at_hand_shapes(shapes), self._dtypes)
        wanted = {name for name in inferred_shapes(self.symbol, shapes) if name not in shapes}
        missing = sorted(name for name in wanted - set(self.weights) if not name.endswith("label"))
        if missing:
            raise ModelError(f"no weights for {listed(missing)}")
        weights = {name: settled(array) if hasattr(array, "asnumpy") else np.asarray(array)
                   for name, array in self.weights.items() if name in wanted}
        try:
            graph, weights = graph_of(self.symbol, shapes, self._dtypes, weights)
        except UnsupportedError as error:
            lines = self._refused(shapes, backend) or [str(error)]
            from ngraph_mxnet.program.export import listing  # imports the compiler

            raise UnsupportedError("the model can't be compiled as a whole:\n" + listing(lines)) from None
        read = {value for node in graph.nodes for value in node.inputs}
        graph.parameters = [value for value in graph.parameters  # a label is not read
                            if value.name in shapes or value.name in weights or value in read]
        if has_ranges(shapes):
            self._refuse_changing(graph, shapes)
        for value, name in zip(graph.results, self.symbol.list_outputs(), strict=True):
            value.name = name
        return graph, weights

    def _refuse_changing(self, graph: Graph, shapes: Shapes) -> None:
        """Refuse that MXNet infers from a range the shape of an input: it is for the sizes at hand."""
        changing = set(shapes_that_change(self.symbol, shapes)) & {value.name for value in graph.parameters}
        if changing:
            raise ModelError(f"the shape of {listed(sorted(changing))} changes with sizes that are ranges: give it")

    def _refused(self, shapes: Shapes, backend: str) -> list[str]:
        found = explain(self.symbol, at_hand_shapes(shapes), self._dtypes, backend=backend).partition
        return [f"{verdict.name} {verdict.op}: {verdict.reason}" for verdict in found.verdicts if not verdict.supported]


def data_inputs(symbol: Symbol, weights: Mapping[str, Any]) -> list[str]:
    """The names of a symbol's inputs that no weights are, in order, without labels, which inference does not read."""
    graph = parse_symbol(symbol.tojson(remove_amp_cast=False))
    held = {name.removeprefix("arg:").removeprefix("aux:") for name in weights}
    held.update(graph.nodes[index].name for index in weights_of(graph))  # one that is missing is an error of its own
    return [name for name in symbol.list_inputs() if name not in held and not name.endswith("label")]


def is_block(model: Any) -> bool:
    """True if `model` is a Gluon block that makes symbols."""
    from mxnet.gluon import HybridBlock

    if type(model).__mro__[-2].__name__ == "Block" and not isinstance(model, HybridBlock):
        raise ConfigError(f"{type(model).__name__} is a Block whose Python runs at every call: export a HybridBlock")
    return isinstance(model, HybridBlock)


def _flat(found: Any) -> list[Symbol]:
    """The symbols of a block's outputs, which may be nested lists."""
    return [one for each in found for one in _flat(each)] if isinstance(found, (list, tuple)) else [found]


def draws_of_symbol(symbol: Symbol, shapes: Shapes, dtypes: Mapping[str, Any],
                    backend: str | None = None) -> dict[str, Draw]:
    """Return what `draws_of` says, for the inputs of these shapes. For a symbol that MXNet runs in part, return what
    the regions say that the backend would run."""
    try:
        return draws_of(graph_of(symbol, shapes, dtypes, {})[0])
    except NGraphError:
        told = all_dtypes(symbol, dtypes)
    found: dict[str, Draw] = {}
    for graph, _ in region_graphs(symbol, {name: (tuple(shapes[name]), told.get(name)) for name in shapes},
                                  get_backend(backend))[1]:
        found |= {name: draw for name, draw in draws_of(graph).items() if name in shapes}
    return found


def profile_model(model: str | Path, shapes: Shapes, params: str | Path | None = None, *,
                  rounds: int = 20) -> Any:
    """Bind the model for the backend NGRAPH, with the weights in `params` or random ones, and run it `rounds` times.

    MXNET_SUBGRAPH_BACKEND must name NGRAPH.

    Returns:
        What `Backend.profile` gives.

    Raises:
        ConfigError: the backend has no kernels to tell of.
        ModelError: the files are corrupt, don't fit, or MXNet can't infer the model's shapes.
    """
    executor = _bind(model, shapes, params)

    def forward() -> None:
        for output in executor.forward(is_train=False):
            output.wait_to_read()

    details = explain(model, shapes, kernels=True).details  # the bind may have compiled nothing
    return get_backend().profile(forward, rounds, details)


def _bind(model: str | Path, shapes: Shapes, params: str | Path | None) -> Executor:
    import mxnet as mx

    whole = WholeSymbol.of_files(model, params, shapes, random=True)
    try:
        executor = whole.symbol.simple_bind(ctx=mx.cpu(), grad_req="null", **{k: tuple(v) for k, v in shapes.items()})
    except (mx.base.MXNetError, RuntimeError, ValueError) as error:
        raise ModelError(f"MXNet can't bind {model} with {dict(shapes)}: {brief(error)}") from None
    arrays = {**executor.arg_dict, **executor.aux_dict}
    random = np.random.default_rng(SEED)
    draws = draws_of_symbol(whole.symbol, shapes, {})
    drawn = {name: random_array(random, arrays[name].shape, arrays[name].dtype, draws.get(name)) for name in shapes}
    for name, values in {**whole.weights, **drawn}.items():
        arrays[name][:] = values
    return executor
