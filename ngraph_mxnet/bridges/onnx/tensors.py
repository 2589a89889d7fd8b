"""Tensors of a model file as arrays. What a file claims is checked against what it holds before memory is taken."""

from __future__ import annotations

import math
import os
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from ngraph_mxnet.bridges.onnx.budget import require_type
from ngraph_mxnet.errors import ModelError, UnsupportedError
from ngraph_mxnet.ir.types import ElementType, TensorType, element_type

_ELEMENTS: dict[int, str] = {
    TensorProto.BOOL: "bool", TensorProto.FLOAT16: "f16", TensorProto.FLOAT: "f32", TensorProto.DOUBLE: "f64",
    TensorProto.INT8: "i8", TensorProto.INT16: "i16", TensorProto.INT32: "i32", TensorProto.INT64: "i64",
    TensorProto.UINT8: "u8", TensorProto.UINT16: "u16", TensorProto.UINT32: "u32", TensorProto.UINT64: "u64",
}
# The field that holds the elements when `raw_data` does not.
_FIELDS: dict[int, str] = {
    TensorProto.FLOAT: "float_data", TensorProto.DOUBLE: "double_data", TensorProto.INT64: "int64_data",
    TensorProto.UINT32: "uint64_data", TensorProto.UINT64: "uint64_data",
}


def element_of(data_type: int) -> ElementType:
    """The IR's element type of an ONNX one.

    Raises:
        UnsupportedError: the IR has none: strings, complex numbers, bfloat16 and what is narrower than a byte.
    """
    if data_type in _ELEMENTS:
        return element_type(_ELEMENTS[data_type])
    known = data_type in TensorProto.DataType.values()
    name = TensorProto.DataType.Name(data_type).lower() if known else str(data_type)
    raise UnsupportedError(f"element type {name}; supported: {', '.join(_ELEMENTS.values())}")


def to_array(tensor: TensorProto, folder: Path | None) -> np.ndarray:
    """The elements, read-only where they are the file's own.

    Args:
        folder: the model file's, in which external data must lie; None for a model that came as bytes.

    Raises:
        ModelError: the tensor is damaged, or its external data can't be read, or are outside `folder`.
        UnsupportedError: its element type, or its shape.
    """
    element = element_of(tensor.data_type)
    shape = tuple(tensor.dims)
    if any(size < 0 for size in shape):
        raise ModelError(f"tensor {tensor.name!r}: found shape {shape}, expected no negative dimension")
    require_type(TensorType(element, shape))
    count = math.prod(shape)
    if tensor.data_location == TensorProto.EXTERNAL:
        return _external(tensor, element, shape, folder)
    if tensor.HasField("raw_data"):
        content = tensor.raw_data  # a copy, each time
        _require_size(tensor, len(content), count * element.size, "bytes")
        stored = np.frombuffer(content, element.numpy.newbyteorder("<"))
        return stored.astype(element.numpy, copy=False).reshape(shape)
    field = _FIELDS.get(tensor.data_type, "int32_data")
    _require_size(tensor, len(getattr(tensor, field)), count, "elements")
    return np.asarray(numpy_helper.to_array(tensor)).reshape(shape)


def _require_size(tensor: TensorProto, found: int, wanted: int, unit: str) -> None:
    if found != wanted:
        raise ModelError(f"tensor {tensor.name!r}: found {found} {unit}, expected {wanted} for shape "
                         f"{tuple(tensor.dims)}; the file is damaged")


def _external(tensor: TensorProto, element: ElementType, shape: tuple[int, ...], folder: Path | None) -> np.ndarray:
    entries = {entry.key: entry.value for entry in tensor.external_data}
    path = _inside(tensor.name, entries.get("location", ""), folder)
    size = math.prod(shape) * element.size
    try:
        offset, length = int(entries.get("offset", 0)), int(entries.get("length", size))
    except ValueError:
        raise ModelError(f"tensor {tensor.name!r}: no numbers for offset and length: {entries}") from None
    if length != size:
        raise ModelError(f"tensor {tensor.name!r}: found {length} bytes of external data, expected {size} for shape "
                         f"{shape}")
    try:
        held = path.stat().st_size
        if offset < 0 or offset + length > held:
            raise ModelError(f"tensor {tensor.name!r}: bytes {offset} to {offset + length} of {path.name}, "
                             f"which has {held}")
        if not size:
            return np.zeros(shape, element.numpy)
        stored = np.memmap(path, element.numpy.newbyteorder("<"), "r", offset, (math.prod(shape),))
    except OSError as error:
        raise ModelError(f"tensor {tensor.name!r}: its external data can't be read, {path}: "
                         f"{error.strerror or error}") from None
    return np.asarray(stored).astype(element.numpy, copy=False).reshape(shape)


def _inside(name: str, location: str, folder: Path | None) -> Path:
    """The file, if it is in the model's folder when all links are followed."""
    if folder is None:
        raise ModelError(f"tensor {name!r} has external data in {location!r}, but the model was not read from a file: "
                         "give its path")
    if not location or "\0" in location or os.path.isabs(location):
        raise ModelError(f"tensor {name!r}: external data in {location!r}, expected a file in the model's folder")
    root = folder.resolve()
    path = (root / location).resolve()
    if not path.is_relative_to(root):
        raise ModelError(f"tensor {name!r}: external data in {location!r} are outside the model's folder; not opened")
    if not path.is_file():
        raise ModelError(f"tensor {name!r}: no file {location!r} in the model's folder for its external data")
    return path


def type_of(value: onnx.ValueInfoProto) -> tuple[str, onnx.TypeProto.Tensor | None]:
    """What a graph input or output is, `tensor`, `sequence`, `optional` or else, and the type of its tensors."""
    type_ = value.type
    kind = str(type_.WhichOneof("value") or "untyped").removesuffix("_type")
    if type_.HasField("optional_type"):
        type_ = type_.optional_type.elem_type
    if type_.HasField("sequence_type"):
        type_ = type_.sequence_type.elem_type
    return kind, type_.tensor_type if type_.HasField("tensor_type") else None
