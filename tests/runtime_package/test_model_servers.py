"""The handler behind real servers on Python 3.8, without MXNet there. The example starts multi-model-server with
SageMaker's model.tar.gz; TorchServe takes the same folder.

Needs the package registry, Java, and a minute.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "serving" / "multi_model_server.py"
SCRIPT = """
import json
import numpy as np
def model_fn(model_dir):
    raise AssertionError("the compiled model takes its place")
def transform_fn(net, data, content_type, accept):
    output = net(np.array(json.loads(data)["pixels"]) / 255)
    return json.dumps({"best": output.asnumpy().argmax(axis=1).tolist()}), accept
"""


@pytest.fixture
def folder(real_library: str, tmp_path: Path) -> tuple[Path, np.ndarray, np.ndarray]:
    """What SageMaker's training writes; inputs, and MXNet's results."""
    mx = pytest.importorskip("mxnet", reason="the other Pythons have the runtime alone")
    if shutil.which("java") is None:
        pytest.skip("Java is not installed")
    net = mx.gluon.nn.HybridSequential()
    net.add(mx.gluon.nn.Conv2D(8, 3, in_channels=3, activation="relu"), mx.gluon.nn.Dense(4, in_units=288))
    net.initialize(mx.init.Xavier())
    net.hybridize()
    x = np.random.default_rng(0).random((3, 3, 8, 8), np.float32)
    y = net(mx.nd.array(x)).asnumpy()
    made = tmp_path / "trained"
    made.mkdir()
    net.export(str(made / "model"))
    (made / "model-shapes.json").write_text(json.dumps([{"name": "data", "shape": [32, 3, 8, 8]}]))
    return made, x, y


def pack(folder: Path, archive: Path) -> Path:
    with tarfile.open(archive, "w:gz") as file:
        file.add(folder, ".")
    return archive


def ask(url: str, body: bytes, **headers: str) -> tuple[int, str]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    try:
        with urlopen(Request(url, body, named), timeout=120) as response:
            return response.status, response.read().decode()
    except HTTPError as error:
        return error.code, error.read().decode()


@pytest.mark.slow
def test_an_archive_is_served_as_it_is(folder: tuple[Path, np.ndarray, np.ndarray], wheel: Path,
                                       environment_of: Callable[..., Path], served_by: Callable[..., Path],
                                       free_ports: Callable[[int], list[int]], tmp_path: Path) -> None:
    made, x, y = folder
    own = environment_of("3.8", wheel, "multi-model-server", optional="multi-model-server")
    assert not (own.parent.parent / "lib/python3.8/site-packages/mxnet").exists()
    compiler = tmp_path / "compiler"
    package = f"PYTHONPATH={':'.join(filter(None, sys.path))} exec {sys.executable} -m ngraph_mxnet"
    compiler.write_text(f'#!/bin/sh\necho once >> {tmp_path}/count\n{package} "$@"\n')
    compiler.chmod(0o755)

    def start(archive: Path, **variables: str) -> str:
        port = free_ports(2)[0]
        environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), **variables}
        served_by([own, EXAMPLE, archive, "--port", port, "--workers", 2], f"http://127.0.0.1:{port}/ping",
                  environment, tmp_path)
        return f"http://127.0.0.1:{port}/invocations"

    url = start(pack(made, tmp_path / "model.tar.gz"), NGRAPH_RUNTIME_COMPILER=f"{compiler} compile")
    binary = io.BytesIO()
    np.save(binary, x)
    flat = "\n".join(",".join(map(str, row)) for row in x.reshape(len(x), -1).tolist())
    bodies = {"application/json": json.dumps(x.tolist()).encode(), "application/x-npy": binary.getvalue(),
              "text/csv": flat.encode()}
    for _ in range(2):  # both workers
        for content_type, body in bodies.items():
            status, text = ask(url, body, Content_Type=content_type)
            assert status == 200, text
            np.testing.assert_allclose(np.array(json.loads(text)), y, rtol=1e-4, atol=1e-6)
    assert ask(url, b"GIF89a", Content_Type="image/gif")[0] == 415
    status, text = ask(url, json.dumps([[1.0]]).encode(), Content_Type="application/json")
    assert status == 400 and "input data: found shape [1,1], expected [1,3,8,8]" in text
    assert (tmp_path / "count").read_text().split() == ["once"], "two workers, and one of them compiled"
    (kept,) = tmp_path.glob("*.ngraph")

    # The same model with a script, on a machine that has no compiler: what was kept beside the archive is used.
    (made / "code").mkdir()
    (made / "code" / "inference.py").write_text(SCRIPT)
    url = start(pack(made, tmp_path / "scripted.tar.gz"), NGRAPH_RUNTIME_COMPILER="false")
    status, text = ask(url, json.dumps({"pixels": (x * 255).tolist()}).encode(), Content_Type="application/json")
    assert status == 200 and json.loads(text) == {"best": y.argmax(axis=1).tolist()}
    assert list(tmp_path.glob("*.ngraph")) == [kept]

    # A forecaster draws its samples around what the net gives; each worker draws its own.
    archive = pack(forecaster(made, tmp_path), tmp_path / "forecaster.tar.gz")
    url = start(archive, NGRAPH_RUNTIME_COMPILER=f"{compiler} compile")
    answers = [ask(url, bodies["application/json"], Content_Type="application/json") for _ in range(4)]
    assert [status for status, _ in answers] == [200] * 4, answers
    samples = np.array([json.loads(text) for _, text in answers])
    assert samples.shape == (4, *y.shape, 500) and len({text for _, text in answers}) == 4
    np.testing.assert_allclose(samples.mean((0, 3)), y, atol=5 / np.sqrt(2000))


def forecaster(made: Path, folder: Path) -> Path:
    """The trained net with samples of its outputs, in a folder of its own."""
    mx = pytest.importorskip("mxnet", reason="the other Pythons have the runtime alone")
    found = folder / "forecaster"
    found.mkdir()
    for name in ("model-0000.params", "model-shapes.json"):
        shutil.copy(made / name, found / name)
    mean = mx.sym.load(str(made / "model-symbol.json"))
    mx.sym.sample_normal(mean, mx.sym.ones_like(mean), shape=(500,)).save(str(found / "model-symbol.json"))
    return found


@pytest.mark.slow
def test_torchserve_takes_the_same_handler(folder: tuple[Path, np.ndarray, np.ndarray], wheel: Path,
                                           environment_of: Callable[..., Path], served_by: Callable[..., Path],
                                           free_ports: Callable[[int], list[int]], tmp_path: Path) -> None:
    """Its worker imports torch for one name, which a module in its place gives."""
    made, x, y = folder
    own = environment_of("3.8", wheel, "torchserve==0.12.0", "pyyaml", optional="TorchServe")
    (tmp_path / "stand-in").mkdir()
    (tmp_path / "stand-in" / "torch.py").write_text("class Tensor: ...\n")
    subprocess.run([sys.executable, "-m", "ngraph_mxnet", "compile", made / "model-symbol.json", "--params",
                    made / "model-0000.params", "--shape", "data=1..4,3,8,8", "-o", made / "model.ngraph"], check=True,
                   stdout=subprocess.DEVNULL)
    (made / "MAR-INF").mkdir()
    (made / "MAR-INF" / "MANIFEST.json").write_text(json.dumps({"runtime": "python", "model": {
        "modelName": "trained", "modelVersion": "1", "handler": "ngraph_runtime.serving.handler:handle"}}))
    port, management, metrics = free_ports(3)
    (tmp_path / "config.properties").write_text(
        f"inference_address=http://127.0.0.1:{port}\nmanagement_address=http://127.0.0.1:{management}\n"
        f"metrics_address=http://127.0.0.1:{metrics}\ndefault_workers_per_model=1\ndisable_token_authorization=true\n")
    (tmp_path / "temporary").mkdir()
    store = tmp_path / "store"  # of nothing else: the server goes through all that it finds there
    store.mkdir()
    made.rename(store / "trained")
    served_by([own.with_name("torchserve"), "--start", "--foreground", "--no-config-snapshots", "--model-store",
               store, "--models", "trained=trained", "--ts-config", tmp_path / "config.properties"],
              f"http://127.0.0.1:{port}/ping",
              {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": str(tmp_path / "stand-in"),
               "TEMP": str(tmp_path / "temporary"), "TMPDIR": str(tmp_path / "temporary")}, tmp_path)
    url = f"http://127.0.0.1:{port}/predictions/trained"
    status, text = ask(url, json.dumps(x.tolist()).encode(), Content_Type="application/json")
    assert status == 200, text
    np.testing.assert_allclose(np.array(json.loads(text)), y, rtol=1e-4, atol=1e-6)
    assert ask(url, b"GIF89a", Content_Type="image/gif")[0] == 415
