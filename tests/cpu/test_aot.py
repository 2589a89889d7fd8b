"""The ahead-of-time compiler: what its objects need, define and contain."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from kernel_library import ROOT, object_file

from ngraph_mxnet.cpu.kernels import ALL_KERNELS, symbol
from ngraph_mxnet.cpu.microkernels import ISAS, variants
from ngraph_mxnet.cpu.microkernels import symbol as microkernel_symbol

LIBM = re.compile(r"(a?(sin|cos|tan)h?|cbrt|ceil|floor|trunc|nearbyint|rint|fmod|log10|log2|pow|sqrt)f$")
LIBC = {"memcpy", "memmove", "memset"}
needs = {tool: pytest.mark.skipif(not shutil.which(tool), reason=f"no {tool}") for tool in ("nm", "objdump")}


def _nm(path: Path, *options: str) -> set[str]:
    text = subprocess.run(["nm", *options, str(path)], capture_output=True, text=True, check=True).stdout
    return {line.split()[-1] for line in text.splitlines()}


@needs["nm"]
@pytest.mark.parametrize("isa", ISAS)
def test_needs_only_libm(isa: str) -> None:
    assert [n for n in sorted(_nm(object_file(isa), "-u") - LIBC) if not LIBM.match(n)] == []


@needs["nm"]
@pytest.mark.parametrize("isa", ISAS)
def test_exports_every_kernel_and_nothing_else(isa: str) -> None:
    wanted = {symbol(name, isa) for name in ALL_KERNELS} | {microkernel_symbol(v, isa) for v in variants(isa)}
    assert _nm(object_file(isa), "-g", "--defined-only") == wanted


def _disassembly(isa: str) -> str:
    command = ["objdump", "-d", "--no-show-raw-insn", str(object_file(isa))]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@needs["objdump"]
def test_registers_fit_the_isa() -> None:
    baseline, avx2, avx512 = map(_disassembly, ("baseline", "avx2", "avx512"))
    assert not re.search(r"%[yz]mm|\tv[a-z]+\d*[ps][sd]\b|\tround[sp]s\b|\tpopcnt\b", baseline)
    assert "%ymm" in avx2
    assert not re.search(r"%zmm|%k[0-7]", avx2)
    assert "%zmm" in avx512


@needs["objdump"]
@pytest.mark.parametrize(
    "name", ["relu", "exp", "tanh", "sigmoid", "erf", "log", "add", "scale_shift_blocked"]
)
def test_kernels_are_vectorised(name: str) -> None:
    body = re.search(rf"<{symbol(name, 'avx2')}>:\n(.*?)\n\n", _disassembly("avx2") + "\n\n", re.DOTALL)
    assert body
    assert "%ymm" in body[1]
    assert "call" not in body[1]


def test_output_is_deterministic(tmp_path: Path) -> None:
    """Two processes, in any order of hashing, write the same bytes."""
    code = (
        "import sys; from ngraph_mxnet.cpu.aot import emit_object; from pathlib import Path;"
        "names = ['relu', 'gelu', 'softmax', 'to_blocked', 'reduce_sum'];"
        "Path(sys.argv[1]).write_bytes(emit_object('avx2', names))"
    )
    for seed in ("1", "2"):
        environment = {"PYTHONHASHSEED": seed, "PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)}
        subprocess.run(
            [sys.executable, "-c", code, str(tmp_path / seed)], env=environment, check=True, cwd=ROOT
        )
    assert (tmp_path / "1").read_bytes() == (tmp_path / "2").read_bytes()


def test_a_failure_names_the_kernel(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom ngraph_mxnet.cpu import aot\n"
        "from ngraph_mxnet.cpu.kernels.record import KernelRecord, register\n"
        "aot.ALL_KERNELS.clear()\n"
        "broken = lambda tensors, ints, floats, begin, end: tensors.no_such()\n"
        "register(KernelRecord(name='broken', function=broken, tasks=len, doc=''))\n"
        "sys.exit(aot.main(['--isa', 'avx2', '--output', sys.argv[1]]))"
    )
    output = tmp_path / "kernels.o"
    command = [sys.executable, "-c", code, str(output)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 1
    assert "kernel broken for avx2" in done.stderr
    assert not output.exists()
