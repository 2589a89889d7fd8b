"""Trained models, downloaded with pip, give what ONNX Runtime gives for real inputs.

ONNX_MODELS names a folder that `scripts/fetch_models.py` has filled; without it they are downloaded anew.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime of the extra bench is not installed")
pytest.importorskip("skimage", reason="scikit-image of the extra examples is not installed")
pytest.importorskip("PIL", reason="Pillow of the extra examples is not installed")

from real_inputs import ROOT, fetch_models, fetched, files, inputs_of, sentences, voice_chunks  # noqa: E402

import ngraph_mxnet  # noqa: E402

VOICE, DIACRITICS = "voice_detector.onnx", "diacritics.onnx"
MODELS = [name for names in fetch_models.PACKAGES.values() for name in names
          if name.endswith(".onnx") and name not in (VOICE, DIACRITICS)]
CLASSIFIERS = ("opennsfw.onnx", "orientation.onnx", "ocr_direction.onnx", "ocr_recognition.onnx", "magika.onnx")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fetched(tmp_path_factory)


@pytest.mark.parametrize("name", MODELS)
def test_outputs_are_those_of_onnx_runtime(name: str, folder: Path) -> None:
    session = onnxruntime.InferenceSession(folder / name, providers=["CPUExecutionProvider"])
    ours = ngraph_mxnet.compile(folder / name, "CPU")
    (port,) = session.get_inputs()
    for what, x in inputs_of(name, folder).items():
        for result, wanted in zip(ours(x), session.run(None, {port.name: x}), strict=True):
            assert result.shape == wanted.shape
            error = np.abs(result - wanted).max() / np.abs(wanted).max()
            assert error <= 1e-4, what
            if name in CLASSIFIERS:
                np.testing.assert_array_equal(result.argmax(-1), wanted.argmax(-1), err_msg=what)


@pytest.mark.parametrize("backend", ["CPU", "INTERPRETER"])
def test_a_voice_detector_at_both_rates(backend: str, folder: Path) -> None:
    """Its branches for 8 and 16 kHz are one executable's, in turns, and each has its own state."""
    session = onnxruntime.InferenceSession(folder / VOICE, providers=["CPUExecutionProvider"])
    ours = ngraph_mxnet.compile(folder / VOICE, backend)
    states = {rate: [np.zeros((2, 1, 128), np.float32)] * 2 for rate in (8000, 16000)}
    for chunks in zip(*map(voice_chunks, states), strict=True):
        for (rate, (own, theirs)), chunk in zip(states.items(), chunks, strict=True):
            given = {"input": chunk, "sr": np.array(rate)}
            found, wanted = ours({**given, "state": own}), session.run(None, {**given, "state": theirs})
            for result, expected in zip(found, wanted, strict=True):
                assert result.shape == expected.shape
                np.testing.assert_allclose(result, expected, rtol=0, atol=1e-4)
            states[rate] = [found[1], wanted[1]]


@pytest.mark.parametrize("backend", ["CPU", "INTERPRETER"])
def test_vowels_of_sentences(backend: str, folder: Path) -> None:
    """A quantised LSTM decides the same; its results differ by what a step of its 8 bits comes to, or not at all."""
    session = onnxruntime.InferenceSession(folder / DIACRITICS, providers=["CPUExecutionProvider"])
    ours = ngraph_mxnet.compile(folder / DIACRITICS, backend)
    for sentence in sentences(folder):
        (found,), (wanted,) = ours(sentence), session.run(None, {"input": sentence})
        np.testing.assert_array_equal(found.argmax(-1), wanted.argmax(-1))
        assert np.abs(found - wanted).max() <= 2e-2 * np.abs(wanted).max()


def test_magika_knows_the_files(folder: Path) -> None:
    """So its inputs are prepared as they were for its training."""
    labels = json.loads((folder / "magika.json").read_text())["target_labels_space"]
    exe = ngraph_mxnet.compile(folder / "magika.onnx", "CPU")
    assert [labels[exe(x)[0].argmax()] for x in inputs_of("magika.onnx", folder).values()] == list(files())


def test_text_of_a_photo(folder: Path) -> None:
    script = ROOT / "examples" / "read_text.py"
    done = subprocess.run([sys.executable, script, "--models", folder, "--json"], capture_output=True, text=True,
                          check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    lines = ["".join(line["text"].split()) for line in json.loads(done.stdout)["lines"]]
    assert lines[:6] == ["Region-basedsegmentation", "Letusfirstdeterminemarkersofthecoinsandthe",
                         "background.Thesemarkersarepixelsthatwecanlabel",
                         "unambiguouslyaseitherobjectorbackground.Here,",
                         "themarkersarefoundatthetwoextremepartsofthe", "histogramofgreyvalues:"]
