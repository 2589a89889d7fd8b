"""The wheel for other machines, as scripts/build_wheels.sh builds it: what it needs of the system, what it says is in
it, and that it works without MXNet, and with MXNet that is installed beside it afterwards.

NGRAPH_KERNEL_FOLDER names the kernels of a build of these sources, which spares compiling them. TESTS_WHEEL names a
wheel that is built already.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[1]
GLIBC, FOLDER = "2.28", "NGRAPH_KERNEL_FOLDER"
SYMBOL = json.dumps({
    "nodes": [{"op": "null", "name": "data", "inputs": []}, {"op": "null", "name": "w", "inputs": []},
              {"op": "FullyConnected", "name": "fc", "attrs": {"num_hidden": "4", "no_bias": "True"},
               "inputs": [[0, 0, 0], [1, 0, 0]]}],
    "arg_nodes": [0, 1], "heads": [[2, 0, 0]], "attrs": {"mxnet_version": ["int", 10901]}})
ALONE = f"""
import importlib.util, sys
import numpy as np
import ngraph_mxnet
from ngraph_mxnet import _core
assert importlib.util.find_spec("mxnet") is None
data, w = np.ones((2, 8), np.float32), np.arange(32, dtype=np.float32).reshape(4, 8)
net = ngraph_mxnet.compile({SYMBOL!r}, "CPU", shapes={{"data": (2, 8)}}, params={{"w": w}})
np.testing.assert_array_equal(np.asarray(net(data=data)[0]), data @ w.T)
ngraph_mxnet.to_onnx({SYMBOL!r}, "net.onnx", shapes={{"data": (2, 8)}}, params={{"w": w}})
assert "libmxnet" not in open("/proc/self/maps").read() and hasattr(_core, "compiled_regions")
"""
BESIDE = """
import sys
from ngraph_mxnet import _core
assert "libmxnet" not in open("/proc/self/maps").read()
import mxnet as mx
net = mx.gluon.nn.Dense(4, in_units=8)
net.initialize()
net.hybridize()
net(mx.nd.ones((2, 8))).wait_to_read()
found = sys.modules["ngraph_mxnet"].report()
assert len(found.regions) == 1 and not found.problem, found
try:
    mx.nd.ones((2, 3)) + mx.nd.ones((4, 5))
except mx.base.MXNetError as error:
    assert "shape" in str(error).lower()
else:
    raise AssertionError("no error came through")
"""


def output(*command: object, **options: object) -> str:
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", FOLDER)}
    environment |= options.pop("environment", {})  # type: ignore[arg-type,operator]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False,
                          env=environment, **options)  # type: ignore[call-overload]
    assert done.returncode == 0, done.stdout + done.stderr
    return str(done.stdout)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if built := os.environ.get("TESTS_WHEEL"):
        return Path(built)
    folder = tmp_path_factory.mktemp("wheel")
    shutil.copytree(ROOT, folder / "copy", ignore=shutil.ignore_patterns(".*", "build", "dist", "*.egg-info", "*.so"))
    output(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", folder, folder / "copy",
           environment={"NGRAPH_GLIBC": GLIBC, FOLDER: os.environ.get(FOLDER, "")})
    (built_here,) = folder.glob("*.whl")
    return built_here


@pytest.fixture(scope="module")
def unpacked(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("unpacked")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


def test_it_needs_an_old_system_only(unpacked: Path) -> None:
    libraries = sorted((unpacked / "ngraph_mxnet").glob("*.so"))
    assert len(libraries) == 2
    for library in libraries:
        text = output("readelf", "--wide", "--version-info", "--dynamic", library)
        versions = set(re.findall(r"Name: GLIBC_([\d.]+)", text))
        assert versions and max(tuple(map(int, version.split("."))) for version in versions) <= (2, 28), library
        needed = set(re.findall(r"\(NEEDED\).*\[(.+)\]", text))
        assert "libc.so.6" in needed and not needed & {"libstdc++.so.6", "libgomp.so.1"}, library
        exported = [line.split()[-1] for line in output("nm", "-D", "--defined-only", library).splitlines()]
        assert exported and not [name for name in exported if name.startswith(("_ZN", "_ZS", "_ZT", "__cxa"))]


def test_it_says_what_is_in_it(unpacked: Path) -> None:
    (folder,) = unpacked.glob("*.dist-info")
    bill = json.loads((folder / "sboms" / "ngraph-mxnet-backend.cdx.json").read_text())
    assert bill["bomFormat"] == "CycloneDX" and bill["metadata"]["component"]["name"] == "ngraph-mxnet-backend"
    parts = {part["name"]: part for part in bill["components"]}
    assert {"libstdc++", "libgcc", "glibc", "pybind11", "numba"} <= set(parts)
    assert all(re.match(r"\d+\.\d+", part["version"]) and part["licenses"] for part in parts.values()), parts
    assert [one["dependsOn"] for one in bill["dependencies"]] == [[part["bom-ref"] for part in parts.values()]]
    licences = {path.name for path in (folder / "licenses").rglob("*") if path.is_file()}
    assert {"LICENSE", "GCC-exception-3.1.txt", "numba.txt", "pybind11.txt"} <= licences


def test_without_mxnet_and_with_it_beside(wheel: Path, tmp_path: Path) -> None:
    """The very same wheel: `_core` loads where there is no libmxnet, and connects to it once it is imported."""
    output(sys.executable, "-m", "venv", tmp_path / "venv")
    python = tmp_path / "venv" / "bin" / "python"
    output(python, "-m", "pip", "install", "-q", wheel)
    output(python, "-c", ALONE, cwd=tmp_path)
    output(tmp_path / "venv" / "bin" / "ngraph-mxnet", "doctor", cwd=tmp_path)
    output(python, "-m", "pip", "install", "-q", f"{wheel}[mxnet]")
    output(python, "-c", BESIDE, cwd=tmp_path, environment={"MXNET_SUBGRAPH_BACKEND": "NGRAPH"})
    output(tmp_path / "venv" / "bin" / "ngraph-mxnet", "doctor", cwd=tmp_path)
