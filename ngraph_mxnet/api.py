"""`ngraph_mxnet.compile`: the public way in, for graphs, ONNX models and MXNet symbols."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ngraph_mxnet import config
from ngraph_mxnet.errors import ConfigError, ModelError
from ngraph_mxnet.ir.graph import Graph
from ngraph_mxnet.ir.range_text import has_ranges, symbolic_shapes, symbols_in
from ngraph_mxnet.runtime.backend import check_options
from ngraph_mxnet.runtime.compile import bind_weights, compile_range
from ngraph_mxnet.runtime.compile import compile as compile_graph
from ngraph_mxnet.runtime.executable import Executable, as_array

if TYPE_CHECKING:
    from ngraph_mxnet.bridges.onnx.executable import ModelExecutable

_SYMBOL_FILE = "-symbol.json"


def compile(model: Any, backend: str | None = None, *, weights: Mapping[str, Any] | None = None,
            shapes: Mapping[str, Sequence[int | str]] | None = None, **options: Any) -> Executable | ModelExecutable:
    """Compile a model into something to call with arrays.

    Args:
        model: a `Graph`; an ONNX model, as its path, its bytes or an `onnx.ModelProto`; or an MXNet symbol, as the
            object or the path of its `-symbol.json`. MXNet is imported for none of them, but for a symbol's file that
            leaves the batch of a state open.
        backend: a name from `backends()`; by default the value of NGRAPH_BACKEND.
        weights: arrays by parameter name, which become constants. A symbol needs those of all its parameters, by the
            names of `mx.nd.load` with or without `arg:` and `aux:`. An ONNX model holds its own.
        shapes: of inputs, by name: of a symbol's data; of an ONNX model's inputs to fix what it leaves open. Without it
            an ONNX model is compiled for the shapes that it is called with. A size is a number, or a range as
            `"1..32"`, `"H"` or `"H:8..640"` (docs/shapes.md): the model is then compiled for all sizes within, when it
            is first called with sizes that nothing compiled before is for.
        options: the backend's own, as `precision="bf16"` of the CPU's.

    Raises:
        GraphError, ModelError: the graph or the model is malformed, or a shape does not fit.
        InputError: a weight names no parameter, or has another shape or dtype.
        ConfigError: no such backend or option, or an option's value or a size is not allowed; at once, not at the first
            call.
        UnsupportedError: a node can't be lowered, or the backend does not run it; the text names it and the reason.
    """
    if isinstance(model, Graph):
        if shapes:
            raise ConfigError("shapes= is for models; those of a Graph are in its types, as are ranges")
        return compile_graph(model, backend, weights, **options)
    if hasattr(model, "tojson") or (isinstance(model, (str, os.PathLike)) and os.fspath(model).endswith(_SYMBOL_FILE)):
        return _compile_symbol(model, backend, weights or {}, shapes or {}, options)
    if weights:
        raise ConfigError("weights= is for graphs and symbols; an ONNX model holds its own")
    from ngraph_mxnet.bridges.onnx.executable import ModelExecutable
    from ngraph_mxnet.bridges.onnx.model import read_model

    read = read_model(model)
    if shapes and has_ranges(shapes):
        from ngraph_mxnet.bridges.onnx.inputs import with_models_names
        from ngraph_mxnet.bridges.onnx.whole import import_whole

        symbolic = symbolic_shapes(with_models_names(read, shapes))
        return compile_range(lambda: bind_weights(*import_whole(read, symbolic)), symbols_in(symbolic), backend,
                             options)
    return ModelExecutable(read, backend, shapes, options)


def _compile_symbol(model: Any, backend: str | None, weights: Mapping[str, Any], shapes: Mapping[str, Sequence[Any]],
                    options: Mapping[str, Any]) -> Executable:
    from ngraph_mxnet.bridges.mxnet.importer import import_symbol
    from ngraph_mxnet.bridges.mxnet.symbols.symbol_inputs import json_with_shapes, leaves_shapes_open

    check_options(backend if backend is not None else config.get("NGRAPH_BACKEND"), options)
    try:
        text = model.tojson() if hasattr(model, "tojson") else Path(model).read_text()
    except OSError as error:
        raise ModelError(f"{model}: {error.strerror or error}") from None
    arrays = {name.removeprefix("arg:").removeprefix("aux:"): as_array(array, f"weight {name!r}")
              for name, array in weights.items()}
    symbolic = symbolic_shapes(shapes)
    known = {**{name: array.shape for name, array in arrays.items()}, **symbolic}
    symbols = symbols_in(symbolic)
    if leaves_shapes_open(text):
        text = json_with_shapes(_as_object(model), known)

    def make() -> tuple[Graph, dict[str, Any]]:
        graph = import_symbol(text, known, {name: str(array.dtype) for name, array in arrays.items()})
        held = {parameter.name for parameter in graph.parameters}
        return graph, {name: array for name, array in arrays.items() if name in held}

    if symbols:
        return compile_range(lambda: bind_weights(*make()), symbols, backend, options)
    graph, held = make()
    return compile_graph(graph, backend, held, **options)


def _as_object(model: Any) -> Any:
    from ngraph_mxnet.bridges.mxnet.explain import load_symbol

    return model if hasattr(model, "tojson") else load_symbol(Path(model))
