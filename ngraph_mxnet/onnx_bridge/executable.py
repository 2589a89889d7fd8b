"""A model that runs on whatever shapes it is called with."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from ngraph_mxnet import config
from ngraph_mxnet.errors import ModelError, UnsupportedError
from ngraph_mxnet.onnx_bridge.importer import (
    Dimensions,
    Imported,
    Shapes,
    bind_shapes,
    dimensions,
    import_model,
    input_types,
)
from ngraph_mxnet.onnx_bridge.model import Model
from ngraph_mxnet.onnx_bridge.rules.registry import DataDependentError
from ngraph_mxnet.onnx_bridge.tensors import element_of, type_name
from ngraph_mxnet.runtime.backend import get_backend
from ngraph_mxnet.runtime.compile import compile as compile_graph
from ngraph_mxnet.runtime.executable import Executable, InputError, Submitting, as_array

MOST_PROGRAMS = 16
"""Compiled programs that an executable keeps; the least recently used one goes first."""

Key = tuple[Any, ...]


@dataclass(frozen=True)
class ModelPort:
    """An input or output: the dtype as NumPy names it; a dimension is a number, a symbol, or None where unknown.

    `shape` is None where the model does not say the rank.
    """

    name: str
    dtype: str
    shape: Dimensions | None

    def __str__(self) -> str:
        dims = "?" if self.shape is None else ", ".join("?" if dim is None else str(dim) for dim in self.shape)
        return f"{self.name}: {self.dtype}[{dims}]"


class ModelExecutable(Submitting):
    """An ONNX model, called with arrays; compiled once for each set of shapes.

    What holds of `Executable` holds here: results are the caller's own, inputs are never written to, calls from several
    threads are safe. Where a shape inside the model depends on the elements of an input (a target shape, say), a
    program is for these elements too.
    """

    def __init__(self, model: Model, backend: str | None, shapes: Shapes | None,
                 options: Mapping[str, Any]) -> None:
        chosen = get_backend(backend if backend is not None else config.get("NGRAPH_BACKEND"))
        self._model, self._backend, self._options = model, chosen.name, dict(options)
        types = input_types(model)
        fixed = {name: tuple(int(size) for size in shape) for name, shape in (shapes or {}).items()}
        self.inputs = tuple(ModelPort(name, str(element.numpy), fixed.get(name, dims))
                            for name, (element, dims) in types.items())
        self.outputs = tuple(_output_port(value) for value in model.proto.graph.output)
        self._programs: OrderedDict[Key, Executable] = OrderedDict()
        self._specialised: set[str] = set()
        self._lock = threading.Lock()
        open_ = [port.name for port in self.inputs
                 if port.shape is None or not all(isinstance(dim, int) for dim in port.shape)]
        unknown = sorted(set(fixed) - set(types))
        if unknown:
            raise ModelError(f"shapes for {unknown}, which are no inputs; the inputs are {list(types)}")
        if not open_:
            bind_shapes(model, fixed)
            try:
                self._program({port.name: port.shape for port in self.inputs}, {})  # type: ignore[misc]
            except DataDependentError:
                if not self.inputs:
                    raise
                # The first call has the elements.

    def __call__(self, *arrays: Any) -> list[np.ndarray]:
        """Run on arrays in the order of `inputs`, or on one dict of arrays by name; DLPack tensors are taken too.

        Raises:
            InputError: one is missing, unknown, or of the wrong shape or dtype.
            UnsupportedError, ModelError: the model can't be compiled for these shapes; the text names the node.
        """
        by_name = self._checked(arrays)
        program = self.program(by_name)
        return program({port.name: by_name[port.name] for port in program.inputs})

    def profile(self, *arrays: Any, rounds: int = 20) -> Any:
        """Where the time goes with these arrays, kernel by kernel: see `Executable.profile`.

        Raises:
            InputError, UnsupportedError, ModelError: as for a call.
            ConfigError: the backend has no kernels to tell of.
        """
        by_name = self._checked(arrays)
        program = self.program(by_name)
        return program.profile({port.name: by_name[port.name] for port in program.inputs}, rounds=rounds)

    def program(self, inputs: Mapping[str, np.ndarray]) -> Executable:
        """What runs for arrays of these shapes, compiled if it was not yet."""
        return self._program({name: array.shape for name, array in inputs.items()}, inputs)

    def _program(self, shapes: Shapes, values: Mapping[str, np.ndarray]) -> Executable:
        with self._lock:
            key = self._key(shapes, values)
            found = self._programs.get(key)
            if found is not None:
                self._programs.move_to_end(key)
                return found
            imported = self.import_for(shapes, values)
            self._specialised.update(imported.specialised)
            program = compile_graph(imported.graph, self._backend, imported.weights, **self._options)
            self._programs[self._key(shapes, values)] = program
            while len(self._programs) > MOST_PROGRAMS:
                self._programs.popitem(last=False)
            return program

    def _key(self, shapes: Shapes, values: Mapping[str, np.ndarray]) -> Key:
        elements = [values[name].tobytes() if name in values else None for name in sorted(self._specialised)]
        return tuple(tuple(shapes[port.name]) for port in self.inputs), tuple(elements)

    def import_for(self, shapes: Shapes, values: Mapping[str, np.ndarray] | None = None) -> Imported:
        """The model's graph for these shapes, as `compile` sees it before any pass."""
        return import_model(self._model, shapes, values)

    def _checked(self, arrays: tuple[Any, ...]) -> dict[str, np.ndarray]:
        names = [port.name for port in self.inputs]
        if len(arrays) == 1 and isinstance(arrays[0], Mapping):
            given = arrays[0]
            unknown, missing = sorted(set(given) - set(names)), [name for name in names if name not in given]
            if unknown or missing:
                raise InputError(f"inputs by name: unknown {unknown}, missing {missing}; the inputs are {names}")
            arrays = tuple(given[name] for name in names)
        if len(arrays) != len(names):
            wanted = ", ".join(map(str, self.inputs)) or "none"
            raise InputError(f"found {len(arrays)} inputs, expected {len(names)}: {wanted}")
        return {port.name: self._fitting(port, array) for port, array in zip(self.inputs, arrays, strict=True)}

    def _fitting(self, port: ModelPort, value: Any) -> np.ndarray:
        array = as_array(value)
        if array.dtype.newbyteorder("=") != np.dtype(port.dtype):
            raise InputError(f"input {port.name!r}: found dtype {array.dtype}, expected {port.dtype} ({port})")
        dims = port.shape
        if dims is not None and (len(dims) != array.ndim or any(
                isinstance(dim, int) and dim != size for dim, size in zip(dims, array.shape, strict=True))):
            raise InputError(f"input {port.name!r}: found shape {array.shape}, expected {port}")
        return array


def _output_port(value: onnx.ValueInfoProto) -> ModelPort:
    kind = value.type.WhichOneof("value")
    if kind is None:
        return ModelPort(value.name, "?", None)  # inferred when it is compiled
    if kind != "tensor_type":
        raise UnsupportedError(f"output {value.name!r} is a {type_name(value)}; only tensors are supported")
    tensor = value.type.tensor_type
    return ModelPort(value.name, str(element_of(tensor.elem_type).numpy), dimensions(tensor))
