"""MXNet 1.9.1's `mx.onnx.export_model` beside a current onnx, with the weights as initialisers only.

The exporter was written for onnx 1.8 to 1.14 and opset 13. Three things stand in its way today: `onnx.mapping` is
gone, it converts for the newest opset of the installed onnx though it knows none after 13, and it lists every weight
as a graph input too, which a runtime may not fold. It also makes each weight a list of Python numbers: gigabytes and
minutes for VGG. Nothing installed is changed: what it misses or does badly is replaced during the call only, and the
file is completed afterwards.
"""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from ngraph_mxnet.forks import ForkSafeLock

OPSET = 13
"""The newest version of the operators that MXNet 1.9.1 has converters for."""
IR_VERSION = 8
"""The lowest version of the file format that has these operators; every later onnx reads it."""

_NUMPY_KINDS = ("FLOAT", "FLOAT16", "DOUBLE", "BOOL", "INT8", "UINT8", "INT32", "INT64")
_lock = ForkSafeLock()


def install() -> None:
    """Put our `export_model` wherever MXNet shows its own."""
    places = [("mxnet.onnx", "export_model"), ("mxnet.onnx.mx2onnx", "export_model"),
              ("mxnet.contrib.onnx", "export_model_")]
    for name, attribute in places:
        module = sys.modules.get(name)
        stock = getattr(module, attribute, None)
        if stock is not None and not hasattr(stock, "__wrapped__"):
            setattr(module, attribute, _completed(stock))


def _completed(stock: Any) -> Any:
    @functools.wraps(stock)
    def export_model(*args: Any, **kwargs: Any) -> Any:
        try:
            import onnx  # noqa: F401
        except ImportError:
            return stock(*args, **kwargs)  # which says what to install
        with _lock, _former_onnx():
            path = stock(*args, **kwargs)
        _complete(path)
        return path

    return export_model


def _mapping() -> types.ModuleType:
    """The two tables of the former `onnx.mapping` that the exporter reads."""
    import onnx

    module = types.ModuleType("onnx.mapping")
    to_numpy = {number: onnx.helper.tensor_dtype_to_np_dtype(number) for number in onnx.helper.get_all_tensor_dtypes()
                if onnx.TensorProto.DataType.Name(number) in _NUMPY_KINDS}
    module.TENSOR_TYPE_TO_NP_TYPE = to_numpy  # type: ignore[attr-defined]
    module.NP_TYPE_TO_TENSOR_TYPE = {kind: number for number, kind in to_numpy.items()}  # type: ignore[attr-defined]
    return module


def _convert_weight_or_input(node: dict[str, Any], **context: Any) -> Any:
    """The exporter's converter of a graph's variables, with weights as bytes: [value info], (element type,)."""
    import onnx

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
def _former_onnx() -> Iterator[None]:
    """While it lasts, onnx looks as MXNet's exporter expects; the graph is checked later, as a whole model."""
    import onnx
    import onnx.checker
    import onnx.defs
    from mxnet.onnx.mx2onnx._export_onnx import MXNetGraph

    with ExitStack() as stack:
        if not hasattr(onnx, "mapping"):
            mapping = _mapping()
            sys.modules["onnx.mapping"] = mapping
            stack.callback(sys.modules.pop, "onnx.mapping", None)
            _replace(stack, onnx, "mapping", mapping)
        _replace(stack, onnx.defs, "onnx_opset_version", lambda: OPSET)
        _replace(stack, onnx.checker, "check_graph", lambda *args, **kwargs: None)
        for converters in MXNetGraph.registry_.values():
            if "null" in converters:
                stack.callback(converters.__setitem__, "null", converters["null"])
                converters["null"] = _convert_weight_or_input
        yield


def _replace(stack: ExitStack, owner: Any, name: str, value: Any) -> None:
    if hasattr(owner, name):
        stack.callback(setattr, owner, name, getattr(owner, name))
    else:
        stack.callback(delattr, owner, name)
    setattr(owner, name, value)


def _complete(path: str) -> None:
    """Weights become initialisers only, and the file says what it is made of.

    Raises:
        onnx.checker.ValidationError: the exporter wrote what ONNX does not allow.
    """
    import onnx

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
