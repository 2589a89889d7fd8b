"""What the reader of the documentation is taken to have: models in the working folder, and variables by the names of
the pages. Whatever a model is called, it is the same small net, whose last layers take images of any size.
"""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import ngraph_mxnet

SHAPE = (1, 3, 224, 224)
CLASSES = 10


def onnx_model(inputs: dict[str, list[int | str]], output: str = "y") -> onnx.ModelProto:
    """Of images: a convolution, its mean, a layer of `CLASSES`; of vectors, their sum over the inputs."""
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()]
    rng = np.random.default_rng(0)
    if len(inputs) == 1:
        (name,) = inputs
        weights = {"w": rng.normal(0, 0.2, (8, 3, 3, 3)), "v": rng.normal(0, 0.2, (CLASSES, 8))}
        nodes = [helper.make_node("Conv", [name, "w"], ["c"], name="conv", pads=[1, 1, 1, 1]),
                 helper.make_node("GlobalAveragePool", ["c"], ["p"], name="pool"),
                 helper.make_node("Flatten", ["p"], ["f"], name="flatten"),
                 helper.make_node("Gemm", ["f", "v"], [output], name="fc", transB=1)]
    else:
        weights = {}
        nodes = [helper.make_node("Concat", list(inputs), [output], name="join", axis=1)]
    graph = helper.make_graph(nodes, "net", infos, [helper.make_tensor_value_info(output, TensorProto.FLOAT, None)],
                              [numpy_helper.from_array(array.astype("f4"), name) for name, array in weights.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def write_files(folder: Path) -> None:
    """What the pages' commands read."""
    mx, net = gluon_net()
    net(mx.nd.zeros(SHAPE))
    for name in ("model", "net"):
        net.export(str(folder / name))
    onnx.save(onnx_model({"x": ["batch", 3, "H", "W"]}), str(folder / "model.onnx"))
    onnx.save(onnx_model({"data": ["batch", 3, "H", "W"]}), str(folder / "net.onnx"))
    onnx.save(onnx_model({"a": ["batch", 3], "b": ["batch", 4]}), str(folder / "two.onnx"))
    images = np.random.default_rng(1).random((16, *SHAPE[1:]), np.float32)
    np.save(folder / "x.npy", images[:1])
    np.savez(folder / "inputs.npz", data=images[:1])
    np.savez(folder / "data.npz", data=images, labels=np.arange(16) % CLASSES)
    sizes = ("1..32", 3, "H:8..640", "W:8..640")
    ngraph_mxnet.export(str(folder / "net.onnx"), folder / "model.ngraph", data=sizes)
    ngraph_mxnet.export(str(folder / "net-symbol.json"), folder / "net.ngraph", data=SHAPE, with_references=True,
                        weights=str(folder / "net-0000.params"))
    quantized = ngraph_mxnet.quantize(str(folder / "model-symbol.json"), images[:2], method="minmax", corrections=[],
                                      params=str(folder / "model-0000.params"), only_faster=False, progress=False)
    quantized.save_recipe(folder / "recipe.json")


def gluon_net() -> tuple[ModuleType, Any]:
    """MXNet, and a net that has its weights."""
    import mxnet as mx

    net = mx.gluon.nn.HybridSequential()
    net.add(mx.gluon.nn.Conv2D(8, 3, padding=1, in_channels=3), mx.gluon.nn.GlobalAvgPool2D(),
            mx.gluon.nn.Dense(CLASSES, in_units=8))
    net.initialize()
    net.hybridize()
    return mx, net


def variables(folder: Path) -> dict[str, Any]:
    """What the pages' Python takes for granted, by name."""
    mx, net = gluon_net()
    images = np.random.default_rng(1).random((16, 3, 32, 32), np.float32)
    symbol, arguments, states = mx.model.load_checkpoint(str(folder / "model"), 0)
    dataset = mx.gluon.data.ArrayDataset(images, (np.arange(16) % CLASSES).astype("f4"))
    images = images[:4]  # a batch of the loader
    return {
        "np": np, "mx": mx, "ngraph_mxnet": ngraph_mxnet, "net": net, "images": images, "symbol": symbol,
        "arguments": arguments, "states": states, "batch": mx.nd.zeros(SHAPE), "x": np.zeros(SHAPE, np.float32),
        "loader": mx.gluon.data.DataLoader(dataset, batch_size=len(images)),
        "train": lambda net: net(mx.nd.array(images)), "epochs": lambda: [(0.5, 0.1), (0.4, 0.1)],
    }
