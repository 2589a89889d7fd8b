"""Compiled files that are verified: against the model that one was made of, or the results that it holds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ngraph_mxnet.errors import ConfigError, ModelError, NGraphError, UnsupportedError, listed
from ngraph_mxnet.ir.fingerprint import fingerprint
from ngraph_mxnet.ir.graph import Graph
from ngraph_mxnet.package.artefact import Artefact, ProgramSummary, Reference
from ngraph_mxnet.package.artefact_reader import load
from ngraph_mxnet.runtime.artefact import origin_of
from ngraph_mxnet.runtime.backend import load_file
from ngraph_mxnet.verifying.models import Model, Shapes
from ngraph_mxnet.verifying.traced import Traced

Weighted = Callable[[Shapes], tuple[Graph, Mapping[str, Any]]]
"""The graph and weights of the model for shapes of its inputs, as the compiler of files takes them."""


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
            raise ModelError(f"can't read {path}: {error.strerror or error}") from None
        self.precision = self._artefact.meta.precision
        self.made_by = self._artefact.meta.made_by
        self.references: Sequence[Reference] = self._artefact.references
        self._sets: dict[int, ProgramSummary] = {}
        for program in self._artefact.programs:
            self._sets.setdefault(program.shapes, program.summary())

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shapes of the inputs by name; empty if the file is for several sets of shapes, or for ranges."""
        if len(self._sets) != 1 or self._artefact.ranges:
            return {}
        return {name: type_.shape for name, type_ in self._sets[0].inputs}

    def dtypes(self) -> dict[str, str]:
        """Return the dtypes of the inputs by name, in the order of the inputs."""
        inputs = (self._artefact.programs or self._artefact.ranges)[0].inputs
        return {name: str(type_.element.numpy) for name, type_ in inputs}

    def output_names(self) -> list[str]:
        return [name for name, _ in (self._artefact.programs or self._artefact.ranges)[0].outputs]

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

    def unlike(self, inputs: Mapping[str, Any], made: Weighted) -> str:
        """How the graph and weights that the file was made of differ from the model's, for these inputs."""
        number = next((number for number, one in self._sets.items() if number < len(self._artefact.origins)
                       and all(inputs[name].shape == type_.shape for name, type_ in one.inputs)), None)
        if number is None:
            return "it does not tell of what it was made for these shapes"
        origin = self._artefact.origins[number]
        graph, weights = made({name: type_.shape for name, type_ in self._sets[number].inputs})
        wanted = origin_of(graph, weights)
        if wanted.graph != origin.graph:
            return "it was made of another graph than the model's: of another model, or by another version"
        others = [parameter.name for parameter, ours, theirs
                  in zip(fingerprint(graph).parameters, origin.parameters, wanted.parameters, strict=True)
                  if ours != theirs]
        return f"its weights {listed(others)} are others than the model's" if others else \
            "it was made of the model's graph and weights"


class ArtefactModel(Model):
    """A file that is compared with the model that it was made of. Parts are cut out of the model, and compiled here."""

    def __init__(self, file: ArtefactFile, model: Model, made: Weighted) -> None:
        self._file, self._model, self._made = file, model, made
        self.framework, self.output_names = model.framework, model.output_names
        self.inputs, self.drawn, self.weights = model.inputs, model.drawn, model.weights
        self.precision = file.precision
        self.note = ("The file holds instructions and none of the model's values: if outputs differ, the first value "
                     "that does is looked for in the model as it is compiled here.")

    def results(self, backend: str, options: Mapping[str, Any]) -> list[np.ndarray]:
        found = self._file.run(backend, options, self.inputs)
        if len(found) != len(self.output_names):
            raise ModelError(f"the file gives {len(found)} outputs, and the model {listed(self.output_names)}: the "
                             "file was made of another one")
        return found

    def expected(self, against: str) -> list[np.ndarray]:
        return self._model.expected(against)

    def traced(self, against: str, backend: str, options: Mapping[str, Any]) -> tuple[Traced, list[Any]]:
        return self._model.traced(against, backend, {"precision": self.precision, **options})

    def parts_agree(self) -> str:
        try:
            told = self._file.unlike(self.inputs, self._made)
        except NGraphError as error:
            told = f"of what it was made can't be compared: {error}"
        return ("as it is compiled here the model agrees with the reference, and the file, which "
                f"{self._file.made_by} made, does not; {told}")

    @property
    def has_halves(self) -> bool:
        return self._model.has_halves

    def default_reference(self) -> str:
        return self._model.default_reference()

    def reference_title(self, against: str) -> str:
        return self._model.reference_title(against)

    def differing_weights(self, names: Sequence[str]) -> list[str]:
        return self._model.differing_weights(names)


class StoredResults(Model):
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
                       for name, array in zip(file.dtypes(), one.inputs, strict=True)}
        outputs = file.output_names()
        self.output_names = [_of_set(name, one, several) for one in file.references for name in outputs]

    def results(self, backend: str, options: Mapping[str, Any]) -> list[np.ndarray]:
        names = list(self._file.dtypes())
        return [output for one in self._file.references
                for output in self._file.run(backend, options, dict(zip(names, one.inputs, strict=True)))]

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
