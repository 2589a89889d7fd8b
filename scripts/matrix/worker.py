"""The process of one model: traces, partitions, runs and times it, and says so in lines of JSON.

    python -m matrix.worker LIBRARY                   the library's models and their genres
    python -m matrix.worker LIBRARY MODEL STEP...     the model's figures; before each step a line that names it

Whatever ends the process, the lines so far tell how far it came.
"""

from __future__ import annotations

import importlib
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from mxnet.symbol import Symbol

    from matrix.model import Model

LIBRARIES = ("gluon_zoo", "gluoncv_models", "gluonnlp_models", "gluonts_models")
STEPS = ("regions", "run", "time")
VARIABLE = "MXNET_SUBGRAPH_BACKEND"
ROUNDS, ROUND_SECONDS, PAUSE_SECONDS = 5, 0.05, 0.02

Tell = Callable[..., None]


def work(library: str, name: str, steps: list[str], tell: Tell) -> None:
    """Tell the figures of one model."""
    from matrix.model import NotOffline

    tell(step="build")
    try:
        model = importlib.import_module(f"matrix.{library}").build(name)
    except NotOffline as error:
        tell(left_out=str(error))
        return
    tell(step="trace", inputs={key: list(array.shape) for key, array in model.inputs.items()})
    symbol = model.trace()
    if "regions" in steps:
        tell(step="regions")
        tell(**regions(symbol, model))
    if "run" in steps or "time" in steps:
        run(symbol, model, "time" in steps, tell)


def regions(symbol: Symbol, model: Model) -> dict[str, Any]:
    """How many regions, how many nodes they take, and [operator, reason, count] of what is left."""
    import ngraph_mxnet

    read = set(symbol.list_inputs())
    partition = ngraph_mxnet.explain(symbol, {name: array.shape for name, array in model.inputs.items()
                                              if name in read}).partition  # fmt: skip
    left = [[op, reason, count] for (op, reason), count in partition.left_by_kind().items()]
    return {"regions": len(partition.regions), "left": left, "taken": sum(len(r.nodes) for r in partition.regions)}


def run(symbol: Symbol, model: Model, timed: bool, tell: Tell) -> None:
    """Bind with MXNet's MKLDNN backend and with ours, compare, then as a hybridized block; and take times."""
    import mxnet as mx

    from matrix.compare import box_count, error

    def outputs(executor: Any) -> list[np.ndarray]:
        mx.random.seed(5)
        return [array.asnumpy() for array in executor.forward(is_train=False)]

    tell(step="native")
    native = bind(symbol, model, "MKLDNN")
    expected = outputs(native)
    tell(step="ngraph")
    if model.kind == "boxes":
        tell(boxes=box_count(expected))
    start = time.perf_counter()
    ours = bind(symbol, model, "NGRAPH")
    found = outputs(ours)
    tell(first_seconds=time.perf_counter() - start, kind=model.kind, error=error(found, expected, model.kind),
         finite=bool(all(np.isfinite(array).all() for array in expected)))  # fmt: skip
    tell(step="block")
    tell(block_error=error(as_block(symbol, model, native), expected, model.kind))
    if timed:
        tell(step="time")
        tell(**times(native, ours))


def bind(symbol: Symbol, model: Model, backend: str) -> Any:
    """An executor with the model's data, and weights by place, so that they are alike under each backend."""
    import mxnet as mx

    os.environ[VARIABLE] = backend
    try:
        read = set(symbol.list_inputs())
        shapes = {name: array.shape for name, array in model.inputs.items() if name in read}
        executor = symbol.simple_bind(mx.cpu(), grad_req="null", **shapes)
    finally:
        del os.environ[VARIABLE]
    constants = {name: parameter.value for name, parameter in model.net.collect_params().items()
                 if isinstance(parameter, mx.gluon.Constant)}  # fmt: skip
    for arrays in (executor.arg_dict, executor.aux_dict):
        for place, (name, array) in enumerate(arrays.items()):
            given = model.inputs.get(name, constants.get(name))
            array[:] = weights(name, array.shape, place) if given is None else given
    return executor


def weights(name: str, shape: tuple[int, ...], place: int) -> np.ndarray:
    """Random values of the scale that keeps activations alive; moving variances are positive."""
    rng = np.random.default_rng([place, *shape])
    if len(shape) == 1:
        if "gamma" in name:
            return rng.uniform(0.2, 0.5, shape)  # near 1, the sums of residual nets would double block by block
        return rng.uniform(0.5, 1.5, shape) if "var" in name else rng.standard_normal(shape) * 0.1
    # Offsets of deformable convolutions are pixels: large ones make noise of rounding.
    scale = 0.05 if "offset" in name else np.sqrt(2)
    return rng.standard_normal(shape) * scale / np.sqrt(max(int(np.prod(shape[1:])), 1))


def as_block(symbol: Symbol, model: Model, weights_of: Any) -> list[np.ndarray]:
    """The outputs of the traced network as a hybridized Gluon block, under our backend."""
    import mxnet as mx

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


def times(native: Any, ours: Any) -> dict[str, float]:
    """Bursts in turns; milliseconds of a forward pass, and the median of the ratios in the same round."""

    def once(executor: Any) -> float:
        start = time.perf_counter()
        for array in executor.forward(is_train=False):
            array.wait_to_read()
        return (time.perf_counter() - start) * 1e3

    pair = (native, ours)
    counts = [max(1, round(ROUND_SECONDS * 1e3 / min(once(each) for _ in range(2)))) for each in pair]
    rounds: tuple[list[float], list[float]] = ([], [])
    for index in range(ROUNDS):
        for which in (0, 1) if index % 2 else (1, 0):
            time.sleep(PAUSE_SECONDS)  # for the other's threads to stop spinning
            once(pair[which])
            rounds[which].append(statistics.median(once(pair[which]) for _ in range(counts[which])))
    ratios = [mine / other for other, mine in zip(*rounds, strict=True)]
    return {"native_ms": statistics.median(rounds[0]), "ours_ms": statistics.median(rounds[1]),
            "ratio": statistics.median(ratios)}  # fmt: skip


def main() -> None:
    library, *rest = sys.argv[1:]
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print goes to standard error

    def tell(**facts: Any) -> None:
        print(json.dumps(facts), file=answers, flush=True)

    import ngraph_mxnet  # noqa: F401  # lets MXNet 1.9.1 import on NumPy >= 1.24

    if not rest:
        tell(**importlib.import_module(f"matrix.{library}").genres())
        return
    name, *steps = rest
    work(library, name, steps, tell)
    tell(done=True)


if __name__ == "__main__":
    main()
