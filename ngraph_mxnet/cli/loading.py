"""From the files that a command names to an executable and its inputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ngraph_mxnet.api import compile as compile_model
from ngraph_mxnet.bridges.onnx.executable import ModelExecutable
from ngraph_mxnet.errors import ConfigError, ModelError, listed
from ngraph_mxnet.model_kinds import is_symbol_file
from ngraph_mxnet.runtime.executable import Executable, Port

Shapes = Mapping[str, tuple[int, ...]]
_SEED = 7


def load_model(model: str, shapes: Shapes, params: str | None, backend: str | None,
               settings: Mapping[str, Any], *, needs_weights: bool = False) -> Executable | ModelExecutable:
    """The model, compiled where its shapes are known; a symbol has random weights if it is given none and needs none.

    Raises:
        NGraphError: as `ngraph_mxnet.compile`; the text names the option that is missing.
    """
    if not is_symbol_file(model):
        if params:
            raise ConfigError("--params is for symbols; an ONNX model holds its weights")
        return compile_model(model, backend, **settings)
    if not shapes:
        raise ModelError("a symbol needs the shapes of its data inputs: --shape NAME=D,D,... or --input NAME=FILE.npy")
    if needs_weights and not params:
        raise ModelError("a symbol needs its weights: --params MODEL-0000.params")
    from ngraph_mxnet.bridges.mxnet.symbols.weights import load_weighted

    symbol, weights = load_weighted(model, shapes, params)
    return compile_model(symbol, backend, weights=weights, shapes=shapes, **settings)


def named_shapes(arrays: Mapping[str, np.ndarray]) -> dict[str, tuple[int, ...]]:
    """The shapes of arrays that are given by name; the others are called `#0`, `#1`, ..., by place."""
    return {name: array.shape for name, array in arrays.items() if not name.startswith("#")}


def fitting_inputs(exe: Executable | ModelExecutable, arrays: Mapping[str, np.ndarray],
                   shapes: Shapes | None) -> dict[str, np.ndarray]:
    """An array for each input: the given one, else random ones of its shape, or of that in `shapes`.

    Raises:
        ModelError: an array or a shape is missing, or belongs to no input. None are made if `shapes` is None.
    """
    names, expected = [port.name for port in exe.inputs], listed(map(str, exe.inputs))
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
        near = listed(map(str, exe.inputs), unknown[0])
        raise ModelError(f"no input is called {listed(unknown)}; the inputs: {near}")
    missing = [str(port) for port in exe.inputs if port.name not in given]
    if missing and shapes is None:
        raise ModelError(f"no array for {listed(missing)}: give each with --input NAME=FILE.npy")
    random = np.random.default_rng(_SEED)
    return {port.name: given[port.name] if port.name in given else _random(random, port, shapes or {})
            for port in exe.inputs}


def _random(random: np.random.Generator, port: Any, shapes: Shapes) -> np.ndarray:
    shape, dtype = (port.type.shape, port.type.element.numpy) if isinstance(port, Port) else (port.shape, port.dtype)
    shape = shapes.get(port.name, shape)
    if shape is None or not all(isinstance(dim, int) for dim in shape):
        raise ModelError(f"the model leaves a dimension open: {port}; say it with --shape {port.name}=D,D,... or give "
                         f"the input with --input {port.name}=FILE.npy")
    if np.dtype(dtype).kind == "f":
        return random.standard_normal(shape).astype(dtype)
    return random.integers(0, 2, shape).astype(dtype)

