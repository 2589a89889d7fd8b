"""The inputs that a model declares, and the types that they have at a call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from ngraph_mxnet.base.errors import ModelError, UnsupportedError, listed
from ngraph_mxnet.frontends.onnx.model import Model, element_of, naming, require_type, type_of
from ngraph_mxnet.ir.ranges import because, checked_shape
from ngraph_mxnet.ir.sizes import number
from ngraph_mxnet.ir.types import ElementType, TensorType
from ngraph_mxnet.program.ranges import Dimensions

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
        with naming(f"input {value.name!r}"):
            element = element_of(tensor.elem_type)
        result[value.name] = InputType(element, dimensions(tensor), kind)
    return result


def dimensions(tensor: onnx.TypeProto.Tensor) -> Dimensions | None:
    """Return the dimensions that the model declares for a tensor; None if the model declares no rank."""
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
            with naming(f"input {name!r}"):
                require_type(each)
    return result


def with_batches(model: Model, shapes: Shapes) -> tuple[dict[str, Any], list[str]]:
    """The shapes, and the names of the inputs that got one: those of which the batch alone is open, where no shape
    names its size. The batch is 1."""
    types, found = input_types(model), dict(shapes)
    named = {dim for name in shapes if name in types for dim in types[name].dims or () if isinstance(dim, str)}
    for name, type_ in types.items():
        open_ = [place for place, dim in enumerate(type_.dims or ()) if not isinstance(dim, int)]
        if name not in found and type_.kind == "tensor" and type_.dims and open_ == [0] and type_.dims[0] not in named:
            found[name] = (1, *type_.dims[1:])
    return found, [name for name in found if name not in shapes]


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
        example = ", ".join(str(dim) if isinstance(dim, int) else "1" for dim in dims or (1, 3, 224, 224))
        raise ModelError(f"input {name!r} has the shape {_text(dims)}: give its shape to compile for, as in "
                         f"shapes={{{name!r}: ({example})}}, on the command line --shape {name}="
                         f"{example.replace(' ', '')}")
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


@dataclass(frozen=True)
class ModelPort:
    """An input or output: the dtype as NumPy names it; a dimension is a number, a symbol, or None where unknown.

    `shape` is None where the model does not say the rank; that of a sequence is its elements'. `kind` is `tensor`;
    `sequence`, a list of arrays; or `optional`: either, or None.
    """

    name: str
    dtype: str
    shape: Dimensions | None
    kind: str = "tensor"

    def __str__(self) -> str:
        dims = "?" if self.shape is None else ", ".join("?" if dim is None else str(dim) for dim in self.shape)
        text = f"{self.dtype}[{dims}]"
        return f"{self.name}: {text if self.kind == 'tensor' else f'{self.kind}({text})'}"

    @property
    def is_open(self) -> bool:
        """True if each call brings a shape that the model does not declare."""
        return self.kind != "tensor" or self.shape is None or not all(isinstance(dim, int) for dim in self.shape)


def input_ports(model: Model, shapes: Mapping[str, Sequence[int]]) -> list[ModelPort]:
    """The model's inputs, with these shapes where there are such."""
    return [ModelPort(name, str(type_.element.numpy), tuple(shapes[name]) if name in shapes else type_.dims, type_.kind)
            for name, type_ in input_types(model).items()]


def output_port(value: onnx.ValueInfoProto) -> ModelPort:
    kind, tensor = type_of(value)
    if tensor is None:
        if kind == "untyped":
            return ModelPort(value.name, "?", None)  # inferred when it is compiled
        raise UnsupportedError(f"output {value.name!r} is a {kind}; supported: tensors and sequences of them")
    return ModelPort(value.name, str(element_of(tensor.elem_type).numpy), dimensions(tensor), kind)


def flat_arrays(given: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The parameters of the graph, of the arguments by name."""
    flat = {}
    for name, value in given.items():
        if isinstance(value, list):
            flat.update({element_name(name, place): array for place, array in enumerate(value)})
        elif value is not None:
            flat[name] = value
    return flat


def shape_of(value: Any) -> Any:
    if value is None:
        return None
    return [array.shape for array in value] if isinstance(value, list) else value.shape


def hashable(shape: Any) -> Any:
    if shape is None:
        return None
    return ("sequence", *map(tuple, shape)) if isinstance(shape, list) else tuple(shape)
