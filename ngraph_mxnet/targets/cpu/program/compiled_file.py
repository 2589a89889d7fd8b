"""A compiled file (docs/artefact.md), called with arrays. Importing this module imports no compiler."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ngraph_mxnet.base.errors import ConfigError, PackageError
from ngraph_mxnet.base.forks import Recent
from ngraph_mxnet.ir.types import TensorType, element_type
from ngraph_mxnet.program.executable import (
    InputError,
    NativeExecutable,
    Port,
    Seeded,
    Submitting,
    as_array,
    described,
    in_order,
)
from ngraph_mxnet.targets.cpu.machine.openmp import warn_of_ignored
from ngraph_mxnet.targets.cpu.options import read_options, unlike
from ngraph_mxnet.targets.cpu.program.trace import trace_executor

MOST_BOUND = 64
"""Shapes within ranges for which what runs them is kept; those used longest ago go first."""


@dataclass(frozen=True)
class FilePort:
    """An input or output. `shapes`: of all sets of shapes, then of all ranges, as texts."""

    name: str
    dtype: str
    shapes: tuple[str, ...]
    shape: tuple[int, ...] | None
    """The shape, if there is one set and no range. Otherwise each call brings other shapes, and this is None."""

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}{' or '.join(self.shapes)}"


class CompiledFile(Submitting, Seeded):
    """A compiled file, with the promises of `Executable`: results are the caller's own, inputs are never written to,
    calls from several threads are safe.

    Attributes:
        inputs, outputs: see `FilePort`.
        name, precision, metadata: what the compiler and its user wrote.
        instruction_set: whose instructions run.
    """

    def __init__(self, path: str | os.PathLike[str], threads: int) -> None:
        """
        Raises:
            PackageError: it is no such file, damaged, or not for this machine.
            OSError: it can't be read.
        """
        from ngraph_mxnet import _core

        self.path = os.fspath(path)
        self._threads = threads
        try:
            self._file = _core.Artefact(self.path)
            meta = json.loads(self._file.metadata)
            self.name, self.precision = str(meta["name"]), str(meta["precision"])
            self.metadata: dict[str, str] = dict(meta["metadata"])
        except (AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
            raise PackageError(f"{self.path}: {error}") from None
        self.instruction_set: str = self._file.instruction_set
        trace_executor()
        warn_of_ignored(os.environ)
        sets = [tuple([_port(*one) for one in ports] for ports in both) for both in self._file.shape_sets]
        self.ports, self.outputs = (_joined([both[side] for both in sets], [both[side] for both in self._file.ranges])
                                    for side in (0, 1))
        self.inputs = self.ports
        self.hide_state()
        self._bound = Recent(MOST_BOUND + len(sets))

    def __repr__(self) -> str:
        return described(self)

    def __call__(self, /, *arrays: Any, **named: Any) -> list[np.ndarray]:
        """Run on arrays in the order of `inputs`, on arrays by name (the first ones may be in order), or on one dict.

        Raises:
            InputError: one is missing, unknown, no array, of the wrong dtype, or of a shape that the file is not for.
        """
        given = self.with_state([as_array(array, f"input {port.name!r}") for port, array in
                                 zip(self.inputs, in_order(self.inputs, arrays, named), strict=True)])
        return self.at(*(array.shape for array in given))(*given)

    def profile(self, *arrays: Any, rounds: int = 20) -> Any:
        """Raises ConfigError: what the kernels compute is not in the file."""
        raise ConfigError(f"{self.path} does not tell which nodes its kernels compute: profile the model itself")

    def at(self, *shapes: Sequence[int]) -> NativeExecutable:
        """Return the executable that runs all of `ports` in these shapes.

        Raises:
            InputError: the file is not for them.
        """
        key = tuple(map(tuple, shapes))
        found: NativeExecutable = self._bound.get_or_make(key, lambda: self._made(key))
        return found

    def _made(self, shapes: tuple[tuple[int, ...], ...]) -> NativeExecutable:
        try:
            native = self._file.bind(shapes, self._threads)
        except ValueError as error:
            raise InputError(f"{self.path}: {error}") from None
        inputs, outputs = ([_port(port.name, *spec) for port, spec in zip(ports, specs, strict=True)]
                           for ports, specs in ((self.ports, native.inputs), (self.outputs, native.outputs)))
        return NativeExecutable(inputs, outputs, native)


def _port(name: str, element: str, shape: Sequence[int]) -> Port:
    return Port(name, TensorType(element_type(element), tuple(shape)))


def _joined(sets: Sequence[Sequence[Port]], ranges: Sequence[Sequence[tuple[str, str, str]]]) -> tuple[FilePort, ...]:
    """Join the ports of all sets of shapes and ranges, which have the same names and elements."""
    if sets:
        names = [(port.name, str(port.type.element.numpy)) for port in sets[0]]
    else:
        names = [(name, str(element_type(element).numpy)) for name, element, _ in ranges[0]]
    return tuple(FilePort(name, dtype, (*(str(list(one[place].type.shape)) for one in sets),
                                        *(one[place][2] for one in ranges)),
                          sets[0][place].type.shape if len(sets) == 1 and not ranges else None)
                 for place, (name, dtype) in enumerate(names))


def load_file(path: str | os.PathLike[str], options: Mapping[str, Any]) -> CompiledFile:
    """See `runtime.backend.load_file`."""
    wanted = read_options(options)
    found = CompiledFile(Path(path), wanted.threads)
    given = {name: value for name, value in options.items() if name != "threads"}
    reason = unlike(given, found.instruction_set, found.precision) if given else None
    if reason is not None:
        raise ConfigError(f"{found.path} is compiled already, and other than the options say: {reason}; "
                          "compile the model itself")
    return found
