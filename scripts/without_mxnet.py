"""MXNet's models where there is no MXNet: the same bits.

    python scripts/without_mxnet.py make FOLDER     # with MXNet: models, and what they give
    python scripts/without_mxnet.py check FOLDER    # without it, by any Python

`check` ends with an error if MXNet can be imported, or a result differs by a bit.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import numpy as np

import ngraph_mxnet

MODELS = {"resnet18_v1": 64, "mobilenet0_25": 64, "resnet34_v2": 64, "mobilenet_v2_0_5": 96}
"""Of Gluon's zoo, by the size of their images."""


def make(folder: Path) -> None:
    import mxnet as mx
    from mxnet.gluon.model_zoo import vision

    for name, size in MODELS.items():
        mx.random.seed(1)
        net = getattr(vision, name)(classes=10)
        net.initialize(mx.init.Xavier())
        net.hybridize()
        net(mx.nd.zeros((1, 3, size, size)))
        net.export(str(folder / name))
        np.save(folder / f"{name}.npy", result(folder, name))


def result(folder: Path, name: str) -> np.ndarray:
    shape = (2, 3, MODELS[name], MODELS[name])
    compiled = ngraph_mxnet.compile(str(folder / f"{name}-symbol.json"), "CPU", shapes={"data": shape},
                                    params=str(folder / f"{name}-0000.params"))
    return np.asarray(compiled(np.random.default_rng(0).standard_normal(shape).astype(np.float32))[0])


def check(folder: Path) -> None:
    if importlib.util.find_spec("mxnet") is not None:
        raise SystemExit("MXNet is installed here: nothing is shown")
    for name in MODELS:
        np.testing.assert_array_equal(result(folder, name), np.load(folder / f"{name}.npy"), err_msg=name)
        print(f"{name}: the same bits by Python {sys.version.split()[0]} without MXNet")


if __name__ == "__main__":
    {"make": make, "check": check}[sys.argv[1]](Path(sys.argv[2]))
