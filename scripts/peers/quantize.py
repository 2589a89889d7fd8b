"""Writes what a peer runs in 8 bits, beside the model's other files: NNCF's model for OpenVINO, a QDQ model of ONNX
Runtime's quantiser, our recipe, and a QDQ model by it. A process of its own, for each has an environment of its own.

    python -m peers.quantize openvino|onnxruntime|ngraph|to-onnx PREFIX BATCH
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

SAMPLES = 4


def _samples(prefix: str, batch: int) -> np.ndarray:
    return np.load(f"{prefix}-b{batch}.npy")[:SAMPLES]


def write_openvino(prefix: str, batch: int) -> None:
    """`PREFIX-bN-int8.xml`, by NNCF with its defaults."""
    sys.modules["openvino_telemetry"] = None  # type: ignore[assignment]
    import nncf
    import openvino

    model = openvino.Core().read_model(f"{prefix}-b{batch}.onnx")
    quantized = nncf.quantize(model, nncf.Dataset(list(_samples(prefix, batch))), subset_size=SAMPLES)
    openvino.save_model(quantized, f"{prefix}-b{batch}-int8.xml", compress_to_fp16=False)


def write_onnxruntime(prefix: str, batch: int) -> None:
    """`PREFIX-bN-int8.onnx`: u8 data, i8 weights with a scale for each channel."""
    import onnx
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    source = f"{prefix}-b{batch}.onnx"
    (name,) = [i.name for i in onnx.load(source).graph.input
               if i.name not in {w.name for w in onnx.load(source).graph.initializer}]

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self._samples: Iterator[Any] = iter(_samples(prefix, batch))

        def get_next(self) -> dict[str, np.ndarray] | None:
            sample = next(self._samples, None)
            return None if sample is None else {name: sample}

    ready, target = f"{prefix}-b{batch}-ready.onnx", f"{prefix}-b{batch}-int8.onnx"
    quant_pre_process(source, ready, skip_symbolic_shape=True)
    quantize_static(ready, target, Reader(), quant_format=QuantFormat.QDQ, per_channel=True,
                    activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8)
    Path(ready).unlink()


def write_pairs(prefix: str, batch: int) -> None:
    """`PREFIX-bN-ours-int8.onnx`, and the recipe that it is written by."""
    write_ngraph(prefix, batch)
    import ngraph_mxnet

    ngraph_mxnet.to_onnx(f"{prefix}-symbol.json", f"{prefix}-b{batch}-ours-int8.onnx", params=f"{prefix}-0000.params",
                         recipe=f"{prefix}-b{batch}-recipe.json", data=_samples(prefix, batch).shape[1:])


def write_ngraph(prefix: str, batch: int) -> None:
    """`PREFIX-bN-recipe.json`."""
    import ngraph_mxnet  # noqa: F401  # isort: skip  # mxnet 1.9.1 then imports on current NumPy
    from ngraph_mxnet.frontends.model import model_of
    from ngraph_mxnet.passes.base import PassManager
    from ngraph_mxnet.program.compile import compile as compile_graph
    from ngraph_mxnet.quantisation.apply import Recipe, calibrate, observed, outline_of
    from ngraph_mxnet.quantisation.calibration import Calibration
    from ngraph_mxnet.targets.cpu.pipeline import pipeline

    samples = _samples(prefix, batch)
    shapes = {"data": samples.shape[1:]}
    graph, weights, _ = model_of(f"{prefix}-symbol.json", f"{prefix}-0000.params").first_part(shapes)
    PassManager(pipeline()).run(graph)
    watched, names = observed(graph)
    executable = compile_graph(watched, "CPU", weights)
    calibration = Calibration()
    calibrate(names, lambda sample: executable(*sample), [[sample] for sample in samples], calibration)
    recipe = replace(Recipe.of_calibration(calibration, "minmax"), outline=outline_of(graph))
    recipe.save(f"{prefix}-b{batch}-recipe.json")


if __name__ == "__main__":
    {"openvino": write_openvino, "onnxruntime": write_onnxruntime, "ngraph": write_ngraph,
     "to-onnx": write_pairs}[sys.argv[1]](sys.argv[2], int(sys.argv[3]))
