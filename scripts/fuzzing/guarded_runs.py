"""Runs files of compiled models in `ngraph_runtime`, on inputs and outputs behind which nobody may touch memory."""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache
from math import prod
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np

from fuzzing.program_sections import sizes_of
from ngraph_mxnet import _core
from ngraph_mxnet.targets.cpu.params import KERNELS, Kernels
from ngraph_mxnet.targets.cpu.params.layout import ROI_ALIGN

sys.path.append(str(Path(__file__).resolve().parents[2] / "runtime"))

import ngraph_runtime
from ngraph_runtime import InputError, Model, ModelError
from ngraph_runtime.reference import references

_MOST_BYTES = 1 << 20
"""The most that an input or output may take for a model to be run: what its file says of them is a mutant, too."""
_GUARD = 1 << 24
_MOST_WORK = 1 << 25
"""About how many elements an instruction may look at: not each number that is absurd must take years."""
_LOOPS = ("reduced", "inner", "columns", "samples", "count", "steps", "size", "axes")
"""Beginnings of the names of numbers that make a call longer, beside its sizes."""
_CLIPPED = ("chunk", "columns", "kernel.", "points", "rows", "stride.", "dilation.", "tile_rows")
"""Of sizes that alone make no call long."""

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
_libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_NO_ACCESS, _NO_RESERVE = 0, 0x4000


@cache
def _room(number: int) -> int:
    """Where the memory of a port ends."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE
    begin = _libc.mmap(None, _MOST_BYTES + 2 * _GUARD, _NO_ACCESS, flags, -1, 0)
    if begin is None or _libc.mprotect(begin + _GUARD, _MOST_BYTES, mmap.PROT_READ | mmap.PROT_WRITE):
        raise MemoryError(f"no memory for port {number}")
    return int(begin) + _GUARD + _MOST_BYTES


def _array(number: int, shape: Sequence[int], dtype: np.dtype) -> np.ndarray:
    size = prod(shape) * dtype.itemsize
    memory = (ctypes.c_char * size).from_address(_room(number) - size)
    return np.ndarray(shape, dtype, memory)


def load_and_run(content: bytes) -> bool:
    """Whether the file loads. Of one that does each set of shapes runs, and some sizes of each range, unless that would
    take long.

    What lies in memory that a file may not touch ends the process.
    """
    path = Path(os.environ.get("TMPDIR", "/tmp")) / f"fuzzed-{os.getpid()}.ngraph"
    path.write_bytes(content)
    try:
        model = ngraph_runtime.load(path)
        with suppress(ModelError):
            references(model)
        random = np.random.default_rng(crc32(content))
        for bound in bound_programs(model, path, random):
            if is_short(bound):
                _run(model, *([shape for _, shape in specs] for specs in (bound.inputs, bound.outputs)), random)
    except ModelError:
        return False
    finally:
        path.unlink()
    return True


def bound_programs(model: Model, path: Path, random: np.random.Generator) -> Iterator[Any]:
    """The `_core.Executable`s of all sets of shapes, and of some sizes of each range, of the same file."""
    twin = _core.Artefact(str(path))
    for inputs, _ in twin.shape_sets:
        yield twin.bind([shape for _, _, shape in inputs], 1)
    for number, each in enumerate(model.ranges):
        for _ in range(3):
            values = sizes_of([(name, *ends) for name, ends in each.symbols.items()], random)
            shapes = [[size if isinstance(size, int) else values.get(size, 1) for size in port.ranges[number]]
                      for port in model.inputs]
            try:
                yield twin.bind(shapes, 1)
            except (MemoryError, ValueError):
                continue


def _run(model: Model, inputs_shapes: Sequence[Sequence[int]], outputs_shapes: Sequence[Sequence[int]],
         random: np.random.Generator) -> None:
    ports = [*zip(model.inputs, inputs_shapes, strict=True), *zip(model.outputs, outputs_shapes, strict=True)]
    if max((prod(shape) * port.dtype.itemsize for port, shape in ports), default=0) > _MOST_BYTES:
        return
    arrays = [_array(place, shape, port.dtype) for place, (port, shape) in enumerate(ports)]
    inputs, outputs = arrays[:len(model.inputs)], arrays[len(model.inputs):]
    for array in inputs:
        if array.dtype.kind == "f":
            array[...] = random.uniform(-3, 9, array.shape)
        else:
            most = random.choice((4, 4, 256))
            array.reshape(-1).view(np.uint8)[...] = random.integers(0, most, array.nbytes)
        if array.dtype.kind == "b":
            array.view(np.uint8)[...] &= 1
    with suppress(InputError, MemoryError):
        model.run(inputs, out=outputs, threads=int(random.integers(1, 3)))


def is_short(bound: Any) -> bool:
    """Whether a call of it takes little time."""
    try:
        levels = bound.program.listed()[0]
    except UnicodeDecodeError:  # the name of a node
        return False
    return sum(_work_of(kernel.removeprefix("ng_").rpartition("__")[0], ints, tasks)
               for level in levels for kernel, _, ints, _, tasks, *_ in level) <= _MOST_WORK


def _work_of(kernel: str, ints: Sequence[int], tasks: int) -> int:
    record = KERNELS[kernel]
    if record is ROI_ALIGN and record.read(ints).samples < 1:
        return _MOST_WORK + 1  # a point for each pixel, of regions that are garbage
    return max(prod(_factors(record, ints)), tasks)


def _factors(record: Kernels, ints: Sequence[int]) -> list[int]:
    return [max(1, number) for at, (name, number) in enumerate(zip(record.ints, ints, strict=False))
            if (at < record.sizes or name.startswith(_LOOPS)) and not (name.startswith(_CLIPPED) and number > 99)]
