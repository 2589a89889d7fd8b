#!/usr/bin/env python3
"""Measure what comes before the first result of a model: compiling it, and binding it again with other weights.

docs/benchmarks.md quotes the figures. What a second process saves by the cache on disk is measured beside OpenVINO's by
`bench_peers.py` (column "warm").
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from itertools import pairwise

import click


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--model", default="resnet50_v2", show_default=True, help="A name of MXNet's vision zoo.")
@click.option("--size", default=224, show_default=True, help="Height and width of the image.")
@click.option("--rounds", default=7, show_default=True, type=click.IntRange(min=2), help="Repetitions.")
def main(model: str, size: int, rounds: int) -> None:
    """Print milliseconds: of binds of a model with weights of their own, and of compiling it without any cache."""
    with tempfile.TemporaryDirectory() as cache:
        os.environ.update(MXNET_SUBGRAPH_BACKEND="NGRAPH", NGRAPH_CACHE_DIR=cache, MXNET_SUBGRAPH_VERBOSE="0")
        binds = [_bind(model, size) for _ in range(rounds)]
        compiles = [_compile(model, size) for _ in range(rounds)]
    for number, times in enumerate(binds, 1):
        row = ", ".join(f"{name} {ms:.0f}" for name, ms in times.items())
        print(f"model {number}: {row}; together {sum(times.values()):.0f} ms")
    later = [sum(times.values()) for times in binds[1:]]
    print(f"bind to first result: first model {sum(binds[0].values()):.0f} ms, "
          f"later ones {min(later):.0f} to {max(later):.0f} ms, median {statistics.median(later):.0f} ms")
    print(f"graph to bound program, no cache: {min(compiles):.0f} to {max(compiles):.0f} ms, "
          f"median {statistics.median(compiles):.0f} ms")


def _bind(model: str, size: int) -> dict[str, float]:
    """Milliseconds of the steps to the first result of a new instance: bind, weights, first call."""
    import ngraph_mxnet  # isort: skip  # noqa: F401  # makes the import of mxnet work on current NumPy
    import mxnet as mx

    net = mx.gluon.model_zoo.vision.get_model(model)
    net.initialize(mx.init.Xavier())
    data = mx.nd.random.uniform(shape=(1, 3, size, size))
    net(data)
    symbol = net(mx.sym.var("data"))
    weights = {name: parameter.data() for name, parameter in net.collect_params().items()}
    arguments = {name: weights[name] for name in symbol.list_arguments() if name in weights}
    states = {name: weights[name] for name in symbol.list_auxiliary_states()}
    mx.nd.waitall()

    times = [time.perf_counter()]
    executor = symbol.simple_bind(mx.cpu(), grad_req="null", data=data.shape)
    times.append(time.perf_counter())
    executor.copy_params_from(arguments, states)
    mx.nd.waitall()
    times.append(time.perf_counter())
    executor.forward(is_train=False, data=data)[0].wait_to_read()
    times.append(time.perf_counter())
    steps = [(end - begin) * 1e3 for begin, end in pairwise(times)]
    return dict(zip(("bind", "weights", "first result"), steps, strict=True))


def _compile(model: str, size: int) -> float:
    """From the symbol's JSON to a Program that is ready to run."""
    import ngraph_mxnet  # isort: skip
    import mxnet as mx

    from ngraph_mxnet.frontends.mxnet.importer import import_symbol
    from ngraph_mxnet.ops.contractions import convolution_shape

    convolution_shape.cache_clear()  # of the model before
    symbol = mx.gluon.model_zoo.vision.get_model(model)(mx.sym.var("data"))
    shape = (1, 3, size, size)
    arguments, _, states = symbol.infer_shape(data=shape)
    names = [*symbol.list_arguments(), *symbol.list_auxiliary_states()]
    shapes = dict(zip(names, [*arguments, *states], strict=True))
    text = symbol.tojson()
    begin = time.perf_counter()
    ngraph_mxnet.compile(import_symbol(text, shapes), backend="CPU")
    return (time.perf_counter() - begin) * 1e3


if __name__ == "__main__":
    main()
