"""A model as ONNX, by this package and by MXNet's exporter, in ONNX Runtime and OpenVINO."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from matrix.compare import error
from matrix.stages import stages

if TYPE_CHECKING:
    from mxnet.symbol import Symbol

    from matrix.model import Model

RIGHT = 1e-4
"""The error (`compare.error`), against our own outputs, up to which a file is right."""


def facts(symbol: Symbol, model: Model, ours: Any, expected: Sequence[np.ndarray]) -> dict[str, Any]:
    """What becomes of the model as ONNX.

    `onnx`, `onnx_openvino`, `mxnet_onnx`: the error of ONNX Runtime's and OpenVINO's outputs of our file, and of ONNX
    Runtime's of MXNet's exporter's; or the text of what they raise. Where a detector's boxes differ, also the figures
    of `stages`, as `onnx_stage_error`.

    Args:
        ours: an executor of our backend, which has the weights, and the inputs as MXNet takes them.
        expected: its outputs.
    """
    arrays = {name: array.asnumpy() for name, array in {**ours.arg_dict, **ours.aux_dict}.items()}
    inputs = {name: arrays.pop(name) for name in model.inputs if name in arrays}

    def outputs_by(key: str, graph: Symbol) -> list[np.ndarray]:
        write, run = _PEERS[key]
        write(graph, arrays, inputs, path)
        return run(path, inputs)

    def compared(key: str) -> float:
        return error(outputs_by(key, symbol), expected, model.kind)

    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        for key in _PEERS:
            found[key] = _tried(partial(compared, key))
            if model.kind == "boxes" and isinstance(found[key], float) and found[key] > RIGHT:
                figures = _tried(partial(stages, symbol, model, ours, partial(outputs_by, key)))
                if not isinstance(figures, str):
                    found |= {f"{key}_{name}": figure for name, figure in figures.items()}
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

    shapes = {name: array.shape for name, array in inputs.items()}
    graph, weights = model_of(symbol, arrays).graph(shapes, keep_loops=True)()
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


_PEERS: Mapping[str, tuple[Callable[..., None], Callable[..., list[np.ndarray]]]] = {
    "onnx": (_write, _by_onnx_runtime), "onnx_openvino": (_write, _by_openvino),
    "mxnet_onnx": (_write_by_mxnet, _by_onnx_runtime)}
"""How each writes a file of a graph, arrays and inputs, and runs it."""
