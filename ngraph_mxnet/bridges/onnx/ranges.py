"""Models that are called with shapes which change: compiled for a range of sizes once a second set of shapes comes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from ngraph_mxnet import config
from ngraph_mxnet.errors import UnsupportedError
from ngraph_mxnet.ir import Value
from ngraph_mxnet.runtime.backend import get_backend
from ngraph_mxnet.runtime.changing import ChangingShapes
from ngraph_mxnet.runtime.compile import bind_weights
from ngraph_mxnet.runtime.executable import Executable
from ngraph_mxnet.runtime.ranges import Template, for_range

if TYPE_CHECKING:
    from ngraph_mxnet.bridges.onnx.importer import Imported


class ModelRanges:
    """The templates of a model whose inputs are tensors, called `names`.

    import_for: gives the graph for shapes, as a whole: what depends on data is an error.
    """

    def __init__(self, names: Sequence[str], backend: str, options: Mapping[str, Any],
                 import_for: Callable[[Mapping[str, Any]], Imported]) -> None:
        self._names, self._backend, self._options, self._import = list(names), backend, options, import_for
        self._changing = ChangingShapes()
        self.templates: list[Template] = []

    def bind(self, shapes: Mapping[str, Any]) -> Executable | None:
        """What runs inputs of these shapes; None where they have to be compiled for themselves."""
        if any(not isinstance(shape, tuple) for shape in shapes.values()):
            return None
        for template in self.templates:
            found = template.bind(_in_order(shapes, template))
            if found is not None:
                return found
        if config.get("NGRAPH_DYNAMIC") == "off":
            return None
        changing = self._changing.symbolic(tuple(shapes[name] for name in self._names))
        return None if changing is None else self._compiled(shapes, *changing)

    def _compiled(self, shapes: Mapping[str, Any], symbolic: Sequence[tuple[int, ...]],
                  hint: dict[str, int]) -> Executable | None:
        def template() -> Template | None:
            imported = self._import(dict(zip(self._names, symbolic, strict=True)))
            if not all(isinstance(item, Value) for _, item in imported.outputs):
                raise UnsupportedError("an output is no tensor")
            return get_backend(self._backend).template(bind_weights(imported.graph, imported.weights), self._options)

        found = for_range(self._changing, hint, template, partial(_in_order, shapes), "a model")
        if found is None:
            return None
        self.templates.append(found[0])
        return found[1]


def _in_order(shapes: Mapping[str, Any], template: Template) -> list[tuple[int, ...]]:
    return [shapes[port.name] for port in template.inputs]
