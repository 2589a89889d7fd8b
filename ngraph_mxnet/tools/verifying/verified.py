"""Which value is the first that differs from the reference's: parts of the model are compiled, up to one value each.

Compiled files are verified against the model that one was made of, or the results that it holds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ngraph_mxnet.base.errors import (
    ConfigError,
    ModelError,
    NGraphError,
    UnsupportedError,
    listed,
    only_params,
    require_forms,
    unreadable,
)
from ngraph_mxnet.base.rendered import progress
from ngraph_mxnet.frontends.model import FileModel, Model, model_of
from ngraph_mxnet.ir.graph import fingerprint
from ngraph_mxnet.ir.ranges import fixed_shapes
from ngraph_mxnet.program.artefact import Artefact, Reference, load
from ngraph_mxnet.program.backend import canonical_name, check_options, get_backend, load_file
from ngraph_mxnet.program.differences import DEFAULTS, Difference, Tolerance, compare
from ngraph_mxnet.program.executable import as_array
from ngraph_mxnet.program.export import origin_of
from ngraph_mxnet.program.feeds import SEED
from ngraph_mxnet.program.program import ProgramSet
from ngraph_mxnet.tools.verifying.models import INTERPRETER, Given, Point, PointArrays, Traced, Verified
from ngraph_mxnet.tools.verifying.report import Diverging, Operand, Verification


class ArtefactFile:
    """A compiled file: its description, and a way to run it."""

    def __init__(self, path: str) -> None:
        """Raises:
            PackageError: it is damaged.
            ModelError: it can't be read.
        """
        self.path = path
        try:
            self._artefact: Artefact = load(path)
        except OSError as error:
            raise unreadable(path, error) from None
        self.precision = self._artefact.meta.precision
        self.made_by = self._artefact.meta.made_by
        self.references: Sequence[Reference] = self._artefact.references
        self._sets: dict[int, ProgramSet] = {}
        for one in self._artefact.sets:
            self._sets.setdefault(one.number, one)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shapes of the inputs by name; empty if the file is for several sets of shapes, or for ranges."""
        if len(self._sets) != 1 or self._sets[0].symbols:
            return {}
        return {name: type_.shape for name, type_ in self._sets[0].given}

    def dtypes(self) -> dict[str, str]:
        """Return the dtypes of the inputs by name, in the order of the inputs."""
        return {name: str(type_.element.numpy) for name, type_ in self._sets[0].given}

    def stored(self, reference: Reference) -> dict[str, np.ndarray]:
        """Return the inputs of a reference, by name."""
        names, given = (name for name, _ in self._sets[0].inputs), self.dtypes()
        return {name: array for name, array in zip(names, reference.inputs, strict=True) if name in given}

    def output_names(self) -> list[str]:
        return [name for name, _ in self._sets[0].outputs]

    def run(self, backend: str, options: Mapping[str, Any], inputs: Mapping[str, Any]) -> list[np.ndarray]:
        """Raises:
            ModelError: an input is missing.
            InputError: the file is not for such shapes.
            ConfigError, PackageError: as `runtime.backend.load_file`.
        """
        names = list(self.dtypes())
        missing = [name for name in names if name not in inputs]
        if missing:
            raise ModelError(f"the file reads {listed(missing)}, and the inputs of the model are "
                             f"{listed(inputs, missing[0])}: the file was made of another one")
        found: list[np.ndarray] = load_file(backend, self.path, options)(*(inputs[name] for name in names))
        return found

    def unlike(self, inputs: Mapping[str, Any], model: Model) -> str:
        """How the graph and weights that the file was made of differ from the model's, for these inputs."""
        number = next((number for number, one in self._sets.items()
                       if number < len(self._artefact.origins) and not one.symbols
                       and all(inputs[name].shape == type_.shape for name, type_ in one.given)), None)
        if number is None:
            return "it does not tell of what it was made for these shapes"
        origin = self._artefact.origins[number]
        sizes = {name: type_.shape for name, type_ in self._sets[number].given}
        graph, weights = model.graph(sizes)()  # type: ignore[operator]  # no range: they are numbers
        wanted = origin_of(graph, weights)
        if wanted.graph != origin.graph:
            return "it was made of another graph than the model's: of another model, or by another version"
        others = [parameter.name for parameter, ours, theirs
                  in zip(fingerprint(graph).parameters, origin.parameters, wanted.parameters, strict=True)
                  if ours != theirs]
        return f"its weights {listed(others)} are others than the model's" if others else \
            "it was made of the model's graph and weights"


class FileRun:
    """A file that is run in place of the model that it was made of. Parts are cut out of the model, and compiled
    here."""

    note = ("The file holds instructions and none of the model's values: if outputs differ, the first value that does "
            "is looked for in the model as it is compiled here.")

    def __init__(self, file: ArtefactFile, model: Verified, source: Model) -> None:
        self._file, self.model, self._source = file, model, source
        self.precision = file.precision

    def results(self, backend: str, options: Mapping[str, Any]) -> list[np.ndarray]:
        found = self._file.run(backend, options, self.model.inputs)
        names = self.model.output_names
        if len(found) != len(names):
            raise ModelError(f"the file gives {len(found)} outputs, and the model {listed(names)}: the file was made "
                             "of another one")
        return found

    def parts_agree(self) -> str:
        try:
            told = self._file.unlike(self.model.inputs, self._source)
        except NGraphError as error:
            told = f"of what it was made can't be compared: {error}"
        return ("as it is compiled here the model agrees with the reference, and the file, which "
                f"{self._file.made_by} made, does not; {told}")


class StoredResults(Verified):
    """A file that is compared with the results that it holds, of the machine that made it."""

    given = "stored in the file"
    weights = "the file's own"

    def __init__(self, file: ArtefactFile) -> None:
        """Raises ConfigError: the file holds no results."""
        if not file.references:
            raise ConfigError(f"{file.path} holds no results to compare with (`compile --with-reference`): give the "
                              "model that it was made of, as of= or --of")
        self._file, self.precision = file, file.precision
        several = len(file.references) > 1
        self.inputs = {_of_set(name, one, several): array for one in file.references
                       for name, array in file.stored(one).items()}
        outputs = file.output_names()
        self.output_names = [_of_set(name, one, several) for one in file.references for name in outputs]

    def results(self, backend: str, options: Mapping[str, Any]) -> list[np.ndarray]:
        return [output for one in self._file.references
                for output in self._file.run(backend, options, self._file.stored(one))]

    def expected(self, against: str) -> list[np.ndarray]:
        return [output for one in self._file.references for output in one.outputs]

    def traced(self, against: str, backend: str, options: Mapping[str, Any]) -> tuple[Traced, list[Any]]:
        raise UnsupportedError("the file holds instructions and none of the model's values: give the model that it was "
                               "made of, as of= or --of")

    @property
    def has_halves(self) -> bool:
        return any(array.dtype == np.float16 for array in self.inputs.values())

    def reference_title(self, against: str) -> str:
        return f"the results that the file holds, made by {self._file.made_by}"


def _of_set(name: str, reference: Reference, several: bool) -> str:
    return f"{name} of set {reference.shapes}" if several else name


class Bisection:
    """A search for the first value that differs, in a model whose parts can be run. The reference's arrays at the
    model's points are known."""

    def __init__(self, traced: Traced, expected: Sequence[Any], tolerance: Tolerance,
                 on_part: Callable[[], None] = lambda: None) -> None:
        """`expected`: for each point; what is no array is not compared. `on_part`: called after each part."""
        self._traced, self._tolerance, self._on_part = traced, tolerance, on_part
        self._expected = {point: array for point, array in zip(traced.points, expected, strict=True)
                          if isinstance(array, np.ndarray) and array.dtype.kind in "biuf"}
        self._found: dict[Point, Difference] = {}
        self.parts = 0
        """The number of parts that were compiled so far."""

    def difference(self, point: Point) -> Difference:
        """Return the difference at this point, of the model that is cut behind it."""
        if point not in self._found:
            self._found[point] = self._compared([point], {})
        return self._found[point]

    def first(self) -> Point | None:
        """A value that differs, while those that it is computed of agree; None if no output of a part differs."""
        for output in self._traced.outputs:
            if output is not None and output in self._expected and not self.difference(output).agrees:
                return self._earliest(output)
        return None

    def _earliest(self, found: Point) -> Point:
        """Bisects what comes before a value that differs. Behind one that agrees nothing is looked for: but as it may
        hide a difference, as a relu does, the operands of what is found at last are looked at, too."""
        agreeing = set[Point]()
        while True:
            left = [point for point in self._traced.before(found) if point in self._expected and point not in agreeing]
            while left:
                middle = left[len(left) // 2]
                before = {middle, *self._traced.before(middle)}
                if self.difference(middle).agrees:
                    agreeing.add(middle)
                    left = [point for point in left if point not in before]
                else:
                    found, left = middle, [point for point in left if point in before and point != middle]
            operands = self._traced.operands(found, self._expected)
            suspect = next((point for point in operands if not self.difference(point).agrees), None)
            if suspect is None:
                return found
            found = suspect

    def described(self, point: Point) -> Diverging:
        operands = self._traced.operands(point, self._expected)
        given = {operand: self._expected[operand] for operand in operands}
        outputs = [output for output in self._traced.outputs if output is not None]
        alone, whole = self._compared([point], given), self._compared([*outputs, point], {})
        return Diverging(point.name, point.origin, self._traced.text(point, given), self.difference(point), alone,
                         whole, [Operand(one.name, one.origin, self.difference(one)) for one in operands],
                         self._traced.parameters(point, given), self.parts)

    def _compared(self, results: Sequence[Point], given: PointArrays) -> Difference:
        """Return the difference at the last of these points, in the part of the model that has the points as
        results."""
        found = self._traced.run(results, given)[-1]
        self.parts += 1
        self._on_part()
        return compare(found, self._expected[results[-1]], self._tolerance)


REFERENCES = ("mxnet", "onnxruntime", INTERPRETER)


def verify(model: Any, against: str | None = None, *, of: Any = None, inputs: Any = None,
           shapes: Mapping[str, Sequence[int]] | None = None, params: Any = None, reference_params: Any = None,
           dtypes: Mapping[str, str] | None = None, backend: str | None = None, tolerance: float | None = None,
           seed: int = SEED, results: Sequence[str] = (), weights: Any = None, **options: Any) -> Verification:
    """Run a model compiled and on a reference; if an output differs, find the first value that does.

    Args:
        model: what `compile` takes, but a package.
        of: of a compiled file the model that it was made of, which the reference runs, and to which `shapes`, `params`
            and `dtypes` belong; without it, the file is compared with the results that it holds.
        against: `mxnet`, its own operators; `onnxruntime`; or `interpreter`, the definitions of the IR. By default
            MXNet for symbols and blocks, ONNX Runtime for ONNX models where it is installed, else the interpreter.
        inputs: arrays by name, or in the model's order; those that are missing are drawn at random.
        shapes: of inputs that are not given, where the model leaves them open.
        params: of a symbol or a graph, arrays by name, or a symbol's `.params` file; random if not given. `weights` is
            another name of it.
        reference_params: for the reference's run alone, the same of a symbol or graph; of an ONNX model another one,
            whose initialisers it takes.
        dtypes: of a symbol's inputs; float32 where not given.
        backend: a name from `backends()`; by default the value of NGRAPH_BACKEND.
        tolerance: how far a float may be from the reference's, over the largest magnitude of its tensor; by default
            1e-3, in float16 (of models that store values so, too) 1e-2, in bf16 5e-2, in int8 0.2.
        results: as for `compile`.
        options: the backend's own, as `precision="bf16"`.

    Raises:
        ModelError, InputError: the model is malformed, or an array, shape or weight is missing or does not fit.
        UnsupportedError: it can't be compiled, and no framework of its own runs the rest; the text says why.
        ConfigError: an argument's value is not allowed, or the reference is not installed or not for such models.
    """
    name = canonical_name(backend)
    check_options(name, options)
    require_forms(shapes=shapes, dtypes=dtypes, tolerance=tolerance, seed=seed, results=results)
    if tolerance is not None and not (tolerance >= 0 and math.isfinite(tolerance)):
        raise ConfigError(f"tolerance: found {tolerance}, expected a number from 0 on")
    params = only_params(params, weights)
    source = model_of(model, results=results)
    given = Given(_arrays(inputs), fixed_shapes(shapes), params, reference_params, dtypes or {}, name, seed, of,
                  against)
    ran: Verified | FileRun = source.reference(given)
    found = ran.model if isinstance(ran, FileRun) else ran
    against = _reference(found, against)
    precision = ran.precision or get_backend(name).precision(options)
    coarsest = "f16" if precision == "f32" and found.has_halves else precision
    allowed = Tolerance(DEFAULTS[coarsest] if tolerance is None else tolerance)
    with progress("verifying", 3) as advance:
        ours = ran.results(name, options)
        advance()
        expected = found.expected(against)
        advance()
        outputs = [(output, compare(_tensor(output, mine), _tensor(output, theirs), allowed))
                   for output, mine, theirs in zip(found.output_names, ours, expected, strict=True)]
        advance()
    about = Verification(source.title, name, precision, found.reference_title(against), _told(found, seed),
                         found.weights + ("; other ones in the reference" if reference_params is not None else ""),
                         str(allowed), outputs, ran.note)
    if about.agrees:
        return about
    try:
        how = options if ran.precision is None else {"precision": ran.precision, **options}
        traced, values = found.traced(against, name, how)
        with progress("looking for the first value that differs", 4 + len(traced.points).bit_length()) as advance:
            bisection = Bisection(traced, values, allowed, advance)
            first = bisection.first()
            if first is None:
                return replace(about, unnamed=ran.parts_agree())
            diverging = bisection.described(first)
    except NGraphError as error:
        return replace(about, unnamed=f"the model can't be cut into parts: {error}")
    return replace(about, diverging=replace(diverging, differing=found.differing_weights(diverging.parameters)))


def verified_file(file: FileModel, given: Given) -> StoredResults | FileRun:
    """Return what is run of a compiled file; its `model` tells of the reference. Raises ConfigError: there is nothing
    to compare with, or arguments are of a model that is missing."""
    compiled = ArtefactFile(file.source)
    if given.of is None:
        unused = ("against", "inputs", "shapes", "params", "reference_params", "dtypes")
        names = [name for name in unused if getattr(given, name) not in (None, {})]
        if names:
            raise ConfigError(f"{listed(names)}: of the model that the file was made of, which is missing: of= as an "
                              "argument, --of on the command line")
        return StoredResults(compiled)
    source = model_of(given.of, given.params)
    source.require_source()
    source.require_weights()
    shapes = {**compiled.shapes(), **given.shapes} if "shapes" in source.takes else given.shapes
    dtypes = {**compiled.dtypes(), **given.dtypes} if "dtypes" in source.takes else given.dtypes
    source = source.holding(None, dtypes)
    return FileRun(compiled, source.reference(replace(given, of=None, shapes=shapes, dtypes=dtypes)), source)


def _arrays(inputs: Any) -> dict[str, Any]:
    """By name, or as `#0`, `#1`, ...; a sequence stays a list."""
    if inputs is None:
        return {}
    if not isinstance(inputs, Mapping):
        inputs = {f"#{place}": array for place, array in
                  enumerate(inputs if isinstance(inputs, (list, tuple)) else [inputs])}
    return {name: array if isinstance(array, (list, tuple)) else as_array(array, f"input {name}")
            for name, array in inputs.items()}


def _reference(model: Verified, against: str | None) -> str:
    possible = [INTERPRETER] if model.framework is None else [model.framework, INTERPRETER]
    if against is None:
        return model.default_reference()
    if against not in possible:
        raise ConfigError(f"against: found {against!r}, expected one of {', '.join(possible)} for such a model"
                          + (f". {model.note}" if model.note else ""))
    return against


def _tensor(name: str, array: Any) -> np.ndarray:
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "biuf":
        raise UnsupportedError(f"output {name!r} is no tensor of numbers, and only such are compared")
    return array


def _told(model: Verified, seed: int) -> list[str]:
    """Return the origin of each input, as text."""
    told = []
    for name, array in model.inputs.items():
        origin = model.given
        if name in model.drawn:
            origin = f"random of seed {seed}" + (f": {model.draws[name]}" if name in model.draws else "")
        kind = f" {array.dtype}{list(array.shape)}" if isinstance(array, np.ndarray) else ""
        told.append(f"{name}{kind}, {origin}")
    return told
