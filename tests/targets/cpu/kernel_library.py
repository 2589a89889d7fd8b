"""The package's kernels, called with ctypes, and what their tests share."""

from __future__ import annotations

import ctypes
import functools
import importlib.util
from collections.abc import Sequence
from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import strategies as st
from packing_references import round_bf16_reference
from tile_machine import emulated_tiles

import ngraph_mxnet
from ngraph_mxnet import _core
from ngraph_mxnet.targets.cpu.kernels import symbol
from ngraph_mxnet.targets.cpu.machine.isa import available
from ngraph_mxnet.targets.cpu.params import KERNELS, Params

_SIGNATURE = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64
)
LIBRARY = Path(ngraph_mxnet.__file__).with_name("libngraph_kernels.so")

_FLAGS = Path("/proc/cpuinfo").read_text().split()
NATIVE_AVX512 = {"avx512f", "avx512bw", "avx512dq", "avx512vl"} <= set(_FLAGS)
NATIVE_AVX512_BF16 = NATIVE_AVX512 and "avx512_bf16" in _FLAGS
EMULATED = [
    pytest.mark.slow,
    pytest.mark.skipif(not importlib.util.find_spec("bochscpu"), reason="no emulator: install the extra `emulate`"),
]
AVX512 = [] if NATIVE_AVX512 else EMULATED
"""Marks of tests that run AVX-512 kernels: emulated where the CPU has no AVX-512."""
AVX512_BF16 = [] if NATIVE_AVX512_BF16 else EMULATED
"""The same for AVX512_BF16."""
ISAS = [
    pytest.param("avx512", marks=AVX512),
    pytest.param("avx2", marks=pytest.mark.skipif("avx2" not in _FLAGS, reason="the CPU has no AVX2")),
    "baseline",
]
PROGRAMS = list(dict.fromkeys([*available(_core.cpu_features()), *["amx"] * NATIVE_AVX512_BF16]))
"""The instruction sets of programs that run here, AMX's perhaps by emulated tiles."""
every_isa = pytest.mark.parametrize("isa", ISAS)
SPLITS = st.lists(st.integers(0, 10**6), max_size=3)
SEEDS = st.integers(0, 2**32 - 1)
SPECIAL = np.array(
    [0.0, -0.0, 1, -1, 0.5, -0.5, 1.5, 2.5, -2.5, 88.7, 88.8, -87.5, -103.0, -104.5, 1e-40, -1e-40,
     1e30, -1e30, 3.4e38, -3.4e38, np.inf, -np.inf, np.nan, 1e-8, -1e-8, 4.0, 9.5, 0.625, -0.625],
    np.float32,
)
"""Where functions change, overflow or fail."""


@functools.cache
def library() -> ctypes.CDLL:
    """The package's own kernels, all instruction sets."""
    return ctypes.CDLL(str(LIBRARY))


def pointer_to(array: np.ndarray) -> int:
    """Address of the array's first logical element."""
    return array.__array_interface__["data"][0]


def call_kernel(address: int, isa: str, tensors: int, ints: int, floats: int, begin: int, end: int,
                *, bf16: bool = False) -> None:
    """Call the kernel at `address` with pointers to its parameters, emulated where the CPU lacks what it needs."""
    if isa in ("avx512", "amx") and not (NATIVE_AVX512_BF16 if bf16 else NATIVE_AVX512):
        from emulator import emulator

        emulator().call(address, tensors, ints, floats, begin, end)
    else:
        with emulated_tiles() if isa == "amx" else nullcontext():
            _SIGNATURE(address)(tensors, ints, floats, begin, end)


def run(
    isa: str,
    name: str,
    tensors: Sequence[np.ndarray],
    ints: Sequence[int] | Params,
    floats: Sequence[float] = (),
    splits: Sequence[int] = (),
    address: int | None = None,
    *,
    bf16: bool = False,
) -> None:
    """Run all tasks of a kernel, cut at `splits` (any integers) and with the later ranges first.

    `ints` are in the kernel's order, or all its parameters by name. The kernel may be another's, at `address`."""
    if isinstance(ints, Params):
        assert ints.record is KERNELS[name]
        ints, floats = ints.ints(), ints.floats()
    kernel = address or ctypes.cast(getattr(library(), symbol(name, isa)), ctypes.c_void_p).value
    pointers = (ctypes.c_void_p * len(tensors))(*map(pointer_to, tensors))
    numbers = (ctypes.c_int64 * max(len(ints), 1))(*ints)
    parameters = (ctypes.c_double * max(len(floats), 1))(*floats)
    tasks = KERNELS[name].tasks_of(ints)
    cuts = sorted({0, tasks, *(s % (tasks + 1) for s in splits)})
    for begin, end in reversed(list(pairwise(cuts))):
        call_kernel(kernel, isa, *map(ctypes.addressof, (pointers, numbers, parameters)), begin, end, bf16=bf16)


def aligned(array: np.ndarray) -> np.ndarray:
    """A 64-byte aligned copy."""
    room = np.zeros(array.nbytes + 64, np.uint8)
    start = -room.ctypes.data % 64
    copy = room[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def element_strides(array: np.ndarray) -> tuple[int, ...]:
    """Strides in elements."""
    return tuple(s // array.itemsize for s in array.strides)


class Blocked:
    """A blocked float32 or bf16 tensor with a halo and garbage (NaN) around what a kernel should write."""

    def __init__(self, n: int, c: int, h: int, w: int, halo: tuple[int, int] = (0, 0), bf16: bool = False):
        self.shape, self.halo = (n, c, h, w), halo
        blocks = -(-c // 16)
        whole = np.full((n, blocks, h + 2 * halo[0], w + 2 * halo[1], 16), np.nan, np.float32)
        self.whole = round_bf16_reference(whole) if bf16 else whole
        self.inner = self.whole[:, :, halo[0] : halo[0] + h, halo[1] : halo[1] + w]

    @property
    def strides(self) -> tuple[int, int, int, int]:
        """Elements between images, blocks, rows and pixels."""
        return element_strides(self.whole)[:4]

    @property
    def plain(self) -> np.ndarray:
        """The logical tensor."""
        n, c, h, w = self.shape
        return widened(self.inner).transpose(0, 1, 4, 2, 3).reshape(n, -1, h, w)[:, :c]

    def fill(self, values: np.ndarray) -> Blocked:
        """Set the logical tensor; padding lanes become zero."""
        n, c, h, w = self.shape
        padded = np.zeros((n, self.whole.shape[1] * 16, h, w), np.float32)
        padded[:, :c] = values
        values = padded.reshape(n, -1, 16, h, w).transpose(0, 1, 3, 4, 2)
        self.inner[...] = round_bf16_reference(values) if self.inner.dtype == np.uint16 else values
        return self

    @property
    def is_clean(self) -> bool:
        """Whether there is garbage still all around the inside; the inside becomes garbage too."""
        self.inner[...] = round_bf16_reference(np.full(1, np.nan, np.float32)) if self.inner.itemsize == 2 else np.nan
        return bool(np.isnan(widened(self.whole)).all())


def widened(values: np.ndarray) -> np.ndarray:
    """float32 as it is, the bits of bf16 (uint16) as float32."""
    return values if values.dtype == np.float32 else (values.astype(np.uint32) << 16).view(np.float32)


def close(actual: np.ndarray, wanted: np.ndarray, relative: float = 2e-6, absolute: float = 1e-6) -> None:
    """Equal up to float32 rounding; overflow and NaN in the same places."""
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(actual, np.asarray(wanted).astype(np.float32), relative, absolute)


def strided(
    random: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype | type = np.float32
) -> np.ndarray:
    """An uninitialised view with gaps, a permuted order of dimensions and negative strides."""
    order = random.permutation(len(shape)) if random.random() < 0.4 else np.arange(len(shape))
    gaps = random.integers(0, 3, len(shape))
    steps = random.choice([1, 1, 1, 2, -1], len(shape))
    whole = np.zeros([(shape[i] + gaps[i]) * abs(steps[i]) for i in order], dtype)
    view = whole[tuple(slice(None, None, int(steps[i])) for i in order)].transpose(np.argsort(order))
    return view[tuple(slice(0, s) for s in shape)]


SHAPES = st.one_of(
    st.lists(st.integers(1, 6), min_size=1, max_size=5).map(tuple),
    st.tuples(st.integers(1, 5), st.sampled_from([1, 15, 16, 17, 40, 100])),
    st.tuples(st.integers(1, 3), st.integers(1, 3), st.sampled_from([16, 64])),
)


def images(seed: int, *shape: int, special: bool = False) -> np.ndarray:
    random = np.random.default_rng(seed)
    values = random.normal(size=shape).astype(np.float32)
    if special and random.random() < 0.3:
        values[random.random(shape) < 0.05] = random.choice([np.nan, np.inf, -np.inf])
    return values
