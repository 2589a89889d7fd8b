"""A model as ONNX, by this package and by MXNet's exporter, in ONNX Runtime and OpenVINO."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from matrix.compare import error

if TYPE_CHECKING:
    from mxnet.symbol import Symbol

    from matrix.model import Model

RIGHT = 1e-4
"""The error (`compare.error`), against our own outputs, up to which a file is right."""


def facts(symbol: Symbol, model: Model, ours: Any, expected: Sequence[np.ndarray]) -> dict[str, Any]:
    """What becomes of the model as ONNX.

    `onnx`, `onnx_openvino`, `mxnet_onnx`: the error of ONNX Runtime's and OpenVINO's outputs of our file, and of ONNX
    Runtime's of MXNet's exporter's; or the text of what they raise.

    Args:
        ours: an executor of our backend, which has the weights, and the inputs as MXNet takes them.
        expected: its outputs.
    """
    arrays = {name: array.asnumpy() for name, array in {**ours.arg_dict, **ours.aux_dict}.items()}
    inputs = {name: arrays.pop(name) for name in model.inputs if name in arrays}

    def compared(run: Callable[..., list[np.ndarray]], path: Path) -> float:
        return error(run(path, inputs), expected, model.kind)

    with tempfile.TemporaryDirectory() as folder:
        path, theirs = Path(folder) / "ours.onnx", Path(folder) / "theirs.onnx"
        found = {"onnx": _tried(lambda: _write(symbol, arrays, inputs, path))}
        if found["onnx"] is None:
            runs: Mapping[str, Callable[..., Any]] = {"onnx": _by_onnx_runtime, "onnx_openvino": _by_openvino}
            found = {key: _tried(partial(compared, run, path)) for key, run in runs.items()}
        failed = _tried(lambda: _write_by_mxnet(symbol, arrays, inputs, theirs))
        found["mxnet_onnx"] = failed or _tried(partial(compared, _by_onnx_runtime, theirs))
    return found


def _tried(what: Callable[[], Any]) -> Any:
    """What it returns, or the beginning of its error."""
    try:
        return what()
    except Exception as error:  # peers raise what they like
        return f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]


def _write(symbol: Symbol, arrays: dict[str, np.ndarray], inputs: dict[str, np.ndarray], path: Path) -> None:
    """As `ngraph_mxnet.to_onnx` does, which also compares with NumPy's definitions. Those take minutes of some nets."""
    from ngraph_mxnet.frontends.model import model_of
    from ngraph_mxnet.frontends.onnx.writer.file import simplify
    from ngraph_mxnet.frontends.onnx.writer.model import written

    graph, weights = model_of(symbol, arrays).graph({name: array.shape for name, array in inputs.items()})()
    simplify(graph)
    path.write_bytes(written(graph, weights).SerializeToString())


def _write_by_mxnet(symbol: Symbol, arrays: dict[str, np.ndarray], inputs: dict[str, np.ndarray], path: Path) -> None:
    import mxnet as mx

    mx.onnx.export_model(symbol, {name: mx.nd.array(array) for name, array in arrays.items()},
                         [inputs[name].shape for name in symbol.list_inputs() if name in inputs], np.float32, str(path))


def _by_onnx_runtime(path: Path, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    read = {value.name for value in session.get_inputs()}
    results: list[np.ndarray] = session.run(None, {name: array for name, array in inputs.items() if name in read})
    return results


def _by_openvino(path: Path, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
    import openvino

    compiled = openvino.Core().compile_model(openvino.Core().read_model(str(path)), "CPU",
                                             {"INFERENCE_PRECISION_HINT": "f32"})
    read = {name for port in compiled.inputs for name in port.get_names()}
    results = compiled({name: array for name, array in inputs.items() if name in read})
    return [np.asarray(results[port]) for port in compiled.outputs]
