"""What a graph is compiled for."""

from __future__ import annotations

from dataclasses import dataclass

from ngraph_mxnet.targets.cpu.codegen.generator import Generator
from ngraph_mxnet.targets.cpu.machine.isa import InstructionSet, Isa


@dataclass(frozen=True)
class Settings:
    """What a graph is compiled for. With a `generator`, `fused` nodes get kernels of their own."""

    isa: Isa
    threads: int
    generator: Generator | None = None
    winograd: bool = True
    """Whether 3x3 convolutions may be computed by Winograd's algorithm."""
    bf16: bool = False
    """Contractions of the main graph in bf16."""
    vnni: bool = False
    """Contractions of u8 may be those that need VNNI."""
    halves: bool = False
    """Whether the CPU computes AVX-512 in halves: see `machine.isa.halves_avx512`."""
    every_algorithm: bool = False
    """Whether a Program for a range of sizes has each algorithm that is the best for some of them, and not most."""

    as_planned: bool = True
    """Whether who makes a value stores it as its readers want it: in a concat's place, in bytes, bf16 or fours. If not,
    each node is lowered by itself."""

    @property
    def instruction_set(self) -> InstructionSet:
        """By its name for callers and files."""
        return "avx_vnni" if self.isa == "avx2" and self.vnni else self.isa

    def symbol(self, kernel: str) -> str:
        return f"ng_{kernel}__{self.isa}"
