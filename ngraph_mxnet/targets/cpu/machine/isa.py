"""Which instruction set the kernels use, chosen at run time."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from ngraph_mxnet.base import config
from ngraph_mxnet.base.errors import ConfigError
from ngraph_mxnet.targets.cpu.microkernels.variants import AMX, VNNI, Isa

InstructionSet = Literal["amx", "avx512", "avx_vnni", "avx2", "baseline"]
"""The instruction set of programs; see `kernels_of`."""

CPU_FLAGS = Path("/proc/cpuinfo")
_V2 = ("cx16", "popcnt", "sahf", "sse3", "sse4.1", "sse4.2", "ssse3")
_V3 = (*_V2, "avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe")
_V4 = (*_V3, "avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl")

NEEDS: dict[InstructionSet, tuple[str, ...]] = {
    "amx": (*_V4, VNNI["avx512"], *AMX), "avx512": _V4, "avx_vnni": (*_V3, VNNI["avx2"]), "avx2": _V3, "baseline": ()}
"""CPU features of each instruction set, best first: all that its kernels' compiler is told of, see
`microkernels.target`. It may use any of them, and a virtual machine may lack any."""


def available(features: Mapping[str, bool]) -> list[InstructionSet]:
    """The instruction sets that a CPU with `features` runs, best first."""
    return [name for name, needs in NEEDS.items() if all(features.get(need) for need in needs)]


def supported(features: Mapping[str, bool]) -> list[Isa]:
    """Return the instruction sets with kernels of their own that a CPU with `features` runs, best first."""
    return list(dict.fromkeys(map(kernels_of, available(features))))


def kernels_of(instruction_set: InstructionSet) -> Isa:
    """Whose kernels programs for it call: those for avx_vnni call avx2's, some of which need AVX-VNNI, those for amx
    call avx512's, some of which need AMX."""
    return "avx2" if instruction_set == "avx_vnni" else "avx512" if instruction_set == "amx" else instruction_set


def has_vnni(instruction_set: InstructionSet, features: Mapping[str, bool]) -> bool:
    """True if programs for the instruction set may call the kernels that need VNNI (`microkernels.variants.VNNI`)."""
    return instruction_set in ("amx", "avx_vnni") or (
        instruction_set == "avx512" and bool(features.get("avx512vnni")))


def amx_refused(features: Mapping[str, bool]) -> str | None:
    """Why a CPU with AMX counts as one without, or None."""
    if features.get("amx-tile") or "amx_tile" not in CPU_FLAGS.read_text().split():
        return None
    return ("this CPU has AMX, and the system refuses its tiles to this process: Linux before 5.16 has no support for "
            "them, and an alternate signal stack without room for them was there when ngraph_mxnet was imported")


def halves_avx512(features: Mapping[str, bool]) -> bool:
    """True if the CPU has AVX-512 and computes it in halves, as Zen 4 does. It does one multiply-add of 512 bits a
    cycle, where others do two. Such a CPU is AMD's (sse4a) and none of its next generation."""
    return bool(features.get("avx512f") and features.get("sse4a") and not features.get("avx512vp2intersect"))


def multiplies_bf16_fast(instruction_set: InstructionSet, features: Mapping[str, bool]) -> bool:
    """True if products of bf16 take half of the time of float32's, or less: in AMX's tiles, and where AVX512_BF16 has
    the rate of float32's multiply-adds, as on AMD's CPUs (sse4a). Intel's has half of it."""
    return instruction_set == "amx" or (
        instruction_set == "avx512" and bool(features.get("avx512bf16") and features.get("sse4a")))


def choose_isa(features: Mapping[str, bool], option: str | None = None) -> Isa:
    """The kernels of what `choose_instruction_set` chooses."""
    return kernels_of(choose_instruction_set(features, option))


def choose_instruction_set(features: Mapping[str, bool], option: str | None = None) -> InstructionSet:
    """Return the instruction set that the option `isa` asks for, else NGRAPH_CPU_ISA. `auto` is the best that the CPU
    runs.

    Raises:
        ConfigError: the CPU lacks the instruction set that is asked for.
    """
    wanted, runs = option or config.get("NGRAPH_CPU_ISA"), available(features)
    if wanted == "auto":
        return runs[0]
    if wanted not in runs:
        name = "option isa" if option else "NGRAPH_CPU_ISA"
        raise ConfigError(
            f"{name}={wanted}: this CPU does not have it; it runs {', '.join(runs)}. Set one of these, or auto."
        )
    return wanted
