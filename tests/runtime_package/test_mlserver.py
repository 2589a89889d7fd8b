"""MLServer with two models in a fresh environment, asked by the clients of its users over HTTP and gRPC.

Needs the package registry, and a minute.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

CLIENT = '''
import json, sys
from concurrent.futures import ThreadPoolExecutor
import numpy as np, requests, tritonclient.grpc as grpc

http, metrics, port, arrays, expected = *sys.argv[1:4], np.load(sys.argv[4]), np.load(sys.argv[5])
post = lambda name, request: requests.post(f"{http}/v2/models/{name}/infer", json=request, timeout=60)
tensor = lambda x, **other: {"name": "data", "datatype": "FP32", "shape": x.shape, "data": x.ravel().tolist(), **other}
told = {"health": [requests.get(f"{http}/v2/health/{one}", timeout=60).status_code for one in ("live", "ready")],
        "metadata": [requests.get(f"{http}/v2/models/{name}", timeout=60).json() for name in ("rows", "folder")]}

client = grpc.InferenceServerClient(port)
told["grpc"] = client.is_server_ready() and all(client.is_model_ready(one) for one in ("rows", "folder"))
one = client.get_model_metadata("rows", as_json=True)
told["grpc metadata"] = [one["inputs"], one["outputs"]]


def by_grpc(name, x):
    given = grpc.InferInput("data", x.shape, "FP32")
    given.set_data_from_numpy(x)
    return client.infer(name, [given]).as_numpy(told["output"])


def by_http(name, x):
    answer = post(name, {"inputs": [tensor(x)]})
    (output,) = answer.json()["outputs"]
    return np.array(output["data"], "f4").reshape(output["shape"])


told["output"] = told["metadata"][0]["outputs"][0]["name"]
pieces = [slice(begin, begin + 1 + begin % 3) for begin in range(0, len(arrays), 3)]
jobs = [(ask, name, piece) for ask in (by_http, by_grpc) for name in ("rows", "folder") for piece in pieces]
with ThreadPoolExecutor(8) as pool:
    found = list(pool.map(lambda job: job[0](job[1], arrays[job[2]]), jobs))
for (ask, name, piece), output in zip(jobs, found):
    np.testing.assert_allclose(output, expected[piece], rtol=1e-4, atol=1e-5, err_msg=f"{ask} {name} {piece}")
told["requests"] = len(jobs)
bad = [{"inputs": [tensor(arrays[:1], name="x")]}, {"inputs": [tensor(arrays[:1, :2])]},
       {"inputs": [tensor(arrays[:1], datatype="FP64")]}, {"inputs": [tensor(arrays[:1], shape=[1, 3, 8, 9])]},
       {"inputs": [tensor(arrays[:1])], "outputs": [{"name": "y"}]}]
told["refused"] = [[answer.status_code, answer.json()["error"]] for answer in (post("folder", one) for one in bad)]
told["metrics"] = requests.get(metrics, timeout=60).text
print(json.dumps(told))
'''


@pytest.fixture
def repository(real_library: str, tmp_path: Path) -> tuple[Path, np.ndarray, np.ndarray]:
    """A file for 1 to 8 rows, and a folder as MXNet writes it, of the same weights; inputs, and MXNet's results."""
    mx = pytest.importorskip("mxnet", reason="the other Pythons have the runtime alone")
    import ngraph_mxnet

    net = mx.gluon.nn.HybridSequential()
    net.add(mx.gluon.nn.Conv2D(8, 3, in_channels=3, activation="relu"), mx.gluon.nn.Dense(4, in_units=288))
    net.initialize(mx.init.Xavier())
    net.hybridize()
    x = np.random.default_rng(0).standard_normal((24, 3, 8, 8)).astype(np.float32)
    y = net(mx.nd.array(x)).asnumpy()
    root = tmp_path / "models"
    for name, settings in (("rows", {"max_batch_size": 8, "max_batch_time": 0.05}), ("folder", {})):
        (root / name).mkdir(parents=True)
        uri = "net.ngraph" if name == "rows" else "."
        extra = {} if name == "rows" else {"shapes": {"data": [1, 3, 8, 8]}, "rows": True}
        (root / name / "model-settings.json").write_text(json.dumps({
            "name": name, "implementation": "ngraph_runtime.serving.mlserver.NGraphRuntime", **settings,
            "parameters": {"uri": f"./{uri}", "extra": extra}}))
    ngraph_mxnet.export(net, root / "rows" / "net.ngraph", data=("1..8", 3, 8, 8))
    net.export(str(root / "folder" / "net"))
    return root, x, y


@pytest.fixture
def server(repository: tuple[Path, np.ndarray, np.ndarray], wheel: Path, environment_of: Callable[..., Path],
           served_by: Callable[..., Path], free_ports: Callable[[int], list[int]], tmp_path: Path) -> \
        Iterator[tuple[Path, list[int], Path]]:
    """Its Python, its ports and its log."""
    own = environment_of("3.11", f"{wheel}[mlserver]", "tritonclient[grpc]", "requests", optional="MLServer")
    http, grpc, metrics = ports = free_ports(3)
    (repository[0] / "settings.json").write_text(json.dumps({
        "host": "127.0.0.1", "http_port": http, "grpc_port": grpc, "metrics_port": metrics, "parallel_workers": 0}))
    package = f"env PYTHONPATH={':'.join(filter(None, sys.path))} {sys.executable} -m ngraph_mxnet compile"
    environment = {"PATH": f"{own.parent}:/usr/bin:/bin", "HOME": str(tmp_path), "NGRAPH_RUNTIME_COMPILER": package}
    log = served_by([own.with_name("mlserver"), "start", repository[0]],
                    f"http://127.0.0.1:{http}/v2/models/folder/ready", environment, tmp_path)
    return own, ports, log


@pytest.mark.slow
def test_two_models_by_http_and_grpc(server: tuple[Path, list[int], Path],
                                     repository: tuple[Path, np.ndarray, np.ndarray], tmp_path: Path) -> None:
    own, (http, grpc, metrics), log = server
    root, x, y = repository
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", y)
    done = subprocess.run([own, "-c", CLIENT, f"http://127.0.0.1:{http}", f"http://127.0.0.1:{metrics}/metrics",
                           f"127.0.0.1:{grpc}", tmp_path / "x.npy", tmp_path / "y.npy"],
                          env={"PATH": os.environ["PATH"]}, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr + log.read_text()
    told = json.loads(done.stdout)
    assert told["health"] == [200, 200] and told["grpc"]
    for name, found in zip(("rows", "folder"), told["metadata"], strict=True):
        inputs, outputs = ([(one["name"], one["datatype"], one["shape"]) for one in found[which]]
                           for which in ("inputs", "outputs"))
        assert found["name"] == name and inputs == [("data", "FP32", [-1, 3, 8, 8])]
        assert outputs == [(told["output"], "FP32", [-1, 4])]
    assert told["grpc metadata"][0][0] == {"name": "data", "datatype": "FP32", "shape": ["-1", "3", "8", "8"]}

    codes, texts = zip(*told["refused"], strict=True)
    assert codes == (400,) * 5
    for text, words in zip(texts, ("found the inputs x, expected data", "expected [1,3,8,8]",
                                   "found float64 [1,3,8,8], expected float32", "its data are no FP32 of shape",
                                   "there is no output y: the outputs are"), strict=True):
        assert words in text and "model folder" in text
    assert 'model_infer_request_success_total{model="rows"' in told["metrics"].replace(", ", ",")
    assert 'model="folder"' in told["metrics"]
    assert (root / "folder" / "net.ngraph").exists(), "compiled by the command, and kept"
