"""Models that are called with shapes which change: compiled for a range of sizes once a second set of shapes comes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from ngraph_mxnet import config
from ngraph_mxnet.auditing.audit import active
from ngraph_mxnet.bridges.onnx.cached_programs import CachedPrograms, MadeTemplate
from ngraph_mxnet.bridges.onnx.values import CutError
from ngraph_mxnet.errors import UnsupportedError
from ngraph_mxnet.ir import Value
from ngraph_mxnet.ir.range_text import described
from ngraph_mxnet.runtime.backend import Backend, get_backend
from ngraph_mxnet.runtime.changing import ChangingShapes, Dimensions, Told, told_by_place
from ngraph_mxnet.runtime.compile import bind_weights
from ngraph_mxnet.runtime.executable import Executable
from ngraph_mxnet.runtime.ranges import Template, for_range

if TYPE_CHECKING:
    from ngraph_mxnet.bridges.onnx.imported import Imported

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
        """What runs inputs of these shapes; None where they have to be compiled for themselves.

        Raises:
            CutError: the model has a loop whose trips change with the shapes: it is run between programs.
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
