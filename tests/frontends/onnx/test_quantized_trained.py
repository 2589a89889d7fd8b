"""Trained ONNX models in 8 bits, on real inputs: within one per cent of float, or layers stay in float and say why."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnxruntime", reason="onnxruntime of the extra bench is not installed")
pytest.importorskip("skimage", reason="scikit-image of the extra examples is not installed")
pytest.importorskip("PIL", reason="Pillow of the extra examples is not installed")

from real_inputs import fetched, inputs_of

import ngraph_mxnet

BOUND = 0.01
MODELS = ("opennsfw", "orientation", "ocr_detection", "ocr_direction", "ocr_recognition", "magika", "speech_embedding")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fetched(tmp_path_factory)


def samples_of(name: str, folder: Path) -> np.ndarray:
    """All that have the shape of the last."""
    given = list(inputs_of(f"{name}.onnx", folder).values())
    return np.concatenate([one for one in given if one.shape[1:] == given[-1].shape[1:]])


def closeness(outputs: list[np.ndarray], wanted: np.ndarray) -> float:
    return 1 - float(np.abs(outputs[0] - wanted).mean() / np.abs(wanted).mean())


@pytest.mark.parametrize("name", MODELS)
def test_the_error_is_within_the_bound(name: str, folder: Path) -> None:
    path, samples = folder / f"{name}.onnx", samples_of(name, folder)
    in_float = ngraph_mxnet.compile(path, "CPU")
    wanted = np.concatenate([in_float(samples[row : row + 1])[0] for row in range(len(samples))])
    found = ngraph_mxnet.quantize(path, (samples, wanted), shapes={in_float.inputs[0].name: (1, *samples.shape[1:])},
                                  metric=closeness, max_drop=BOUND, only_faster=False, progress=False)
    report = found.report
    outputs = np.concatenate([found(samples[row : row + 1])[0] for row in range(len(samples))])
    print(f"{name}: {len(found.recipe.products)} of {len(report.layers)} layers, error "
          f"{1 - closeness([outputs], wanted):.4f}, {report.decision}")
    assert closeness([outputs], wanted) >= 1 - BOUND - 1e-6
    assert all(row.kept for row in report.layers if row.name not in found.recipe.products)
