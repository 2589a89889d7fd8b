"""A model as a compiled file, which another process runs without MXNet and the compiler."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from matrix.compare import MOST_APART, means_apart, relative_difference

if TYPE_CHECKING:
    from mxnet.symbol import Symbol

    from matrix.model import Model

SCRIPTS = Path(__file__).resolve().parents[1]
#: There is no file of the model; or its outputs have the bits of those that MXNet gives with our backend, or others; or
#: there are none.
REFUSED, SAME_BITS, DIFFERS, BROKEN = "refused", "same bits", "differs", "does not run"
#: Of a model that draws random numbers, which inside MXNet are MXNet's: the samples' means are near.
SAME_MEANS = "same means"


class NotRunError(RuntimeError):
    """The process that should run a file failed; the text is what it said."""


def facts(symbol: Symbol, model: Model, ours: Any, expected: Sequence[np.ndarray]) -> dict[str, Any]:
    """What becomes of the model as a file for this CPU's instruction set.

    `file`: one of the words above; `file_reason`: of the two that are failures; `file_bytes`: its size;
    `file_difference`: the largest of an output, norm-wise and relative, from that of the executor; of a model that
    draws random numbers that of the samples' means, in standard errors.

    Args:
        ours: an executor of our backend, which has the weights, and the inputs as MXNet takes them.
        expected: its outputs.
    """
    import ngraph_mxnet
    from ngraph_mxnet import _core
    from ngraph_mxnet.base.errors import NGraphError
    from ngraph_mxnet.frontends.mxnet.attrs import canonical
    from ngraph_mxnet.frontends.mxnet.rules.registry import drawing_rules
    from ngraph_mxnet.frontends.mxnet.symbol_json import parse_symbol
    from ngraph_mxnet.targets.cpu.machine.isa import choose_isa

    arrays = {name: array.asnumpy() for name, array in {**ours.arg_dict, **ours.aux_dict}.items()}
    inputs = {name: arrays.pop(name) for name in model.inputs if name in arrays}
    shapes = {name: array.shape for name, array in inputs.items()}
    isa = choose_isa(_core.cpu_features())
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "model.ngraph"
        try:
            ngraph_mxnet.export(symbol, path, weights=arrays, shapes=shapes, isas=[isa])
        except NGraphError as reason:
            return {"file": REFUSED, "file_reason": _short(f"{type(reason).__name__}: {reason}")}
        found = {"file_bytes": path.stat().st_size}
        del arrays
        try:
            results = run_alone(path, inputs, isa, int(os.environ["OMP_NUM_THREADS"]))
        except NotRunError as reason:
            return {**found, "file": BROKEN, "file_reason": _short(str(reason))}
    if any(canonical(node.op) in drawing_rules() for node in parse_symbol(symbol.tojson()).operators()):
        apart = means_apart(results, expected)
        return {**found, "file": SAME_MEANS if apart <= MOST_APART else DIFFERS, "file_difference": apart}
    same = all(map(same_bits, results, expected)) and len(results) == len(expected)
    return {**found, "file": SAME_BITS if same else DIFFERS, "file_difference": difference(results, expected)}


def run_alone(path: Path, inputs: Mapping[str, np.ndarray], isa: str, threads: int) -> list[np.ndarray]:
    """The outputs of a file in another process, which has only NumPy and `ngraph_runtime`.

    Args:
        isa: whose instructions it must run.

    Raises:
        NotRunError: it ends with a failure, holds MXNet or the compiler, or runs other instructions.
    """
    folder = path.parent
    command = [sys.executable, "-S", "-m", "matrix.alone", str(path), "--list", "--json", "--threads", str(threads),
               "--output-dir", str(folder / "outputs")]
    for number, (name, array) in enumerate(inputs.items()):
        np.save(folder / f"{number}.npy", array)
        command += ["--input", f"{name}={folder / f'{number}.npy'}"]
    parts = [SCRIPTS.parent / "runtime", Path(np.__file__).parents[1]]
    done = subprocess.run(command, cwd=SCRIPTS, capture_output=True, text=True, check=False,
                          env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, parts))})
    if done.returncode:
        raise NotRunError(done.stderr.strip() or f"exit status {done.returncode}")
    told = json.loads(done.stdout)
    if told["instruction_set"] != isa:
        raise NotRunError(f"found instructions of {told['instruction_set']}, expected {isa}")
    return [np.load(output["file"]) for output in told["outputs_found"]]


def same_bits(found: np.ndarray, expected: np.ndarray) -> bool:
    """Type, shape and every bit, of NaN too."""
    return (found.dtype, found.shape, found.tobytes()) == (expected.dtype, expected.shape, expected.tobytes())


def difference(found: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> float:
    """The largest of an output; infinite where shapes differ."""
    if [array.shape for array in found] != [array.shape for array in expected]:
        return float("inf")
    return max(map(relative_difference, found, expected), default=0.0)


def _short(text: str) -> str:
    return " ".join(text.split())[:400]
