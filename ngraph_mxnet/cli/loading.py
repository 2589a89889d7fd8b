"""From the files that a command names to an executable."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ngraph_mxnet.api import compile as compile_model
from ngraph_mxnet.bridges.onnx.executable import ModelExecutable
from ngraph_mxnet.errors import ConfigError, ModelError
from ngraph_mxnet.model_kinds import is_symbol_file
from ngraph_mxnet.runtime.executable import Executable

Shapes = Mapping[str, tuple[int, ...]]


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
