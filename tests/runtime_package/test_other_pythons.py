"""Fresh environments of other Pythons, with NumPy and the wheel alone: models compiled here give the same there.

Needs the package registry, and a quarter of a minute for each Python.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
VERSIONS = tuple(f"3.{minor}" for minor in range(8, 14))
PROGRAM = """
import importlib.util, json, sys
from importlib.metadata import distributions
import numpy as np
import ngraph_runtime
from ngraph_runtime.reference import verify
same = []
for name in sys.argv[1:]:
    model = ngraph_runtime.load(name + ".ngraph")
    x, y = np.load(name + ".x.npy"), np.load(name + ".y.npy")
    found = [model(x)[0], model.run([x], threads=2)[0], model.run_async([x]).result()[0]]
    same.append(all(np.array_equal(one, y) for one in found) and all(one.matches for one in verify(model)))
print(json.dumps({
    "version": sys.version_info[:2], "same": same, "package": ngraph_runtime.__file__,
    "installed": sorted(one.metadata["Name"].lower().replace("_", "-") for one in distributions())}))
"""


def interpreter(version: str) -> str | None:
    """On the path, or one of pyenv's."""
    folder = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for candidate in (f"python{version}", *sorted(map(str, folder.glob(f"{version}.*/bin/python3")))):
        found = shutil.which(candidate)
        if found and subprocess.run([found, "-c", f"import venv, sys; sys.exit('{version}' != '%d.%d' % "
                                     "sys.version_info[:2])"], capture_output=True, check=False).returncode == 0:
            return found
    return None


@pytest.fixture(scope="module")
def compiled(built_library: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """resnet.ngraph, lstm.ngraph and onnx.ngraph, with an input and what this process computes of it on the library."""
    mx = pytest.importorskip("mxnet", reason="the other Pythons have the runtime alone")
    from mxnet.gluon import rnn
    from mxnet.gluon.model_zoo import vision
    from onnx_models import network

    import ngraph_mxnet
    import ngraph_runtime

    folder = tmp_path_factory.mktemp("compiled")
    models: dict[str, tuple[Any, tuple[int, ...]]] = {
        "resnet": (vision.resnet18_v1(), (1, 3, 224, 224)), "lstm": (rnn.LSTM(24, num_layers=2), (7, 2, 10)),
        "onnx": (network(2), (2, 3, 8, 8))}
    for name, (model, shape) in models.items():
        path, x = folder / f"{name}.ngraph", np.random.default_rng(2).standard_normal(shape).astype(np.float32)
        if name == "onnx":
            ngraph_mxnet.export(model, path, with_references=True)
        else:
            model.initialize(mx.init.Xavier())
            ngraph_mxnet.export(model, path, data=shape, with_references=True)
        np.save(folder / f"{name}.x.npy", x)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("NGRAPH_RUNTIME_LIBRARY", built_library)
            np.save(folder / f"{name}.y.npy", ngraph_runtime.load(path)(x)[0])
    return folder


@pytest.fixture(scope="module")
def wheel(built_library: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run([sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", folder, ROOT / "runtime"],
                   env={**os.environ, "NGRAPH_RUNTIME_PREBUILT": built_library}, check=True)
    (found,) = folder.glob("*.whl")
    return found


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_a_fresh_environment(version: str, wheel: Path, compiled: Path, tmp_path: Path) -> None:
    python = interpreter(version)
    if python is None:
        pytest.skip(f"no Python {version} is at hand")
    subprocess.run([python, "-m", "venv", tmp_path / "venv"], check=True)
    own = tmp_path / "venv" / "bin" / "python"
    subprocess.run([own, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--only-binary", ":all:", wheel],
                   check=True)
    environment = {"PATH": "", "HOME": str(tmp_path)}
    done = subprocess.run([own, "-c", PROGRAM, *(compiled / name for name in ("resnet", "lstm", "onnx"))],
                          env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["version"] == [int(part) for part in version.split(".")] and found["same"] == [True] * 3
    assert found["package"].startswith(str(tmp_path))
    assert set(found["installed"]) - {"pip", "setuptools", "wheel"} == {"ngraph-runtime", "numpy"}
    command = subprocess.run([own.with_name("ngraph-run"), compiled / "resnet.ngraph", "--verify"], env=environment,
                             capture_output=True, text=True, check=False)
    assert command.returncode == 0 and "matches" in command.stdout, command.stdout + command.stderr
