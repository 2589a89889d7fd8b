"""A model of any kind. Compiling, exporting, explaining, verifying, quantising and running begin with `model_of`.

Each kind of model is one class, and nobody else asks for the kind. The classes for graphs and for compiled models stand
here. Those for ONNX and MXNet are loaded by name, when a model of their kind comes.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

import numpy as np

from ngraph_mxnet.base.errors import ConfigError, GraphError, ModelError, no_result, unreadable
from ngraph_mxnet.base.registry import loaded
from ngraph_mxnet.frontends import IR_FILE, SYMBOL_FILE
from ngraph_mxnet.ir.graph import Graph, value_names
from ngraph_mxnet.ir.module import result_names
from ngraph_mxnet.ir.ranges import symbolic_shapes
from ngraph_mxnet.ir.sizes import symbols_in
from ngraph_mxnet.program.artefact import Summary, is_artefact, load
from ngraph_mxnet.program.backend import canonical_name, check_options, load_file
from ngraph_mxnet.program.backend import load as load_package
from ngraph_mxnet.program.compile import Ranged, Weighted, bind_weights, compile, compile_range
from ngraph_mxnet.program.executable import as_array
from ngraph_mxnet.program.feeds import Draw, draws_of, fitting_inputs, named_shapes
from ngraph_mxnet.program.package import Package, is_package

if TYPE_CHECKING:
    from ngraph_mxnet.program.ranges import RangeExplanation

ONNX_MODEL = "ngraph_mxnet.frontends.onnx.executable:OnnxModel"
SYMBOL_MODEL = "ngraph_mxnet.frontends.mxnet.model:SymbolModel"
LIVE_SYMBOL_MODEL = "ngraph_mxnet.plugin.whole:LiveSymbolModel"
BLOCK_MODEL = "ngraph_mxnet.plugin.whole:BlockModel"
READ_PARAMS = "ngraph_mxnet.frontends.mxnet.params:read_params"
"""The classes of models, and the reader of files, that are imported when one comes."""

_TAKERS = {
    "weights": "params (--params) are for graphs and symbols",
    "shapes": "shapes (--shape) are for symbols, Gluon blocks and ONNX models",
    "dtypes": "dtypes (--dtype) are for symbols and Gluon blocks",
    "results": "results (--result) are chosen of symbols, Gluon blocks, graphs and ONNX models",
}

Sizes = Mapping[str, Sequence[int | str]]
"""A shape for each input, by name. Sizes are ints, or ranges as `ir/sizes.py` reads them."""
Shapes = Mapping[str, Sequence[int]]


class Model(ABC):
    """A model, and the weights, dtypes and results that its caller has given.

    Attributes:
        source: the model as it was found: an object, or a path.
        path: of the file that it is in, if it is in one.
        results: the names of the values that it is cut behind; its own outputs if empty.
        kind: the noun by which messages call it.
        takes: the arguments that models of this kind take, of `weights`, `shapes`, `dtypes` and `results`.
        needs_sizes: whose shapes must be told before the model is compiled; empty if it says its shapes.
        has_weights: False if its weights must be given, and are not.
        prepares: what compiles it in a process prepares its weights, and so does `export`.
    """

    kind: ClassVar[str]
    takes: ClassVar[tuple[str, ...]] = ("shapes", "results")
    needs_sizes: ClassVar[str] = ""
    prepares: ClassVar[bool] = False
    verified: ClassVar[str] = "ngraph_mxnet.tools.verifying.models:VerifiedGraph.of"
    """The text for `registry.loaded` of what verifies such models. It is called with the model and the arguments of
    `verify`. By default the interpreter is the reference."""
    has_weights = True

    def __init__(self, source: Any, weights: Any = None, dtypes: Mapping[str, Any] | None = None,
                 path: str | None = None, results: Sequence[str] = ()) -> None:
        """`weights`: arrays by name, or a `.params` file; `dtypes`: of inputs, by name. Raises ConfigError: models of
        this kind take none."""
        self.source, self.given_weights, self.dtypes, self.path = source, weights, dict(dtypes or {}), path
        self.results = tuple(results)
        self.check(weights=weights, dtypes=dtypes, results=results)

    @property
    def title(self) -> str:
        """The name for people: of the file, or the model's own."""
        return Path(self.path).name if self.path else getattr(self.source, "name", "") or type(self.source).__name__

    def check(self, **given: Any) -> None:
        """Raises ConfigError: one of the arguments that `takes` may name is given, and models of this kind do not take
        it."""
        for name, value in given.items():
            if value and name not in self.takes:
                raise ConfigError(f"{_TAKERS[name]}; {self.kind}s hold their own")

    def holding(self, weights: Any, dtypes: Mapping[str, Any] | None, results: Sequence[str] = ()) -> Model:
        """Return the model with these weights, dtypes and results, and its own where none are given. Raises
        ConfigError: it takes none."""
        if weights is None and not dtypes and not results:
            return self
        own = self.given_weights if weights is None else weights
        return type(self)(self.source, own, dtypes or self.dtypes, self.path, results or self.results)

    def fed(self, arrays: Mapping[str, np.ndarray]) -> Model:
        """Return the model for inputs of these arrays' dtypes, where it takes dtypes and none was given: the model
        itself, if it says them."""
        return self

    def with_random_weights(self, sizes: Shapes) -> Model:
        """Return the model with random weights in place of those that were not given: the model itself, if it holds its
        own. `sizes`: as for `graph`."""
        return self

    def require_source(self) -> None:  # noqa: B027  # most models are sources
        """Raises ConfigError: the model is compiled already, so that there is no graph, weight or value of it."""

    def require_weights(self, sizes: Sizes | None = None) -> None:
        """Raises ModelError: the model's weights must be given, and are not. `sizes`: as for `graph`."""
        if not self.has_weights:
            raise ModelError(f"a {self.kind} needs its weights: params= as an argument, --params MODEL-0000.params on "
                             "the command line")

    def require_sizes(self, sizes: Sizes | None, option: str = "--shape data=1,3,224,224") -> None:
        """Raises ModelError: the shapes of the model's inputs must be told, and are not. `option`: which tells them."""
        if self.needs_sizes and not sizes:
            raise ModelError(f"a {self.kind} needs the shapes of its {self.needs_sizes}: shapes={{'data': (1, 3, 224, "
                             f"224)}} as an argument, {option} on the command line")

    @abstractmethod
    def inputs(self) -> Mapping[str, Sequence[Any]]:
        """Return the inputs that are no weights, in order, with the sizes that the model says of each: numbers, names
        or None; no sizes where it says none. A Gluon block has no inputs before it is called: the caller names them."""

    def weights(self, sizes: Sizes) -> Mapping[str, Any]:
        """Return the weights that are known before the graph is made, by name. `sizes`: as for `graph`."""
        return {}

    @abstractmethod
    def graph(self, sizes: Sizes, backend: str | None = None, *, keep_loops: bool = False) -> Weighted | Ranged:
        """Return what makes the graph of the whole model and its weights for these shapes, when its turn comes.

        Args:
            sizes: a shape for each input that the model leaves open, by name.
            backend: whose reasons an error lists; by default the one of NGRAPH_BACKEND.
            keep_loops: make one node of each loop and choice of a symbol, in place of the nodes that stand for it.

        Raises, now or when the graph is made:
            ModelError: the model is damaged, or a shape or a weight is missing or does not fit.
            ConfigError: the model is compiled already, or a size is no number and no range.
            UnsupportedError: it is no graph as a whole; the text lists the nodes and the reasons.
        """

    def first_part(self, sizes: Sizes) -> tuple[Graph, Mapping[str, Any], str | None]:
        """Return the graph of the model, or of its first part; the weights as far as they are known; and the node
        before which the part ends, None for a whole model. Raises NGraphError as `graph`."""
        made = self.graph(sizes)
        graph, weights = (made.make if isinstance(made, Ranged) else made)()
        return graph, weights, None

    def executable(self, sizes: Sizes, backend: str | None, options: Mapping[str, Any]) -> Any:
        """Compile the model; see `ngraph_mxnet.compile`, which also has the errors."""
        chosen = canonical_name(backend)
        check_options(chosen, options)
        return self._compiled(self.graph(sizes, chosen), chosen, options)

    def _compiled(self, made: Weighted | Ranged, backend: str, options: Mapping[str, Any]) -> Any:
        if isinstance(made, Ranged):
            return compile_range(lambda: bind_weights(*made.make()), made.symbols, backend, options)
        graph, weights = made()
        return compile(graph, backend, weights, **options)

    def for_sizes(self, make: Callable[[Mapping[str, Any]], tuple[Graph, Mapping[str, Any]]],
                  sizes: Sizes) -> Weighted | Ranged:
        """Return a function that makes the graph for these shapes; if a size is a range, return a `Ranged`."""
        shapes = symbolic_shapes(sizes)
        symbols = symbols_in(*shapes.values())
        return Ranged(partial(make, shapes), symbols) if symbols else partial(make, shapes)

    def draws(self, sizes: Shapes, backend: str | None = None) -> dict[str, Draw]:
        """Return what random inputs should be drawn from, by name, as far as the model says; see `draws_of`. `backend`:
        which would run a part of it."""
        return {}

    def profile(self, sizes: Shapes, arrays: Mapping[str, np.ndarray], rounds: int, backend: str | None,
                options: Mapping[str, Any]) -> Any:
        """Run the model `rounds` times, with random inputs beside these arrays. Return what `Backend.profile` gives.
        Raises NGraphError: as `ngraph_mxnet.compile`, or the backend has no kernels to tell of."""
        compiled = self.executable(sizes if self.needs_sizes else {}, backend, options)
        draws = self.draws({**named_shapes(arrays), **sizes})
        return compiled.profile(fitting_inputs(compiled.inputs, arrays, sizes, draws=draws), rounds=rounds)

    def reference(self, given: Any) -> Any:
        """Return what `verify` runs and compares (`tools/verifying`), for its arguments. Raises ConfigError: the model
        is compiled already; or `of` is given, which is for compiled files."""
        self.require_source()
        if given.of is not None:
            raise ConfigError(f"of: is for compiled files, and the model is a {self.kind}")
        return loaded(self.verified)(self.holding(given.params, given.dtypes), given)

    def verdicts(self, sizes: Shapes, backend: str | None, *, kernels: bool,
                 options: Mapping[str, Any]) -> Any:
        """Explain which nodes run on the backend; see `ngraph_mxnet.explain`."""
        raise ConfigError(f"found a {self.kind}, expected a symbol, a Gluon block or an ONNX model; `ngraph-mxnet "
                          "show` shows a graph at each stage of its compilation")

    def range_verdicts(self, sizes: Shapes, axes: Mapping[str, Sequence[int]],
                       backend: str | None) -> RangeExplanation:
        """Explain what is compiled for ranges of sizes; see `ngraph_mxnet.explain_shapes`."""
        found: RangeExplanation = self.verdicts(sizes, backend, kernels=False, options={})  # which raises
        return found

    def training_verdicts(self, sizes: Shapes) -> Any:
        """Explain where nodes train; see `ngraph_mxnet.explain_training`."""
        raise ConfigError(f"{self.kind}s are not trained: expected a symbol or a Gluon block")

    def summary(self) -> Summary | None:
        """Return the contents of a compiled file; None for a model."""
        return None


class GraphModel(Model):
    """A graph of the IR, which says its inputs' shapes itself."""

    kind = "graph"
    takes = ("weights", "results")
    source: Graph

    def __init__(self, source: Graph, *given: Any) -> None:
        """Raises ModelError: the graph has no value of a result's name."""
        super().__init__(source, *given)
        if self.results:
            self.source = source.clone()
            named = {name: value for value, name in value_names(self.source).items() if value.node is not None}
            named |= dict(zip(result_names(self.source), self.source.results, strict=True))
            missing = [name for name in self.results if name not in named]
            if missing:
                raise no_result(missing[0], named)
            self.source.results = [named[name] for name in self.results]
            self.source.remove_dead()
            read = {value for node in self.source.nodes for value in node.inputs}
            self.source.parameters = [value for value in self.source.parameters if value in read]
            self.results = ()  # nodes have other numbers now

    def inputs(self) -> Mapping[str, Sequence[Any]]:
        return {one.name: one.type.shape for one in self.source.parameters if one.name not in self.weights({})}

    def weights(self, sizes: Sizes) -> dict[str, np.ndarray]:
        given = self.given_weights or {}
        named = loaded(READ_PARAMS)(given) if isinstance(given, (str, os.PathLike)) else given
        return {name: as_array(array, f"weight {name!r}") for name, array in named.items()}

    def graph(self, sizes: Sizes, backend: str | None = None, *, keep_loops: bool = False) -> Weighted | Ranged:
        """`sizes` are not read."""
        symbols, weights = self.source.symbols(), self.weights(sizes)
        return Ranged(lambda: (self.source.clone(), weights), symbols) if symbols else lambda: (self.source, weights)

    def first_part(self, sizes: Sizes) -> tuple[Graph, Mapping[str, Any], str | None]:
        self.check(shapes=sizes)
        return super().first_part(sizes)

    def executable(self, sizes: Sizes, backend: str | None, options: Mapping[str, Any]) -> Any:
        return compile(self.source, backend, self.weights(sizes), **options)

    def draws(self, sizes: Shapes, backend: str | None = None) -> dict[str, Draw]:
        return draws_of(self.source)


class CompiledModel(Model):
    """A model that is compiled already: it runs, and there is no graph of it."""

    takes = ()

    def require_source(self) -> NoReturn:
        raise ConfigError(f"found a {self.kind}, which has none of the model's values: give the model that it was made "
                          "of")

    def inputs(self) -> Mapping[str, Sequence[Any]]:
        return {port.name: () for port in self.executable({}, None, {}).inputs}

    def graph(self, sizes: Sizes, backend: str | None = None, *, keep_loops: bool = False) -> Weighted | Ranged:
        self.require_source()


class PackageModel(CompiledModel):
    """A package, for the backend that made it."""

    kind = "package"
    source: Package

    def executable(self, sizes: Sizes, backend: str | None, options: Mapping[str, Any]) -> Any:
        name, target = self.source.name, self.source.target
        if options:
            raise ConfigError(f"the package {name} is compiled already, and takes no options: found "
                              f"{', '.join(options)}")
        if backend is not None and canonical_name(backend) != canonical_name(target):
            raise ConfigError(f"the package {name} is compiled for {target}, and {backend} is asked for: compile the "
                              "model again")
        return load_package(self.source)


class FileModel(CompiledModel):
    """A compiled file (docs/artefact.md)."""

    kind = "compiled file"
    verified = "ngraph_mxnet.tools.verifying.verified:verified_file"

    def executable(self, sizes: Sizes, backend: str | None, options: Mapping[str, Any]) -> Any:
        return load_file(canonical_name(backend), self.source, options)

    def reference(self, given: Any) -> Any:
        return loaded(self.verified)(self, given)

    def summary(self) -> Summary:
        return load(self.source).summary()


def model_of(model: Any, weights: Any = None, dtypes: Mapping[str, Any] | None = None,
             results: Sequence[str] = ()) -> Model:
    """Return the Model that this is. The beginning of a file tells its kind, where there is such a beginning, else the
    name; a file that neither tells of is taken for an ONNX model.

    Args:
        model: a `Graph`, its text, or a file of it; an MXNet symbol, its JSON, or `MODEL-symbol.json`; a Gluon block;
            an ONNX model, as its path, its bytes or an `onnx.ModelProto`; a `Package`, its file, or a compiled file; or
            a Model, which keeps its weights and dtypes if none are given.
        weights: of a symbol or a graph, by name, or a symbol's `.params` file.
        dtypes: of inputs of a symbol or block, by name; float32 where not given.
        results: names of outputs, or of values within, in place of all outputs.

    Raises:
        ModelError: it is nothing that can be compiled; the text says what was found and what is expected.
        GraphError, PackageError: it is IR, or a package's file, and malformed.
        ConfigError: models of this kind hold their own weights, or dtypes.
    """
    if isinstance(model, Model):
        return model.holding(weights, dtypes, results)
    path = None
    if isinstance(model, str) and model.lstrip().startswith(("graph @", "{")):
        made, source = _of_text(model)
    elif isinstance(model, (str, os.PathLike)):
        path = os.fspath(model)
        made, source = _of_file(path)
    else:
        made, source = _of_object(model)
    found: Model = (loaded(made) if isinstance(made, str) else made)(source, weights, dtypes, path, results)
    return found


_Made = tuple[type[Model] | str, Any]
"""The class, or its name, and the model's source."""


def _of_object(model: Any) -> _Made:
    if isinstance(model, Graph):
        return GraphModel, model
    if isinstance(model, Package):
        return PackageModel, model
    if isinstance(model, bytes) or (type(model).__name__ == "ModelProto" and hasattr(model, "graph")):
        return ONNX_MODEL, model
    if hasattr(model, "tojson") and hasattr(model, "list_arguments"):
        return LIVE_SYMBOL_MODEL, model
    if hasattr(model, "collect_params") and callable(model):
        return BLOCK_MODEL, model
    name = f"{type(model).__module__}.{type(model).__qualname__}".removeprefix("builtins.")
    if hasattr(model, "inputs") and hasattr(model, "outputs") and callable(model):
        raise ModelError(f"found a {name}, which is compiled already: call it with arrays")
    raise ModelError(f"found a {name}, expected a Graph or its text, an MXNet symbol "
                     "or Gluon block, an ONNX model (path, bytes or onnx.ModelProto), a Package, or the path of a file "
                     f"MODEL{SYMBOL_FILE}, MODEL.onnx or MODEL{IR_FILE}")


def _of_file(path: str) -> _Made:
    if path.endswith(".json"):
        return SYMBOL_MODEL, path
    try:
        if is_artefact(path):
            return FileModel, path
        if is_package(path):
            return PackageModel, Package.load(path)
        if path.endswith(IR_FILE):
            return _of_text(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise unreadable(path, error) from None
    except GraphError as error:
        raise GraphError(f"{path}: {error}") from None
    return ONNX_MODEL, path


def _of_text(text: str) -> _Made:
    if text.lstrip().startswith("{"):
        return SYMBOL_MODEL, text
    from ngraph_mxnet.ir.parser import parse_graph

    return GraphModel, parse_graph(text)
