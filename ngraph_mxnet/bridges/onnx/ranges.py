"""Models that are called with shapes which change: compiled for a range of sizes once a second set of shapes comes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ngraph_mxnet import config
from ngraph_mxnet.errors import NGraphError
from ngraph_mxnet.ir import Value
from ngraph_mxnet.ir.guards import Guards, assuming
from ngraph_mxnet.runtime.backend import get_backend
from ngraph_mxnet.runtime.changing import ChangingShapes
from ngraph_mxnet.runtime.compile import bind_weights
from ngraph_mxnet.runtime.executable import Executable
from ngraph_mxnet.runtime.ranges import Template

if TYPE_CHECKING:
    from ngraph_mxnet.bridges.onnx.importer import Imported

logger = config.logger(__name__)


class ModelRanges:
    """The templates of a model whose inputs are tensors, called `names`.

    import_for: gives the graph for shapes, as a whole: what depends on data is an error.
    """

    def __init__(self, names: Sequence[str], backend: str, options: Mapping[str, Any],
                 import_for: Callable[[Mapping[str, Any]], Imported]) -> None:
        self._names, self._backend, self._options, self._import = list(names), backend, options, import_for
        self._changing = ChangingShapes()
        self.templates: list[tuple[Template, list[str]]] = []

    def bind(self, shapes: Mapping[str, Any]) -> Executable | None:
        """What runs inputs of these shapes; None where they have to be compiled for themselves."""
        if any(not isinstance(shape, tuple) for shape in shapes.values()):
            return None
        for template, names in self.templates:
            found = template.bind([shapes[name] for name in names])
            if found is not None:
                return found
        if config.get("NGRAPH_DYNAMIC") == "off":
            return None
        changing = self._changing.symbolic(tuple(shapes[name] for name in self._names))
        return None if changing is None else self._compiled(shapes, *changing)

    def _compiled(self, shapes: Mapping[str, Any], symbolic: Sequence[tuple[int, ...]],
                  hint: Mapping[str, int]) -> Executable | None:
        template, names = None, list[str]()
        try:
            with assuming(Guards(hint)):
                imported = self._import(dict(zip(self._names, symbolic, strict=True)))
                if not all(isinstance(item, Value) for _, item in imported.outputs):
                    raise NGraphError("an output is no tensor")
                graph = bind_weights(imported.graph, imported.weights)
                names = [parameter.name for parameter in graph.parameters]
                template = get_backend(self._backend).template(graph, self._options)
        except NGraphError as error:
            logger.info("compiled for each set of shapes: %s", error)
        except Exception as error:  # whatever is wrong with the range, the shapes at hand are compiled
            logger.warning("compiled for each set of shapes, as it can't be for a range: %r", error)
        found = template.bind([shapes[name] for name in names]) if template is not None else None
        if template is None or found is None or template.is_narrow:
            self._changing.failed()
        if template is None or found is None:
            return None
        self.templates.append((template, names))
        return found
