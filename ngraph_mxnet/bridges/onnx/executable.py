"""A model that runs on whatever shapes it is called with."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx

from ngraph_mxnet import config
from ngraph_mxnet.bridges.onnx.budget import MOST_DECLARED_BYTES, require_type
from ngraph_mxnet.bridges.onnx.cached_programs import CachedPrograms, Made
from ngraph_mxnet.bridges.onnx.inputs import Dimensions, Shapes, bind_shapes, dimensions, element_name, input_types
from ngraph_mxnet.bridges.onnx.model import Model
from ngraph_mxnet.bridges.onnx.ranges import ModelRanges
from ngraph_mxnet.bridges.onnx.tensors import element_of, type_of
from ngraph_mxnet.bridges.onnx.values import DataDependentError, EmptyOptional, Item, Ragged, TensorSequence, parts_of
from ngraph_mxnet.errors import ModelError, UnsupportedError, listed
from ngraph_mxnet.forks import ForkSafeLock
from ngraph_mxnet.ir import TensorType, Value
from ngraph_mxnet.runtime.backend import canonical_name, check_options
from ngraph_mxnet.runtime.compile import compile as compile_graph
from ngraph_mxnet.runtime.executable import Executable, InputError, NativeExecutable, Submitting, as_array

if TYPE_CHECKING:
    from ngraph_mxnet.bridges.onnx.importer import Imported

MOST_PROGRAMS = 16
"""Compiled programs that an executable keeps; the least recently used one goes first."""

Key = tuple[Any, ...]


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


@dataclass(frozen=True)
class _Stage:
    """The model for a set of shapes, as far as these do not depend on data, and `rest` from there on."""

    program: Executable
    outputs: list[tuple[str, Item]]
    rest: ModelExecutable | None


class ModelExecutable(Submitting):
    """An ONNX model, called with arrays; compiled once for each set of shapes.

    What holds of `Executable` holds here: results are the caller's own, inputs are never written to, calls from several
    threads are safe. Where a shape inside the model depends on the elements of an input (a target shape, say), a
    program is for these elements too.
    """

    def __init__(self, model: Model, backend: str | None, shapes: Shapes | None,
                 options: Mapping[str, Any]) -> None:
        self._backend = canonical_name(backend if backend is not None else config.get("NGRAPH_BACKEND"))
        check_options(self._backend, options)
        self._model, self._options = model, dict(options)
        self._cache = CachedPrograms(model, self._backend, options)
        types = input_types(model)
        fixed = {name: tuple(int(size) for size in shape) for name, shape in (shapes or {}).items()}
        self.inputs = tuple(ModelPort(name, str(type_.element.numpy), fixed.get(name, type_.dims), type_.kind)
                            for name, type_ in types.items())
        self.outputs = tuple(_output_port(value) for value in model.proto.graph.output)
        self._programs: OrderedDict[Key, _Stage] = OrderedDict()
        self._quick: Callable[..., list[Any] | None] | None = None
        """The latest program, if it is the whole model; its answer is None to arrays that don't fit it as they are."""
        self._specialised: set[str] = set()
        self._lock = ForkSafeLock()
        self.ranges = ModelRanges({port.name: port.shape for port in self.inputs}, self._backend, self._options,
                                  self.import_for)
        unknown = sorted(name for name in fixed if name not in types or types[name].kind != "tensor")
        if unknown:
            raise ModelError(f"shapes for {listed(unknown)}, which are no inputs, or no tensors; the inputs: "
                             f"{listed(types, unknown[0])}")
        if not any(port.is_open for port in self.inputs):
            bound = bind_shapes(model, fixed)
            said = sum(require_type(type_) for name, type_ in bound.items()
                       if isinstance(type_, TensorType) and name not in fixed)
            if said > MOST_DECLARED_BYTES:
                return  # compiled at the first call: whoever brings such arrays has the memory for it
            try:
                self._stage({port.name: port.shape for port in self.inputs}, {})
            except DataDependentError:
                if not self.inputs:
                    raise
                # The first call has the elements.

    def __call__(self, *arrays: Any) -> list[Any]:
        """Run on arrays in the order of `inputs`, or on one dict of arrays by name.

        DLPack tensors and MXNet's NDArrays are taken, too. A sequence is a list of arrays, an empty optional None.

        Raises:
            InputError: one is missing, unknown, no array, or of the wrong shape or dtype.
            UnsupportedError, ModelError: the model can't be compiled for these shapes; the text names the node.
        """
        quick = self._quick
        if quick is not None:
            results: list[Any] | None = quick(*arrays)
            if results is not None:
                return results
        given = self.checked(arrays)
        flat = _flat(given)
        stage = self._stage({name: _shape(value) for name, value in given.items()}, flat)
        self._quick = self._whole_call(stage)
        found = stage.program({port.name: flat[port.name] for port in stage.program.inputs})
        values = {name: _value(item, results) for (name, item), results in
                  zip(stage.outputs, _grouped(stage.outputs, found), strict=True)}
        if stage.rest is None:
            return list(values.values())
        return stage.rest({port.name: values[port.name] if port.name in values else given[port.name]
                           for port in stage.rest.inputs})

    def profile(self, *arrays: Any, rounds: int = 20) -> Any:
        """Where the time goes with these arrays, kernel by kernel: see `Executable.profile`.

        Of a model that is compiled in parts, as shapes depend on the data, it tells of the first.

        Raises:
            InputError, UnsupportedError, ModelError: as for a call.
            ConfigError: the backend has no kernels to tell of.
        """
        given = self.checked(arrays)
        program = self.program(given)
        flat = _flat(given)
        return program.profile({port.name: flat[port.name] for port in program.inputs}, rounds=rounds)

    def save(self, path: str | Path, shapes: Sequence[Shapes] = (), *, isas: Sequence[str] = (),
             metadata: Mapping[str, str] | None = None) -> None:
        """Write the file that the runtime runs, for each of these sets of shapes by input; without them for those that
        it has been called with, or that the model says.

        Raises:
            UnsupportedError, ModelError: the model can't be compiled as a whole for these shapes.
            PackageError, ConfigError, OSError: as `Executable.save`.
        """
        from ngraph_mxnet.bridges.onnx.whole import import_whole
        from ngraph_mxnet.runtime.artefact import compile_to_file

        with self._lock:
            called = [dict(zip((port.name for port in self.inputs), shaped, strict=True)) for shaped, _ in
                      self._programs]
        fixed = [{port.name: port.shape for port in self.inputs if not port.is_open}]
        sets: Sequence[Shapes] = shapes or called or fixed
        graphs = [partial(import_whole, self._model, each) for each in sets]
        precision = self._options.get("precision")
        compile_to_file(path, graphs, self._backend, isas=isas, precision=precision, metadata=metadata)

    def program(self, inputs: Mapping[str, Any]) -> Executable:
        """What would run for arrays of these shapes, compiled now; of a model in parts, the first."""
        return self._compiled({name: _shape(value) for name, value in inputs.items()}, _flat(inputs))[0].program

    def _whole_call(self, stage: _Stage) -> Callable[..., list[Any] | None] | None:
        program = stage.program
        if stage.rest is not None or self._specialised or not isinstance(program, NativeExecutable):
            return None
        if not all(isinstance(item, Value) for _, item in stage.outputs):
            return None
        same = [port.name for port in program.inputs] == [port.name for port in self.inputs]
        return program.native.call if same else None

    def _stage(self, shapes: Shapes, values: Mapping[str, np.ndarray]) -> _Stage:
        with self._lock:
            key = self._key(shapes, values)
            found = self._programs.get(key)
            if found is not None:
                self._programs.move_to_end(key)
                return found
            program = self.ranges.bind(shapes) if not self._specialised else None
            stage = self._cached(shapes, values) if program is None else _whole_stage(program)
            self._programs[self._key(shapes, values)] = stage
            while len(self._programs) > MOST_PROGRAMS:
                self._programs.popitem(last=False)
            return stage

    def _cached(self, shapes: Shapes, values: Mapping[str, np.ndarray]) -> _Stage:
        """The stage from the cache; else compiled, and put there."""
        made: _Stage | None = None

        def make() -> Made | None:
            nonlocal made
            made, imported = self._compiled(shapes, values)
            self._specialised.update(imported.specialised)
            whole = made.rest is None and all(isinstance(item, Value) for _, item in made.outputs)
            return (made.program, imported.weights) if whole and not imported.specialised else None

        shaped = [(port.name, _hashable(shapes[port.name])) for port in self.inputs]
        program = self._cache.get_or_make(repr((config.compile_settings(), shaped)), make)
        if made is None:
            assert program is not None
            return _whole_stage(program)
        return made

    def _compiled(self, shapes: Shapes, values: Mapping[str, np.ndarray]) -> tuple[_Stage, Imported]:
        # Without elements nothing is cut off: with them it may turn out that nothing need be.
        imported = self.import_for(shapes, values, partly=bool(values))
        program = compile_graph(imported.graph, self._backend, imported.weights, **self._options)
        rest = None
        if imported.rest is not None:
            rest = ModelExecutable(imported.rest, self._backend, None, self._options)
        return _Stage(program, imported.outputs, rest), imported

    def _key(self, shapes: Shapes, values: Mapping[str, np.ndarray]) -> Key:
        elements = [values[name].tobytes() if name in values else None for name in sorted(self._specialised)]
        return tuple(_hashable(shapes[port.name]) for port in self.inputs), tuple(elements)

    def import_for(self, shapes: Shapes, values: Mapping[str, np.ndarray] | None = None, *,
                   partly: bool = False) -> Imported:
        """The model's graph for these shapes, as `compile` sees it before any pass; see `import_model`."""
        from ngraph_mxnet.bridges.onnx.importer import import_model  # not for a program from the disk

        return import_model(self._model, shapes, values, partly=partly)

    def checked(self, arrays: tuple[Any, ...]) -> dict[str, Any]:
        """What a call was given, by name; as it is, where it can be. Raises InputError as a call does."""
        names = [port.name for port in self.inputs]
        if len(arrays) == 1 and isinstance(arrays[0], Mapping):
            given = arrays[0]
            unknown, missing = sorted(set(given) - set(names)), [name for name in names if name not in given]
            if unknown or missing:
                raise InputError(f"inputs by name: unknown {listed(unknown) or 'none'}, missing "
                                 f"{listed(missing) or 'none'}; the inputs: {listed(names)}")
            arrays = tuple(given[name] for name in names)
        if len(arrays) != len(names):
            wanted = listed(map(str, self.inputs)) or "none"
            raise InputError(f"found {len(arrays)} inputs, expected {len(names)}: {wanted}")
        return {port.name: self._fitting(port, array) for port, array in zip(self.inputs, arrays, strict=True)}

    def _fitting(self, port: ModelPort, value: Any) -> Any:
        if port.kind == "optional" and value is None:
            return None
        if isinstance(value, list) and port.kind != "tensor":
            return [self._fitting(replace(port, kind="tensor"), element) for element in value]
        if port.kind == "sequence":
            raise InputError(f"input {port.name!r}: found {type(value).__name__}, expected a list of arrays ({port})")
        array = as_array(value, f"input {port.name!r}")
        if array.dtype.newbyteorder("=") != np.dtype(port.dtype):
            raise InputError(f"input {port.name!r}: found dtype {array.dtype}, expected {port.dtype} ({port})")
        dims = port.shape
        if dims is not None and (len(dims) != array.ndim or any(
                isinstance(dim, int) and dim != size for dim, size in zip(dims, array.shape, strict=True))):
            raise InputError(f"input {port.name!r}: found shape {array.shape}, expected {port}")
        return array


def _whole_stage(program: Executable) -> _Stage:
    return _Stage(program, [(port.name, Value(port.type, None, 0)) for port in program.outputs], None)


def _output_port(value: onnx.ValueInfoProto) -> ModelPort:
    kind, tensor = type_of(value)
    if tensor is None:
        if kind == "untyped":
            return ModelPort(value.name, "?", None)  # inferred when it is compiled
        raise UnsupportedError(f"output {value.name!r} is a {kind}; supported: tensors and sequences of them")
    return ModelPort(value.name, str(element_of(tensor.elem_type).numpy), dimensions(tensor), kind)


def _flat(given: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The parameters of the graph, of the arguments by name."""
    flat = {}
    for name, value in given.items():
        if isinstance(value, list):
            flat.update({element_name(name, place): array for place, array in enumerate(value)})
        elif value is not None:
            flat[name] = value
    return flat


def _shape(value: Any) -> Any:
    if value is None:
        return None
    return [array.shape for array in value] if isinstance(value, list) else value.shape


def _hashable(shape: Any) -> Any:
    if shape is None:
        return None
    return ("sequence", *map(tuple, shape)) if isinstance(shape, list) else tuple(shape)


def _grouped(outputs: list[tuple[str, Item]], arrays: list[np.ndarray]) -> Iterator[list[np.ndarray]]:
    """The results that each output is made of."""
    left = iter(arrays)
    for _, item in outputs:
        yield list(islice(left, len(parts_of(item))))


def _value(item: Item, arrays: list[np.ndarray]) -> Any:
    if isinstance(item, EmptyOptional):
        return None
    if isinstance(item, TensorSequence):
        return arrays
    if isinstance(item, Ragged):
        return np.ascontiguousarray(arrays[0][(slice(None),) * item.axis + (slice(int(arrays[1])),)])
    return arrays[0]
