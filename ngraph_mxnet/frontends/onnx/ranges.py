"""A model's programs: in the cache, and for ranges of sizes.

A second process runs a program from the cache without the importer, the passes and the compiler. The weights stay in
the model: an entry names them. No entry has what depends on more than the model, its shapes and options in words:
programs for elements of inputs, parts of models whose shapes depend on data, models with external data (which change
without the model), options that are arrays or objects.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx

from ngraph_mxnet.base import config
from ngraph_mxnet.base.errors import UnsupportedError
from ngraph_mxnet.frontends.onnx.model import Model, subgraphs, to_array
from ngraph_mxnet.frontends.onnx.values import CutError
from ngraph_mxnet.ir import Value
from ngraph_mxnet.ir.ranges import described
from ngraph_mxnet.program import program_cache
from ngraph_mxnet.program.backend import Backend, get_backend
from ngraph_mxnet.program.compile import bind_weights
from ngraph_mxnet.program.executable import Executable
from ngraph_mxnet.program.program_cache import Made, Maybe, program_key
from ngraph_mxnet.program.ranges import (
    Binding,
    ChangingShapes,
    Dimensions,
    RangePrograms,
    Template,
    Told,
    are_wanted,
    told_by_place,
)
from ngraph_mxnet.program.ranges import Shapes as InOrder

if TYPE_CHECKING:
    from ngraph_mxnet.frontends.onnx.importer import Imported


class ModelPrograms:
    """The programs of one model on one backend with these options."""

    def __init__(self, model: Model, backend: str, options: Mapping[str, Any]) -> None:
        self._model, self._backend, self._options = model, backend, dict(options)

    def get_or_make(self, shapes: str, make: Callable[[], Maybe], hint: Binding | None = None) -> Made | Maybe:
        """See `program_cache.get_or_make`. `shapes` is text that tells them from any others."""
        def key() -> str | None:
            if self._digest is None or not is_plain(self._options):
                return None
            return program_key(("onnx", self._digest, shapes), self._backend, self._options)

        return program_cache.get_or_make(key, make, hint=hint, weights=self._weights)

    def _weights(self) -> dict[str, np.ndarray]:
        return {tensor.name: to_array(tensor, self._model.folder) for tensor in self._model.proto.graph.initializer}

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


def is_plain(value: Any) -> bool:
    """True if the text of an option says all about its value. The text of an array or of another object does not."""
    if isinstance(value, Mapping):
        return is_plain([*value.keys(), *value.values()])
    if isinstance(value, (list, tuple)):
        return all(map(is_plain, value))
    return value is None or isinstance(value, (bool, int, float, str))


def _tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    """All of the graph and those within it."""
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            yield from (attribute.t, *attribute.tensors)
        for inner in subgraphs(node):
            yield from _tensors(inner)


class ModelRanges:
    """What is compiled of a model for ranges of sizes. All its inputs have to be tensors.

    dims: of the inputs by name. Those that the model names change once others do; where NGRAPH_DYNAMIC tells axes both
        do, from the first call on.
    import_for: gives the graph for shapes, as a whole: what depends on data is an error.
    programs: keeps templates for other processes.
    """

    def __init__(self, dims: Mapping[str, Dimensions | None], backend: str, options: Mapping[str, Any],
                 import_for: Callable[[Mapping[str, Any]], Imported], programs: ModelPrograms) -> None:
        self._programs = programs
        self._names, self._backend, self._options, self._import = list(dims), backend, options, import_for
        told = told_by_place(config.told_axes(), dims.items())
        self._told, self._at_once = {**named_axes(dims), **told}, bool(told)
        self._ranges: dict[tuple[int, ...], RangePrograms] = {}
        """By the inputs' ranks, which the model need not say."""

    @property
    def templates(self) -> list[Template]:
        return [template for ranges in self._ranges.values() for template in ranges.templates]

    def bind(self, shapes: Mapping[str, Any]) -> Executable | None:
        """Return the executable for inputs of these shapes; None where these shapes have to be compiled for themselves.

        Raises:
            CutError: the model has a loop whose trips change with the shapes; the loop is run between programs.
        """
        if not are_wanted() or any(not isinstance(shape, tuple) for shape in shapes.values()):
            return None
        ranks = tuple(len(shapes[name]) for name in self._names)
        if ranks not in self._ranges:
            told = {place: name for place, name in self._told.items() if place[1] < ranks[place[0]]}
            self._ranges[ranks] = RangePrograms(ChangingShapes(told, at_once=self._at_once).symbolic, self._names)
        cuts: list[CutError] = []

        def made(ranges: Mapping[str, Any]) -> Made | None:
            try:
                imported = self._import(ranges)
            except CutError as cut:
                cuts.append(cut)
                raise
            template = template_of(imported, get_backend(self._backend), self._options)
            return None if template is None else Made([template], {}, imported.weights)

        def template(sizes: InOrder, hint: Binding) -> Template | None:
            ranges = dict(zip(self._names, sizes, strict=True))
            found = self._programs.get_or_make(described(ranges), lambda: made(ranges), hint)
            return None if found is None else found.programs[0]

        bound: Executable | None = self._ranges[ranks].bind(tuple(shapes[name] for name in self._names), template,
                                                            "a model")
        if cuts:
            raise cuts[0]
        return bound


def template_of(imported: Imported, backend: Backend, options: Mapping[str, Any]) -> Template | None:
    """Raises NGraphError."""
    if not all(isinstance(item, Value) for _, item in imported.outputs):
        raise UnsupportedError("an output is no tensor")
    return backend.template(bind_weights(imported.graph, imported.weights), options)


def named_axes(dims: Mapping[str, Dimensions | None]) -> Told:
    """The sizes that a model names: those of one name are the same."""
    return {(number, axis): dim for number, shape in enumerate(dims.values()) for axis, dim in enumerate(shape or ())
            if isinstance(dim, str)}
