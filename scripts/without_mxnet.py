"""Models of MXNet where there is no MXNet: the same bits.

    python scripts/without_mxnet.py OTHER_PYTHON
    python scripts/without_mxnet.py OTHER_PYTHON --library gluoncv_models --models yolo3_darknet53_coco

This Python has MXNet and the library, the other one has this package alone. Each model gets random weights and is
written as a symbol and parameters. This one compiles the live symbol, the other one the two files. It ends with an
error if the other can import MXNet, if a result differs by a bit, or if only one of them refuses a model.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import workers
from matrix.as_file import same_bits

import ngraph_mxnet
from ngraph_mxnet.base.errors import NGraphError

LIBRARIES = ("gluon_zoo", "gluoncv_models", "gluonnlp_models", "gluonts_models")
MODELS = ("resnet18_v1", "mobilenet0.25", "resnet34_v2", "mobilenetv2_0.5")
"""Of Gluon's zoo, that are tried by default."""
SYMBOL, PARAMETERS, INPUTS, RESULTS = "net-symbol.json", "net-0000.params", "inputs.npz", "results.npz"


class NoSymbolError(Exception):
    """MXNet makes no symbol of a model; the text is its own."""


def results(symbol: Any, weights: Any, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
    """Of the compiled model.

    Raises:
        NGraphError: it isn't taken.
    """
    shapes = {name: array.shape for name, array in inputs.items()}
    compiled = ngraph_mxnet.compile(symbol, "CPU", shapes=shapes, params=weights)
    return [np.asarray(result) for result in compiled(**inputs)]


def write(library: str, name: str, folder: Path) -> str:
    """Write a model and what is made of the live symbol; why it isn't taken, or nothing.

    Raises:
        NotOffline: it can't be had.
        NoSymbolError: MXNet makes no symbol of it.
    """
    import mxnet as mx
    from matrix.weights import bind

    model = importlib.import_module(f"matrix.{library}").build(name)
    try:
        symbol = model.trace()
    except mx.base.MXNetError as error:
        raise NoSymbolError(str(error).strip().splitlines()[0]) from None
    executor = bind(symbol, model, "NONE")
    inputs = {key: executor.arg_dict[key].asnumpy() for key in model.inputs if key in executor.arg_dict}
    weights = {f"arg:{key}": array for key, array in executor.arg_dict.items() if key not in inputs}
    weights |= {f"aux:{key}": array for key, array in executor.aux_dict.items()}
    symbol.save(str(folder / SYMBOL))
    mx.nd.save(str(folder / PARAMETERS), weights)
    np.savez(folder / INPUTS, **inputs)
    try:
        found = results(symbol, weights, inputs)
    except NGraphError as error:
        return str(error)
    np.savez(folder / RESULTS, *found)
    return ""


def read(folder: Path) -> dict[str, Any]:
    """What is made of the files: `refused` with the reason, or `different` with the numbers of results."""
    with np.load(folder / INPUTS) as arrays:
        inputs = dict(arrays)
    try:
        found = results(str(folder / SYMBOL), str(folder / PARAMETERS), inputs)
    except NGraphError as error:
        return {"refused": str(error)}
    if not (folder / RESULTS).exists():
        return {"refused": ""}
    with np.load(folder / RESULTS) as arrays:
        expected = list(arrays.values())
    pairs = enumerate(zip(found, expected, strict=True))
    return {"different": [number for number, (ours, theirs) in pairs if not same_bits(ours, theirs)]}


def serve() -> None:
    asked, send = workers.requests()
    send(python=sys.version.split()[0], mxnet=importlib.util.find_spec("mxnet") is not None)
    for request in asked:
        send(**read(Path(request["folder"])))


def compare(python: str, library: str, names: Sequence[str]) -> bool:
    """Whether every model that can be had gives the same bits, or the same refusal."""
    from matrix.model import NotOffline

    other = workers.Worker([python, str(Path(__file__).resolve()), "--serve"], dict(os.environ))
    facts = other.answer()
    if not facts or facts["mxnet"]:
        raise SystemExit(f"{python} can import MXNet: nothing is shown" if facts else f"{python}: no answer")
    good, counts = True, {"the same bits": 0, "refused alike": 0, "not to be had without a download": 0,
                          "no symbols in MXNet itself": 0}
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            try:
                refused = write(library, name, Path(folder))
            except NotOffline:
                counts["not to be had without a download"] += 1
                continue
            except NoSymbolError as error:
                counts["no symbols in MXNet itself"] += 1
                print(f"{name}: {error}", flush=True)
                continue
            other.send(folder=folder)
            answer = other.answer()
        if answer is None:
            raise SystemExit(f"{name}: the other Python's process ended")
        if "refused" in answer:
            verdict = "refused alike" if answer["refused"] == refused else ""
            told = verdict or f"DIFFERS: refused as {answer['refused']!r}, with MXNet {refused or 'taken'!r}"
        else:
            verdict = "" if refused or answer["different"] else "the same bits"
            told = verdict or f"DIFFERS: {answer['different'] or 'taken'}, with MXNet {refused or 'taken'!r}"
        print(f"{name}: {told}", flush=True)
        good = good and bool(verdict)
        if verdict:
            counts[verdict] += 1
    print(f"{library}, Python {facts['python']} without MXNet: "
          + ", ".join(f"{count} {what}" for what, count in counts.items() if count))
    return good


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("python")
    parser.add_argument("--library", choices=LIBRARIES, default=LIBRARIES[0])
    parser.add_argument("--models", nargs="+", help="default: some of Gluon's zoo, and all of another library")
    chosen = parser.parse_args()
    everything = importlib.import_module(f"matrix.{chosen.library}").genres()
    names = chosen.models or (MODELS if chosen.library == LIBRARIES[0] else list(everything))
    raise SystemExit(not compare(chosen.python, chosen.library, names))


if __name__ == "__main__":
    serve() if sys.argv[1:] == ["--serve"] else main()
