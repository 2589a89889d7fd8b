"""A symbol's weights: from a file, or random."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod, sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ngraph_mxnet.bridges.mxnet.error_texts import brief
from ngraph_mxnet.bridges.mxnet.explain import all_dtypes, load_symbol
from ngraph_mxnet.bridges.mxnet.importer import import_symbol
from ngraph_mxnet.bridges.mxnet.symbols.symbol_inputs import check_inputs, inferred_shapes
from ngraph_mxnet.errors import ModelError
from ngraph_mxnet.ir.graph import Graph

if TYPE_CHECKING:
    from mxnet.ndarray import NDArray
    from mxnet.symbol import Symbol

_SEED = 7


def random_weights(shapes: Mapping[str, Sequence[int]]) -> dict[str, np.ndarray]:
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


def read_params(path: Path) -> dict[str, NDArray]:
    """All of a file, by name.

    Raises:
        ModelError: it can't be read.
    """
    import mxnet as mx

    try:
        return {name.split(":")[-1]: array for name, array in mx.nd.load(str(path)).items()}
    except (mx.base.MXNetError, AttributeError) as error:
        raise ModelError(f"can't read parameters by name from {path}: {brief(error)}") from None


def read_weights(path: Path, wanted: Mapping[str, Sequence[int]]) -> dict[str, NDArray]:
    """Read the weights of these names and shapes. A label, which inference does not read, may be missing.

    Raises:
        ModelError: the file can't be read, or lacks one, or has it in another shape.
    """
    found = read_params(path)
    missing = sorted(name for name in set(wanted) - set(found) if not name.endswith("label"))
    if missing:
        raise ModelError(f"{path} has no {', '.join(missing[:8])}{', ...' if len(missing) > 8 else ''}")
    for name, shape in wanted.items():
        if name in found and found[name].shape != tuple(shape):
            raise ModelError(f"{path}: {name} is {found[name].shape}, the model expects {tuple(shape)}")
    return {name: found[name] for name in wanted if name in found}


def load_graph(model: str | Path, shapes: Mapping[str, Sequence[int]], dtypes: Mapping[str, str],
               params: str | Path | None) -> tuple[Graph, dict[str, np.ndarray]]:
    """The graph of a whole symbol in a file, and those of its parameters that `params` holds.

    Args:
        shapes: of the data inputs, by name.
        dtypes: by name; float32 where not given.

    Raises:
        ModelError: a file can't be read or does not fit, or MXNet can't infer the model's shapes.
        UnsupportedError: a node can't be lowered; the text names it and the reason.
    """
    symbol = load_symbol(Path(model))
    check_inputs(symbol, shapes, dtypes)
    wanted = {name: shape for name, shape in inferred_shapes(symbol, shapes).items() if name not in shapes}
    weights = {} if params is None else {
        name: array.asnumpy() for name, array in read_weights(Path(params), wanted).items()}
    return graph_of(symbol, shapes, dtypes, weights)


def graph_of(symbol: Symbol, shapes: Mapping[str, Sequence[int]], dtypes: Mapping[str, str],
             weights: Mapping[str, np.ndarray]) -> tuple[Graph, dict[str, np.ndarray]]:
    """The graph of a whole symbol, and those of its parameters that are among `weights`.

    Raises:
        UnsupportedError: as `load_graph`.
    """
    found = inferred_shapes(symbol, shapes)
    types = {name: str(np.dtype(dtype)) for name, dtype in all_dtypes(symbol, dtypes).items()}
    types.update({name: str(array.dtype) for name, array in weights.items()})
    graph = import_symbol(symbol.tojson(remove_amp_cast=False), found, types)
    held = {parameter.name for parameter in graph.parameters}
    return graph, {name: array for name, array in weights.items() if name in held}


def load_weighted(model: str | Path, shapes: Mapping[str, Sequence[int]],
                  params: str | Path | None) -> tuple[Symbol, dict[str, Any]]:
    """The symbol in a file, and its weights from `params`, or random ones.

    Args:
        shapes: of the data inputs, by name.

    Raises:
        ModelError: a file can't be read or does not fit, or MXNet can't infer the model's shapes.
    """
    symbol = load_symbol(Path(model))
    check_inputs(symbol, shapes)
    wanted = {name: shape for name, shape in inferred_shapes(symbol, shapes).items() if name not in shapes}
    weights: dict[str, Any] = random_weights(wanted)
    if params is not None:
        weights.update(read_weights(Path(params), wanted))
    return symbol, weights
