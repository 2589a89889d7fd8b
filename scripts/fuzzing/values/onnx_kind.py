"""ONNX models: on us, on the interpreter, and by ONNX Runtime."""

from __future__ import annotations

from typing import Any

import onnxruntime

import ngraph_mxnet
from fuzzing.values.kinds import KINDS, Kind, NoJudgeError
from fuzzing.values.trials import Trial

_FATAL = 4
"""The severity from which ONNX Runtime logs: what it refuses it says by an exception."""


def _ours(trial: Trial) -> list[list[Any]]:
    exe = ngraph_mxnet.compile(trial.model, "CPU", **trial.setup.options)
    return [exe(feeds) for feeds in trial.calls]


def _reference(trial: Trial) -> list[list[Any]]:
    exe = ngraph_mxnet.compile(trial.model, "INTERPRETER")
    return [exe(feeds) for feeds in trial.calls]


def session_of(model: bytes) -> onnxruntime.InferenceSession:
    """As the model stands: nothing is fused."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = _FATAL
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def _judge(trial: Trial) -> list[list[Any]]:
    try:
        session = session_of(trial.model)
        names = {given.name for given in session.get_inputs()}
        return [session.run(None, {name: array for name, array in feeds.items() if name in names})
                for feeds in trial.calls]
    except Exception as error:  # its exceptions have no base of their own
        raise NoJudgeError(str(error)) from error


KINDS["onnx"] = Kind(_ours, _reference, _judge, "ONNX Runtime")
