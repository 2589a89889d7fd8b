"""Executes the tile instructions of Intel's AMX in this process, on CPUs that lack them.

A handler of SIGILL decodes the instruction, executes it on tiles of the calling thread, and goes on behind it
(`tile_machine.c`, compiled here). All else runs at the CPU's own speed. Invalid use of tiles ends as on a CPU that has
them: SIGSEGV for a configuration, SIGILL for all else, with a line on stderr that says what was wrong.
"""

from __future__ import annotations

import ctypes
import functools
import os
import subprocess
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

_SOURCE = Path(__file__).with_suffix(".c")
_ARCH_PRCTL, _ARCH_GET_XCOMP_PERM, _TILE_DATA = 158, 0x1022, 18
_PAGE_FAULT = 14
_lock, _depth = threading.Lock(), 0


class _Instruction(ctypes.Structure):
    """`struct instruction` of the source."""

    _fields_ = [
        *((name, ctypes.c_int) for name in ("operation", "length", "tile", "first", "second")),
        *((name, ctypes.c_uint64) for name in ("address", "stride")),
        ("checked", ctypes.c_int),
        ("reason", ctypes.c_char * 200),
    ]


@functools.cache
def _library() -> ctypes.CDLL:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "tile_machine.so")
        flags = ("-std=gnu11", "-O3", "-Wall", "-Wextra", "-fPIC", "-shared", "-pthread")
        subprocess.run([os.environ.get("CC", "cc"), *flags, "-o", path, _SOURCE], check=True)
        library = ctypes.CDLL(str(path))
    library.tile_machine_name.restype = ctypes.c_char_p
    library.tile_machine_executed.restype = library.tile_machine_configured_threads.restype = ctypes.c_uint64
    return library


def _executed() -> Counter[str]:
    library = _library()
    numbers = range(library.tile_machine_operations())
    return Counter({library.tile_machine_name(n).decode(): library.tile_machine_executed(n) for n in numbers})


def runs_natively() -> bool:
    """Whether the CPU itself executes tile instructions of this process: it has them, and permission was asked for."""
    allowed = ctypes.c_uint64()
    refused = ctypes.CDLL(None).syscall(_ARCH_PRCTL, _ARCH_GET_XCOMP_PERM, ctypes.byref(allowed))
    return not refused and bool(allowed.value >> _TILE_DATA & 1)


def configured_threads() -> int:
    """How many threads hold tiles: between `ldtilecfg` and `tilerelease`."""
    return _library().tile_machine_configured_threads()


@contextmanager
def emulated_tiles() -> Iterator[Callable[[], Counter[str]]]:
    """Execute tile instructions of all threads inside the block.

    Gives a function that tells how many of each have run since the block began, by name (`tdpbf16ps`, ...). They count
    as nothing where the CPU executes them: see `runs_natively`. A handler of SIGILL, faulthandler's too, must be set
    before the block: it gets what is no tile instruction.

    Raises:
        RuntimeError: another handler of SIGILL was set inside the block.
    """
    global _depth
    library = _library()
    with _lock:
        if not _depth and library.tile_machine_install():
            raise OSError("no handler of SIGILL can be set")
        _depth += 1
    try:
        before = _executed()
        yield lambda: _executed() - before
    finally:
        with _lock:
            _depth -= 1
            if not _depth and library.tile_machine_remove():
                raise RuntimeError("another handler of SIGILL was set while tiles were emulated: set it before")


def step(address: int, registers: Sequence[int]) -> int | tuple[int, str]:
    """Execute the tile instructions from `address` on, on this thread's tiles, for an emulator of the whole CPU.

    `registers` are the 16 integer registers by number. Returns the length of all tile instructions that follow one
    another, 0 if there is none, or the number of the CPU exception of the first and the reason. They count in the
    function that `emulated_tiles` gives.
    """
    told = _Instruction()
    found = _library().tile_machine_step(ctypes.c_void_p(address), (ctypes.c_uint64 * 16)(*registers), 1,
                                         ctypes.byref(told))
    if found >= 0:
        return found
    return -found, told.reason.decode() + (f", address {told.address:#x}" if -found == _PAGE_FAULT else "")
