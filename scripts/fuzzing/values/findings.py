"""Files of what was found: a folder each, from which one command runs it again."""

from __future__ import annotations

import json
import re
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from fuzzing.values.closeness import Closeness, WrongError
from fuzzing.values.setups import Setup
from fuzzing.values.trials import Trial

_MODELS = {"onnx": "model.onnx"}
"""By kind; other kinds' are text."""
_LISTED = re.compile(r"^(.*)/(\d+)$")


def save(trial: Trial, folder: Path) -> None:
    """Write the trial as files; `load` reads them."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / _MODELS.get(trial.kind, "model.txt")).write_bytes(trial.model)
    arrays: dict[str, Any] = {}
    for number, feeds in enumerate(trial.calls):
        for name, array in feeds.items():
            if isinstance(array, (list, tuple)):
                arrays.update({f"{number}:{name}/{place}": each for place, each in enumerate(array)})
            elif array is not None:
                arrays[f"{number}:{name}"] = array
    np.savez(folder / "calls.npz", **arrays)
    said = {"kind": trial.kind, "calls": len(trial.calls), "setup": trial.setup.data(), "notes": dict(trial.notes),
            "closeness": vars(trial.closeness), "ops": list(trial.ops)}
    (folder / "trial.json").write_text(json.dumps(said, indent=1, default=str) + "\n")


def load(folder: Path) -> Trial:
    said = json.loads((folder / "trial.json").read_text())
    calls: list[dict[str, Any]] = [{} for _ in range(said["calls"])]
    with np.load(folder / "calls.npz", allow_pickle=False) as arrays:
        for key in arrays:
            number, _, name = key.partition(":")
            listed = _LISTED.match(name)
            if listed:
                calls[int(number)].setdefault(listed[1], []).append(arrays[key])
            else:
                calls[int(number)][name] = arrays[key]
    model = (folder / _MODELS.get(said["kind"], "model.txt")).read_bytes()
    return Trial(said["kind"], model, calls, Setup(**said["setup"]), Closeness(**said["closeness"]),
                 tuple(said["ops"]), said["notes"])


def described(trial: Trial) -> str:
    """The model and what it is called with, in lines."""
    calls = [", ".join(f"{name} {getattr(array, 'dtype', '')}{list(getattr(array, 'shape', []))}"
                       for name, array in feeds.items()) for feeds in trial.calls]
    if trial.kind != "onnx":
        return "\n".join([trial.model.decode()[:4000], *calls])
    import onnx

    model = onnx.load_model_from_string(trial.model)
    tensors = [f"{tensor.name} {onnx.TensorProto.DataType.Name(tensor.data_type)}{list(tensor.dims)}"
               + (f" = {onnx.numpy_helper.to_array(tensor).tolist()}" if np.prod(tensor.dims) <= 8 else "")
               for tensor in model.graph.initializer]
    lines = [onnx.printer.to_text(node)[:1000] for node in model.graph.node]
    return "\n".join([*lines, *tensors, *calls])


def signature(error: BaseException, family: str) -> str:
    """What is the same for two failures of one cause, most likely: the family and what differed, or where it failed."""
    if isinstance(error, WrongError):
        detail = re.sub(r"[\d.e+-]+|\[.*?\]|\(.*?\)", "#", error.detail.partition("; ")[0])[:60]
        where = f"{error.against}: {detail}"
    else:
        frames = []
        trace = error.__traceback__
        while trace is not None:
            code = trace.tb_frame.f_code
            if "ngraph_mxnet" in code.co_filename:
                frames.append(f"{Path(code.co_filename).name}:{code.co_name}")
            trace = trace.tb_next
        where = f"{type(error).__name__} in {' '.join(frames[-2:])}"
    return f"{family}: {where}"


def folder_name(text: str) -> str:
    return f"wrong-{zlib.crc32(text.encode()):08x}"
