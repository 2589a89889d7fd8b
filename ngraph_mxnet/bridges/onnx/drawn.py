"""What an ONNX model does with its inputs, for random ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ngraph_mxnet.bridges.onnx.importer import import_model
from ngraph_mxnet.bridges.onnx.model import Model
from ngraph_mxnet.bridges.onnx.values import Between
from ngraph_mxnet.errors import NGraphError
from ngraph_mxnet.runtime.draws import Draw, draws_of


def draws_of_model(model: Model, shapes: Mapping[str, Sequence[int]]) -> dict[str, Draw]:
    """As `draws_of`, of what is compiled before there are data; nothing where that is nothing, or a shape is
    missing, which whoever draws then says."""
    try:
        imported = import_model(model, shapes, partly=True, between=Between())
    except NGraphError:
        return {}
    return draws_of(imported.graph, imported.weights)
