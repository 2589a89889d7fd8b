"""What ONNX itself tells of the types of a node's outputs."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

import onnx
from onnx import helper

from ngraph_mxnet.bridges.onnx.inputs import dimensions
from ngraph_mxnet.bridges.onnx.model import Model
from ngraph_mxnet.bridges.onnx.tensors import element_of
from ngraph_mxnet.errors import UnsupportedError
from ngraph_mxnet.ir.types import TensorType


def inferred_types(model: Model, node: onnx.NodeProto, types: Mapping[str, onnx.TypeProto]) -> dict[str, TensorType]:
    """Those outputs of a node of the model that are tensors of known shapes and of elements that the IR has.

    Args:
        types: of the node's inputs by name, as far as they are known.
    """
    known = {tensor.name: tensor for tensor in model.proto.graph.initializer if tensor.name in types}
    domain = "" if node.domain == "ai.onnx" else node.domain
    try:
        schema = onnx.defs.get_schema(node.op_type, model.opsets[domain], domain)
        plain = helper.make_node(node.op_type, node.input, node.output, domain=domain)
        plain.attribute.extend(each for each in node.attribute if each.name in schema.attributes)
        told = onnx.shape_inference.infer_node_outputs(schema, plain, dict(types), known)
    except Exception:  # ONNX knows no such operator, or can't tell; what is raised is not documented
        return {}
    found = {}
    for name, type_ in told.items():
        shape = dimensions(type_.tensor_type)
        if type_.HasField("tensor_type") and shape is not None and all(isinstance(size, int) for size in shape):
            with suppress(UnsupportedError):  # the IR has no such elements
                found[name] = TensorType(element_of(type_.tensor_type.elem_type), shape)  # type: ignore[arg-type]
    return found
