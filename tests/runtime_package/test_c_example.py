"""examples/c/classify.c, with a model whose scores are the normalised pixels."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
MEAN, DEVIATION = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])


@pytest.fixture(scope="module")
def program(fake_library: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("classify") / "classify"
    compiler = os.environ.get("CC") or shutil.which("cc") or "gcc"
    folder = Path(fake_library).parent
    subprocess.run([compiler, "-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", f"-I{ROOT / 'runtime' / 'include'}",
                    "-o", str(path), str(ROOT / "examples" / "c" / "classify.c"), f"-L{folder}", "-lngraph_runtime",
                    f"-Wl,-rpath,{folder}"], check=True)
    return path


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(a) for a in arguments], capture_output=True, text=True, check=False)


def test_the_best_classes(fake, program, tmp_path):
    pixels = np.array([[[200, 10, 30], [0, 255, 7]], [[90, 80, 70], [250, 1, 128]]], np.uint8)
    image = tmp_path / "image.ppm"
    image.write_bytes(b"P6\n2 2\n255\n" + pixels.tobytes())
    done = run(program, fake("image"), image)
    assert done.returncode == 0, done.stderr
    found = [(int(number), float(score)) for number, score in map(str.split, done.stdout.splitlines())]
    scores = ((pixels / 255 - MEAN) / DEVIATION).transpose(2, 0, 1).ravel()
    best = np.argsort(-scores)[:5]
    assert [number for number, _ in found] == best.tolist()
    assert np.allclose([score for _, score in found], scores[best], rtol=1e-4)


@pytest.mark.parametrize(("word", "content", "text"), [
    ("image", b"P6 2 2 255\n" + bytes(11), "is cut off"),
    ("image", b"P6 3 2 255\n" + bytes(18), "is no P6 image of the model's size"),
    ("image", b"P5 2 2 255\n" + bytes(12), "is no P6 image"),
    ("twice", b"", "takes no single image of floats"),
    ("nonsense", b"", "it is no compiled model"),
])
def test_what_it_refuses(fake, program, tmp_path, word, content, text):
    image = tmp_path / "image.ppm"
    image.write_bytes(content)
    done = run(program, fake(word), image)
    assert done.returncode == 1 and text in done.stderr and not done.stdout
