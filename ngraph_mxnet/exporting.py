"""`ngraph_mxnet.export`: a model as one file, which runs without MXNet, ONNX and this package."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ngraph_mxnet import config
from ngraph_mxnet.errors import ConfigError, listed, require_shapes, require_weights
from ngraph_mxnet.ir.graph import Graph
from ngraph_mxnet.ir.parser import parse_graph
from ngraph_mxnet.ir.sizes import checked_shape, some_shapes, symbolic_shapes, symbols_in
from ngraph_mxnet.model_kinds import Kind, kind_of
from ngraph_mxnet.package import Package
from ngraph_mxnet.package.artefact import Summary
from ngraph_mxnet.runtime.artefact import Ranged, Weighted, compile_to_file
from ngraph_mxnet.runtime.backend import canonical_name

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
    """A shape for each input, for each set: a list has one for each set, a single shape is for all.

    Raises:
        ConfigError: the lists differ in length, or what should be a shape is none.
    """
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
    backend = canonical_name(config.get("NGRAPH_BACKEND"))
    graphs, prepares = graphs_of(model, sets, weights, dtypes or {}, backend)
    return compile_to_file(path, graphs, backend, isas=isas, options=options, metadata=metadata,
                           with_references=with_references, prepares=prepares, on_program=on_program)


def graphs_of(model: Any, sets: Sequence[ShapeSet], weights: Any, dtypes: Mapping[str, str],
              backend: str) -> tuple[list[Weighted | Ranged], bool]:
    """The graphs, and whether their weights are prepared: what compiles them in a process does, of MXNet's alone.

    Raises:
        ModelError, ConfigError: as `export`; of a set's shapes when its graph is made.
    """
    kind, model = kind_of(model)
    if kind in (Kind.COMPILED, Kind.PACKAGE):
        raise ConfigError(f"{_shown(model)} is compiled already: export the model itself")
    if kind in (Kind.GRAPH, Kind.TEXT):
        if any(sets) or dtypes:
            raise ConfigError("shapes and dtypes are for models; those of a graph are in its types")
        graph = parse_graph(model) if kind is Kind.TEXT else model
        symbols, arrays = graph.symbols(), weights or {}
        return [Ranged(lambda: (graph.clone(), arrays), symbols) if symbols else lambda: (graph, arrays)], False
    if kind in (Kind.SYMBOL, Kind.BLOCK):
        return _of_mxnet(kind, model, sets, weights, dtypes, backend), True
    if weights or dtypes:
        raise ConfigError("weights and dtypes are for symbols; an ONNX model holds its own")
    from ngraph_mxnet.bridges.onnx.importer import import_whole
    from ngraph_mxnet.bridges.onnx.inputs import with_models_names
    from ngraph_mxnet.bridges.onnx.model import read_model

    read = read_model(model)
    return [_ranged(partial(import_whole, read), with_models_names(read, one)) for one in sets], False


def _ranged(make: Callable[[Mapping[str, Any]], tuple[Graph, Mapping[str, Any]]], one: ShapeSet) -> Weighted | Ranged:
    """Return a function that makes the graph for a set of shapes; if a size is a range, return a `Ranged`."""
    shapes = symbolic_shapes(one)
    symbols = symbols_in(shapes)
    return Ranged(partial(make, shapes), symbols) if symbols else partial(make, shapes)


def _shown(model: Any) -> str:
    return f"package {model.name}" if isinstance(model, Package) else str(model)


def _of_mxnet(kind: Kind, model: Any, sets: Sequence[ShapeSet], weights: Any, dtypes: Mapping[str, str],
              backend: str) -> list[Weighted | Ranged]:
    from ngraph_mxnet.bridges.mxnet.whole import WholeSymbol, load_symbol

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
