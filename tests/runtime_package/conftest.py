"""The package beside a library that is made for the tests, and the real one where it is built.

Runs on every Python that the package does: `python -m pytest --confcutdir=tests/runtime_package tests/runtime_package`
needs nothing else of this checkout.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from urllib.request import urlopen

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "runtime"))
VARIABLE = "NGRAPH_RUNTIME_LIBRARY"
REAL = os.environ.get(VARIABLE)


@pytest.fixture(scope="session")
def fake_library(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("fake") / "libngraph_runtime.so"
    compiler = os.environ.get("CC") or shutil.which("cc") or "gcc"
    source = Path(__file__).with_name("fake_runtime.c")
    subprocess.run([compiler, "-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC",
                    f"-I{ROOT / 'runtime' / 'include'}", "-o", str(path), str(source)], check=True)
    return str(path)


@pytest.fixture
def fake(fake_library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Makes the file of one of the fake library's models, by its word and what else the file has."""
    monkeypatch.setenv(VARIABLE, fake_library)

    def make(word: str, further: str = "") -> str:
        path = tmp_path / f"{word}.ngraph"
        path.write_text(f"{word} {further}")
        return str(path)

    return make


@pytest.fixture(scope="session")
def built_library() -> str:
    if not REAL:
        pytest.skip(f"{VARIABLE} names no built library")
    return REAL


@pytest.fixture
def real_library(built_library: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The one that models run on."""
    monkeypatch.setenv(VARIABLE, built_library)
    return built_library


@pytest.fixture(scope="session")
def export_small() -> Callable[[Path, int], None]:
    """Writes the file of x: f32 [3,40] times a weight of this seed, with references."""
    ngraph_mxnet = pytest.importorskip("ngraph_mxnet", reason="the other Pythons have the runtime alone")

    def export(path: Path, seed: int) -> None:
        builder = ngraph_mxnet.Builder(name="small")
        weight = np.random.default_rng(seed).standard_normal((40, 5), np.float32)
        graph = builder.results(builder.matmul(builder.parameter("x", (3, 40)), builder.constant(weight)))
        ngraph_mxnet.export(graph, path, with_references=True)

    return export


@pytest.fixture(scope="session")
def small_model(tmp_path_factory: pytest.TempPathFactory, export_small: Callable[[Path, int], None]) -> Path:
    path = tmp_path_factory.mktemp("small") / "small.ngraph"
    export_small(path, 0)
    return path


@pytest.fixture(scope="session")
def wheel(built_library: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package's, around the built library."""
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run([sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", folder, ROOT / "runtime"],
                   env={**os.environ, "NGRAPH_RUNTIME_PREBUILT": built_library}, check=True)
    (found,) = folder.glob("*.whl")
    return found


@pytest.fixture
def environment_of(tmp_path: Path) -> Callable[..., Path]:
    """Makes a fresh environment of a Python's version and installs what pip is told. Gives its interpreter. Needs the
    package registry. Without `optional`, the name of a package that it may lack, a failure is one of the test."""

    def make(version: str, *installed: object, optional: str | None = None) -> Path:
        python = _interpreter(version)
        if python is None:
            pytest.skip(f"no Python {version} is at hand")
        subprocess.run([python, "-m", "venv", tmp_path / "venv"], check=True)
        own = tmp_path / "venv" / "bin" / "python"
        # Without this process's folders of modules, which pip would take for installed.
        alone = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        done = subprocess.run([own, "-m", "pip", "install", "-q", "--disable-pip-version-check",
                               *map(str, installed)], env=alone, check=optional is None)
        if done.returncode:
            pytest.skip(f"pip can't install {optional}")
        return own

    return make


def _interpreter(version: str) -> str | None:
    """On the path, or one of pyenv's."""
    folder = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for candidate in (f"python{version}", *sorted(map(str, folder.glob(f"{version}.*/bin/python3")))):
        found = shutil.which(candidate)
        if found and subprocess.run([found, "-c", f"import venv, sys; sys.exit('{version}' != '%d.%d' % "
                                     "sys.version_info[:2])"], capture_output=True, check=False).returncode == 0:
            return found
    return None


@pytest.fixture
def free_ports() -> Callable[[int], list[int]]:
    """Ports of this machine in a row on which nobody listens, below 32767: multi-model-server takes no others."""

    def found(count: int) -> list[int]:
        while True:
            first = random.randrange(20000, 32767 - count)
            ports = list(range(first, first + count))
            with ExitStack() as stack, suppress(OSError):
                for port in ports:
                    stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
                return ports

    return found


@pytest.fixture
def served_by(request: pytest.FixtureRequest) -> Callable[..., Path]:
    """Starts a server and waits until its URL answers. Gives its log. All its processes end with the test."""

    def start(command: Sequence[object], url: str, environment: Mapping[str, str], folder: Path) -> Path:
        log = folder / "server.log"
        with log.open("w") as file:
            process = subprocess.Popen([*map(str, command)], env=environment, cwd=folder, stdout=file,
                                       stderr=subprocess.STDOUT, start_new_session=True)
        request.addfinalizer(lambda: _end(process))
        last = time.monotonic() + 120
        while time.monotonic() < last and process.poll() is None:
            try:
                with urlopen(url, timeout=5):
                    return log
            except OSError:  # refused, or not ready
                time.sleep(0.3)
        raise AssertionError(f"{url} does not answer:\n{log.read_text()}")

    return start


def _end(process: subprocess.Popen[bytes]) -> None:
    """Politely, then all of its session."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        process.wait(30)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
