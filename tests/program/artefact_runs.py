"""Runs the programs of an artefact in this process, as the runtime would: kernels by name, constants from the file."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ngraph_mxnet import _core
from ngraph_mxnet.program.artefact import Artefact
from ngraph_mxnet.program.compile import Weighted
from ngraph_mxnet.program.export import compile_to_file
from ngraph_mxnet.program.program import Program, ProgramSet
from ngraph_mxnet.targets.cpu.machine.isa import supported


def made(*graphs: Weighted, backend: str = "CPU", **options: Any) -> bytes:
    """The file of a model `net` with these graphs, one for each set of shapes."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "net.ngraph"
        compile_to_file(path, graphs, backend, **options)
        return path.read_bytes()


def program_of(one: ProgramSet) -> Program:
    """That of a set of shapes."""
    ((program, _),) = one.programs
    return program


def bound(one: ProgramSet) -> Any:
    """The BoundProgram of a set of shapes."""
    return program_of(one).native(_core.kernel_address).bind(of_file=True)


def run(one: ProgramSet, inputs: Sequence[np.ndarray], threads: int = 2) -> list[np.ndarray]:
    native = _core.Executable(
        bound(one), None, 0, [],
        *([(type_.element.name, type_.shape) for _, type_ in types] for types in (one.inputs, one.outputs)), threads)
    outputs = [np.empty(type_.shape, type_.element.numpy) for _, type_ in one.outputs]
    native.run([np.ascontiguousarray(array) for array in inputs], outputs)
    return outputs


def of(artefact: Artefact, isa: str, number: int = 0) -> ProgramSet:
    (found,) = (one for one in artefact.sets if (one.isa, one.number) == (isa, number))
    return found


def kernels(one: ProgramSet) -> set[str]:
    """Their symbols."""
    return set().union(*(program.kernels() for program, _ in one.programs))


def isas_here() -> list[str]:
    """The instruction sets with kernels of their own that this CPU runs, best first."""
    return list(supported(_core.cpu_features()))


def random_inputs(one: ProgramSet) -> list[np.ndarray]:
    random = np.random.default_rng(3)
    return [random.standard_normal(type_.shape).astype(type_.element.numpy) for _, type_ in one.inputs]
