"""The kernels as compiled by `ngraph_mxnet.cpu.aot`, loaded with ctypes; objects are kept by their source's hash."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ngraph_mxnet.cpu.kernels import ALL_KERNELS, symbol

ROOT = Path(__file__).resolve().parents[2]


@functools.cache
def _source_hash() -> str:
    package = ROOT / "ngraph_mxnet" / "cpu"
    files = [package / "aot.py", *sorted((package / "kernels").glob("*.py")), *sorted((package / "microkernels").glob("*.py"))]
    return hashlib.sha256(b"".join(f.read_bytes() for f in files)).hexdigest()[:16]


@functools.cache
def object_file(isa: str) -> Path:
    """What the command line writes for an ISA; compiled unless it was before from the same source."""
    folder = Path(tempfile.gettempdir()) / f"ngraph-kernels-{os.getuid()}-{_source_hash()}"
    path = folder / f"{isa}.o"
    if not path.exists():
        folder.mkdir(exist_ok=True, mode=0o700)
        part = folder / f"{isa}.{os.getpid()}.part"
        command = [sys.executable, "-m", "ngraph_mxnet.cpu.aot", "--isa", isa, "--output", str(part)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert done.stdout + done.stderr == ""
        part.rename(path)
    return path


@functools.cache
def library(isa: str) -> ctypes.CDLL:
    """The object as a shared library in this process."""
    source = object_file(isa)
    target = source.with_suffix(f".{os.getpid()}.so")
    subprocess.run(["g++", "-shared", "-o", str(target), str(source), "-lm"], check=True)
    loaded = ctypes.CDLL(str(target))
    target.unlink()
    return loaded


def pointer_to(array: np.ndarray) -> int:
    """Address of the array's first logical element."""
    return array.__array_interface__["data"][0]


def run(
    isa: str,
    name: str,
    tensors: Sequence[np.ndarray],
    ints: Sequence[int],
    floats: Sequence[float] = (),
    splits: Sequence[int] = (),
) -> None:
    """Run all tasks of a kernel, cut at `splits` (any integers) and with the later ranges first."""
    kernel = getattr(library(isa), symbol(name, isa))
    kernel.restype = None
    pointers = (ctypes.c_void_p * len(tensors))(*map(pointer_to, tensors))
    numbers = (ctypes.c_int64 * max(len(ints), 1))(*ints)
    parameters = (ctypes.c_double * max(len(floats), 1))(*floats)
    tasks = ALL_KERNELS[name].tasks(ints)
    cuts = sorted({0, tasks, *(s % (tasks + 1) for s in splits)})
    for begin, end in reversed(list(zip(cuts, cuts[1:], strict=False))):
        kernel(pointers, numbers, parameters, ctypes.c_int64(begin), ctypes.c_int64(end))


def element_strides(array: np.ndarray) -> tuple[int, ...]:
    """Strides in elements."""
    return tuple(s // array.itemsize for s in array.strides)


class Blocked:
    """A blocked float32 tensor with a halo and garbage (NaN) around what a kernel should write."""

    def __init__(self, n: int, c: int, h: int, w: int, halo: tuple[int, int] = (0, 0)):
        self.shape, self.halo = (n, c, h, w), halo
        blocks = -(-c // 16)
        self.whole = np.full((n, blocks, h + 2 * halo[0], w + 2 * halo[1], 16), np.nan, np.float32)
        self.inner = self.whole[:, :, halo[0] : halo[0] + h, halo[1] : halo[1] + w]

    @property
    def strides(self) -> tuple[int, int, int, int]:
        """Elements between images, blocks, rows and pixels."""
        return element_strides(self.whole)[:4]

    @property
    def plain(self) -> np.ndarray:
        """The logical tensor."""
        n, c, h, w = self.shape
        return self.inner.transpose(0, 1, 4, 2, 3).reshape(n, -1, h, w)[:, :c]

    def fill(self, values: np.ndarray) -> Blocked:
        """Set the logical tensor; padding lanes become zero."""
        n, c, h, w = self.shape
        padded = np.zeros((n, self.whole.shape[1] * 16, h, w), np.float32)
        padded[:, :c] = values
        self.inner[...] = padded.reshape(n, -1, 16, h, w).transpose(0, 1, 3, 4, 2)
        return self
