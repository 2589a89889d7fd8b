"""bf16 on machines that lack it: AVX512_BF16's kernels compiled for AVX2, where pairs are shifts and multiply-adds, and
AMX's with tiles that are emulated."""

from __future__ import annotations

import ctypes
import functools
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest

from ngraph_mxnet import _core
from ngraph_mxnet.targets.cpu.lower import module
from ngraph_mxnet.targets.cpu.machine.isa import NEEDS
from ngraph_mxnet.targets.cpu.microkernels import target, tiles
from ngraph_mxnet.targets.cpu.microkernels.variants import Isa, Variant, variants
from ngraph_mxnet.targets.cpu.planning import precision

_KERNELS = ("ng_contraction_", "ng_weight_gradient_")


@functools.cache
def legalised() -> ctypes.CDLL:
    """AVX-512's microkernels, compiled for AVX2 by the first process of a run of tests that needs them."""
    shared = os.environ.get("TESTS_COMPILED")
    with nullcontext(shared) if shared else tempfile.TemporaryDirectory() as folder:
        library, own = Path(folder) / "avx512_for_avx2.so", Path(folder) / f"{os.getpid()}.o"
        if not library.exists():
            own.write_bytes(target.emit_object("avx512", compiled_for="avx2"))
            compiler = os.environ.get("CC") or shutil.which("cc") or "gcc"
            subprocess.run([compiler, "-shared", "-o", own.with_suffix(".so"), own], check=True)
            own.with_suffix(".so").rename(library)
        return ctypes.CDLL(str(library))


def address_in(library: ctypes.CDLL, name: str) -> int:
    return ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0


def allow_bf16(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the CPU backend compile for AVX2 with the bf16 microkernels of AVX-512, legalised."""
    address = _core.kernel_address

    def with_bf16(isa: Isa) -> tuple[Variant, ...]:
        return (*variants(isa), *(variant for variant in variants("avx512") if variant.bf16))

    def kernel_address(name: str) -> int:
        if name.startswith(_KERNELS) and name.endswith("_bf16__avx2"):
            return address_in(legalised(), name.replace("__avx2", "__avx512"))
        return address(name)

    monkeypatch.setenv("NGRAPH_CPU_ISA", "avx2")
    monkeypatch.setenv("NGRAPH_CACHE_DIR", "off")  # other processes know no such kernels
    monkeypatch.setattr(precision, "bf16_missing", lambda isa, features: None)
    for user in (tiles, module):
        monkeypatch.setattr(user, "variants", with_bf16)
    monkeypatch.setattr(_core, "kernel_address", kernel_address)


@contextmanager
def amx(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let the CPU backend compile for AMX, on a CPU that has all else; its tiles are emulated."""
    from tile_machine import emulated_tiles  # which is beside the CPU's tests, as those of AMX are

    features = {**_core.cpu_features(), **dict.fromkeys(NEEDS["amx"], True)}
    monkeypatch.setenv("NGRAPH_CPU_ISA", "auto")
    monkeypatch.setenv("NGRAPH_CACHE_DIR", "off")
    monkeypatch.setattr(_core, "cpu_features", lambda: features)
    with emulated_tiles():
        yield
