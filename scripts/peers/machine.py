"""The machine and the versions that figures belong to."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from pathlib import Path

from ngraph_mxnet.base.installation import versions_of
from ngraph_mxnet.tools.experiments.store import machine

PACKAGES = ("mxnet", "ngraph-mxnet-backend", "numpy", "onnx", "onnxruntime", "openvino")
FLAGS = ("avx2", "avx_vnni", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16")
TOPOLOGY = Path("/sys/devices/system/cpu")


def describe() -> dict[str, object]:
    """CPU, its vector instructions, system and package versions."""
    found = machine()
    return {
        "cpu": f"{found['cpu']} (family {found['family'] or '?'}, model {found['model'] or '?'})",
        "cpus": len(os.sched_getaffinity(0)),
        "vector_instructions": [flag for flag in FLAGS if flag in found["flags"]],
        "system": found["system"],
        "python": platform.python_version(),
        "packages": versions_of(PACKAGES),
    }


def choose_cpus(threads: int, allowed: Sequence[int], topology: Path = TOPOLOGY) -> list[int]:
    """A CPU for each thread: one on each physical core first, then their hyper-threads.

    Raises:
        ValueError: there are fewer CPUs than threads.
    """
    if threads > len(allowed):
        raise ValueError(f"found {len(allowed)} CPUs that may be used, expected {threads} or more for the threads")
    seen: dict[tuple[str, ...], int] = {}
    order = []
    for cpu in sorted(allowed):
        core = _core(cpu, topology)
        seen[core] = seen.get(core, 0) + 1
        order.append((seen[core], cpu))
    return sorted(cpu for _, cpu in sorted(order)[:threads])


def _core(cpu: int, topology: Path) -> tuple[str, ...]:
    folder = topology / f"cpu{cpu}" / "topology"
    try:
        return tuple((folder / name).read_text().strip() for name in ("physical_package_id", "core_id"))
    except OSError:
        return (f"cpu{cpu}",)
