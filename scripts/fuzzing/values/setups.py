"""The configurations in which a trial runs."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from typing import Any

import pytest

from fuzzing.values import test_helpers  # noqa: F401  (before what it makes importable)
from fuzzing.values.drawing import Draw, chance, integer, pick
from ngraph_mxnet import _core
from ngraph_mxnet.targets.cpu.machine.isa import available

# isort: split
from bf16_machine import allow_bf16, amx

EMULATION = "FUZZ_EMULATION"
"""The variable by which the script asks for kernels that the CPU lacks: those of `bf16`, which take a while to compile,
or of `amx`."""


@dataclass(frozen=True)
class Setup:
    """`options` of the backend CPU, and variables of the `environment`; with `cache`, a second compilation takes what
    the first one kept; `emulates`: bf16, kernels of AVX512_BF16 run on AVX2, or amx, tiles are emulated."""

    options: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    cache: bool = False
    emulates: str = ""

    @contextmanager
    def applied(self) -> Iterator[None]:
        before = {name: os.environ.get(name) for name in self.environment}
        patches = pytest.MonkeyPatch()
        if self.emulates == "bf16":
            allow_bf16(patches)
        os.environ.update(self.environment)
        try:
            with amx(patches) if self.emulates == "amx" else nullcontext():
                yield
        finally:
            patches.undo()
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value

    def data(self) -> dict[str, Any]:
        """As JSON takes it."""
        return asdict(self)

    def variables(self) -> dict[str, str]:
        """All of it as variables of the environment, for what takes no options."""
        names = {"isa": "NGRAPH_CPU_ISA", "codegen": "NGRAPH_CODEGEN", "precision": "NGRAPH_PRECISION",
                 "threads": "OMP_NUM_THREADS"}
        return {**{names[name]: str(value) for name, value in self.options.items() if name in names},
                **self.environment}


def draw_setup(draw: Draw, *, open_sizes: bool = False, codegen: bool = True) -> Setup:
    """One in which most is as by default; what takes long is rare."""
    isas, emulates = available(_core.cpu_features()), os.environ.get(EMULATION, "")
    options: dict[str, Any] = {}
    environment: dict[str, str] = {}
    if chance(draw, 4):
        options["isa"] = pick(draw, *isas)
    if chance(draw, 2):
        options["threads"] = pick(draw, 1, 2, 3, 5)
    if chance(draw, 6):
        options["chains"] = 1
    if codegen and chance(draw, 16):
        options["codegen"] = 1
    if chance(draw, 2 if emulates == "amx" else 12):
        options["precision"] = "bf16"
    if chance(draw, 8):
        environment["NGRAPH_CPU_WINOGRAD"] = "0"
    if open_sizes and chance(draw, 6):
        environment["NGRAPH_DYNAMIC"] = "off"
    if chance(draw, 8):
        environment["NGRAPH_INTER_OP_PARALLELISM"] = "1"
    if chance(draw, 3):
        order = f"shuffle:{integer(draw, 1, 99)}"
        environment["NGRAPH_DISTURB"] = pick(draw, "poison", order, f"poison,{order}")
    cached = chance(draw, 12)
    if emulates == "amx" or (emulates and options.get("precision") == "bf16"):
        options.pop("isa", None)
        return Setup(options, environment, emulates=emulates)
    return Setup(options, environment, cache=cached)
