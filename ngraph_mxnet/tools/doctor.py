"""`ngraph-mxnet doctor`: whether an installation works on this machine, and what a bug report has to tell of both.

Each check returns a `Finding`. One part of it is a trial: a process that uses everything once, a small net on each
backend, and in MXNet with and without this package. A kernel that the CPU does not run ends a process, and a library
may hang it, so the trial is one of its own. It writes a line of JSON when a step begins and one when it ended; what is
missing tells where it stopped.
"""

from __future__ import annotations

import difflib
import functools
import importlib
import importlib.metadata
import json
import math
import os
import platform
import re
import signal
import subprocess
import sys
import sysconfig
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from ngraph_mxnet.base import config
from ngraph_mxnet.base.config import ROOT, cpu_info, cpu_quota, physical_cores, usable_cores
from ngraph_mxnet.base.errors import ConfigError, NGraphError
from ngraph_mxnet.base.installation import has_mxnet, missing_part, settings_in, version_of
from ngraph_mxnet.base.rendered import Facts
from ngraph_mxnet.base.version import __version__
from ngraph_mxnet.program.cache import Store, UnsafeError, opened_folder, wanted_folder
from ngraph_mxnet_autoload.names import BACKEND, MXNET_BACKENDS, VARIABLE

SECONDS = 60
"""The most that it may take. It takes some seconds, nearly all of them for imports, which a cold disk makes slow."""

DEFINITION, NUMBA, MXNET, LIBRARIES = "INTERPRETER", "import numba", "import mxnet", "libraries"
RUNS = ("CPU", "MXNet alone", "MXNet with NGRAPH")
"""The steps whose results are compared with that of `DEFINITION`."""

_LEAVE_OUT = ("NGRAPH_BACKEND", "NGRAPH_PRECISION", "NGRAPH_CALIBRATION", "NGRAPH_PROFILE", "NGRAPH_PACKAGE",
              "NGRAPH_NNP_REPORT", "NGRAPH_DYNAMIC")
"""The variables that would make another backend or precision run, or write a file of the user's."""

_NET = """
graph @trial(%data: f32[2,3,16,16], %conv_weight: f32[8,3,3,3], %conv_bias: f32[8], %dense: f32[10,8]) -> (f32[2,10]) {
  %0: f32[2,8,16,16] = convolution(%data, %conv_weight, bias=%conv_bias) {lower=0.0, pads_begin=[1,1], pads_end=[1,1]}
  %1: f32[2,8] = reduce_mean(%0) {axes=[2,3]}
  %2: f32[2,10] = matmul(%1, %dense) {transpose_b=true}
  %3: f32[2,10] = softmax(%2)
  return %3
}
"""
"""The net of the trial; `plugin/native.py` has the same net for MXNet."""


@dataclass(frozen=True)
class Trial:
    """`steps`: what each that ended well gave, plain data; `failed`: why others did not. `stopped`: why the process
    ended before its last step, None if it did not."""

    steps: Mapping[str, Any] = field(default_factory=dict)
    failed: Mapping[str, str] = field(default_factory=dict)
    stopped: str | None = None


def try_everything(imports: Sequence[str] = (), seconds: float = SECONDS) -> Trial:
    """Start the process and read what it wrote. `imports`: modules that it imports first, as a script of the user's
    does."""
    environment = {name: value for name, value in os.environ.items() if name not in _LEAVE_OUT}
    code = f"import sys; sys.path[:] = {sys.path!r}; from {__name__} import main; main(sys.argv[1:])"
    try:
        done = subprocess.run([sys.executable, "-c", code, *imports], env=environment, capture_output=True,
                              timeout=seconds, check=False)
    except subprocess.TimeoutExpired as late:
        return read(late.stdout or b"", f"took longer than {seconds:g} s")
    if done.returncode == 0:
        return read(done.stdout, None)
    last = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
    return read(done.stdout, ": ".join([_ending(done.returncode), *last]))


def _ending(status: int) -> str:
    if status >= 0:
        return f"ended with status {status}"
    try:
        return f"was ended by {signal.Signals(-status).name}"
    except ValueError:
        return f"was ended by signal {-status}"


def read(output: bytes, ending: str | None) -> Trial:
    """`ending`: how the process ended, None for well."""
    steps, failed, begun = {}, {}, "start"
    for line in output.splitlines():
        try:
            found = json.loads(line)
            step = found["step"]
        except (ValueError, LookupError, TypeError):
            continue  # what a library printed
        begun = step
        if "gave" in found:
            steps[step] = found["gave"]
        elif "failed" in found:
            failed[step] = found["failed"]
    return Trial(steps, failed, None if ending is None else f"{begun}: the process {ending}")


# ---- in the process ------------------------------------------------------------------------------------------


def main(imports: Sequence[str]) -> None:
    for name, step in _steps(imports):
        _write({"step": name})
        try:
            _write({"step": name, "gave": step()})
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            _write({"step": name, "failed": f"{type(error).__name__}: {error} ({Path(where.filename).name}:"
                                            f"{where.lineno})"})


def _write(line: Mapping[str, Any]) -> None:
    print("\n" + json.dumps(line), flush=True)


def _steps(imports: Sequence[str]) -> Iterator[tuple[str, Callable[[], Any]]]:
    for name in imports:
        yield f"import {name}", partial(_version_of_module, name)
    for backend in (DEFINITION, RUNS[0]):
        yield backend, partial(_timed, partial(_compiled, backend))
    yield NUMBA, partial(_version_of_module, "numba")
    yield MXNET, _mxnet
    if has_mxnet():
        for run, with_ngraph in zip(RUNS[1:], (False, True), strict=True):
            yield run, partial(_timed, partial(_in_mxnet, with_ngraph))
    yield LIBRARIES, lambda: loaded_libraries(Path("/proc/self/maps").read_text())


def _version_of_module(module: str) -> str:
    return str(getattr(importlib.import_module(module), "__version__", "not known"))


@functools.cache
def _arrays() -> dict[str, Any]:
    import numpy as np

    random = np.random.default_rng(7)
    shapes = {"data": (2, 3, 16, 16), "conv_weight": (8, 3, 3, 3), "conv_bias": (8,), "dense": (10, 8)}
    return {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def _compiled(backend: str) -> Any:
    from ngraph_mxnet.ir import parse_graph
    from ngraph_mxnet.program.compile import compile

    return compile(parse_graph(_NET), backend)(_arrays())[0]


def _mxnet() -> dict[str, Any] | None:
    if not has_mxnet():
        return None
    from ngraph_mxnet.plugin.native import imported

    return imported()


def _in_mxnet(with_ngraph: bool) -> Any:
    from ngraph_mxnet.plugin.native import run_trial

    return run_trial(_arrays(), with_ngraph=with_ngraph)


def _timed(run: Callable[[], Any]) -> dict[str, Any]:
    start = time.perf_counter()
    result = run()
    return {"seconds": round(time.perf_counter() - start, 3), "result": result.tolist()}


def loaded_libraries(maps: str) -> list[str]:
    """The paths of the shared libraries in a text as that of `/proc/self/maps`, in order of their names."""
    fields = (line.split(maxsplit=5) for line in maps.splitlines())
    paths = {parts[5] for parts in fields if len(parts) == 6}
    return sorted(path for path in paths if path.startswith("/") and ".so" in Path(path).name)


@dataclass(frozen=True)
class Finding(Facts):
    """`facts` by name, plain data, are for whoever reads a bug report. `problems` are wrong and say what to do; `notes`
    are worth knowing, and nothing is wrong for them."""

    check: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def status(self) -> str:
        return "wrong" if self.problems else "note" if self.notes else "fine"

    derived = ("status",)


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
    from ngraph_mxnet.program.backend import get_backend

    return get_backend("CPU").machine()


def _model(root: Path) -> str:
    try:
        return cpu_info(root).get("model name") or "not known"
    except OSError as error:
        return f"not known: {error.strerror}"


def threads(root: Path = ROOT) -> Finding:
    """Check the number of threads that run a graph, in the environment as it is. `root` holds `proc` and `sys`."""
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


_MATTER_MOST = (VARIABLE, "OMP_NUM_THREADS")
_NEARLY = 0.9
"""How alike a name must be to one of these to count as misspelt: MXNet and OpenMP have many."""


def settings() -> Finding:
    facts: dict[str, Any] = {}
    problems, notes = [], []
    for name, value in settings_in(os.environ).items():
        variable = config.VARIABLES.get(name)
        facts[name] = {"value": value, "effect": variable.help} if variable else {"value": value}
        try:
            if variable is not None:
                variable.checked()
        except ConfigError as error:
            problems.append(str(error))
        if name not in config.VARIABLES:
            meant = difflib.get_close_matches(name, _MATTER_MOST, 1, _NEARLY)
            if meant and name not in _MATTER_MOST:
                problems.append(f"{name} is set, and nothing reads it: did you mean {meant[0]}?")
    for name, near in config.unknown().items():
        if near is not None:
            problems.append(f"{name} is set, and nothing reads it: did you mean {near}?")
        else:
            notes.append(f"{name} is set, and nothing of this package reads it")
    problem, note = _of_mxnet(os.environ.get(VARIABLE, ""))
    problems += [problem] if problem else []
    notes += [note] if note else []
    return Finding("settings", facts, tuple(problems), (*notes, *notices()))


def _of_mxnet(value: str) -> tuple[str, str]:
    """Return a problem and a note about the value of the variable that names MXNet's backend; each may be empty."""
    if value.upper() == BACKEND:
        return "", ""
    if not value:
        return "", f"{VARIABLE} is not set: a script runs compiled only if it names the backend {BACKEND} itself"
    if value in MXNET_BACKENDS:
        return "", f"{VARIABLE}={value}: MXNet runs models without {BACKEND}"
    return f"{VARIABLE}={value}: MXNet has no such backend, expected {BACKEND}, {', '.join(MXNET_BACKENDS)}", ""


def notices() -> list[str]:
    """Settings that this machine can't follow."""
    from ngraph_mxnet.program.backend import get_backend

    try:
        return get_backend().notices()
    except NGraphError:
        return []  # other checks say so


def cache() -> Finding:
    """Check that the cache folder can keep an entry and give it back."""
    try:
        root = wanted_folder()
    except RuntimeError as error:
        return Finding("cache", problems=(f"nothing is kept on disk: {error}; NGRAPH_CACHE_DIR may name a folder",))
    if root is None:
        return Finding("cache", {"folder": "off"}, notes=("nothing is kept on disk (NGRAPH_CACHE_DIR=off): every "
                                                          "process compiles its models anew",))
    store = Store(root, config.get("NGRAPH_CACHE_MB") << 20)
    facts: dict[str, Any] = {"folder": str(root), "limit in MiB": store.limit >> 20}
    try:
        with opened_folder(root, make=True):
            pass
    except UnsafeError as error:
        return Finding("cache", {**facts, "trusted": False}, (f"the folder is not used: {error}",))
    except OSError as error:
        return Finding("cache", facts, (f"nothing is kept in the folder: {root}: {error.strerror or error}; "
                                        "NGRAPH_CACHE_DIR may name another",))
    entries = store.entries()
    facts |= {"trusted": True, "entries": len(entries),
              "size in MiB": round(sum(entry.bytes for entry in entries) / 2**20, 1)}
    content = b"what doctor keeps"
    if not store.put("doctor", "trial", content) or store.get("doctor", "trial") != content:
        return Finding("cache", {**facts, "writable": False}, (
            f"what is kept in {root} can't be read again: every process compiles its models anew; see that you may "
            "write there and that the disk is not full, or set NGRAPH_CACHE_DIR",))
    return Finding("cache", {**facts, "writable": True})


DISTRIBUTION, FORK = "ngraph-mxnet-backend", "ngraph-mxnet"
"""Ours, and Intel's fork of MXNet of 2018, whose name is alike."""
MXNET_EXTRA = "mxnet"
OPTIONAL = ("onnxruntime", "openvino", "torch", "gluoncv", "gluonnlp", "gluonts", "scikit-learn")
"""Libraries that are often in the process beside us, or that benchmarks need."""

_AUTOLOAD = "ngraph_mxnet_autoload.pth"
_RUNTIMES = {"GNU's libgomp": re.compile(r"libgomp\b"), "Intel's libiomp5": re.compile(r"libiomp5?\b"),
             "LLVM's libomp": re.compile(r"libomp\b")}
_CLOSE = 1e-4
"""The most by which a probability may differ from the definition's."""


def installation(missing: Callable[[], str | None] = missing_part, version: Callable[[str], str | None] = version_of,
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


def libraries(requirements: Sequence[str] | None = None, version: Callable[[str], str | None] = version_of) -> Finding:
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
        needed, of_extra = (requirement.marker is None or requirement.marker.evaluate({"extra": extra})
                            for extra in ("", MXNET_EXTRA))
        found = version(requirement.name)
        if not needed and not (of_extra and found is not None):
            continue  # of another extra, or MXNet, which may be missing
        facts[requirement.name] = found
        if found is None or not requirement.specifier.contains(found, prereleases=True):
            expected = f"{requirement.name}{requirement.specifier}"
            problems.append(f"{requirement.name}: found {found or 'none'}, expected {expected}: "
                            f"pip install '{expected}'")
    facts |= {name: found for name in OPTIONAL if (found := version(name)) is not None}
    return Finding("libraries", facts, tuple(problems))


def numpy(trial: Trial) -> Finding:
    """Check that Numba takes the installed NumPy: each version of Numba takes only some versions of NumPy."""
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
    if MXNET not in trial.steps:
        return Finding("mxnet", problems=("the trial ended before MXNet was imported",))
    found: Mapping[str, Any] | None = trial.steps[MXNET]
    if found is None:
        return Finding("mxnet", notes=(
            "MXNet is not installed: models in files compile and run, and nothing runs inside MXNet; on Python 3.10 to "
            f"3.12 pip install '{DISTRIBUTION}[{MXNET_EXTRA}]' brings it",))
    facts = {"version": found["version"], "library": found["library"]}
    return Finding("mxnet", facts, (found["problem"],) if found["problem"] else ())


def openmp(trial: Trial) -> Finding:
    """Check the OpenMP runtimes that the trial's process loaded. That process may import modules first, as a script
    imports them."""
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
    """Check that the trial's steps ended well, with the results of the definition. Failed imports of Numba and MXNet
    belong to other checks."""
    import numpy as np

    problems = [f"{step}: {reason}" for step, reason in trial.failed.items() if step not in (NUMBA, MXNET)]
    if trial.stopped is not None:
        problems.append(trial.stopped)
    facts: dict[str, Any] = {}
    expected: Mapping[str, Any] | None = trial.steps.get(DEFINITION)
    if expected is None:
        return Finding("self-test", facts, (*problems, f"{DEFINITION}: no result to compare others with"))
    without_mxnet = trial.steps.get(MXNET, ...) is None
    for run in RUNS[:1] if without_mxnet else RUNS:
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


def examine(imports: Sequence[str] = ()) -> list[Finding]:
    """`imports`: modules that the self-test's process imports before all else."""
    return [_checked(name, check) for name, check in _checks(imports)]


def _checks(imports: Sequence[str]) -> Iterator[tuple[str, Callable[[], Finding]]]:
    yield "installation", installation
    yield "processor", processor
    yield "threads", threads
    yield "settings", settings
    yield "cache", cache
    yield "libraries", libraries
    trial = try_everything(imports)
    yield "numpy", partial(numpy, trial)
    yield "mxnet", partial(mxnet, trial)
    yield "openmp", partial(openmp, trial)
    yield "self-test", partial(self_test, trial)


def _checked(name: str, check: Callable[[], Finding]) -> Finding:
    """Whatever is broken, all other checks are made."""
    try:
        return check()
    except Exception as error:
        return Finding(name, problems=(f"the check itself failed: {type(error).__name__}: {error}",))
