"""Arrays for a model's inputs: those given, and random ones for the others."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from ngraph_mxnet.errors import ModelError, listed
from ngraph_mxnet.ir.graph import Graph
from ngraph_mxnet.runtime.draws import Draw, draws_of
from ngraph_mxnet.runtime.executable import Port

SEED = 7
"""The seed of random inputs, if no other is asked for."""


def random_array(random: np.random.Generator, shape: Sequence[int], dtype: np.dtype | str,
                 draw: Draw | None = None) -> np.ndarray:
    """Draw an array as `draw` says. Else draw normal numbers for floats, and integers 0 and 1 for other types, because
    few models take all values of these."""
    if draw is not None:
        return draw.array(random, tuple(shape), np.dtype(dtype))
    if np.dtype(dtype).kind == "f":
        return random.standard_normal(shape).astype(dtype)
    return random.integers(0, 2, shape).astype(dtype)


def named_shapes(arrays: Mapping[str, np.ndarray]) -> dict[str, tuple[int, ...]]:
    """The shapes of arrays that are given by name; the others are called `#0`, `#1`, ..., by place."""
    return {name: array.shape for name, array in arrays.items() if not name.startswith("#")}


def fitting_inputs(ports: Sequence[Any], arrays: Mapping[str, np.ndarray],
                   shapes: Mapping[str, Sequence[int]] | None, seed: int = SEED,
                   draws: Mapping[str, Draw] | None = None) -> dict[str, np.ndarray]:
    """An array for each input: the given one, else random ones of its shape, or of that in `shapes`.

    Args:
        ports: the inputs of an executable, of a graph or of an ONNX model.
        arrays: by name, or as `#0`, `#1`, ... by place.
        shapes: None: all arrays must be given.
        draws: what the model is made for (`draws_of`), by name.

    Raises:
        ModelError: an array or a shape is missing, or belongs to no input.
    """
    names, expected = [port.name for port in ports], listed(map(str, ports))
    given = {}
    for name, array in arrays.items():
        if name.startswith("#"):
            place = int(name[1:])
            if place >= len(names):
                raise ModelError(f"found {len(arrays)} inputs, expected {len(names)}: {expected}")
            name = names[place]
        given[name] = array
    unknown = sorted({*given, *(shapes or {})} - set(names))
    if unknown:
        near = listed(map(str, ports), unknown[0])
        raise ModelError(f"no input is called {listed(unknown)}; the inputs: {near}")
    missing = [str(port) for port in ports if port.name not in given]
    if missing and shapes is None:
        raise ModelError(f"no array for {listed(missing)}: give each with --input NAME=FILE.npy")
    random = np.random.default_rng(seed)
    return {port.name: given[port.name] if port.name in given else
            _random(random, port, shapes or {}, (draws or {}).get(port.name)) for port in ports}


def random_inputs(random: np.random.Generator, graph: Graph, names: Collection[str] = ()) -> dict[str, np.ndarray]:
    """For all of the graph's parameters but those of these names, as the graph uses them."""
    draws = draws_of(graph)
    return {one.name: random_array(random, one.type.shape, one.type.element.numpy, draws.get(one.name))
            for one in graph.parameters if one.name not in names}


def _random(random: np.random.Generator, port: Any, shapes: Mapping[str, Sequence[int]],
            draw: Draw | None) -> np.ndarray:
    shape, dtype = (port.type.shape, port.type.element.numpy) if isinstance(port, Port) else (port.shape, port.dtype)
    shape = shapes.get(port.name, shape)
    if getattr(port, "kind", "tensor") != "tensor":
        raise ModelError(f"input {port} is no tensor, and none such is made at random: give it")
    if shape is None or not all(isinstance(dim, int) for dim in shape):
        raise ModelError(f"the model leaves a dimension open: {port}; say it with --shape {port.name}=D,D,... or give "
                         f"the input with --input {port.name}=FILE.npy")
    return random_array(random, shape, dtype, draw)
