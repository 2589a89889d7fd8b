"""Runs files of compiled models in `ngraph_runtime`, on inputs and outputs behind which nobody may touch memory."""

from __future__ import annotations

import ctypes
import mmap
import os
import struct
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from math import prod
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np

from fuzzing.artefacts import Program, sections
from fuzzing.ranges import sizes_of
from ngraph_mxnet import _core
from ngraph_mxnet.package.artefact import Kind
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
_CLIPPED = ("chunk", "columns", "kernel_", "points", "rows", "stride_", "dilation_", "tile_rows")
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
        if model.ranges:
            _run_ranges(model, _core.Artefact(str(path)), random)
    except ModelError:
        return False
    finally:
        path.unlink()
    if _is_short(content):
        for number in range(len(model.shape_sets)):
            _run(model, [port.shapes[number] for port in model.inputs], [port.shapes[number] for port in model.outputs],
                 random)
    return True


def _run_ranges(model: Model, twin: Any, random: np.random.Generator) -> None:
    """`twin`: the same file, which tells what it makes of sizes."""
    for number, each in enumerate(model.ranges):
        for _ in range(3):
            values = sizes_of([(name, *ends) for name, ends in each.symbols.items()], random)
            shapes = [[size if isinstance(size, int) else values.get(size, 1) for size in port.ranges[number]]
                      for port in model.inputs]
            try:
                bound = twin.bind(shapes, 1)
            except (MemoryError, ValueError):
                continue
            calls = [(kernel.removeprefix("ng_").rpartition("__")[0], ints, tasks)
                     for level in bound.program.listed()[0] for kernel, _, ints, _, tasks, *_ in level]
            if sum(_work_of(*call) for call in calls) < _MOST_WORK:
                _run(model, shapes, [shape for _, shape in bound.outputs], random)


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


def _is_short(content: bytes) -> bool:
    try:
        programs = [Program(section.content) for section in sections(content) if section.kind == Kind.PROGRAM]
        return all(_work(program) <= _MOST_WORK for program in programs)
    except (LookupError, struct.error, ValueError):
        return False


def _work(program: Program) -> int:
    """Of all its instructions together."""
    total = 0
    for call in program.calls:
        ints = [field.value for field in program.fields[call.numbers:call.numbers + call.ints]]
        total += _work_of(program.kernel(call), ints, program.fields[call.first + 5].value)
    return total


def _work_of(kernel: str, ints: Sequence[int], tasks: int) -> int:
    record = KERNELS[kernel]
    if record is ROI_ALIGN and record.read(ints).samples < 1:
        return _MOST_WORK + 1  # a point for each pixel, of regions that are garbage
    return max(prod(_factors(record, ints)), tasks)


def _factors(record: Kernels, ints: Sequence[int]) -> list[int]:
    return [max(1, number) for at, (name, number) in enumerate(zip(record.ints, ints, strict=False))
            if (at < record.sizes or name.startswith(_LOOPS)) and not (name.startswith(_CLIPPED) and number > 99)]
