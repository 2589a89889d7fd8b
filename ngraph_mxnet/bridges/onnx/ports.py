"""What a model is called with and gives, and the arrays and shapes of what it is called with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from ngraph_mxnet.bridges.onnx.inputs import dimensions, element_name, input_types
from ngraph_mxnet.bridges.onnx.model import Model
from ngraph_mxnet.bridges.onnx.tensors import element_of, type_of
from ngraph_mxnet.errors import UnsupportedError
from ngraph_mxnet.runtime.changing import Dimensions


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
        """Whether each call brings a shape that the model does not say."""
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
