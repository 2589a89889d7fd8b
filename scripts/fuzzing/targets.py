"""What is done with a mutant, and which errors are an answer."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

import ngraph_mxnet
from fuzzing import artefacts, entries, guarded_runs, mutants, programs
from ngraph_mxnet.base.errors import NGraphError, PackageError
from ngraph_mxnet.frontends.onnx.inputs import ModelPort
from ngraph_mxnet.program.artefact import read
from ngraph_mxnet.program.backend import load
from ngraph_mxnet.program.cache import open_store
from ngraph_mxnet.program.executable import NativeExecutable
from ngraph_mxnet.program.package import Package

_SIZES = (2, 3, 4)
"""What an open dimension is bound to."""
_MOST_BYTES = 1 << 24
"""The most that a package's inputs may take for it to be run: what it says of them is a mutant, too."""
_MOST_INT = 1 << 24
"""The largest int of a program that is run: one may read an element any number of times, and takes as long."""
READER_ERRORS = (NGraphError, ArithmeticError, LookupError, TypeError, ValueError)
"""After which a program is compiled anew."""


class OutOfBoundsError(Exception):
    """A refusal that only this process's limit of memory brought about."""


class WrongError(Exception):
    """Something was read that is not what was written."""


@dataclass(frozen=True)
class Target:
    """`seeds` are made once; `mutate` makes a mutant of bytes, with parts of seeds where that makes sense; `attempt`
    raises for a finding, and tells whether the mutant was taken. Mutants are cut off behind `most_bytes`."""

    seeds: Callable[[], list[bytes]]
    mutate: Callable[[bytes, Sequence[bytes], Random], bytes]
    attempt: Callable[[bytes], bool]
    most_bytes: int = 1 << 16


def try_model(content: bytes) -> bool:
    """Compile for the shapes that the model fixes, and for small ones where it leaves them open; nothing is run.

    One mutant in sixteen goes through the CPU's passes and memory plan, the others to the interpreter.
    """
    backend = "INTERPRETER" if zlib.crc32(content) % 16 else "CPU"
    try:
        exe = ngraph_mxnet.compile(content, backend)
        if any(port.is_open for port in exe.inputs):
            exe.program({port.name: _small(port) for port in exe.inputs})
    except NGraphError as error:
        if _is_memory(error):
            raise OutOfBoundsError(str(error)) from error
        return False
    return True


def _small(port: ModelPort) -> Any:
    if port.kind == "optional":
        return None
    sizes = iter(_SIZES * 8)
    shape = [dim if isinstance(dim, int) and dim < 64 else next(sizes, 1) for dim in port.shape or (2, 3)]
    array = np.ones(shape, port.dtype)
    return [array, array] if port.kind == "sequence" else array


def _is_memory(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, MemoryError):
            return True
        error = error.__cause__ or error.__context__
    return False


def try_package(content: bytes) -> bool:
    """Load a package, and run it if it loads."""
    try:
        program = load(Package.from_bytes(content, programs.HELD))
        inputs, outputs = ([np.ones(shape, dtype) for dtype, shape in ports]
                           for ports in entries.specs(content, _MOST_BYTES))
        # What others than the CPU run is NumPy's, and takes as much memory as a graph asks for.
        if isinstance(program, NativeExecutable) and entries.largest_int(program.native) <= _MOST_INT:
            program.native.run(inputs, outputs)
    except READER_ERRORS:
        return False
    return True


def try_artefact(content: bytes) -> bool:
    """Read and describe the file of a compiled model as the package does, then load it in the runtime. Run it if it
    loads."""
    with suppress(PackageError):
        read(content).summary()
    return guarded_runs.load_and_run(content)


_KIND, _KEY, _CONTENT = "program", "fuzzed", bytes(range(256)) * 8


def try_store(content: bytes) -> bool:
    """Put `content` in place of the file of an entry; the entry is then absent, or as it was."""
    store = open_store()
    assert store is not None
    store.clear()
    store.put(_KIND, _KEY, _CONTENT)
    for path in _files():
        path.write_bytes(content)
    found = store.get(_KIND, _KEY)
    if found not in (None, _CONTENT):
        raise WrongError(f"{len(found or b'')} bytes that were not kept")
    return found is not None


def _files() -> list[Path]:
    return [path for path in (Path(os.environ["NGRAPH_CACHE_DIR"]) / _KIND).iterdir() if path.is_file()]


def _stored() -> list[bytes]:
    """The files of a store that holds one entry."""
    store = open_store()
    assert store is not None
    store.put(_KIND, _KEY, _CONTENT)
    return [path.read_bytes() for path in _files()]


TARGETS: dict[str, Target] = {
    "model": Target(mutants.seeds, mutants.mutate, try_model),
    "package": Target(programs.seeds, entries.mutate, try_package),
    "artefact": Target(artefacts.seeds, artefacts.mutate, try_artefact, 1 << 18),
    "store": Target(_stored, entries.mutate_bytes, try_store),
}
