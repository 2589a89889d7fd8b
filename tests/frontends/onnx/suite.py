"""The cases of `onnx.backend.test`, with the arrays in memory."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

MODEL_KINDS = ("simple", "pytorch-converted", "pytorch-operator")


@dataclass(frozen=True)
class Case:
    name: str
    model: onnx.ModelProto
    sets: list[tuple[list[Any], list[Any]]]
    """Inputs and wanted outputs; what is no tensor is a list or None."""
    relative: float
    absolute: float


def model_cases() -> Iterator[Case]:
    """Small whole models, and what PyTorch exported in its day."""
    from onnx.backend.test.loader import load_model_tests

    for kind in MODEL_KINDS:
        for case in load_model_tests(kind=kind):
            if case.model_dir is None:
                continue
            folder = Path(case.model_dir)
            sets = [([_read(path) for path in _numbered(data, "input")],
                     [_read(path) for path in _numbered(data, "output")])
                    for data in sorted(folder.glob("test_data_set_*"))]
            yield Case(case.name, onnx.load(folder / "model.onnx"), sets, case.rtol, case.atol)


def node_cases() -> list[Case]:
    """A model of one node each, or of the function that ONNX defines it as."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = collect_testcases(None)
    return [Case(case.name, case.model, [([_array(v) for v in into], [_array(v) for v in out]) for into, out in
                                         case.data_sets or []], case.rtol, case.atol)
            for case in found if case.model is not None]


def _numbered(folder: Path, what: str) -> list[Path]:
    return sorted(folder.glob(f"{what}_*.pb"), key=lambda path: int(path.stem.rpartition("_")[2]))


def _read(path: Path) -> Any:
    tensor = onnx.TensorProto()
    try:
        tensor.ParseFromString(path.read_bytes())
        return numpy_helper.to_array(tensor)
    except Exception:  # a sequence, or a map
        return None


def _array(value: Any) -> Any:
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    return value if value is None or isinstance(value, (list, dict)) else np.asarray(value)
