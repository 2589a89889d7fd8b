"""Which instruction set the kernels use, chosen at run time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from ngraph_mxnet import config
from ngraph_mxnet.errors import ConfigError

Isa = Literal["avx512", "avx2", "baseline"]

_V2 = ("cx16", "popcnt", "sahf", "sse3", "sse4.1", "sse4.2", "ssse3")
_V3 = (*_V2, "avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe")
_V4 = (*_V3, "avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl")

NEEDS: dict[Isa, tuple[str, ...]] = {"avx512": _V4, "avx2": _V3, "baseline": ()}
"""CPU features of each instruction set, best first: all that its kernels' compiler is told of, see
`microkernels.target`. It may use any of them, and a virtual machine may lack any."""


def supported(features: Mapping[str, bool]) -> list[Isa]:
    """The instruction sets that a CPU with `features` runs, best first."""
    return [isa for isa, needs in NEEDS.items() if all(features.get(need) for need in needs)]


def halves_avx512(features: Mapping[str, bool]) -> bool:
    """Whether the CPU has AVX-512 and computes it in halves, as Zen 4 does: one multiply-add of 512 bits a cycle, where
    others do two. Such a CPU is AMD's (sse4a) and none of its next generation."""
    return bool(features.get("avx512f") and features.get("sse4a") and not features.get("avx512vp2intersect"))


def choose_isa(features: Mapping[str, bool], option: str | None = None) -> Isa:
    """What the option `isa` asks for, else NGRAPH_CPU_ISA; `auto` is the best that the CPU runs.

    Raises:
        ConfigError: the CPU lacks the instruction set that is asked for.
    """
    wanted, available = option or config.get("NGRAPH_CPU_ISA"), supported(features)
    if wanted == "auto":
        return available[0]
    if wanted not in available:
        name = "option isa" if option else "NGRAPH_CPU_ISA"
        raise ConfigError(
            f"{name}={wanted}: this CPU does not have it; it runs {', '.join(available)}. Set one of these, or auto."
        )
    return wanted
