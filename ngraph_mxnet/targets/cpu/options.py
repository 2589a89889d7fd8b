"""The options of the backend CPU. Importing this module imports no compiler: a program from the disk needs none."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

from ngraph_mxnet.base import config
from ngraph_mxnet.base.errors import CalibrationError, ConfigError
from ngraph_mxnet.program.backend import read_count, read_switch, require_known
from ngraph_mxnet.quantisation.apply import Recipe, read_recipe
from ngraph_mxnet.targets.cpu.machine.isa import NEEDS, choose_instruction_set, kernels_of, multiplies_bf16_fast

OPTIONS = {
    "threads": "threads that run the graph (default: OMP_NUM_THREADS and so on, see `env`)",
    "codegen": "1: fuse elementwise ops into kernels generated for the graph's shapes (default: NGRAPH_CODEGEN)",
    "chains": "1: elementwise ops that follow each other are one call, some hundred elements at a time; 0: each is a "
              "call (default: those of large tensors are, in graphs without images)",
    "precision": "f32; bf16 for convolutions and matrix products where the CPU has it; auto: bf16 where it is fast; "
                 "int8 for those of the recipe (default: NGRAPH_PRECISION)",
    "recipe": "for int8: a recipe of quantisation, as an object or a file (default: NGRAPH_CALIBRATION)",
    "autotune": "1: measure how to cut the contractions' work on this machine (default: NGRAPH_AUTOTUNE)",
    "isa": "amx, avx512, avx_vnni, avx2 or baseline: the kernels' instruction set (default: NGRAPH_CPU_ISA)",
    "costs": "for HYBRID: modelled, or measured by running the graph on random inputs (default: modelled)",
}
PRECISIONS = ("f32", "bf16", "int8")
AUTO = "auto"
"""bf16 where the CPU multiplies it fast, else f32."""
OF_THE_NNP = ("f16",)
"""Which NGRAPH_PRECISION may say, too: the CPU then computes in float32, and tells so."""
NO_RECIPE = ("option precision: found int8 without a recipe of quantisation, which says what is in 8 bits: give one "
             "(recipe=, --recipe, NGRAPH_CALIBRATION), which `quantize --recipe` writes (docs/quantisation.md)")
MOST_THREADS = 4096


class Options(NamedTuple):
    """All of them, as the caller or the environment says."""

    threads: int
    codegen: bool
    precision: str
    autotune: bool
    costs: str
    isa: str | None = None
    chains: bool | None = None
    recipe: Recipe | None = None
    given_recipe: bool = False
    """True if the options, and not the environment, asked for the recipe or for the precision that it is for."""

    @property
    def computed(self) -> str:
        """The precision of what is compiled with them, on a CPU that has it."""
        if self.recipe is not None and self.recipe.products:
            return "int8"
        return "bf16" if self.precision == "bf16" else "f32"


def read_options(given: Mapping[str, Any]) -> Options:
    """Raises:
        ConfigError: an option is unknown, or its value is not allowed.
    """
    require_known("CPU", given, OPTIONS)
    threads, codegen = read_count(given, "threads", MOST_THREADS), read_switch(given, "codegen")
    autotune, chains = read_switch(given, "autotune"), read_switch(given, "chains")
    precision = str(given.get("precision") or config.get("NGRAPH_PRECISION"))
    if precision not in (*PRECISIONS, AUTO, *OF_THE_NNP):
        raise ConfigError(f"option precision: found {precision!r}, expected {' or '.join((*PRECISIONS, AUTO))}")
    costs = str(given.get("costs", "modelled"))
    if costs not in ("modelled", "measured"):
        raise ConfigError(f"option costs: found {costs!r}, expected modelled or measured")
    recipe = _recipe(given.get("recipe"), precision)
    isa = given.get("isa")
    if isa is not None and isa not in NEEDS:
        raise ConfigError(f"option isa: found {isa!r}, expected {', '.join(NEEDS)}")
    if precision == AUTO:
        precision = _fastest(isa)
    return Options(config.threads() if threads is None else threads,
                   config.get("NGRAPH_CODEGEN") if codegen is None else codegen, precision,
                   config.get("NGRAPH_AUTOTUNE") if autotune is None else autotune, costs, isa, chains, recipe,
                   recipe is not None and (given.get("recipe") is not None or given.get("precision") is not None))


def _fastest(isa: str | None) -> str:
    """The precision that `auto` stands for on this CPU, which is told once if it is not float32."""
    from ngraph_mxnet import _core

    features = _core.cpu_features()
    if not multiplies_bf16_fast(choose_instruction_set(features, isa), features):
        return "f32"
    tell_once("precision auto: convolutions and matrix products compute in bf16, which this CPU multiplies at its full "
              "rate. f32 keeps them in float32")
    return "bf16"


def _recipe(given: Any, precision: str) -> Recipe | None:
    """That of the option, or if it is not given, and int8 is asked for, of NGRAPH_CALIBRATION: a file that is none is
    told there, once, and nothing is in 8 bits.

    Raises:
        CalibrationError: what the option says is none.
    """
    if given is not None:
        return read_recipe(given)
    setting = config.get("NGRAPH_CALIBRATION") if precision == "int8" else None
    if setting is None:
        return None
    try:
        return read_recipe(setting.path)
    except CalibrationError as error:
        tell_once(f"NGRAPH_CALIBRATION: {error}")
        return None


@functools.cache
def tell_once(notice: str | None) -> None:
    """Warn, once in a process, if there is something to say."""
    if notice is not None:
        config.logger(__name__).warning(notice)


def unlike(given: Mapping[str, Any], instruction_set: str, precision: str) -> str | None:
    """See `runtime.backend.unlike`."""
    from ngraph_mxnet import _core

    wanted = read_options(given)
    if wanted.codegen:
        return "kernels are to be generated (NGRAPH_CODEGEN, or the option codegen)"
    if wanted.threads != config.threads():
        return f"it is to run on {wanted.threads} threads"
    has_own = wanted.precision == "int8" and wanted.recipe is None and precision == "int8"  # a recipe, in the file
    if wanted.computed != precision and not has_own:
        return f"it computes in {precision}, and {wanted.computed} is asked for"
    isa = choose_instruction_set(_core.cpu_features(), wanted.isa)
    if instruction_set in (isa, kernels_of(isa)):
        return None
    return f"it has no instructions for {isa}, only for {instruction_set}"


def check_options(given: Mapping[str, Any]) -> None:
    """See `Backend.check_options`. int8 without a recipe is for compiled files alone, which have their own."""
    wanted = read_options(given)
    if given.get("precision") == "int8" and wanted.recipe is None and not config.get("NGRAPH_PACKAGE"):
        raise ConfigError(NO_RECIPE)
