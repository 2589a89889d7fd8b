"""What is done with a mutant, and which errors are an answer."""

from __future__ import annotations

import os
import re
import tracemalloc
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from math import prod
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

import ngraph_mxnet
from fuzzing import artefacts, entries, guarded_runs, mutants, params, programs, symbols, texts
from ngraph_mxnet.base.errors import NGraphError, PackageError
from ngraph_mxnet.frontends.model import model_of
from ngraph_mxnet.frontends.mxnet.importer import import_symbol
from ngraph_mxnet.frontends.mxnet.model import random_weights
from ngraph_mxnet.frontends.mxnet.params import MOST_DENSE_BYTES, read_arrays
from ngraph_mxnet.frontends.mxnet.symbol_json import SymbolGraph, parse_symbol, read_symbol
from ngraph_mxnet.frontends.onnx.inputs import ModelPort
from ngraph_mxnet.ir import Graph, Value, print_graph
from ngraph_mxnet.ir.parser import parse_graph
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
_MOST_TEXT = 1 << 14
"""The length of a message, in letters: one that repeats the file tells nothing."""
_JSON_FACTOR, _JSON_BYTES = 64, 1 << 20
"""Memory for the objects of JSON: as many times its text, and more."""
_MOST_ELEMENTS = 1 << 20
"""Of the inputs and weights of a symbol that is compiled."""
_IMAGE = (1, 3, 32, 32)
_WEIGHTS = random_weights({"op_weight": (2, 3, 3, 3), "op_bias": (2,), "op_gamma": (3,), "op_beta": (3,),
                           "fc_weight": (3, 8), "fc_bias": (3,)})
"""Weights that symbols may name; they seldom fit."""


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


@contextmanager
def bounded(content: bytes, factor: int, more: int) -> Iterator[None]:
    """Measure the memory that is taken within, by Python and NumPy.

    Raises:
        WrongError: it is more than `factor` times the content and `more` bytes.
    """
    tracemalloc.start()
    try:
        yield
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        if peak > factor * len(content) + more:
            raise WrongError(f"{peak} bytes of memory to read {len(content)}")


def try_params(content: bytes) -> bool:
    """Read a `.params` file; all elements of all arrays can be read."""
    try:
        with bounded(content, 1, MOST_DENSE_BYTES):  # the content itself was there before
            found = read_arrays(content)
    except NGraphError as error:
        _require_told(error, content)
        return False
    for array in found.values():
        array.tobytes()
    return True


def _require_told(error: NGraphError, content: bytes) -> None:
    if _is_memory(error):
        raise OutOfBoundsError(str(error)) from error
    if len(str(error)) > _MOST_TEXT:
        raise WrongError(f"a message of {len(str(error))} letters, of {len(content)} bytes: {str(error)[:300]}")


def try_symbol(content: bytes) -> bool:
    """Read a symbol, then compile it with weights: those of the seeds, by name, or such as fit.

    A symbol with large inputs or weights is only lowered; half of those keep their loops. One mutant in sixteen goes
    through the CPU's passes and memory plan, the others to the interpreter.
    """
    kind = zlib.crc32(content)
    try:
        text = content.decode()
    except UnicodeDecodeError:  # a file of it is refused before
        return False
    try:
        with bounded(content, _JSON_FACTOR, _JSON_BYTES):
            graph = read_symbol(text) if text.lstrip().startswith("{") else parse_symbol(text)
        shapes = _shapes(graph)
        names = model_of(text, _WEIGHTS if kind & 1 else {}).inputs()
        sizes = {name: shapes.get(name, _IMAGE) for name in names}
        weights: dict[str, Any] = _WEIGHTS
        if not kind & 1:
            lowered = import_symbol(graph, {**shapes, **sizes}, keep_loops=bool(kind & 2))
            wanted = {value.name: value.shape for value in lowered.parameters if value.name not in sizes}
            if sum(map(prod, [*wanted.values(), *sizes.values()])) > _MOST_ELEMENTS:
                return True
            weights = random_weights(wanted)
        ngraph_mxnet.compile(text, "INTERPRETER" if kind % 16 else "CPU", params=weights, shapes=sizes)
    except NGraphError as error:
        _require_told(error, content)
        return False
    return True


def try_text(content: bytes) -> bool:
    """Parse the text of a graph, print it, and compile it where its values are small: as `try_symbol`."""
    try:
        graph = parse_graph(content.decode())
    except UnicodeDecodeError:  # a file of it is refused before
        return False
    except NGraphError as error:
        _require_told(error, content)
        return False
    printed = print_graph(graph)
    if print_graph(parse_graph(printed)) != printed:
        raise WrongError(f"printed and parsed it is another graph: {printed:.300}")
    if any(value.type.is_symbolic or value.type.size > _MOST_ELEMENTS for value in _values(graph)):
        return True
    try:
        ngraph_mxnet.compile(graph, "INTERPRETER" if zlib.crc32(content) % 16 else "CPU")
    except NGraphError as error:
        _require_told(error, content)
        return False
    return True


def _values(graph: Graph) -> Iterator[Value]:
    yield from graph.parameters
    for node in graph.nodes:
        yield from node.outputs


def _shapes(graph: SymbolGraph) -> dict[str, tuple[int, ...]]:
    """Those that variables say of themselves, where no size is negative or very large."""
    found = {node.name: tuple(int(size[:20]) for size in re.findall(r"-?\d+", node.attrs.get("__shape__", "")))
             for node in graph.arguments()}
    return {name: shape for name, shape in found.items() if shape and all(0 <= size < 1 << 48 for size in shape)}


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
    "params": Target(params.seeds, params.mutate, try_params, 1 << 18),
    "symbol": Target(symbols.seeds, symbols.mutate, try_symbol, symbols.MOST_BYTES),
    "text": Target(texts.seeds, texts.mutate, try_text),
    "model": Target(mutants.seeds, mutants.mutate, try_model),
    "package": Target(programs.seeds, entries.mutate, try_package),
    "artefact": Target(artefacts.seeds, artefacts.mutate, try_artefact, 1 << 18),
    "store": Target(_stored, entries.mutate_bytes, try_store),
}
