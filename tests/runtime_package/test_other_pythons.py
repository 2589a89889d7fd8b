"""Fresh environments of other Pythons, with NumPy and the wheel alone: models compiled here give the same there.

Needs the package registry, and a quarter of a minute for each Python.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

VERSIONS = tuple(f"3.{minor}" for minor in range(8, 15))
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


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_a_fresh_environment(version: str, wheel: Path, environment_of: Callable[..., Path], compiled: Path,
                             tmp_path: Path) -> None:
    own = environment_of(version, "--only-binary", ":all:", wheel)
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
