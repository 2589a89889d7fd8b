"""The ahead-of-time compiler: what its objects need, define and contain."""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from kernel_library import LIBRARY

from ngraph_mxnet.targets.cpu.kernels import ALL_KERNELS, symbol
from ngraph_mxnet.targets.cpu.microkernels.params import (
    DEPTHWISE_GRADIENTS,
    STRIDES,
    WEIGHT_GRADIENT,
    depthwise_symbol,
    gradient_symbol,
    peak_symbol,
)
from ngraph_mxnet.targets.cpu.microkernels.variants import ISAS, variants
from ngraph_mxnet.targets.cpu.microkernels.variants import symbol as microkernel_symbol
from ngraph_mxnet.targets.cpu.params import KERNELS

SINGLE = r"(a?(sin|cos|tan)h?|cbrt|floor|ceil|trunc|nearbyint|rint|fmod|log10|log2|pow|sqrt)f"
DOUBLE = (r"a?(sin|cos|tan)h?|atan2|cbrt|ceil|erf|exp|expm1|floor|fmod|lgamma|log|log10|log1p|log2|nearbyint|pow|rint"
          r"|sqrt|tgamma|trunc")
LIBM = re.compile(f"({SINGLE}|{DOUBLE})$")  # float64 kernels are scalar loops over libm
LIBC = {"memcpy", "memmove", "memset"}
BF16_KERNELS = {symbol(name, "avx512") for name, record in KERNELS.items() if record.needs}
needs = {tool: pytest.mark.skipif(not shutil.which(tool), reason=f"no {tool}") for tool in ("nm", "objdump")}


def _symbols(*options: str) -> set[str]:
    """Names in the library's dynamic symbol table, without versions."""
    command = ["nm", "-D", *options, str(LIBRARY)]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return {line.split()[-1].split("@")[0] for line in text.splitlines()}


@needs["nm"]
def test_needs_only_libm() -> None:
    loader = {"__cxa_finalize", "__gmon_start__", "_ITM_deregisterTMCloneTable", "_ITM_registerTMCloneTable"}
    assert [n for n in sorted(_symbols("--undefined-only") - LIBC - loader) if not LIBM.match(n)] == []


@needs["nm"]
def test_exports_every_kernel_and_nothing_else() -> None:
    wanted = {symbol(name, isa) for name in ALL_KERNELS for isa in ISAS if KERNELS[name].is_for(isa)}
    wanted |= {microkernel_symbol(v, isa) for isa in ISAS for v in variants(isa)}
    wanted |= {peak_symbol(isa) for isa in ISAS}
    wanted |= {depthwise_symbol(stride, isa) for isa in ISAS for stride in STRIDES}
    gradients = [name for record in (WEIGHT_GRADIENT, *DEPTHWISE_GRADIENTS.values()) for name in record.element_bytes]
    wanted |= {gradient_symbol(name, isa) for isa in ISAS for name in gradients}
    wanted |= BF16_KERNELS
    assert _symbols("--defined-only") == wanted


@functools.cache
def _functions() -> dict[str, str]:
    """The disassembly of each function of the library."""
    command = ["objdump", "-d", "--no-show-raw-insn", str(LIBRARY)]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return dict(re.findall(r"<(ng_\w+)>:\n(.*?)(?:\n\n|\Z)", text, re.DOTALL))


def _disassembly(isa: str) -> str:
    return "\n".join(body for name, body in _functions().items() if name.endswith(f"__{isa}"))


@needs["objdump"]
def test_registers_fit_the_isa() -> None:
    baseline, avx2, avx512 = map(_disassembly, ("baseline", "avx2", "avx512"))
    assert not re.search(r"%[yz]mm|\tv[a-z]+\d*[ps][sd]\b|\tround[sp]s\b|\tpopcnt\b", baseline)
    assert "%ymm" in avx2
    assert not re.search(r"%zmm|%k[0-7]", avx2)
    assert "%zmm" in avx512
    bf16 = {name for name, body in _functions().items() if re.search(r"\tv(dpbf16ps|cvtne2?ps2bf16)", body)}
    assert bf16 == {*BF16_KERNELS, *(microkernel_symbol(v, "avx512") for v in variants("avx512") if v.bf16)}
    tiles = {name for name, body in _functions().items() if re.search(r"\t(tdp|tile|ldtile)", body)}
    assert tiles == {name for name in _functions() if name.endswith("_amx__avx512")}
    vnni = {name: found for name, body in _functions().items()
            if (found := re.findall(r"\t((?:\{\w+\} )?)vpdp\w+\s.*%([xyz])mm", body))}
    assert vnni.keys() == {microkernel_symbol(v, isa) for isa in ISAS for v in variants(isa) if v.needs_vnni}
    for name, found in vnni.items():  # of AVX-VNNI the encoding is another one
        assert set(found) == {("", "z") if name.endswith("__avx512") else ("{vex} ", "y")}, name


@needs["objdump"]
@pytest.mark.parametrize(
    "name", ["relu", "exp", "tanh", "sigmoid", "erf", "log", "add", "scale_shift_blocked"]
)
def test_kernels_are_vectorised(name: str) -> None:
    body = _functions()[symbol(name, "avx2")]
    assert "%ymm" in body
    assert not re.search(r"call.*<(?!ng_)\w+f@plt>", body)


def test_output_is_deterministic(tmp_path: Path) -> None:
    """Two processes, in any order of hashing, write the same bytes."""
    code = (
        "import sys; from ngraph_mxnet.targets.cpu.aot import emit_object; from pathlib import Path;"
        "names = ['relu', 'gelu', 'softmax', 'to_blocked', 'reduce_sum'];"
        "Path(sys.argv[1]).write_bytes(emit_object('avx2', names))"
    )
    for seed in ("1", "2"):
        environment = {"PYTHONHASHSEED": seed, "PATH": "/usr/bin:/bin", "PYTHONPATH": str(LIBRARY.parents[1])}
        subprocess.run(
            [sys.executable, "-c", code, str(tmp_path / seed)], env=environment, check=True, cwd=LIBRARY.parents[1]
        )
    assert (tmp_path / "1").read_bytes() == (tmp_path / "2").read_bytes()


def test_a_failure_names_the_kernel(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom ngraph_mxnet.targets.cpu import aot\n"
        "from ngraph_mxnet.targets.cpu.kernels.record import KernelRecord, register\n"
        "aot.ALL_KERNELS.clear()\n"
        "broken = lambda tensors, ints, floats, begin, end: tensors.no_such()\n"
        "broken.__module__ = 'pooling'\n"
        "register(KernelRecord(name='lrn', function=broken, doc=''))\n"
        "sys.exit(aot.main(['--isa', 'avx2', '--family', 'pooling', '--output', sys.argv[1]]))"
    )
    output = tmp_path / "kernels.o"
    command = [sys.executable, "-c", code, str(output)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=LIBRARY.parents[1], check=False)
    assert done.returncode == 1
    assert "kernel lrn for avx2" in done.stderr
    assert not output.exists()


def test_the_build_asks_for_the_families_and_their_files() -> None:
    root = Path(__file__).parents[3]
    text = (root / "cmake" / "kernels.cmake").read_text()
    command = [sys.executable, "-m", "ngraph_mxnet.targets.cpu.aot", "--list"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=LIBRARY.parents[1], check=True)
    assert "ngraph_mxnet.targets.cpu.aot --list" in text
    listed = {family: {Path(file) for file in files} for family, *files in map(str.split, done.stdout.splitlines())}
    assert {record.family for record in ALL_KERNELS.values()} < listed.keys()
    cpu = Path("ngraph_mxnet/targets/cpu")
    for family, files in listed.items():
        assert not re.search(rf"\b{family}\b", text), family
        assert all((root / file).is_file() for file in files)
        assert {cpu / "aot.py", cpu / "params/record.py", cpu / "microkernels/target.py"} <= files, family
        if family != "microkernels":
            assert {cpu / f"kernels/{family}.py", cpu / "kernels/compiler.py", cpu / "kernels/maths.py"} <= files
    assert {cpu / "params/reduction.py", cpu / "kernels/lanes.py"} <= listed["pooling"]
    assert {cpu / "params/layout.py", cpu / "planning/algorithm.py"} <= listed["winograd"]
    assert {cpu / f"microkernels/{name}.py" for name in ("params", "emit", "tile")} <= listed["microkernels"]
    assert not {cpu / "params/reduction.py", cpu / "lower/blocked.py"} & listed["winograd"]
