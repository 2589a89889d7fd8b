"""A process that uses everything once: a small net on each backend, and in MXNet with and without this package.

A kernel that the CPU does not run ends a process, and a library may hang it, so it is one of its own. It writes a line
of JSON when a step begins and one when it ended; what is missing tells where it stopped.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

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
  %0: f32[2,8,16,16] = convolution_bias(%data, %conv_weight, %conv_bias) {lower=0.0, pads_begin=[1,1], pads_end=[1,1]}
  %1: f32[2,8] = reduce_mean(%0) {axes=[2,3]}
  %2: f32[2,10] = matmul(%1, %dense) {transpose_b=true}
  %3: f32[2,10] = softmax(%2)
  return %3
}
"""
"""The net of the trial; `bridges.mxnet.trial` has the same net for MXNet."""


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
        yield f"import {name}", partial(_version_of, name)
    for backend in (DEFINITION, RUNS[0]):
        yield backend, partial(_timed, partial(_compiled, backend))
    yield NUMBA, partial(_version_of, "numba")
    yield MXNET, _mxnet
    for run, with_ngraph in zip(RUNS[1:], (False, True), strict=True):
        yield run, partial(_timed, partial(_in_mxnet, with_ngraph))
    yield LIBRARIES, lambda: loaded_libraries(Path("/proc/self/maps").read_text())


def _version_of(module: str) -> str:
    return str(getattr(importlib.import_module(module), "__version__", "not known"))


@cache
def _arrays() -> dict[str, Any]:
    import numpy as np

    random = np.random.default_rng(7)
    shapes = {"data": (2, 3, 16, 16), "conv_weight": (8, 3, 3, 3), "conv_bias": (8,), "dense": (10, 8)}
    return {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def _compiled(backend: str) -> Any:
    from ngraph_mxnet.ir import parse_graph
    from ngraph_mxnet.runtime.compile import compile

    return compile(parse_graph(_NET), backend)(_arrays())[0]


def _mxnet() -> dict[str, Any]:
    from ngraph_mxnet.bridges.mxnet.trial import imported

    return imported()


def _in_mxnet(with_ngraph: bool) -> Any:
    from ngraph_mxnet.bridges.mxnet.trial import run

    return run(_arrays(), with_ngraph=with_ngraph)


def _timed(run: Callable[[], Any]) -> dict[str, Any]:
    start = time.perf_counter()
    result = run()
    return {"seconds": round(time.perf_counter() - start, 3), "result": result.tolist()}


def loaded_libraries(maps: str) -> list[str]:
    """The paths of the shared libraries in a text as that of `/proc/self/maps`, in order of their names."""
    fields = (line.split(maxsplit=5) for line in maps.splitlines())
    paths = {parts[5] for parts in fields if len(parts) == 6}
    return sorted(path for path in paths if path.startswith("/") and ".so" in Path(path).name)
