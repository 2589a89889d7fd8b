"""Runs the programs of an artefact in this process, as the runtime would: kernels by name, constants from the file."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ngraph_mxnet import _core
from ngraph_mxnet.package.artefact import Artefact, ArtefactProgram
from ngraph_mxnet.runtime.artefact import Weighted, compile_to_file
from ngraph_mxnet.targets.cpu.machine.isa import supported


def made(*graphs: Weighted, backend: str = "CPU", **options: Any) -> bytes:
    """The file of a model `net` with these graphs, one for each set of shapes."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "net.ngraph"
        compile_to_file(path, graphs, backend, **options)
        return path.read_bytes()


def run(program: ArtefactProgram, inputs: Sequence[np.ndarray], threads: int = 2) -> list[np.ndarray]:
    levels = [[(kernel, _core.kernel_address(kernel), *rest) for kernel, *rest in level] for level in program.levels]
    native = _core.Executable(
        _core.BoundProgram(levels, program.arena_bytes, list(program.constants)), None, 0, [],
        *([(type_.element.name, type_.shape) for _, type_ in types] for types in (program.inputs, program.outputs)),
        threads)
    outputs = [np.empty(type_.shape, type_.element.numpy) for _, type_ in program.outputs]
    native.run([np.ascontiguousarray(array) for array in inputs], outputs)
    return outputs


def of(artefact: Artefact, isa: str, shapes: int = 0) -> ArtefactProgram:
    (found,) = (one for one in artefact.programs if (one.isa, one.shapes) == (isa, shapes))
    return found


def isas_here() -> list[str]:
    """The instruction sets with kernels of their own that this CPU runs, best first."""
    return list(supported(_core.cpu_features()))


def random_inputs(program: ArtefactProgram) -> list[np.ndarray]:
    random = np.random.default_rng(3)
    return [random.standard_normal(type_.shape).astype(type_.element.numpy) for _, type_ in program.inputs]
