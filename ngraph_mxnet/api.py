"""The way in for models of every kind: `ngraph_mxnet.compile`, `export`, `explain` and its kin."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ngraph_mxnet.base.errors import ConfigError, listed, require_shapes, require_weights, unreadable
from ngraph_mxnet.base.forks import collector_paused
from ngraph_mxnet.frontends.kinds import Kind, kind_of
from ngraph_mxnet.ir.graph import Graph
from ngraph_mxnet.ir.ranges import checked_shape, has_ranges, some_shapes, symbolic_shapes
from ngraph_mxnet.ir.sizes import symbols_in
from ngraph_mxnet.program.backend import canonical_name, check_options, load, load_file
from ngraph_mxnet.program.compile import Ranged, Weighted, bind_weights, compile_range
from ngraph_mxnet.program.compile import compile as compile_graph
from ngraph_mxnet.program.executable import Executable, as_array
from ngraph_mxnet.program.package import Package

if TYPE_CHECKING:
    from ngraph_mxnet.frontends.onnx.executable import ModelExecutable
    from ngraph_mxnet.frontends.onnx.explain import OnnxExplanation
    from ngraph_mxnet.plugin.explain import Explanation, TrainingExplanation
    from ngraph_mxnet.program.artefact import Summary
    from ngraph_mxnet.program.ranges import RangeExplanation


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
    if kind is Kind.PACKAGE:
        return _load_package(model, backend, options)
    chosen = canonical_name(backend)
    if kind is Kind.COMPILED:
        loaded: Executable = load_file(chosen, model, options)
        return loaded
    if kind is Kind.ONNX and not has_ranges(shapes or {}):
        from ngraph_mxnet.frontends.onnx.executable import ModelExecutable
        from ngraph_mxnet.frontends.onnx.model import read_model

        return ModelExecutable(read_model(model), backend, shapes, options)
    check_options(chosen, options)
    made = _imported(model, weights or {}, shapes or {}, dtypes or {}) if kind is Kind.SYMBOL else \
        graphs_of(model, [shapes or {}], None, dtypes or {}, chosen)[0][0]
    if isinstance(made, Ranged):
        make = made.make
        return compile_range(lambda: bind_weights(*make()), made.symbols, chosen, options)
    graph, held = made()
    return compile_graph(graph, chosen, held, **options)


_TAKEN = {Kind.GRAPH: {"weights"}, Kind.SYMBOL: {"weights", "shapes", "dtypes"}, Kind.BLOCK: {"shapes", "dtypes"},
          Kind.ONNX: {"shapes"}}
"""The arguments that models of a kind take; others have what these would tell."""


def _require_none(kind: Kind, **arguments: Any) -> None:
    for name, value in arguments.items():
        if value and name not in _TAKEN.get(kind, ()):
            others = listed(f"{other.value}s" for other, taken in _TAKEN.items() if name in taken)
            raise ConfigError(f"{name}= is for {others}; {kind.value}s hold their own")


def _load_package(package: Package, backend: str | None, options: Mapping[str, Any]) -> Executable:
    if options:
        raise ConfigError(f"the package {package.name} is compiled already, and takes no options: found "
                          f"{', '.join(options)}")
    if backend is not None and canonical_name(backend) != canonical_name(package.target):
        raise ConfigError(f"the package {package.name} is compiled for {package.target}, and {backend} is asked for: "
                          "compile the model again")
    return load(package)


def _imported(model: Any, weights: Mapping[str, Any], shapes: Shapes, dtypes: Mapping[str, str]) -> Weighted | Ranged:
    """The graph of a symbol, without MXNet."""
    from ngraph_mxnet.frontends.mxnet.importer import import_symbol

    try:
        text = model.tojson() if hasattr(model, "tojson") else Path(model).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise unreadable(model, error) from None
    arrays = {name.removeprefix("arg:").removeprefix("aux:"): as_array(array, f"weight {name!r}")
              for name, array in weights.items()}

    def make(symbolic: Mapping[str, Any]) -> tuple[Graph, dict[str, Any]]:
        graph = import_symbol(text, {**{name: array.shape for name, array in arrays.items()}, **symbolic},
                              {**{name: str(array.dtype) for name, array in arrays.items()}, **dtypes})
        held = {parameter.name for parameter in graph.parameters}
        return graph, {name: array for name, array in arrays.items() if name in held}

    return _ranged(make, shapes)


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
    symbol, onnx = _symbol_or_onnx(model, shapes, dtypes)
    if onnx is not None:
        from ngraph_mxnet.frontends.onnx.explain import explain_onnx

        return explain_onnx(onnx, shapes or {}, backend, kernels=kernels, options=options)
    from ngraph_mxnet.plugin.explain import explain as explain_symbol

    return explain_symbol(symbol, shapes or {}, dtypes, backend=backend, kernels=kernels, options=options)


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
    symbol, onnx = _symbol_or_onnx(model, shapes, dtypes)
    if onnx is not None:
        from ngraph_mxnet.frontends.onnx.explain import explain_onnx_shapes

        return explain_onnx_shapes(onnx, shapes, axes, backend)
    from ngraph_mxnet.plugin.explain import explain_shapes as explain_symbol_shapes

    return explain_symbol_shapes(symbol, shapes, axes, dtypes, backend=backend)


def explain_training(model: Any, shapes: Sizes, dtypes: DTypes | None = None) -> TrainingExplanation:
    """Explain where each node and each parameter's update would run in training, on the CPU or in MXNet, and why.

    Args:
        model: a symbol or a Gluon block, as for `explain`; all its arguments are trained but those in `shapes` and
            labels.

    Raises:
        ModelError, ConfigError: as `explain`; an ONNX model is not trained.
    """
    symbol, onnx = _symbol_or_onnx(model, shapes, dtypes)
    if onnx is not None:
        raise ConfigError("an ONNX model is not trained: expected a symbol or a Gluon block")
    from ngraph_mxnet.plugin.explain import explain_training as explain_symbol_training

    return explain_symbol_training(symbol, shapes, dtypes)


def _symbol_or_onnx(model: Any, shapes: Sizes | None, dtypes: DTypes | None) -> tuple[Any, Any]:
    """The symbol that `model` is, or that a block makes, and None; or None and an ONNX model."""
    kind, model = kind_of(model)
    if kind is Kind.SYMBOL:
        return model, None
    if kind is Kind.ONNX:
        if dtypes:
            raise ConfigError("dtypes are for symbols and Gluon blocks; an ONNX model says its inputs' types")
        return None, model
    if kind is not Kind.BLOCK:
        raise ConfigError(f"found a {kind.value}, expected a symbol, a Gluon block or an ONNX model; `ngraph-mxnet "
                          "show` shows a graph at each stage of its compilation")
    require_shapes(shapes, kind.value)
    from ngraph_mxnet.plugin.whole import WholeSymbol

    return WholeSymbol.of_block(model, shapes or {}, dtypes).symbol, None


ShapeSet = Mapping[str, Sequence[int | str]]
"""A shape for each input, by name. Sizes are ints, or ranges as `ir/sizes.py` reads them."""


def export(model: Any, path: str | Path, *, weights: Mapping[str, Any] | None = None,
           shapes: Mapping[str, Any] | None = None, dtypes: Mapping[str, str] | None = None,
           isas: Sequence[str] = (), precision: str | None = None, recipe: Any = None,
           metadata: Mapping[str, str] | None = None, with_references: bool = False, **inputs: Any) -> None:
    """Compile a model as a whole, for every x86-64 CPU, and write the file that the runtime runs.

    Args:
        model: a Gluon HybridBlock; an MXNet symbol, as the object or the path of its `-symbol.json`; an ONNX model, as
            its path, its bytes or an `onnx.ModelProto`; a `Graph`, its text, or the path of that.
        weights: of a symbol or a graph, by name, or a symbol's `.params` file. Parameters of a graph that have none are
            inputs.
        inputs: the shape of each input by its name, as `data=(1, 3, 224, 224)`; a list of shapes compiles for each of
            them. A Gluon block's inputs are given in its order, and get these names. Sizes may be ranges, as
            `data=("1..32", 3, "H", "W")` (docs/shapes.md): what is compiled is then for all sizes within, and shapes
            beside it, in a list, are preferred where they fit.
        shapes: the same as a dict, for names that are no keywords.
        dtypes: of inputs of a symbol or block; float32 where not given.
        isas: instruction sets, of avx512, avx_vnni, avx2 and baseline; by default all but avx_vnni, of int8 without
            baseline.
        precision: f32, bf16, or int8 for what the recipe names; by default that of NGRAPH_PRECISION.
        recipe: of quantisation, for int8: an object or a file; by default that of NGRAPH_CALIBRATION.
        metadata: texts that the file carries.
        with_references: with random inputs and what this machine computes of them, to verify other machines with.

    Raises:
        ModelError, GraphError, InputError: the model is malformed, or a shape or weight is missing or does not fit.
        UnsupportedError: it can't be compiled as a whole; the text lists the nodes and the reasons.
        ConfigError: an argument's value is not allowed.
        PackageError, OSError: the file can't be written.
    """
    sets = shape_sets({**(shapes or {}), **inputs})
    options = {name: value for name, value in (("precision", precision), ("recipe", recipe)) if value is not None}
    export_sets(model, path, sets, weights=weights, dtypes=dtypes, isas=isas, options=options, metadata=metadata,
                with_references=with_references)


def shape_sets(shapes: Mapping[str, Any]) -> list[dict[str, tuple[int | str, ...]]]:
    """A shape for each input, for each set: a list has one for each set, a single shape is for all. Raises ConfigError:
    the lists differ in length, or what should be a shape is none."""
    lists = {}
    for name, value in shapes.items():
        try:
            several = len(value) > 0 and all(hasattr(one, "__len__") and not isinstance(one, str) for one in value)
            lists[name] = [checked_shape(name, one) for one in (value if several else [value])]
        except (TypeError, ValueError):
            raise ConfigError(f"{name}={value!r}: expected a shape, as (1, 3, 224, 224), or a list of shapes") from None
    counts = {len(found) for found in lists.values()} - {1}
    if len(counts) > 1:
        numbers = ", ".join(f"{name} {len(found)}" for name, found in lists.items())
        raise ConfigError(f"the lists of shapes differ in length: {numbers}")
    return [{name: found[number if len(found) > 1 else 0] for name, found in lists.items()}
            for number in range(max(counts, default=1))]


def export_sets(model: Any, path: str | Path, sets: Sequence[ShapeSet], *, weights: Any = None,
                dtypes: Mapping[str, str] | None = None, isas: Sequence[str] = (),
                options: Mapping[str, Any] | None = None, metadata: Mapping[str, str] | None = None,
                with_references: bool = False, on_program: Callable[[], None] = lambda: None) -> Summary:
    """Export the model as `export` does, for these sets of shapes. See `export` and `compile_to_file` for the
    arguments."""
    for number, one in enumerate(sets):
        if one in sets[:number]:  # texts and numbers, as they are written
            raise ConfigError(f"two sets of shapes are the same: {one}")
    backend = canonical_name()
    graphs, prepares = graphs_of(model, sets, weights, dtypes or {}, backend)
    from ngraph_mxnet.program.export import compile_to_file

    return compile_to_file(path, graphs, backend, isas=isas, options=options, metadata=metadata,
                           with_references=with_references, prepares=prepares, on_program=on_program)


def graphs_of(model: Any, sets: Sequence[ShapeSet], weights: Any, dtypes: Mapping[str, str],
              backend: str) -> tuple[list[Weighted | Ranged], bool]:
    """The graphs, and whether their weights are prepared: what compiles them in a process does, of MXNet's alone.
    Raises ModelError or ConfigError: as `export`; of a set's shapes when its graph is made."""
    kind, model = kind_of(model)
    if kind in (Kind.COMPILED, Kind.PACKAGE):
        what = f"package {model.name}" if kind is Kind.PACKAGE else model
        raise ConfigError(f"{what} is compiled already: export the model itself")
    if kind is Kind.GRAPH:
        if any(sets) or dtypes:
            raise ConfigError("shapes and dtypes are for models; those of a graph are in its types")
        symbols, arrays = model.symbols(), weights or {}
        return [Ranged(lambda: (model.clone(), arrays), symbols) if symbols else lambda: (model, arrays)], False
    if kind in (Kind.SYMBOL, Kind.BLOCK):
        return _of_mxnet(kind, model, sets, weights, dtypes, backend), True
    if weights or dtypes:
        raise ConfigError("weights and dtypes are for symbols; an ONNX model holds its own")
    from ngraph_mxnet.frontends.onnx.importer import import_whole
    from ngraph_mxnet.frontends.onnx.inputs import with_models_names
    from ngraph_mxnet.frontends.onnx.model import read_model

    read = read_model(model)
    return [_ranged(partial(import_whole, read), with_models_names(read, one)) for one in sets], False


def _ranged(make: Callable[[Mapping[str, Any]], tuple[Graph, Mapping[str, Any]]], one: ShapeSet) -> Weighted | Ranged:
    """Return a function that makes the graph for a set of shapes; if a size is a range, return a `Ranged`."""
    shapes = symbolic_shapes(one)
    symbols = symbols_in(*shapes.values())
    return Ranged(partial(make, shapes), symbols) if symbols else partial(make, shapes)


def _of_mxnet(kind: Kind, model: Any, sets: Sequence[ShapeSet], weights: Any, dtypes: Mapping[str, str],
              backend: str) -> list[Weighted | Ranged]:
    from ngraph_mxnet.plugin.whole import WholeSymbol, load_symbol

    require_shapes(sets[0], kind.value)
    if kind is Kind.BLOCK:
        if weights:
            raise ConfigError(f"{listed(weights)}: a Gluon block holds its own weights")
        whole = WholeSymbol.of_block(model, some_shapes(sets), dtypes)
    else:
        require_weights(weights, "weights")
        if isinstance(model, (str, os.PathLike)) and isinstance(weights, (str, os.PathLike)):
            whole = WholeSymbol.of_files(model, weights, some_shapes(sets), dtypes)
        else:
            whole = WholeSymbol(load_symbol(model), weights, dtypes)
    return [_ranged(partial(whole.graph, backend), one) for one in sets]
