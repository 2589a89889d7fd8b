"""A model without its first nodes: what is compiled for shapes that depend on the data, once the data is there."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence

import numpy as np
import onnx
from onnx import helper, numpy_helper

from ngraph_mxnet.bridges.onnx.model import Model
from ngraph_mxnet.bridges.onnx.names import names_from_outside
from ngraph_mxnet.bridges.onnx.static import FEW_ELEMENTS, Statics
from ngraph_mxnet.bridges.onnx.values import EmptyOptional, Item, Ragged, TensorSequence, parts_of
from ngraph_mxnet.errors import UnsupportedError
from ngraph_mxnet.ir import Value
from ngraph_mxnet.ir.types import TensorType


def rest_of(model: Model, nodes: Sequence[onnx.NodeProto], initializers: Iterable[onnx.TensorProto],
            scope: Mapping[str, Item | None], inputs: Container[str], statics: Statics) -> Model:
    """The model of `nodes`, its last ones. Its inputs are what they read of `scope`; what is constant there stays so.

    Args:
        initializers: those beside the model's.
        inputs: names of the model's own inputs.
    """
    whole = model.proto.graph
    read = {*names_from_outside(nodes), *(output.name for output in whole.output)}
    given = {value.name: value for value in model.inputs}
    held = [tensor for tensor in (*whole.initializer, *initializers) if tensor.name in read]
    names = {tensor.name for tensor in held}
    infos: list[onnx.ValueInfoProto] = []
    for name, item in scope.items():
        if name not in read or name in names or item is None:
            continue
        known = statics.find(item) if isinstance(item, Value) and name not in inputs else None
        if known is not None and known.size <= FEW_ELEMENTS:
            held.append(numpy_helper.from_array(np.asarray(known), name))
        else:
            infos.append(given[name] if name in inputs else helper.make_value_info(name, _type(name, item)))
    proto = onnx.ModelProto(ir_version=model.proto.ir_version, opset_import=model.proto.opset_import)
    proto.graph.CopyFrom(helper.make_graph(nodes, whole.name, infos, whole.output, held))
    return Model(proto, model.opsets, model.folder)


def tensor_type(type_: TensorType, shape: Iterable[int | None] | None = None) -> onnx.TypeProto:
    """`shape` in place of the type's own."""
    return helper.make_tensor_type_proto(helper.np_dtype_to_tensor_dtype(type_.element.numpy),
                                         list(type_.shape if shape is None else shape))


def proto_type(item: Item) -> onnx.TypeProto:
    """The type of an item, its shape included; of a sequence that of its first element."""
    parts = parts_of(item)
    tensor = tensor_type(parts[0].type) if parts else onnx.TypeProto()
    return helper.make_sequence_type_proto(tensor) if isinstance(item, TensorSequence) else tensor


def _type(name: str, item: Item) -> onnx.TypeProto:
    if isinstance(item, Ragged):
        type_ = item.value.type
        return tensor_type(type_, [None if i == item.axis else size for i, size in enumerate(type_.shape)])
    if isinstance(item, TensorSequence) and item.items:
        first = item.items[0].type
        return helper.make_sequence_type_proto(tensor_type(first, [None] * first.rank))
    if isinstance(item, (EmptyOptional, TensorSequence)):
        raise UnsupportedError(f"{name!r}, which is empty, is read behind a node whose shapes depend on the data")
    return tensor_type(item.type)
