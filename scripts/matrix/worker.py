"""The process that examines models: traces, partitions, runs and times each, and says so in lines of JSON.

    python -m matrix.worker LIBRARY

It sends the library's models and their genres, then reads requests, one a line: a model, steps, and known models by
their graphs' digests. Before each step it sends a line that names it, so whatever ends the process, one knows how far
it came; the last line of a model has `done`.
"""

from __future__ import annotations

import gc
import importlib
import os
import statistics
import sys
import time
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from workers import requests

from matrix.stages import outputs, stages

if TYPE_CHECKING:
    from mxnet.symbol import Symbol

    from matrix.model import Model

LIBRARIES = ("gluon_zoo", "gluoncv_models", "gluonnlp_models", "gluonts_models")
STEPS = ("regions", "run", "block", "file", "onnx", "time")
ROUND_SECONDS, PAUSE_SECONDS = 0.05, 0.02
#: Rounds of timing; of nets whose rounds take longer than this, fewer.
ROUNDS, FEWER_ROUNDS, LONG_ROUND_SECONDS = 5, 3, 2.0

Send = Callable[..., None]


def work(library: str, name: str, steps: list[str], known: dict[str, str], send: Send) -> None:
    """Send the figures of one model."""
    from matrix import as_file, as_onnx
    from matrix.graph import digest
    from matrix.model import NotOffline
    from matrix.weights import bind

    send(step="build")
    try:
        model = importlib.import_module(f"matrix.{library}").build(name)
    except NotOffline as error:
        send(left_out=str(error))
        return
    send(step="trace", inputs={key: list(array.shape) for key, array in model.inputs.items()})
    symbol = model.trace()
    graph = digest(symbol, model.inputs, model.constants())
    send(digest=graph)
    if known.get(graph, name) != name:
        send(same_as=known[graph], step="same")
        return
    if "regions" in steps:
        send(step="regions")
        send(**regions(symbol, model))
    rest = set(steps) - {"regions"}
    if rest:
        send(step="native")
        native = bind(symbol, model, "NONE")
        for step, become in (("file", as_file.facts), ("onnx", as_onnx.facts)):
            if step in rest:
                send(step=step)
                ours = bind(symbol, model, "NGRAPH", native)
                send(**become(symbol, model, ours, outputs(ours)))
        if rest - {"file", "onnx"}:
            run(symbol, model, native, steps, send)


def regions(symbol: Symbol, model: Model) -> dict[str, Any]:
    """How many regions, how many nodes they take, and [operator, reason, count] of what is left."""
    import ngraph_mxnet

    read = set(symbol.list_inputs())
    partition = ngraph_mxnet.explain(symbol, {name: array.shape for name, array in model.inputs.items()
                                              if name in read}).partition
    left = [[op, reason, count] for (op, reason), count in partition.left_by_kind().items()]
    return {"regions": len(partition.regions), "left": left, "taken": sum(len(r.nodes) for r in partition.regions)}


def run(symbol: Symbol, model: Model, native: Any, steps: list[str], send: Send) -> None:
    """Bind with ours, compare with MXNet alone, which is bound; the same as a hybridized block; time ours and MXNet's
    MKLDNN."""
    from matrix.compare import TOLERANCE, box_count, error
    from matrix.weights import bind

    expected = outputs(native)
    send(step="ngraph")
    if model.kind == "boxes":
        send(boxes=box_count(expected))
    start = time.perf_counter()
    ours = bind(symbol, model, "NGRAPH", native)
    found = outputs(ours)
    far = error(found, expected, model.kind)
    send(first_seconds=time.perf_counter() - start, kind=model.kind, error=far,
         finite=bool(all(np.isfinite(array).all() for array in expected)))
    if model.kind == "boxes" and far > TOLERANCE["boxes"]:
        send(step="stages")
        send(**stages(symbol, model, native, lambda whole: outputs(bind(whole, model, "NGRAPH", native))))
    if "block" in steps:
        send(step="block")
        send(block_error=error(as_block(symbol, model, native), expected, model.kind))
    send(fallbacks=fallbacks())
    if "time" in steps:
        send(step="time")
        fast = bind(symbol, model, "MKLDNN", native)
        send(mkldnn_error=error(outputs(fast), expected, model.kind))
        why = second_call_fails(fast)
        send(**(times(fast, ours) if why is None else {"mkldnn_failure": why}))


def fallbacks() -> list[str]:
    """Why MXNet ran what was to be compiled: its results would say nothing about ours."""
    import ngraph_mxnet

    return [each.reason for each in ngraph_mxnet.report().fallbacks]


def as_block(symbol: Symbol, model: Model, weights_of: Any) -> list[np.ndarray]:
    """The outputs of the traced network as a hybridized Gluon block, under our backend."""
    import mxnet as mx

    from matrix.weights import VARIABLE

    read = set(symbol.list_inputs())
    names = [name for name in model.inputs if name in read]
    block = mx.gluon.SymbolBlock(symbol, [mx.sym.Variable(name) for name in names])
    for name, parameter in block.collect_params().items():
        array = weights_of.arg_dict.get(name, weights_of.aux_dict.get(name))
        parameter.shape = array.shape
        parameter.initialize()
        parameter.set_data(array)
    os.environ[VARIABLE] = "NGRAPH"
    try:
        block.hybridize()
        mx.random.seed(5)
        found = block(*(mx.nd.array(model.inputs[name]) for name in names))
        return [array.asnumpy() for array in (found if isinstance(found, (list, tuple)) else [found])]
    finally:
        del os.environ[VARIABLE]


def second_call_fails(executor: Any) -> str | None:
    """Why; None: it does not. MXNet's MKLDNN leaves some results in layouts that its next call can't read."""
    try:
        outputs(executor)
    except Exception as error:
        return next(line for line in reversed(str(error).splitlines()) if line.strip())
    return None


def times(native: Any, ours: Any) -> dict[str, float]:
    """Bursts in turns; milliseconds of a forward pass, and the median of the ratios in the same round."""

    def once(executor: Any) -> float:
        start = time.perf_counter()
        for array in executor.forward(is_train=False):
            array.wait_to_read()
        return (time.perf_counter() - start) * 1e3

    pair = (native, ours)
    first = [once(each) for each in pair]
    long = sum(first) > LONG_ROUND_SECONDS * 1e3
    counts = [max(1, round(ROUND_SECONDS * 1e3 / milliseconds)) for milliseconds in first]
    rounds: tuple[list[float], list[float]] = ([], [])
    for index in range(FEWER_ROUNDS if long else ROUNDS):
        for which in (0, 1) if index % 2 else (1, 0):
            time.sleep(PAUSE_SECONDS)  # for the other's threads to stop spinning
            if not long:
                once(pair[which])
            rounds[which].append(statistics.median(once(pair[which]) for _ in range(counts[which])))
    ratios = [mine / other for other, mine in zip(*rounds, strict=True)]
    return {"native_ms": statistics.median(rounds[0]), "ours_ms": statistics.median(rounds[1]),
            "ratio": statistics.median(ratios)}


def main() -> None:
    library = sys.argv[1]
    models, send = requests()

    from ngraph_mxnet import _core  # lets MXNet 1.9.1 import on NumPy >= 1.24

    send(**importlib.import_module(f"matrix.{library}").genres())
    for request in models:
        try:
            work(library, request["model"], request["steps"], request["known"], send)
            send(done=True)
        except Exception as error:
            traceback.print_exc()
            said = f"{type(error).__name__}: {error}".strip().splitlines()
            send(failure=" ".join(said)[:400], done=True)
        _core.clear_compile_cache()
        gc.collect()


if __name__ == "__main__":
    main()
