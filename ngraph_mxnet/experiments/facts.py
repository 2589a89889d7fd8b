"""The facts on which a measurement depends beside its program: command, environment, machine, versions, commit."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ngraph_mxnet import config
from ngraph_mxnet.cores import ROOT, cpu_info
from ngraph_mxnet.environment import settings_in
from ngraph_mxnet.installation import versions_of
from ngraph_mxnet.version import __version__

NOT_RECORDED = ("NGRAPH_RUNS",)
"""Says where a run is recorded, which does not matter to it."""
PACKAGES = ("mxnet", "numpy", "onnx", "numba", "llvmlite", "onnxruntime", "openvino", "torch", "tensorflow")
_SOURCE = Path(__file__).parents[1]


def collect(command: Sequence[str]) -> dict[str, Any]:
    """All of it, as plain data.

    Args:
        command: what runs the program again with a Python in front: a script and its arguments, or -m and a module.
    """
    return {
        "command": list(command), "folder": os.getcwd(), "variables": variables(os.environ),
        "threads": config.threads(), "affinity": sorted(os.sched_getaffinity(0)), "machine": machine(),
        "load": os.getloadavg()[0], "python": platform.python_version(),
        "packages": {"ngraph-mxnet-backend": __version__, **versions_of(PACKAGES)}, "source": source(_SOURCE),
    }


def own_command() -> list[str]:
    """Return the command that runs this process's script again."""
    return list(sys.argv)


def variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that matter to a measurement."""
    return {name: value for name, value in settings_in(environment).items() if name not in NOT_RECORDED}


def machine(root: Path = ROOT) -> dict[str, Any]:
    """CPU with its flags, number of CPUs, frequency governor and system; `root` holds `proc` and `sys`."""
    try:
        fields = cpu_info(root)
    except OSError:
        fields = {}
    try:
        governor = (root / "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor").read_text().strip()
    except OSError:
        governor = None  # as in most virtual machines
    return {"cpu": fields.get("model name", platform.machine()), "family": fields.get("cpu family"),
            "model": fields.get("model"), "flags": fields.get("flags", "").split(), "cpus": os.cpu_count(),
            "governor": governor, "system": platform.platform()}


def source(folder: Path) -> dict[str, Any] | None:
    """Commit of the checkout that has this folder, and whether it was changed since; None if there is none."""
    def git(*arguments: str) -> str:
        done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=True,
                              timeout=20)
        return done.stdout.strip()

    try:
        if not git("ls-files", "--", "."):  # installed into a folder of somebody's checkout
            return None
        return {"commit": git("rev-parse", "HEAD"), "dirty": bool(git("status", "--porcelain"))}
    except (OSError, subprocess.SubprocessError):
        return None


def differences(base: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return the facts in which two runs differ, by dotted name. The load, which differs every time, is left out."""
    ours, theirs = (_flat("", {**one, "load": None}) for one in (base, new))
    return {name: (ours.get(name), theirs.get(name)) for name in sorted({*ours, *theirs})
            if ours.get(name) != theirs.get(name)}


def _flat(prefix: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        return {prefix: value}
    return {name: found for key, inner in value.items()
            for name, found in _flat(f"{prefix}.{key}" if prefix else str(key), inner).items()}
