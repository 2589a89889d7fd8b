"""Checks of what is installed: this package, what it needs, and what it meets in a process."""

from __future__ import annotations

import importlib
import importlib.metadata
import platform
import re
import sys
import sysconfig
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ngraph_mxnet.doctor.finding import Finding
from ngraph_mxnet.doctor.trial import DEFINITION, LIBRARIES, MXNET, NUMBA, RUNS, Trial
from ngraph_mxnet.installation import missing_part, version_of
from ngraph_mxnet.version import __version__

DISTRIBUTION, FORK = "ngraph-mxnet-backend", "ngraph-mxnet"
"""Ours, and Intel's fork of MXNet of 2018, whose name is alike."""
OPTIONAL = ("onnxruntime", "openvino", "torch", "gluoncv", "gluonnlp", "gluonts", "scikit-learn")
"""Libraries that are often in the process beside us, or that benchmarks need."""

_AUTOLOAD = "ngraph_mxnet_autoload.pth"
_RUNTIMES = {"GNU's libgomp": re.compile(r"libgomp\b"), "Intel's libiomp5": re.compile(r"libiomp5?\b"),
             "LLVM's libomp": re.compile(r"libomp\b")}
_CLOSE = 1e-4
"""The most by which a probability may differ from the definition's."""


def installation(missing: Callable[[], str | None] = missing_part,
                 version: Callable[[str], str | None] = version_of,
                 site: Path | None = None) -> Finding:
    """`site`: where the `.pth` file should be, by default this Python's site-packages."""
    package = Path(__file__).parents[1]
    site = site or Path(sysconfig.get_paths()["purelib"])
    facts: dict[str, Any] = {
        "ngraph_mxnet": __version__, "folder": str(package),
        "Python": f"{platform.python_version()} ({platform.python_implementation()}), {sys.executable}",
        "system": f"{platform.platform()}, {' '.join(platform.libc_ver())}"}
    problems = [problem for problem in (missing(), _library_problem()) if problem][:1]
    fork = version(FORK)
    if fork is not None:
        problems.append(f"{FORK} {fork} is installed, which is another project, a fork of MXNet: uninstall it, then "
                        f"install mxnet==1.9.1 and {DISTRIBUTION} again")
    installed = version(DISTRIBUTION)
    if installed is not None and installed != __version__:
        problems.append(f"the folder holds version {__version__}, and {DISTRIBUTION} {installed} is installed: start "
                        "Python in another folder, or install the checkout again")
    notes = [] if (site / _AUTOLOAD).exists() else [
        f"there is no {site / _AUTOLOAD}: only scripts that import ngraph_mxnet get the backend NGRAPH"]
    return Finding("installation", facts, tuple(problems), tuple(notes))


def _library_problem() -> str | None:
    try:
        importlib.import_module("ngraph_mxnet._core")
    except ImportError as error:
        return f"the library ngraph_mxnet._core does not load: {error}; install ngraph_mxnet again"
    return None


def libraries(requirements: Sequence[str] | None = None,
              version: Callable[[str], str | None] = version_of) -> Finding:
    """`requirements`: what this package depends on, as in pyproject.toml; by default what its metadata tell."""
    from packaging.requirements import Requirement

    if requirements is None:
        try:
            requirements = importlib.metadata.requires(DISTRIBUTION) or ()
        except importlib.metadata.PackageNotFoundError:
            return Finding("libraries", problems=(f"{DISTRIBUTION} is not installed, so nobody knows what it needs: "
                                                  "`pip install -e .` in a checkout",))
    facts, problems = {}, []
    for requirement in map(Requirement, requirements):
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue  # of an extra
        found = facts[requirement.name] = version(requirement.name)
        if found is None or not requirement.specifier.contains(found, prereleases=True):
            problems.append(f"{requirement.name}: found {found or 'none'}, expected {requirement}: "
                            f"pip install '{requirement}'")
    facts |= {name: found for name in OPTIONAL if (found := version(name)) is not None}
    return Finding("libraries", facts, tuple(problems))


def numpy(trial: Trial) -> Finding:
    """Whether Numba takes this NumPy: each of its versions takes some."""
    facts: dict[str, Any] = {"numpy": version_of("numpy"), "numba": version_of("numba")}
    try:
        facts["folder"] = str(Path(importlib.import_module("numpy").__file__ or "").parent)
    except ImportError as error:
        return Finding("numpy", facts, (f"NumPy can't be imported: {error}",))
    if NUMBA in trial.failed:
        return Finding("numpy", facts, (f"NGRAPH_CODEGEN compiles nothing, for Numba can't be imported: "
                                        f"{trial.failed[NUMBA]}",))
    return Finding("numpy", facts)


def mxnet(trial: Trial) -> Finding:
    if MXNET in trial.failed:
        return Finding("mxnet", problems=(f"MXNet can't be imported: {trial.failed[MXNET]}",))
    found: Mapping[str, Any] | None = trial.steps.get(MXNET)
    if found is None:
        return Finding("mxnet", problems=("the trial ended before MXNet was imported",))
    facts = {"version": found["version"], "library": found["library"]}
    return Finding("mxnet", facts, (found["problem"],) if found["problem"] else ())


def openmp(trial: Trial) -> Finding:
    """Of the trial's process, in which modules may be imported first as a script imports them."""
    paths: Sequence[str] = trial.steps.get(LIBRARIES, ())
    loaded = {path: name for path in paths for name, pattern in _RUNTIMES.items() if pattern.match(Path(path).name)}
    facts = {"runtimes": [f"{name}: {path}" for path, name in loaded.items()]}
    if LIBRARIES not in trial.steps:
        return Finding("openmp", problems=("the trial ended before it told which libraries it had loaded",))
    kinds = sorted(set(loaded.values()))
    if len(kinds) > 1:
        return Finding("openmp", facts, (
            f"{' and '.join(kinds)} are loaded at once: the threads of each spin on CPUs that the other's need. Find "
            "out which library brings the other one (`doctor --import MODULE`), and do without it in processes that "
            "run models, or start them with OMP_WAIT_POLICY=passive KMP_BLOCKTIME=0",))
    if len(loaded) > 1:
        return Finding("openmp", facts, notes=(
            f"{kinds[0]} is loaded {len(loaded)} times, as wheels bring copies of their own: harmless while only one "
            "computes",))
    return Finding("openmp", facts)


def self_test(trial: Trial) -> Finding:
    """Whether all steps ended well, with the results of the definition."""
    import numpy as np

    problems = [f"{step}: {reason}" for step, reason in trial.failed.items() if step not in (NUMBA, MXNET)]
    if trial.stopped is not None:
        problems.append(trial.stopped)
    facts: dict[str, Any] = {}
    expected: Mapping[str, Any] | None = trial.steps.get(DEFINITION)
    if expected is None:
        return Finding("self-test", facts, (*problems, f"{DEFINITION}: no result to compare others with"))
    for run in RUNS:
        found = trial.steps.get(run)
        if found is None:
            facts[run] = "no result"
            continue
        difference = float(np.max(np.abs(np.subtract(found["result"], expected["result"]))))
        facts[run] = {"seconds": found["seconds"], "largest difference": difference}
        if not difference <= _CLOSE:  # NaN is wrong, too
            problems.append(f"{run}: the result differs by {difference:g} from the definition's, expected at most "
                            f"{_CLOSE:g}: please report it")
    return Finding("self-test", facts, tuple(problems))
