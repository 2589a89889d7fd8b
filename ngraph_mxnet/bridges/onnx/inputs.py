"""What a model says of its inputs, and the types that they have at a call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import onnx

from ngraph_mxnet.bridges.onnx.budget import require_type
from ngraph_mxnet.bridges.onnx.model import Model
from ngraph_mxnet.bridges.onnx.tensors import element_of, type_of
from ngraph_mxnet.errors import ModelError, UnsupportedError, listed
from ngraph_mxnet.ir.guards import because
from ngraph_mxnet.ir.range_text import checked_shape
from ngraph_mxnet.ir.sizes import number
from ngraph_mxnet.ir.types import ElementType, TensorType
from ngraph_mxnet.runtime.changing import Dimensions

Shapes = Mapping[str, Any]
"""Each input's shape by name: a list of shapes for a sequence, None for an optional that is empty."""


@dataclass(frozen=True)
class InputType:
    """`dims` are None where the model does not say the rank; of a sequence they are those of its elements."""

    element: ElementType
    dims: Dimensions | None
    kind: str = "tensor"
    """`tensor`, `sequence`, or `optional`, which is None, a tensor or a list."""


def element_name(name: str, place: int) -> str:
    """How an element of a sequence is called as a parameter."""
    return f"{name}[{place}]"


def input_types(model: Model) -> dict[str, InputType]:
    """Element type and shape of each input.

    Raises:
        UnsupportedError: an input is no tensor, sequence or optional, or of a type that the IR has not.
    """
    result: dict[str, InputType] = {}
    for value in model.inputs:
        kind, tensor = type_of(value)
        if tensor is None:
            raise UnsupportedError(f"input {value.name!r} is a {kind}; supported: tensors and sequences of them")
        try:
            element = element_of(tensor.elem_type)
        except UnsupportedError as error:
            raise UnsupportedError(f"input {value.name!r}: {error}") from None
        result[value.name] = InputType(element, dimensions(tensor), kind)
    return result


def dimensions(tensor: onnx.TypeProto.Tensor) -> Dimensions | None:
    """What the model says of a shape; None if it does not say the rank."""
    return tuple(_dimension(dim) for dim in tensor.shape.dim) if tensor.HasField("shape") else None


def _dimension(dim: onnx.TensorShapeProto.Dimension) -> int | str | None:
    if dim.HasField("dim_value"):
        return int(dim.dim_value) if dim.dim_value >= 0 else None
    return None if dim.dim_param in ("", "?") else dim.dim_param  # PaddlePaddle calls all that it does not know "?"


def bind_shapes(model: Model, shapes: Shapes) -> dict[str, TensorType | list[TensorType] | None]:
    """The type of each input, with the dimensions that the model leaves open taken from `shapes`.

    Raises:
        ModelError: a shape is missing, negative, names no input, or contradicts the model.
        UnsupportedError: a shape is too large.
    """
    types = input_types(model)
    unknown = sorted(set(shapes) - set(types))
    if unknown:
        raise ModelError(f"shapes for {listed(unknown)}, which are no inputs; the inputs: {listed(types, unknown[0])}")
    symbols: dict[str, tuple[int, str]] = {}
    result: dict[str, TensorType | list[TensorType] | None] = {}
    for name, type_ in types.items():
        given = shapes.get(name)
        if type_.kind != "tensor" and (given is None or isinstance(given, list)):
            if given is None and type_.kind == "sequence":
                raise ModelError(f"input {name!r} is a sequence: give the shapes of its elements, as a list")
            result[name] = given if given is None else [TensorType(type_.element, tuple(shape)) for shape in given]
        else:
            with because(f"what the model says of input {name!r}"):
                result[name] = TensorType(type_.element, _bound(name, type_.dims, given, symbols))
        for each in _types(result[name]):
            try:
                require_type(each)
            except UnsupportedError as error:
                raise UnsupportedError(f"input {name!r}: {error}") from None
    return result


def with_models_names(model: Model, shapes: Shapes) -> dict[str, Any]:
    """The shapes, where a range without a name is called as the model calls its dimension: so it is the same size
    wherever the model says so.

    Raises:
        ConfigError: a size is none.
    """
    types = input_types(model)

    def called(size: int | str, dim: int | str | None) -> int | str:
        nameless = isinstance(size, str) and size[0].isdigit()
        return f"{dim}:{size}" if nameless and isinstance(dim, str) and dim.isidentifier() else size

    def shape(name: str, given: Any) -> Any:
        sizes = checked_shape(name, given)
        dims = types[name].dims if name in types and types[name].kind == "tensor" else None
        return sizes if dims is None or len(dims) != len(sizes) else tuple(map(called, sizes, dims))

    return {name: shape(name, given) for name, given in shapes.items()}


def _types(of: TensorType | list[TensorType] | None) -> list[TensorType]:
    return [of] if isinstance(of, TensorType) else of or []


def _bound(name: str, dims: Dimensions | None, given: Sequence[int] | None,
           symbols: dict[str, tuple[int, str]]) -> tuple[int, ...]:
    """A tensor's shape; `symbols` are the sizes that are known so far, and the inputs that they are from."""
    if given is None and (dims is None or not all(isinstance(dim, int) for dim in dims)):
        raise ModelError(f"input {name!r} has the shape {_text(dims)}: give its shape to compile for")
    shape: tuple[int, ...] = tuple(number(size) for size in given) if given is not None else dims  # type: ignore[assignment]
    if dims is not None and (len(shape) != len(dims) or any(
            isinstance(dim, int) and dim != size for dim, size in zip(dims, shape, strict=True))):
        raise ModelError(f"input {name!r}: found shape {shape}, expected {_text(dims)}")
    if any(size < 0 for size in shape):
        raise ModelError(f"input {name!r}: found shape {shape}, expected no negative dimension")
    for dim, size in zip(dims or (), shape, strict=False):
        if isinstance(dim, str) and symbols.setdefault(dim, (size, name))[0] != size:
            other = symbols[dim]
            raise ModelError(f"input {name!r}: found {dim}={size}, expected {other[0]} as in input {other[1]!r}")
    return shape


def _text(dims: Dimensions | None) -> str:
    return "of unknown rank" if dims is None else f"({', '.join('?' if dim is None else str(dim) for dim in dims)})"
