"""MXNet 1.9.1's ONNX export beside a current onnx, with the weights as initialisers only.

The exporter was written for onnx 1.8 to 1.14 and opset 13. Three things stand in its way today: `onnx.mapping` is
gone, it converts for the newest opset of the installed onnx though it knows none after 13, and it lists every weight
as a graph input too, which a runtime may not fold. It also makes each weight a list of Python numbers: gigabytes and
minutes for VGG. Nothing installed is changed: what it misses or does badly is replaced during the call only, and the
file is completed afterwards.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import onnx
import onnx.checker
import onnx.defs
import onnx.helper
import onnx.numpy_helper

#: The newest that MXNet 1.9.1 has converters for, and the first IR version that goes with all onnx since.
OPSET = 13
IR_VERSION = 8


def _mapping() -> types.ModuleType:
    """The two tables of the former `onnx.mapping` that the exporter reads."""
    module = types.ModuleType("onnx.mapping")
    to_numpy = {
        number: onnx.helper.tensor_dtype_to_np_dtype(number)
        for number in onnx.helper.get_all_tensor_dtypes()
        if onnx.TensorProto.DataType.Name(number)
        in ("FLOAT", "FLOAT16", "DOUBLE", "BOOL", "INT8", "UINT8", "INT32", "INT64")
    }
    module.TENSOR_TYPE_TO_NP_TYPE = to_numpy  # type: ignore[attr-defined]
    module.NP_TYPE_TO_TENSOR_TYPE = {kind: number for number, kind in to_numpy.items()}  # type: ignore[attr-defined]
    return module


def _convert_weight_or_input(node: dict[str, Any], **context: Any) -> Any:
    """The exporter's converter of a graph's variables, with weights as bytes: [value info], (element type,)."""
    name = node["name"]
    if context["is_input"]:
        number, shape = context["in_type"], context["in_shape"]
        kind = onnx.helper.tensor_dtype_to_np_dtype(number)
    else:
        weight = context["weights"][name]
        context["initializer"].append(onnx.numpy_helper.from_array(weight, name))
        kind, shape = weight.dtype, weight.shape
        number = onnx.helper.np_dtype_to_tensor_dtype(kind)
    return [onnx.helper.make_tensor_value_info(name, number, shape)], (kind,)


@contextmanager
def former_onnx() -> Iterator[None]:
    """While it lasts, onnx looks as MXNet's exporter expects; the graph is checked later, as a whole model."""
    from mxnet.onnx.mx2onnx._export_onnx import MXNetGraph

    mapping = getattr(onnx, "mapping", None) or _mapping()
    with ExitStack() as stack:
        stack.enter_context(mock.patch.dict(sys.modules, {"onnx.mapping": mapping}))
        stack.enter_context(mock.patch.object(onnx, "mapping", mapping, create=True))
        stack.enter_context(mock.patch.object(onnx.defs, "onnx_opset_version", return_value=OPSET))
        stack.enter_context(mock.patch.object(onnx.checker, "check_graph"))
        for converters in MXNetGraph.registry_.values():
            if "null" in converters:
                stack.enter_context(mock.patch.dict(converters, {"null": _convert_weight_or_input}))
        yield


def export_onnx(symbol_file: Path, params_file: Path, shape: tuple[int, ...], path: Path) -> None:
    """Write the model of one float32 input of that shape as an ONNX file, checked and with its types inferred.

    Raises:
        AttributeError: an operator has no converter.
        onnx.checker.ValidationError: the exporter wrote what ONNX does not allow.
    """
    import mxnet.onnx
    import numpy as np

    with former_onnx():
        mxnet.onnx.export_model(str(symbol_file), str(params_file), [shape], np.float32, str(path))
    model = onnx.load(path)
    initialisers = {tensor.name for tensor in model.graph.initializer}
    inputs = [value for value in model.graph.input if value.name not in initialisers]
    del model.graph.input[:]
    model.graph.input.extend(inputs)
    del model.opset_import[:]
    model.opset_import.append(onnx.helper.make_opsetid("", OPSET))
    model.ir_version = IR_VERSION
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, path)
