"""Inputs for the trained models of `scripts/fetch_models.py`, prepared as the packages do that have the models.

There is no recording among them: the speech models hear a synthetic one.
"""

from __future__ import annotations

import importlib.util
import io
import json
import os
import sys
import unicodedata
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from PIL import Image
from skimage import data

ROOT = Path(__file__).resolve().parents[3]
PHOTOS: dict[str, Callable[[], np.ndarray]] = {
    "astronaut": data.astronaut, "chelsea": data.chelsea, "coffee": data.coffee, "page": data.page,
}
DETECTED = ("coffee", "page")  # text detection enlarges them: two are enough
SAMPLE_RATE, FRAMES, STEP = 16000, 76, 8  # of the spectrogram that the embedding reads at once


def load_script(folder: str, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / folder / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


fetch_models = load_script("scripts", "fetch_models")


def fetched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the models: that of ONNX_MODELS, or one that they are downloaded to. Skips where they can't be."""
    given = os.environ.get("ONNX_MODELS")
    found = Path(given) if given else tmp_path_factory.mktemp("models")
    try:
        fetch_models.fetch(found)
    except fetch_models.FetchError as error:
        pytest.skip(f"no models: {error}")
    return found


def photo(name: str) -> Image.Image:
    return Image.fromarray(PHOTOS[name]()).convert("RGB")


def inputs_of(model: str, folder: Path) -> dict[str, np.ndarray]:
    """By a name for each."""
    name = model.removesuffix(".onnx")
    if name == "opennsfw":
        return {name: opennsfw(photo(name)) for name in PHOTOS}
    if name == "orientation":
        return {f"{name} {angle}": orientation(photo(name).rotate(angle, expand=True))
                for name in PHOTOS for angle in (0, 90)}
    if name == "magika":
        config = json.loads((folder / "magika.json").read_text())
        return {name: magika(content, config) for name, content in files().items()}
    if name == "speech_spectrogram":
        return {"sound": sound()[None]}
    if name == "speech_embedding":
        return {"sound": embedding_windows(folder)}
    read_text = load_script("examples", "read_text")
    if name == "ocr_detection":
        return {name: read_text.detection_input(photo(name)) for name in DETECTED}
    lines = page_lines()
    if name == "ocr_direction":
        turned = [line.transpose(Image.Transpose.ROTATE_180) for line in lines]
        return {"lines": read_text.stacked([*lines, *turned], read_text.DIRECTION_WIDTH)}
    assert name == "ocr_recognition", model
    return {"short": read_text.stacked(lines[-1:], read_text.READING_WIDTH),
            "long": read_text.stacked(lines, read_text.reading_width(lines))}


def opennsfw(picture: Image.Image) -> np.ndarray:
    """Scaled, cut, written as JPEG and read again; blue, green, red less their means; channels last."""
    buffer = io.BytesIO()
    picture.resize((256, 256), Image.Resampling.BILINEAR).crop((16, 16, 240, 240)).save(buffer, "JPEG")
    pixels = np.asarray(Image.open(buffer), np.float32)[:, :, ::-1]
    return (pixels - np.array([104, 117, 123], np.float32))[None]


def orientation(picture: Image.Image) -> np.ndarray:
    scale = 256 / min(picture.size)
    width, height = (round(side * scale) for side in picture.size)
    left, top = (width - 224) // 2, (height - 224) // 2
    cut = picture.resize((width, height), Image.Resampling.LANCZOS).crop((left, top, left + 224, top + 224))
    pixels = np.asarray(cut, np.float32)[:, :, ::-1] / 255
    normal = (pixels - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225]
    return normal.transpose(2, 0, 1)[None].astype(np.float32)


def page_lines() -> list[Image.Image]:
    """Three lines of the page: its title, one of the text, the last of the paragraph."""
    page = photo("page")
    return [page.crop(box) for box in ((6, 10, 294, 34), (2, 48, 380, 66), (2, 118, 176, 136))]


def files() -> dict[str, bytes]:
    """What each is, and its content."""
    picture = io.BytesIO()
    photo("chelsea").save(picture, "PNG")
    return {"png": picture.getvalue(), "python": Path(__file__).read_bytes(),
            "markdown": (ROOT / "README.md").read_bytes(), "toml": (ROOT / "pyproject.toml").read_bytes(),
            "cmake": (ROOT / "CMakeLists.txt").read_bytes()}


def magika(content: bytes, config: dict[str, Any]) -> np.ndarray:
    """The first and the last bytes without white space around them, filled up in the middle."""
    block, first, last, padding = (config[key] for key in ("block_size", "beg_size", "end_size", "padding_token"))
    begin, end = content[:block].lstrip()[:first], content[-block:].rstrip()[-last:]
    numbers = [*begin, *[padding] * (first - len(begin)), *[padding] * (last - len(end)), *end]
    return np.array([numbers], np.int32)


def sound() -> np.ndarray:
    """Two seconds in the range of 16-bit samples: a falling tone with overtones that comes in syllables, and noise."""
    time = np.arange(2 * SAMPLE_RATE) / SAMPLE_RATE
    phase = 2 * np.pi * (220 * time - 30 * time**2)
    voice = sum(np.sin(count * phase) / count for count in range(1, 12)) * np.clip(np.sin(9 * time), 0, None)
    noise = np.random.default_rng(3).standard_normal(time.size) * 0.02
    return ((voice + noise) * 6000).round().astype(np.float32)


def voice_chunks(rate: int) -> list[np.ndarray]:
    """The sound at 16 or 8 kHz in chunks of 32 ms, each behind the last 4 ms of the one before."""
    samples = sound()[:: SAMPLE_RATE // rate] / 2**15
    size, before = rate * 32 // 1000, rate * 4 // 1000
    padded = np.concatenate([np.zeros(before, np.float32), samples])
    return [padded[None, start : start + before + size] for start in range(0, len(samples) - size + 1, size)]


def sentences(folder: Path) -> list[np.ndarray]:
    """Arabic without vowels: the numbers of the letters, in the order that the diacritics' model has them."""
    numbers = json.loads((folder / "diacritics.json").read_text(encoding="utf-8"))["char_to_idx"]
    texts = ("السلام عليكم", "العلم نور والجهل ظلام", "ذهب الولد إلى المدرسة في الصباح الباكر مع صديقه")
    bare = [[letter for letter in unicodedata.normalize("NFD", text) if unicodedata.category(letter) != "Mn"]
            for text in texts]
    return [np.array([[numbers[letter] for letter in letters]]) for letters in bare]


def embedding_windows(folder: Path) -> np.ndarray:
    """[windows, FRAMES, 32, 1] of the sound's spectrogram, as ONNX Runtime computes it."""
    import onnxruntime

    session = onnxruntime.InferenceSession(folder / "speech_spectrogram.onnx", providers=["CPUExecutionProvider"])
    spectrogram = session.run(None, {"input": sound()[None]})[0].squeeze() / 10 + 2
    starts = range(0, len(spectrogram) - FRAMES + 1, STEP)
    return np.stack([spectrogram[start : start + FRAMES, :, None] for start in starts])
