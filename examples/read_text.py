#!/usr/bin/env python3
"""Read the text in a photo: three trained ONNX models (PaddleOCR's PP-OCRv4) through `ngraph_mxnet.compile`.

A first model marks the pixels of text, of which rectangles are made and cut out upright; a second says which of them
stand on their heads; a third reads them. examples/README.md says where the models come from.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from PIL import Image
from scipy.spatial import ConvexHull
from skimage import data, measure

import ngraph_mxnet

Array = np.ndarray[Any, Any]

# What the models were trained for, as the package rapidocr-onnxruntime has it.
SHORT_SIDE, STRIDE = 736, 32  # detection: the least length of the shorter side; both are multiples of the stride
TEXT_PIXEL, TEXT_REGION = 0.3, 0.5  # detection: probabilities of a pixel, and on average of a whole region
GROW = 1.6  # detection marks the core of a line only: its edges move out by GROW * area / perimeter
LINE_HEIGHT, DIRECTION_WIDTH, READING_WIDTH = 48, 192, 320  # pixels
UPSIDE_DOWN, READ = 0.9, 0.5  # probabilities: of the direction, and on average of a line's characters
BATCH = 8


@dataclass(frozen=True)
class Rectangle:
    """In pixels of the photo; `along` is the direction of the text, a unit vector (x, y)."""

    centre: Array
    along: Array
    width: float
    height: float


@dataclass(frozen=True)
class Line:
    """A line of text, where its centre lies (x, y), and how sure the model is of its characters on average."""

    text: str
    score: float
    centre: tuple[int, int]


def planes(picture: Image.Image) -> Array:
    """[3, height, width] in blue, green, red, from -1 to 1."""
    return (np.asarray(picture, np.float32)[:, :, ::-1].transpose(2, 0, 1) / 255 - 0.5) / 0.5


def detection_input(photo: Image.Image) -> Array:
    """[1, 3, height, width]: enlarged if it is small, to sides that the model can halve five times."""
    scale = max(1.0, SHORT_SIDE / min(photo.size))
    width, height = (max(1, round(side * scale / STRIDE)) * STRIDE for side in photo.size)
    return planes(photo.resize((width, height), Image.Resampling.BILINEAR))[np.newaxis]


def rectangles(probability: Array, size: tuple[int, int]) -> list[Rectangle]:
    """The rectangles around the regions of text, from top to bottom, in the map that detection gave for a photo of
    `size` (width, height)."""
    scale = np.array(size) / probability.shape[::-1]
    found = []
    for region in measure.regionprops(measure.label(probability > TEXT_PIXEL), probability):
        if region.intensity_mean < TEXT_REGION or region.area < 10:
            continue
        corners = (region.coords[:, None, ::-1] + np.array([(0, 0), (0, 1), (1, 0), (1, 1)])).reshape(-1, 2)
        box = smallest_rectangle(corners * scale)
        grown = GROW * box.width * box.height / (box.width + box.height)  # on both sides together
        found.append(Rectangle(box.centre, box.along, box.width + grown, box.height + grown))
    return sorted(found, key=lambda box: (round(box.centre[1] / 10), box.centre[0]))


def smallest_rectangle(points: Array) -> Rectangle:
    """Around all points [count, 2]: one of its sides lies on the convex hull."""
    hull = points[ConvexHull(points).vertices]
    best: Rectangle | None = None
    for edge in np.roll(hull, -1, axis=0) - hull:
        along = edge / np.linalg.norm(edge)
        if abs(along[0]) < abs(along[1]):
            along = np.array([-along[1], along[0]])
        along = along if along[0] > 0 else -along  # text runs to the right, until the second model says otherwise
        turned = hull @ np.stack([along, (-along[1], along[0])], axis=1)
        low, high = turned.min(axis=0), turned.max(axis=0)
        width, height = high - low
        if best is None or width * height < best.width * best.height:
            middle = (low + high) / 2
            best = Rectangle(middle[0] * along + middle[1] * np.array([-along[1], along[0]]), along, width, height)
    assert best is not None
    return best


def cut_out(photo: Image.Image, box: Rectangle) -> Image.Image:
    """The rectangle, turned upright; a tall one lies down, as vertical text is read."""
    (x, y), (dx, dy) = box.centre, box.along
    width, height = max(1, round(box.width)), max(1, round(box.height))
    left, top = x - dx * width / 2 + dy * height / 2, y - dy * width / 2 - dx * height / 2
    line = photo.transform((width, height), Image.Transform.AFFINE, (dx, -dy, left, dy, dx, top),
                           Image.Resampling.BICUBIC)
    return line.transpose(Image.Transpose.ROTATE_90) if height > 1.5 * width else line


def stacked(lines: Sequence[Image.Image], width: int) -> Array:
    """[lines, 3, LINE_HEIGHT, width]: scaled to that height, zeros to their right."""
    batch = np.zeros((len(lines), 3, LINE_HEIGHT, width), np.float32)
    for row, line in zip(batch, lines, strict=True):
        scaled = min(width, math.ceil(LINE_HEIGHT * line.width / line.height))
        row[:, :, :scaled] = planes(line.resize((scaled, LINE_HEIGHT), Image.Resampling.BILINEAR))
    return batch


def reading_width(lines: Sequence[Image.Image]) -> int:
    """Enough for the longest; a multiple of the stride, so that few widths need compiling."""
    longest = max(LINE_HEIGHT * line.width / line.height for line in lines)
    return max(READING_WIDTH, math.ceil(longest / STRIDE) * STRIDE)


def decoded(probabilities: Array, characters: Sequence[str]) -> tuple[str, float]:
    """The text of [steps, classes], and the mean probability of its characters. Class 0 stands for none; a character
    counts once however many steps it lasts (connectionist temporal classification, Graves et al. 2006)."""
    classes = probabilities.argmax(axis=1)
    first = np.append(True, classes[1:] != classes[:-1]) & (classes != 0)
    text = "".join(characters[number - 1] for number in classes[first])
    return text, float(probabilities.max(axis=1)[first].mean()) if text else 0.0


class Reader:
    """The three models, compiled for each shape that they meet."""

    def __init__(self, folder: Path) -> None:
        self.detection, self.direction, self.recognition = (
            ngraph_mxnet.compile(folder / f"ocr_{name}.onnx") for name in ("detection", "direction", "recognition"))
        properties = onnx.load(folder / "ocr_recognition.onnx", load_external_data=False).metadata_props
        (characters,) = (entry.value for entry in properties if entry.key == "character")
        self.characters = [*characters.splitlines(), " "]

    def read(self, photo: Image.Image) -> list[Line]:
        """The lines of text from top to bottom."""
        (probability,) = self.detection(detection_input(photo))
        boxes = rectangles(probability[0, 0], photo.size)
        lines = [cut_out(photo, box) for box in boxes]
        texts = self.texts(lines)
        doubtful = [number for number, turned in enumerate(self.upside_down(lines)) if turned]
        others = self.texts([lines[number].transpose(Image.Transpose.ROTATE_180) for number in doubtful])
        for number, other in zip(doubtful, others, strict=True):  # that model errs: the surer reading counts
            texts[number] = max(texts[number], other, key=lambda reading: reading[1])
        return [Line(text, score, (round(box.centre[0]), round(box.centre[1])))
                for (text, score), box in zip(texts, boxes, strict=True) if score > READ]

    def upside_down(self, lines: Sequence[Image.Image]) -> list[bool]:
        """Which of the lines stand on their heads."""
        found: list[bool] = []
        for start in range(0, len(lines), BATCH):
            (probabilities,) = self.direction(stacked(lines[start : start + BATCH], DIRECTION_WIDTH))
            found.extend(probabilities[:, 1] > UPSIDE_DOWN)
        return found

    def texts(self, lines: Sequence[Image.Image]) -> list[tuple[str, float]]:
        """What each line says, and how sure the model is; lines of like length are read together."""
        texts = [("", 0.0)] * len(lines)
        by_length = sorted(range(len(lines)), key=lambda number: lines[number].width / lines[number].height)
        for start in range(0, len(lines), BATCH):
            chosen = by_length[start : start + BATCH]
            batch = [lines[number] for number in chosen]
            (probabilities,) = self.recognition(stacked(batch, reading_width(batch)))
            for number, row in zip(chosen, probabilities, strict=True):
                texts[number] = decoded(row, self.characters)
        return texts


def main() -> int:
    parser = argparse.ArgumentParser(description="Read the text in a photo with trained ONNX models.")
    parser.add_argument("photo", nargs="?", type=Path, help="default: scikit-image's photo of a page")
    parser.add_argument("--models", type=Path, default=Path("models"),
                        help="the folder that scripts/fetch_models.py has filled; default: %(default)s")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    try:
        photo = (Image.open(options.photo) if options.photo else Image.fromarray(data.page())).convert("RGB")
        reader = Reader(options.models)
    except (OSError, ngraph_mxnet.NGraphError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    seconds = []
    for _ in range(2):  # the second time, all is compiled
        start = time.perf_counter()
        lines = reader.read(photo)
        seconds.append(time.perf_counter() - start)
    if options.json:
        print(json.dumps({"lines": [vars(line) for line in lines], "seconds": seconds}, ensure_ascii=False))
        return 0
    for line in lines:
        print(f"{line.score:6.1%}  at {line.centre[0]:4}, {line.centre[1]:4}  {line.text}")
    print(f"{len(lines)} lines; {seconds[0]:.2f} s with compiling, {seconds[1]:.2f} s the second time")
    return 0


if __name__ == "__main__":
    sys.exit(main())
