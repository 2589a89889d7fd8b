"""Weights for random models that are as lively as trained ones."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np

from matrix.graph import of_last_contractions, with_statistics

if TYPE_CHECKING:
    from mxnet.symbol import Symbol

    from matrix.model import Model

VARIABLE = "MXNET_SUBGRAPH_BACKEND"
#: A variance below this, as of a channel that is one number, would make noise of rounding.
LEAST_VARIANCE = 1e-2


def bind(symbol: Symbol, model: Model, backend: str, like: Any = None) -> Any:
    """An executor of the backend with the model's data and, without `like`, random weights; else that executor's."""
    import mxnet as mx

    os.environ[VARIABLE] = backend
    try:
        read = set(symbol.list_inputs())
        shapes = {name: array.shape for name, array in model.inputs.items() if name in read}
        executor = symbol.simple_bind(mx.cpu(), grad_req="null", **shapes)
    finally:
        del os.environ[VARIABLE]
    constants = model.constants()
    for kind in ("arg_dict", "aux_dict"):
        for place, (name, array) in enumerate(getattr(executor, kind).items()):
            if name in model.inputs:
                array[:] = model.inputs[name]
            elif like is not None:
                array[:] = getattr(like, kind)[name]
            else:
                array[:] = constants[name] if name in constants else draw(name, array.shape, place)
    if like is None:
        _normalize(symbol, executor)
        if model.kind == "boxes":
            _scale_heads(symbol, executor)
    return executor


def draw(name: str, shape: tuple[int, ...], place: int) -> np.ndarray:
    """Random values of the scale that keeps activations alive; moving variances are positive."""
    rng = np.random.default_rng([place, *shape])
    if len(shape) == 1:
        if "gamma" in name:
            return rng.uniform(0.2, 0.5, shape)
        if "beta" in name:
            # As large as gamma, so that few ReLUs clip halfway: of such nets a deep one multiplies rounding errors by
            # thousands, as no trained one does.
            return rng.standard_normal(shape) * 0.4
        return rng.uniform(0.5, 1.5, shape) if "var" in name else rng.standard_normal(shape) * 0.1
    # Offsets of deformable convolutions are pixels: large ones make noise of rounding.
    scale = 0.05 if "offset" in name else np.sqrt(2)
    return rng.standard_normal(shape, np.float32) * np.float32(scale / np.sqrt(max(int(np.prod(shape[1:])), 1)))


def _normalize(symbol: Symbol, executor: Any) -> None:
    """Give batch normalizations the statistics of their data, as training would have.

    With others, a deep net's activations grow or fade from block to block: its scores tie but for their last bits, and
    which boxes a detector keeps says nothing.
    """
    statistics, names = with_statistics(symbol)
    found = _run(statistics, executor, is_train=True) if names else []
    for (mean, variance, epsilon), means, inverse in zip(names, found[::2], found[1::2], strict=True):
        executor.aux_dict[mean][:] = means
        executor.aux_dict[variance][:] = np.maximum(inverse.astype(np.float64) ** -2 - epsilon, LEAST_VARIANCE)


def _scale_heads(symbol: Symbol, executor: Any) -> None:
    """Scale what the last contractions give to a deviation of 1: of large scores all would be 1 and tie, and boxes
    infinite."""
    heads, names = of_last_contractions(symbol)
    seen: set[str] = set()  # levels of a pyramid may share a head
    for result, parameters in zip(_run(heads, executor, is_train=False), names, strict=True):
        scale = float(result.std())
        for name in parameters if np.isfinite(scale) and scale > 0 else ():
            if name in executor.arg_dict and name not in seen:
                executor.arg_dict[name][:] = executor.arg_dict[name] / scale
        seen.update(parameters)


def _run(symbol: Symbol, executor: Any, *, is_train: bool) -> list[np.ndarray]:
    """The outputs of a part of the executor's graph, on its arrays."""
    import mxnet as mx

    os.environ[VARIABLE] = "NONE"
    try:
        part = symbol.bind(mx.cpu(), _read(symbol.list_arguments(), executor.arg_dict), grad_req="null",
                           aux_states=_read(symbol.list_auxiliary_states(), executor.aux_dict))
    finally:
        del os.environ[VARIABLE]
    return [array.asnumpy() for array in part.forward(is_train=is_train)]


def _read(names: list[str], arrays: dict[str, Any]) -> dict[str, Any]:
    return {name: arrays[name] for name in names}
