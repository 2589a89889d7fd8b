"""A report on whether an ONNX model is compiled for ranges of sizes, and if not, why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ngraph_mxnet import config
from ngraph_mxnet.bridges.onnx.importer import import_model
from ngraph_mxnet.bridges.onnx.inputs import bind_shapes, input_types
from ngraph_mxnet.bridges.onnx.model import Source, read_model
from ngraph_mxnet.bridges.onnx.ranges import named_axes, template_of
from ngraph_mxnet.bridges.onnx.values import Between
from ngraph_mxnet.errors import UnsupportedError
from ngraph_mxnet.ir import TensorType
from ngraph_mxnet.runtime.backend import get_backend
from ngraph_mxnet.runtime.changing import ChangingShapes, told_by_place
from ngraph_mxnet.runtime.range_report import RangeExplanation, RangeVerdict, check_axes
from ngraph_mxnet.runtime.ranges import Template, attempt


def explain_onnx_shapes(source: Source, shapes: Mapping[str, Sequence[int]], axes: Mapping[str, Sequence[int]],
                        backend: str | None = None) -> RangeExplanation:
    """Compile the model once for all sizes of these axes of its inputs; nothing runs.

    Args:
        source: its path, its bytes or an `onnx.ModelProto`.
        shapes: of inputs that the model leaves open, by name.
        axes: those whose sizes change, by the input's name.

    Raises:
        ModelError: the model is damaged, or a shape is missing or does not fit.
        UnsupportedError: an input is no tensor.
        ConfigError: no such backend or axis.
    """
    chosen = get_backend(backend if backend is not None else config.get("NGRAPH_BACKEND"))
    model = read_model(source)
    types = bind_shapes(model, shapes)
    given = {name: type_ for name, type_ in types.items() if isinstance(type_, TensorType)}
    if given.keys() != types.keys():
        raise UnsupportedError("models whose inputs are no tensors are compiled for each set of shapes")
    check_axes(axes, {name: type_.shape for name, type_ in given.items()})
    dims = {name: type_.dims or (None,) * given[name].rank for name, type_ in input_types(model).items()}
    # Fixed sizes are told as well, so that there is a reason.
    told = told_by_place(axes, [(name, tuple(dim if isinstance(dim, str) else None for dim in shape))
                                for name, shape in dims.items()])
    changing = ChangingShapes({**named_axes(dims), **told}, at_once=bool(told))
    symbolic = changing.symbolic(tuple(type_.shape for type_ in given.values()))
    if symbolic is None:
        return RangeExplanation((), 1)
    changed = {name: TensorType(type_.element, shape)
               for (name, type_), shape in zip(given.items(), symbolic[0], strict=True)}

    def template() -> Template | None:
        shaped = {name: type_.shape for name, type_ in changed.items()}
        return template_of(import_model(model, shaped, between=Between()), chosen, {})

    inputs = [f"{name}: {type_}" for name, type_ in changed.items() if type_.is_symbolic]
    made = attempt(symbolic[1], template)
    return RangeExplanation((RangeVerdict.of(model.proto.graph.output[0].name, inputs, made),))
