"""ONNX models: one as every part of the package takes it, and one that runs on whatever shapes it is called with."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ngraph_mxnet.base.errors import ModelError, NGraphError, UnsupportedError, listed
from ngraph_mxnet.base.forks import ForkSafeLock, Recent
from ngraph_mxnet.frontends.model import Model as AnyModel
from ngraph_mxnet.frontends.model import Sizes
from ngraph_mxnet.frontends.onnx.inputs import (
    ModelPort,
    Shapes,
    bind_shapes,
    flat_arrays,
    hashable,
    input_ports,
    input_types,
    output_port,
    shape_of,
    with_models_names,
)
from ngraph_mxnet.frontends.onnx.model import MOST_DECLARED_BYTES, Model, read_model, require_type, to_array
from ngraph_mxnet.frontends.onnx.ranges import ModelPrograms, ModelRanges
from ngraph_mxnet.frontends.onnx.values import (
    Between,
    CutError,
    DataDependentError,
    EmptyOptional,
    Item,
    Ragged,
    TensorSequence,
    parts_of,
)
from ngraph_mxnet.ir import Graph, TensorType, Value
from ngraph_mxnet.ir.ranges import has_ranges
from ngraph_mxnet.program.backend import canonical_name, check_options
from ngraph_mxnet.program.compile import Ranged, Weighted
from ngraph_mxnet.program.compile import compile as compile_graph
from ngraph_mxnet.program.executable import (
    Executable,
    InputError,
    NativeExecutable,
    Submitting,
    as_array,
    described,
    in_order,
)
from ngraph_mxnet.program.feeds import Draw
from ngraph_mxnet.program.program_cache import Made

if TYPE_CHECKING:
    from ngraph_mxnet.frontends.onnx.explain import OnnxExplanation
    from ngraph_mxnet.frontends.onnx.importer import Imported
    from ngraph_mxnet.frontends.onnx.runners import DividedModel
    from ngraph_mxnet.program.ranges import RangeExplanation

MOST_PROGRAMS = 16
"""Compiled programs that an executable keeps; the least recently used one goes first."""

Key = tuple[Any, ...]


class OnnxModel(AnyModel):
    """An ONNX model, which holds its weights. A program from the disk runs without the importer: so the methods import
    it."""

    kind = "ONNX model"
    verified = "ngraph_mxnet.tools.verifying.onnx_models:VerifiedOnnx"

    @cached_property
    def model(self) -> Model:
        """Raises ModelError, UnsupportedError: as `read_model`; or a result is missing."""
        found = read_model(self.source)
        return found.cut_behind(self.results) if self.results else found

    def inputs(self) -> Mapping[str, Sequence[Any]]:
        return {name: type_.dims or () for name, type_ in input_types(self.model).items()}

    def weights(self, sizes: Sizes) -> Mapping[str, Any]:
        return {tensor.name: to_array(tensor, self.model.folder) for tensor in self.model.proto.graph.initializer}

    def graph(self, sizes: Sizes, backend: str | None = None, *, keep_loops: bool = False) -> Weighted | Ranged:
        from ngraph_mxnet.frontends.onnx.importer import import_whole

        made = partial(import_whole, self.model, keep_loops=keep_loops)
        return self.for_sizes(made, with_models_names(self.model, sizes))

    def first_part(self, sizes: Sizes) -> tuple[Graph, Mapping[str, Any], str | None]:
        from ngraph_mxnet.frontends.onnx.importer import import_model

        imported = import_model(self.model, sizes, partly=True)
        return imported.graph, imported.weights, None if imported.rest is None else imported.reason

    def executable(self, sizes: Sizes, backend: str | None, options: Mapping[str, Any]) -> Any:
        if has_ranges(sizes):
            return super().executable(sizes, backend, options)
        return ModelExecutable(self.model, backend, sizes, options)

    def draws(self, sizes: Shapes, backend: str | None = None) -> dict[str, Draw]:
        from ngraph_mxnet.frontends.onnx.importer import draws_of_model

        return draws_of_model(self.model, sizes)

    def verdicts(self, sizes: Shapes, backend: str | None, *, kernels: bool,
                 options: Mapping[str, Any]) -> OnnxExplanation:
        from ngraph_mxnet.frontends.onnx.explain import explain_onnx

        return explain_onnx(self.model, sizes, backend, kernels=kernels, options=options)

    def range_verdicts(self, sizes: Shapes, axes: Mapping[str, Sequence[int]],
                       backend: str | None) -> RangeExplanation:
        from ngraph_mxnet.frontends.onnx.explain import explain_onnx_shapes

        return explain_onnx_shapes(self.model, sizes, axes, backend)


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
                 options: Mapping[str, Any], between: Between | None = None) -> None:
        self._between = between or Between()
        self._backend = canonical_name(backend)
        check_options(self._backend, options)
        self._model, self._options = model, dict(options)
        self._cache = ModelPrograms(model, self._backend, options)
        types = input_types(model)
        fixed = {name: tuple(int(size) for size in shape) for name, shape in (shapes or {}).items()}
        self.inputs = tuple(input_ports(model, fixed))
        self.outputs = tuple(output_port(value) for value in model.proto.graph.output)
        self.stages = Recent(MOST_PROGRAMS)
        self._divided = Recent(MOST_PROGRAMS)
        self._always: DividedModel | None = None
        """The divided model that runs all shapes, once the model was divided for all of them."""
        self._quick: Callable[..., list[Any] | None] | None = None
        """The latest program, if it is the whole model; its answer is None to arrays that don't fit it as they are."""
        self._specialised: set[str] = set()
        self._lock = ForkSafeLock()
        self.ranges = ModelRanges({port.name: port.shape for port in self.inputs}, self._backend, self._options,
                                  self.import_for, self._cache)
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

    def __repr__(self) -> str:
        return described(self)

    def __call__(self, /, *arrays: Any, **named: Any) -> list[Any]:
        """Run on arrays in the order of `inputs`, on arrays by name (the first ones may be in order), or on one dict.

        DLPack tensors and MXNet's NDArrays are taken, too. A sequence is a list of arrays, an empty optional None.

        Raises:
            InputError: one is missing, unknown, no array, or of the wrong shape or dtype.
            UnsupportedError, ModelError: the model can't be compiled for these shapes; the text names the node.
        """
        ordered, quick = in_order(self.inputs, arrays, named), self._quick
        if quick is not None:
            results: list[Any] | None = quick(*ordered)
            if results is not None:
                return results
        given = self.checked(ordered)
        stage = self._stage_for(given)
        results = self._results(stage, given)
        return results if isinstance(stage, _Stage) else stage.owned(results, given)

    def run_shared(self, arrays: Sequence[Any]) -> list[Any]:
        """A call as part of another model, with arrays in the order of `inputs` that fit it. Results may be arrays that
        were given."""
        if self._always is not None:
            return self._always(dict(zip((port.name for port in self.inputs), arrays, strict=True)))
        quick = self._quick
        results: list[Any] | None = quick(*arrays) if quick is not None else None
        if results is None:
            given = self.checked(tuple(arrays))
            results = self._results(self._stage_for(given), given)
        return results

    def result_types(self, arrays: Sequence[Any]) -> dict[str, tuple[np.dtype[Any], tuple[int, ...]]]:
        """The dtypes and shapes of those outputs that are tensors, for inputs of these shapes, in their order, as far
        as they are known before a call."""
        given = self.checked(tuple(arrays))
        try:
            shapes = {name: shape_of(value) for name, value in given.items()}
            imported = self._import(shapes, {}, None, partly=True)
        except NGraphError:
            return {}
        return {name: (item.type.element.numpy, item.type.shape) for name, item in imported.outputs
                if isinstance(item, Value)}

    def _results(self, stage: _Stage | DividedModel, given: dict[str, Any]) -> list[Any]:
        if not isinstance(stage, _Stage):
            return stage(given)
        flat = flat_arrays(given)
        self._quick = self._whole_call(stage)
        found = stage.program({port.name: flat[port.name] for port in stage.program.inputs})
        values = {name: _value(item, results) for (name, item), results in
                  zip(stage.outputs, _grouped(stage.outputs, found), strict=True)}
        if stage.rest is None:
            return list(values.values())
        return stage.rest({port.name: values[port.name] if port.name in values else given[port.name]
                           for port in stage.rest.inputs})

    def profile(self, *arrays: Any, rounds: int = 20) -> Any:
        """Measure where the time goes with these arrays, kernel by kernel: see `Executable.profile`.

        If shapes depend on the data, the model is compiled in parts, and only the first part is measured.

        Raises:
            InputError, UnsupportedError, ModelError: as for a call.
            ConfigError: the backend has no kernels to tell of.
        """
        given = self.checked(arrays)
        program = self.program(given)
        flat = flat_arrays(given)
        return program.profile({port.name: flat[port.name] for port in program.inputs}, rounds=rounds)

    def save(self, path: str | Path, shapes: Sequence[Shapes] = (), *, isas: Sequence[str] = (),
             metadata: Mapping[str, str] | None = None) -> None:
        """Write the file that the runtime runs, for each of these sets of shapes by input; without them for those that
        it has been called with, or that the model says.

        Raises:
            UnsupportedError, ModelError: the model can't be compiled as a whole for these shapes.
            PackageError, ConfigError, OSError: as `Executable.save`.
        """
        from ngraph_mxnet.frontends.onnx.importer import import_whole
        from ngraph_mxnet.program.export import compile_to_file

        with self._lock:
            called = [dict(zip((port.name for port in self.inputs), shaped, strict=True)) for shaped, _ in
                      self.stages]
        fixed = [{port.name: port.shape for port in self.inputs if not port.is_open}]
        sets: Sequence[Shapes] = shapes or called or fixed
        graphs = [partial(import_whole, self._model, each) for each in sets]
        options = {name: value for name, value in self._options.items() if name in ("precision", "recipe")}
        compile_to_file(path, graphs, self._backend, isas=isas, options=options, metadata=metadata)

    def program(self, inputs: Mapping[str, Any]) -> Executable:
        """Compile and return the program that would run for arrays of these shapes. For a model in parts, return the
        first part's program.

        Raises:
            UnsupportedError: the model begins with nodes that are run between programs.
        """
        try:
            stage, _ = self._compiled({name: shape_of(value) for name, value in inputs.items()}, flat_arrays(inputs))
            return stage.program
        except CutError as cut:
            first = self._divide(cut).first
            if first is None:
                raise UnsupportedError(f"no program comes before what is run between programs: {cut}") from None
            return first.program({port.name: inputs[port.name] for port in first.inputs})

    def _whole_call(self, stage: _Stage) -> Callable[..., list[Any] | None] | None:
        program = stage.program
        if stage.rest is not None or self._specialised or not isinstance(program, NativeExecutable):
            return None
        if not all(isinstance(item, Value) for _, item in stage.outputs):
            return None
        same = [port.name for port in program.inputs] == [port.name for port in self.inputs]
        return program.native.call if same and program.watch is None else None

    def _stage_for(self, given: dict[str, Any]) -> _Stage | DividedModel:
        return self._stage({name: shape_of(value) for name, value in given.items()}, flat_arrays(given))

    def _stage(self, shapes: Shapes, values: Mapping[str, np.ndarray]) -> _Stage | DividedModel:
        with self._lock:
            found: _Stage | DividedModel | None = self.stages.get(self._key(shapes, values))
            if found is not None:
                return found
            try:
                stage = self._made(shapes, values)
            except CutError as cut:
                stage = self._divide(cut)
            self.stages.put(self._key(shapes, values), stage)
            return stage

    def _made(self, shapes: Shapes, values: Mapping[str, np.ndarray]) -> _Stage | DividedModel:
        if self._always is not None:
            bind_shapes(self._model, shapes)  # its parts do not look at the others' inputs
            return self._always
        program = self.ranges.bind(shapes) if not self._specialised else None
        return self._cached(shapes, values) if program is None else self._whole_stage(program)

    def _whole_stage(self, program: Executable) -> _Stage:
        """Build the stage of a program that is the whole model. Two outputs of the model may be one value, with one
        name in the program."""
        outputs: list[tuple[str, Item]] = [(output.name, Value(port.type, None, 0)) for output, port in
                                           zip(self.outputs, program.outputs, strict=True)]
        return _Stage(program, outputs, None)

    def _divide(self, cut: CutError) -> DividedModel:
        """Return the model divided at this cut. A division that is still kept is reused."""
        from ngraph_mxnet.frontends.onnx.runners import DividedModel  # most models are not, and start sooner without

        found: DividedModel = self._divided.get_or_make(cut.key(), lambda: DividedModel(
            self._model, cut, self._between, self._part, self._reference))
        if cut.is_fixed:
            self._always, self._quick = found, None
            self.stages.clear()
            self._specialised.clear()
        self._specialised.update(() if cut.is_fixed else cut.specialised)
        return found

    def _part(self, model: Model, between: Between) -> ModelExecutable:
        return ModelExecutable(model, self._backend, None, self._options, between)

    def _reference(self, model: Model, between: Between) -> ModelExecutable:
        return ModelExecutable(model, "INTERPRETER", None, {})

    def _cached(self, shapes: Shapes, values: Mapping[str, np.ndarray]) -> _Stage:
        """The stage from the cache; else compiled, and put there."""
        made: _Stage | None = None

        def make() -> Made | None:
            nonlocal made
            made, imported = self._compiled(shapes, values)
            self._specialised.update(imported.specialised)
            whole = made.rest is None and all(isinstance(item, Value) for _, item in made.outputs)
            return Made([made.program], {}, imported.weights) if whole and not imported.specialised else None

        shaped = [(port.name, hashable(shapes[port.name])) for port in self.inputs]
        found = self._cache.get_or_make(repr(shaped), make)
        if made is not None:
            return made
        assert found is not None
        return self._whole_stage(found.programs[0])

    def _compiled(self, shapes: Shapes, values: Mapping[str, np.ndarray]) -> tuple[_Stage, Imported]:
        # Without elements nothing is cut off: with them it may turn out that nothing need be.
        imported = self.import_for(shapes, values, partly=bool(values) or not self.inputs)
        program = compile_graph(imported.graph, self._backend, imported.weights, **self._options)
        rest = None
        if imported.rest is not None:
            rest = self._part(imported.rest, self._between)
        return _Stage(program, imported.outputs, rest), imported

    def _key(self, shapes: Shapes, values: Mapping[str, np.ndarray]) -> Key:
        elements = [values[name].tobytes() if name in values else None for name in sorted(self._specialised)]
        return tuple(hashable(shapes[port.name]) for port in self.inputs), tuple(elements)

    def import_for(self, shapes: Shapes, values: Mapping[str, np.ndarray] | None = None, *,
                   partly: bool = False) -> Imported:
        """The model's graph for these shapes, as `compile` sees it before any pass; see `import_model`."""
        return self._import(shapes, values, self._between, partly=partly)

    def _import(self, shapes: Shapes, values: Mapping[str, np.ndarray] | None, between: Between | None, *,
                partly: bool = False) -> Imported:
        from ngraph_mxnet.frontends.onnx.importer import import_model  # not for a program from the disk

        return import_model(self._model, shapes, values, partly=partly, between=between)

    def checked(self, arrays: tuple[Any, ...]) -> dict[str, Any]:
        """Return the arrays of a call by input name, each unchanged where possible. Raises InputError as a call
        does."""
        return {port.name: self._fitting(port, array)
                for port, array in zip(self.inputs, in_order(self.inputs, arrays), strict=True)}

    def _fitting(self, port: ModelPort, value: Any) -> Any:
        if port.kind == "optional" and value is None:
            return None
        if isinstance(value, list) and port.kind != "tensor":
            of_elements = replace(port, kind="tensor")
            return [self._fitting(of_elements, element) for element in value]
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
