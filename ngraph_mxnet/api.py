"""`ngraph_mxnet.compile`, `explain`, `explain_shapes`, `explain_training`: the way in, for models of every kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ngraph_mxnet import config
from ngraph_mxnet.errors import ConfigError, ModelError, listed, require_shapes
from ngraph_mxnet.forks import collector_paused
from ngraph_mxnet.ir.graph import Graph
from ngraph_mxnet.ir.parser import parse_graph
from ngraph_mxnet.ir.sizes import has_ranges, some_shapes, symbolic_shapes, symbols_in
from ngraph_mxnet.model_kinds import Kind, kind_of
from ngraph_mxnet.package import Package
from ngraph_mxnet.runtime.backend import canonical_name, check_options, load, load_file
from ngraph_mxnet.runtime.compile import bind_weights, compile_range
from ngraph_mxnet.runtime.compile import compile as compile_graph
from ngraph_mxnet.runtime.executable import Executable, as_array

if TYPE_CHECKING:
    from ngraph_mxnet.bridges.mxnet.explain import Explanation, TrainingExplanation
    from ngraph_mxnet.bridges.onnx.executable import ModelExecutable
    from ngraph_mxnet.bridges.onnx.explain import OnnxExplanation
    from ngraph_mxnet.runtime.ranges import RangeExplanation


Shapes = Mapping[str, Sequence[int | str]]


@collector_paused
def compile(model: Any, backend: str | None = None, *, weights: Mapping[str, Any] | None = None,
            shapes: Shapes | None = None, dtypes: Mapping[str, str] | None = None,
            **options: Any) -> Executable | ModelExecutable:
    """Compile a model into something to call with arrays.

    Args:
        model: a `Graph`, its text, or the path of a file with it; an ONNX model, as its path, its bytes or an
            `onnx.ModelProto`; an MXNet symbol, as the object or the path of its `-symbol.json`; a Gluon HybridBlock; or
            what was compiled before: the path of a compiled file (docs/artefact.md), or a `Package` or its file. MXNet
            is imported for blocks, and for a symbol's file that leaves the batch of a state open.
        backend: a name from `backends()`; by default the value of NGRAPH_BACKEND.
        weights: arrays by parameter name, which become constants. A symbol needs those of all its parameters, by the
            names of `mx.nd.load` with or without `arg:` and `aux:`. Other models hold their own.
        shapes: of inputs, by name: of a symbol's data; of a block's inputs, in its order, which get these names; of an
            ONNX model's inputs to fix what it leaves open. Without it an ONNX model is compiled for the shapes that it
            is called with. A size is a number, or a range as `"1..32"`, `"H"` or `"H:8..640"` (docs/shapes.md): the
            model is then compiled for all sizes within, when it is first called with sizes that nothing compiled before
            is for.
        dtypes: of inputs of a symbol or block, by name; float32 where not given.
        options: the backend's own, as `precision="bf16"` of the CPU's.

    Raises:
        GraphError, ModelError: the graph or the model is malformed, a shape does not fit, or it is nothing that can be
            compiled.
        InputError: a weight names no parameter, or has another shape or dtype.
        ConfigError: no such backend or option, an option's value or a size is not allowed, or an argument is not for
            models of this kind; at once, not at the first call.
        UnsupportedError: a node can't be lowered, or the backend does not run it; the text names it and the reason.
        PackageError: what was compiled before is damaged, or not for this machine.
        CalibrationError: the option `recipe` is none, or fits none of the model's layers.
    """
    found = _compiled(model, backend, weights, shapes, dtypes, options)
    if isinstance(found, Executable) and found.fit is not None and not options.keys().isdisjoint(_OF_A_RECIPE):
        found.fit.require()  # also of a model that has no layers, as a part of one may
    return found


_OF_A_RECIPE = ("precision", "recipe")


def _compiled(model: Any, backend: str | None, weights: Mapping[str, Any] | None, shapes: Shapes | None,
              dtypes: Mapping[str, str] | None, options: Mapping[str, Any]) -> Executable | ModelExecutable:
    kind, model = kind_of(model)
    _require_none(kind, weights=weights, shapes=shapes, dtypes=dtypes)
    if kind is Kind.GRAPH:
        return compile_graph(model, backend, weights, **options)
    if kind is Kind.TEXT:
        return compile_graph(parse_graph(model), backend, weights, **options)
    if kind is Kind.BLOCK:
        return _compile_block(model, backend, shapes or {}, dtypes or {}, options)
    if kind is Kind.SYMBOL:
        return _compile_symbol(model, backend, weights or {}, shapes or {}, dtypes or {}, options)
    if kind is Kind.PACKAGE:
        return _load_package(model, backend, options)
    if kind is Kind.COMPILED:
        found: Executable = load_file(_chosen(backend), model, options)
        return found
    return _compile_onnx(model, backend, shapes, options)


_TAKEN = {Kind.GRAPH: {"weights"}, Kind.TEXT: {"weights"}, Kind.SYMBOL: {"weights", "shapes", "dtypes"},
          Kind.BLOCK: {"shapes", "dtypes"}, Kind.ONNX: {"shapes"}}
"""The arguments that models of a kind take; others have what these would tell."""


def _require_none(kind: Kind, **arguments: Any) -> None:
    for name, value in arguments.items():
        if value and name not in _TAKEN.get(kind, ()):
            others = listed(f"{other.value}s" for other, taken in _TAKEN.items() if name in taken)
            raise ConfigError(f"{name}= is for {others}; {kind.value}s hold their own")


def _chosen(backend: str | None) -> str:
    return canonical_name(backend if backend is not None else config.get("NGRAPH_BACKEND"))


def _load_package(package: Package, backend: str | None, options: Mapping[str, Any]) -> Executable:
    if options:
        raise ConfigError(f"the package {package.name} is compiled already, and takes no options: found "
                          f"{', '.join(options)}")
    if backend is not None and canonical_name(backend) != canonical_name(package.target):
        raise ConfigError(f"the package {package.name} is compiled for {package.target}, and {backend} is asked for: "
                          "compile the model again")
    return load(package)


def _compile_onnx(model: Any, backend: str | None, shapes: Shapes | None,
                  options: Mapping[str, Any]) -> Executable | ModelExecutable:
    from ngraph_mxnet.bridges.onnx.executable import ModelExecutable
    from ngraph_mxnet.bridges.onnx.model import read_model

    read = read_model(model)
    if shapes and has_ranges(shapes):
        from ngraph_mxnet.bridges.onnx.importer import import_whole
        from ngraph_mxnet.bridges.onnx.inputs import with_models_names

        symbolic = symbolic_shapes(with_models_names(read, shapes))
        return compile_range(lambda: bind_weights(*import_whole(read, symbolic)), symbols_in(symbolic), backend,
                             options)
    return ModelExecutable(read, backend, shapes, options)


def _compile_block(block: Any, backend: str | None, shapes: Shapes, dtypes: Mapping[str, str],
                   options: Mapping[str, Any]) -> Executable:
    from ngraph_mxnet.bridges.mxnet.whole import WholeSymbol

    require_shapes(shapes, Kind.BLOCK.value)
    chosen, symbolic = _chosen(backend), symbolic_shapes(shapes)
    check_options(chosen, options)
    whole, symbols = WholeSymbol.of_block(block, some_shapes([shapes]), dtypes), symbols_in(symbolic)
    if symbols:
        return compile_range(lambda: bind_weights(*whole.graph(chosen, symbolic)), symbols, chosen, options)
    graph, weights = whole.graph(chosen, symbolic)
    return compile_graph(graph, chosen, weights, **options)


def _compile_symbol(model: Any, backend: str | None, weights: Mapping[str, Any], shapes: Shapes,
                    dtypes: Mapping[str, str], options: Mapping[str, Any]) -> Executable:
    from ngraph_mxnet.bridges.mxnet.importer import import_symbol

    check_options(_chosen(backend), options)
    try:
        text = model.tojson() if hasattr(model, "tojson") else Path(model).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ModelError(f"can't read {model}: {error}") from None
    arrays = {name.removeprefix("arg:").removeprefix("aux:"): as_array(array, f"weight {name!r}")
              for name, array in weights.items()}
    symbolic = symbolic_shapes(shapes)
    known = {**{name: array.shape for name, array in arrays.items()}, **symbolic}
    symbols = symbols_in(symbolic)

    def make() -> tuple[Graph, dict[str, Any]]:
        graph = import_symbol(text, known, {**{name: str(array.dtype) for name, array in arrays.items()}, **dtypes})
        held = {parameter.name for parameter in graph.parameters}
        return graph, {name: array for name, array in arrays.items() if name in held}

    if symbols:
        return compile_range(lambda: bind_weights(*make()), symbols, backend, options)
    graph, held = make()
    return compile_graph(graph, backend, held, **options)


Sizes = Mapping[str, Sequence[int]]
DTypes = Mapping[str, Any]


def explain(model: Any, shapes: Sizes | None = None, dtypes: DTypes | None = None, *, backend: str | None = None,
            kernels: bool = False, options: Mapping[str, Any] | None = None) -> Explanation | OnnxExplanation:
    """Which parts of a model run on a backend, and why the others do not. Nothing runs.

    Args:
        model: an MXNet symbol, as the object or the path of its `-symbol.json`; a Gluon HybridBlock; or an ONNX model,
            as its path, its bytes or an `onnx.ModelProto`.
        shapes: of a symbol's data, by name; of a block's inputs, in its order, which get these names; of inputs that an
            ONNX model leaves open.
        dtypes: of inputs of a symbol or block, by name; float32 where not given.
        backend: by default the one of NGRAPH_BACKEND.
        kernels: compile what runs on the backend, too, and tell what it makes of it: of the CPU's, how each contraction
            is computed, and the memory.
        options: the backend's own, which its plan depends on.

    Raises:
        ModelError: the model is damaged, an input's name or dtype is wrong, a shape is missing or does not fit.
        ConfigError: no such backend or option, `kernels` of a backend that has none, or a model of another kind.
    """
    kind, model = _kind(model)
    if kind is Kind.ONNX:
        from ngraph_mxnet.bridges.onnx.explain import explain_onnx

        _refuse_dtypes(dtypes)
        return explain_onnx(model, shapes or {}, backend, kernels=kernels, options=options)
    from ngraph_mxnet.bridges.mxnet.explain import explain as explain_symbol

    return explain_symbol(_symbol(kind, model, shapes, dtypes), shapes or {}, dtypes, backend=backend, kernels=kernels,
                          options=options)


def explain_shapes(model: Any, shapes: Sizes, axes: Mapping[str, Sequence[int]], dtypes: DTypes | None = None, *,
                   backend: str | None = None) -> RangeExplanation:
    """Explain what would be compiled once for all sizes of these axes, and what that assumes of the sizes.

    Args:
        model, shapes, dtypes, backend: as for `explain`.
        axes: those whose sizes change, by the input's name.

    Raises:
        ModelError, ConfigError: as `explain`; also for an axis that there is not, or sizes that do not fit.
        UnsupportedError: an input of an ONNX model is no tensor.
    """
    kind, model = _kind(model)
    if kind is Kind.ONNX:
        from ngraph_mxnet.bridges.onnx.explain import explain_onnx_shapes

        _refuse_dtypes(dtypes)
        return explain_onnx_shapes(model, shapes, axes, backend)
    from ngraph_mxnet.bridges.mxnet.explain import explain_shapes as explain_symbol_shapes

    return explain_symbol_shapes(_symbol(kind, model, shapes, dtypes), shapes, axes, dtypes, backend=backend)


def explain_training(model: Any, shapes: Sizes, dtypes: DTypes | None = None) -> TrainingExplanation:
    """Explain where each node and each parameter's update would run in training, on the CPU or in MXNet, and why.

    Args:
        model: a symbol or a Gluon block, as for `explain`; all its arguments are trained but those in `shapes` and
            labels.

    Raises:
        ModelError, ConfigError: as `explain`; an ONNX model is not trained.
    """
    kind, model = _kind(model)
    if kind is Kind.ONNX:
        raise ConfigError("an ONNX model is not trained: expected a symbol or a Gluon block")
    from ngraph_mxnet.bridges.mxnet.explain import explain_training as explain_symbol_training

    return explain_symbol_training(_symbol(kind, model, shapes, dtypes), shapes, dtypes)


def _kind(model: Any) -> tuple[Kind, Any]:
    kind, model = kind_of(model)
    if kind not in (Kind.SYMBOL, Kind.BLOCK, Kind.ONNX):
        raise ConfigError(f"found a {kind.value}, expected a symbol, a Gluon block or an ONNX model; `ngraph-mxnet "
                          "show` shows a graph at each stage of its compilation")
    return kind, model


def _refuse_dtypes(dtypes: DTypes | None) -> None:
    if dtypes:
        raise ConfigError("dtypes are for symbols and Gluon blocks; an ONNX model says its inputs' types")


def _symbol(kind: Kind, model: Any, shapes: Sizes | None, dtypes: DTypes | None) -> Any:
    """The symbol that `model` is, or that a block makes."""
    if kind is Kind.SYMBOL:
        return model
    require_shapes(shapes, Kind.BLOCK.value)
    from ngraph_mxnet.bridges.mxnet.whole import WholeSymbol

    return WholeSymbol.of_block(model, shapes or {}, dtypes).symbol
