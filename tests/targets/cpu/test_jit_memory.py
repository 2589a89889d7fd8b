"""Code that is made in a process whose memory is full: a crash of the whole process otherwise."""

from __future__ import annotations

import os
import subprocess
import sys

_HOLES = """
import ctypes, mmap

libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


def take(size):  # addresses without memory
    return libc.mmap(None, size, 0, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000, -1, 0)


def leave_holes():
    for _ in range(2_000):  # gaps that there are
        take(4096)
    holes = []
    for _ in range(8):
        holes.append(take(4096))
        take((4 << 30) + 4096)  # a whole number of large pages would lie at one, a gap in front of it
    for hole in holes:
        libc.munmap(hole, 4096)
"""
"""Small sections fit into pages that lie 4 GiB apart, large ones nowhere near them."""


def run(code: str) -> None:
    environ = {**os.environ, "NGRAPH_CODEGEN": "1", "NGRAPH_CACHE_DIR": ""}
    command = [sys.executable, "-c", _HOLES + code]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "alive\n"


def test_microkernels() -> None:
    run("""
from ngraph_mxnet.targets.cpu.microkernels.target import load

leave_holes()
assert all(load("avx2").values())
print("alive")
""")


def test_generated_kernels() -> None:
    run("""
import numpy as np
from ngraph_mxnet import Builder, compile


def run(size):
    b = Builder()
    x = b.parameter("x", (size, 65))
    executable = compile(b.results(b.exp(b.negative(b.tanh(b.multiply(x, x))))), "CPU", threads=1)
    data = np.linspace(-2, 2, size * 65, dtype=np.float32).reshape(size, 65)
    np.testing.assert_allclose(executable(data)[0], np.exp(-np.tanh(data * data)), rtol=1e-5)


run(3)
leave_holes()
run(4)
print("alive")
""")
