"""A model's program in the cache: a second process runs it without the importer, the passes and the compiler.

It is a package, of whatever backend. The weights stay in the model: the entry names them. What passes made of them
(a convolution's with the batch norm behind it) are entries of their own, named by their content: the programs for all
shapes share them. No entry has what depends on more than the model, its shapes and options in words: programs for
elements of inputs, parts of models whose shapes depend on data, models with external data (which change without the
model), options that are arrays or objects.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx

from ngraph_mxnet import config
from ngraph_mxnet.auditing.audit import active
from ngraph_mxnet.bridges.onnx.model import Model, subgraphs, to_array
from ngraph_mxnet.bridges.onnx.values import CutError
from ngraph_mxnet.cache import Place, cpu_features, get_or_make, open_store, package_identity, place_for
from ngraph_mxnet.errors import PackageError, UnsupportedError
from ngraph_mxnet.ir import Value
from ngraph_mxnet.ir.sizes import described
from ngraph_mxnet.package import Package
from ngraph_mxnet.package.pack import LARGE
from ngraph_mxnet.registry import build_of
from ngraph_mxnet.runtime.backend import Backend, get_backend, load, load_template
from ngraph_mxnet.runtime.changing import ChangingShapes, Dimensions, Told, told_by_place
from ngraph_mxnet.runtime.compile import bind_weights
from ngraph_mxnet.runtime.executable import Executable
from ngraph_mxnet.runtime.options import file_digests
from ngraph_mxnet.runtime.ranges import Template, cached_template, for_range
from ngraph_mxnet.runtime.trace import recorder, span

if TYPE_CHECKING:
    from ngraph_mxnet.bridges.onnx.importer import Imported


logger = config.logger(__name__)

_DERIVED = "constant"
"""The kind of entry of an array that a pass made."""

Made = tuple[Executable, Mapping[str, np.ndarray]]
"""A program, and its weights by name, which are initialisers of the model."""
MadeTemplate = tuple[Template, Mapping[str, np.ndarray]]


class CachedPrograms:
    """The cached programs of one model on one backend with these options."""

    def __init__(self, model: Model, backend: str, options: Mapping[str, Any]) -> None:
        self._model, self._backend, self._options = model, backend, dict(options)

    def get_or_make(self, key: str, make: Callable[[], Made | None]) -> Executable | None:
        """The program that `make` gives, made once for `key`; None where it gives none, and there is no entry then."""
        made: Made | None = None

        def content() -> bytes | None:
            nonlocal made
            made = make()
            return None if made is None else self._content(*made)

        found = None
        if recorder() or active() or open_store() is None or self._facts is None or self._digest is None:
            made = make()
        else:
            whole = f"{package_identity()}\nonnx {self._digest} {self._facts} {key}"
            found = get_or_make("program", whole, content)
        if made is None and found is not None:
            try:
                with span("load", "compile"):
                    return self._load(found)
            except _GoneError as error:
                logger.info("a cached program is compiled anew: %s", error)
                content()  # which puts what is gone
            except Exception as error:  # whatever is in the folder, the model runs; a C++ cast raises RuntimeError
                logger.warning("a cached program does not load, it is compiled anew: %r", error)
                made = make()
        return made[0] if made else None

    def get_or_make_template(self, key: str, hint: Mapping[str, int],
                             make: Callable[[], MadeTemplate | None]) -> Template | None:
        """The template for `key` that holds for these sizes, which `make` gives, unless it is there."""
        weights: Mapping[str, np.ndarray] = {}

        def made() -> Template | None:
            nonlocal weights
            found = make()
            if found is None:
                return None
            template, weights = found
            return template

        def place_of(number: int) -> Place | None:
            if self._facts is None or self._digest is None:
                return None
            return place_for("template", f"onnx {self._digest} {self._facts} {key} {number}")

        return cached_template(place_of, hint, made, lambda template: self._content(template, weights),
                               lambda content: Package.from_bytes(*self._read(content)), load_template)

    @functools.cached_property
    def _facts(self) -> str | None:
        """The facts beside the model that decide about a program, as text; None if text can't state them."""
        if not is_plain(self._options):
            return None
        build = build_of(self._backend, self._options.get("devices", ""))
        return repr((self._backend, build, sorted(self._options.items()), file_digests(self._options), cpu_features()))

    @functools.cached_property
    def _digest(self) -> str | None:
        """A digest of the whole model; None if some of it lies in other files, or it is too large for one message."""
        proto = self._model.proto
        if any(tensor.data_location == onnx.TensorProto.EXTERNAL for tensor in _tensors(proto.graph)):
            return None
        graph = proto.graph
        frame = onnx.GraphProto(name=graph.name, node=graph.node, input=graph.input, output=graph.output,
                                value_info=graph.value_info, sparse_initializer=graph.sparse_initializer)
        rest = onnx.ModelProto(ir_version=proto.ir_version, opset_import=proto.opset_import, graph=frame)
        hasher = hashlib.sha256(onnx.__version__.encode())
        try:
            for part in (rest, *graph.initializer):  # at once it would take as much memory again as the model
                content = part.SerializeToString()
                hasher.update(len(content).to_bytes(8, "little") + content)
        except ValueError:
            return None
        return hasher.hexdigest()

    def _content(self, program: Executable | Template, weights: Mapping[str, np.ndarray]) -> bytes | None:
        """A line of JSON (what the arrays put beside it are), then the package; the arrays are put."""
        store = open_store()
        try:
            package = program.package()
            derived = _derived(package.arrays(), weights)
            packed = package.to_bytes({**derived, **weights})
        except PackageError as error:
            logger.info("not cached: %s", error)
            return None
        if store is None:
            return None
        for name, array in derived.items():
            store.put(_DERIVED, name, array.tobytes())
        arrays = [(name, array.dtype.str, array.shape) for name, array in derived.items()]
        return json.dumps(arrays).encode() + b"\n" + packed

    def _load(self, content: bytes) -> Executable:
        return load(Package.from_bytes(*self._read(content)))

    def _read(self, content: bytes) -> tuple[bytes, dict[str, np.ndarray]]:
        """A package's bytes, and the arrays that it only names."""
        end = content.index(b"\n")
        external = {name: _get_derived(name, dtype, shape) for name, dtype, shape in json.loads(content[:end])}
        weights = self._model.proto.graph.initializer
        external |= {tensor.name: to_array(tensor, self._model.folder) for tensor in weights}
        return content[end + 1:], external


def is_plain(value: Any) -> bool:
    """True if the text of an option says all about its value. The text of an array or of another object does not."""
    if isinstance(value, Mapping):
        return is_plain([*value.keys(), *value.values()])
    if isinstance(value, (list, tuple)):
        return all(map(is_plain, value))
    return value is None or isinstance(value, (bool, int, float, str))


class _GoneError(Exception):
    """The store had no room for all arrays of a program."""


def _derived(constants: Iterable[np.ndarray], weights: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The large constants that are no weights, by a name of their content."""
    own = {_memory(array) for array in weights.values()}  # most are the very arrays: no need to look into them
    others = [array for array in constants if array.nbytes >= LARGE and _memory(array) not in own]
    sizes = {array.nbytes for array in others}
    equal = {_digest(array) for array in weights.values() if array.nbytes in sizes}
    return {name: array for name, array in ((_digest(array), array) for array in others) if name not in equal}


def _memory(array: np.ndarray) -> tuple[int, int]:
    return array.__array_interface__["data"][0], array.nbytes


def _digest(array: np.ndarray) -> str:
    """A digest of the array's dtype and elements, whatever its shape."""
    return hashlib.sha256(array.dtype.str.encode() + array.tobytes()).hexdigest()


def _get_derived(name: str, dtype: str, shape: list[int]) -> np.ndarray:
    store = open_store()
    content = store.get(_DERIVED, name) if store else None
    if content is None:
        raise _GoneError(f"the store has no {_DERIVED} {name}")
    return np.frombuffer(content, np.dtype(dtype)).reshape(shape)


def _tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    """All of the graph and those within it."""
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            yield from (attribute.t, *attribute.tensors)
        for inner in subgraphs(node):
            yield from _tensors(inner)


class ModelRanges:
    """The templates of a model, of whose inputs all have to be tensors.

    dims: of the inputs by name. Those that the model names change once others do; where NGRAPH_DYNAMIC tells axes both
        do, from the first call on.
    import_for: gives the graph for shapes, as a whole: what depends on data is an error.
    cache: keeps templates for other processes.
    """

    def __init__(self, dims: Mapping[str, Dimensions | None], backend: str, options: Mapping[str, Any],
                 import_for: Callable[[Mapping[str, Any]], Imported], cache: CachedPrograms) -> None:
        self._cache = cache
        self._names, self._backend, self._options, self._import = list(dims), backend, options, import_for
        told = told_by_place(config.told_axes(), dims.items())
        self._told, self._at_once = {**named_axes(dims), **told}, bool(told)
        self._changing: dict[tuple[int, ...], ChangingShapes] = {}
        """By the inputs' ranks, which the model need not say."""
        self.templates: list[Template] = []

    def bind(self, shapes: Mapping[str, Any]) -> Executable | None:
        """Return the executable for inputs of these shapes; None where these shapes have to be compiled for themselves.

        Raises:
            CutError: the model has a loop whose trips change with the shapes; the loop is run between programs.
        """
        if any(not isinstance(shape, tuple) for shape in shapes.values()):
            return None
        ranks = tuple(len(shapes[name]) for name in self._names)
        for template in self.templates:
            fits = all(port.type.rank == len(shapes[port.name]) for port in template.inputs)
            found = template.bind(_in_order(shapes, template)) if fits else None
            if found is not None:
                return found
        if config.get("NGRAPH_DYNAMIC") == "off" or active():
            return None
        if ranks not in self._changing:
            told = {place: name for place, name in self._told.items() if place[1] < ranks[place[0]]}
            self._changing[ranks] = ChangingShapes(told, at_once=self._at_once)
        changing = self._changing[ranks]
        symbolic = changing.symbolic(tuple(shapes[name] for name in self._names))
        return None if symbolic is None else self._compiled(shapes, changing, *symbolic)

    def _compiled(self, shapes: Mapping[str, Any], changing: ChangingShapes, symbolic: Sequence[tuple[int, ...]],
                  hint: dict[str, int]) -> Executable | None:
        ranges = dict(zip(self._names, symbolic, strict=True))
        cuts: list[CutError] = []

        def template() -> MadeTemplate | None:
            try:
                imported = self._import(ranges)
            except CutError as cut:
                cuts.append(cut)
                raise
            made = template_of(imported, get_backend(self._backend), self._options)
            return None if made is None else (made, imported.weights)

        key = repr((config.compile_settings(), described(ranges)))
        kept = partial(self._cache.get_or_make_template, key, hint, template)
        made, found = for_range(hint, kept, partial(_in_order, shapes), "a model", changing)
        if cuts:
            raise cuts[0]
        if made.template is not None and found is not None:
            self.templates.append(made.template)
        return found


def template_of(imported: Imported, backend: Backend, options: Mapping[str, Any]) -> Template | None:
    """Raises NGraphError."""
    if not all(isinstance(item, Value) for _, item in imported.outputs):
        raise UnsupportedError("an output is no tensor")
    return backend.template(bind_weights(imported.graph, imported.weights), options)


def named_axes(dims: Mapping[str, Dimensions | None]) -> Told:
    """The sizes that a model names: those of one name are the same."""
    return {(number, axis): dim for number, shape in enumerate(dims.values()) for axis, dim in enumerate(shape or ())
            if isinstance(dim, str)}


def _in_order(shapes: Mapping[str, Any], template: Template) -> list[tuple[int, ...]]:
    return [shapes[port.name] for port in template.inputs]
