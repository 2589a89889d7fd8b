"""Checks of the processor and of the threads that may run on it."""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ngraph_mxnet import config
from ngraph_mxnet.cores import ROOT, cpu_info, cpu_quota, physical_cores, usable_cores
from ngraph_mxnet.doctor.finding import Finding
from ngraph_mxnet.errors import ConfigError

_BASELINE = "baseline"


def processor(used: Callable[[], Mapping[str, Any]] | None = None, root: Path = ROOT) -> Finding:
    """`used`: what the CPU backend uses of the machine (`Backend.machine`). `root` holds `proc`."""
    facts: dict[str, Any] = {"model": _model(root), "architecture": platform.machine()}
    try:
        found = (used or _used_by_the_cpu_backend)()
    except ConfigError as error:
        return Finding("processor", facts, (str(error),))
    notes = []
    if found.get("kernels") == _BASELINE:
        notes.append("the kernels are those of any x86-64 CPU, which are several times slower than AVX2's: "
                     f"this CPU runs {', '.join(found['instruction sets'])} (NGRAPH_CPU_ISA)")
    return Finding("processor", {**facts, **found}, notes=tuple(notes))


def _used_by_the_cpu_backend() -> Mapping[str, Any]:
    from ngraph_mxnet.runtime.backend import get_backend

    return get_backend("CPU").machine()


def _model(root: Path) -> str:
    try:
        return cpu_info(root).get("model name") or "not known"
    except OSError as error:
        return f"not known: {error.strerror}"


def threads(root: Path = ROOT) -> Finding:
    """Of the environment as it is; `root` holds `proc` and `sys`."""
    allowed, quota, usable = len(os.sched_getaffinity(0)), cpu_quota(root), usable_cores(root)
    wanted = config.threads()
    facts = {"CPUs of the machine": os.cpu_count(), "CPUs of this process": allowed,
             "physical cores of these": physical_cores(root), "quota in CPUs": quota,
             "threads of a graph": wanted, "set by": _set_by()}
    most = allowed if quota is None else min(allowed, math.ceil(quota))
    if wanted > most:
        return Finding("threads", facts, (f"{wanted} threads run a graph, and this process may use {most} CPUs: they "
                                          f"wait for each other, which is slow; set OMP_NUM_THREADS={usable}",))
    if wanted > usable:
        return Finding("threads", facts, notes=(f"{wanted} threads run a graph on {usable} physical cores: seldom "
                                                f"faster than OMP_NUM_THREADS={usable}; measure both",))
    return Finding("threads", facts)


def _set_by() -> str:
    for name in ("OMP_NUM_THREADS", "NGRAPH_INTRA_OP_PARALLELISM"):
        if config.get(name):
            return name
    return "the physical cores that this process may use"
