"""From the files that a command names to an executable."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ngraph_mxnet import config
from ngraph_mxnet.api import compile as compile_model
from ngraph_mxnet.bridges.onnx.executable import ModelExecutable
from ngraph_mxnet.errors import ConfigError, ModelError
from ngraph_mxnet.ir.parser import parse_graph
from ngraph_mxnet.model_kinds import Kind, is_symbol_file, kind_of
from ngraph_mxnet.runtime.draws import Draw, draws_of
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


def draws_for(model: str, shapes: Shapes) -> dict[str, Draw]:
    """What the model in a file does with its inputs, for random ones: nothing of a compiled file, which does not say,
    and of what MXNet runs in part."""
    kind, found = kind_of(model)
    if kind is Kind.TEXT:
        return draws_of(parse_graph(found))
    if kind is Kind.ONNX:
        from ngraph_mxnet.bridges.onnx.importer import draws_of_model
        from ngraph_mxnet.bridges.onnx.model import read_model

        return draws_of_model(read_model(found), shapes)
    if kind is not Kind.SYMBOL:
        return {}
    from ngraph_mxnet.bridges.mxnet.symbols.symbol_inputs import check_inputs
    from ngraph_mxnet.bridges.mxnet.whole import draws_of_symbol, load_symbol

    symbol = load_symbol(Path(found))
    check_inputs(symbol, shapes)
    return draws_of_symbol(symbol, shapes, {}, config.get("NGRAPH_BACKEND"))
