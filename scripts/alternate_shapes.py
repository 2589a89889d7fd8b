#!/usr/bin/env python3
"""Call a small net with two shapes in turn, hundreds of thousands of times, and measure what each call leaves behind.

Each way runs with NGRAPH and with MXNet alone, in processes of their own, one after the other. Growth counts from when
a part of the calls is done and all caches are full. docs/benchmarks.md quotes the figures.

Exit status: 0; 1 when a call of NGRAPH leaves more behind than --growth, or a process ends; 2 for a wrong command line.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import click
import numpy as np
import workers

BACKENDS = ("NGRAPH", "NONE")
WAYS = {
    "plain": "a hybridized block",
    "static": "with static_alloc, static_shape",
    "mixed": "an operator stays with MXNet",
    "reshape": "Executor.reshape",
    "module": "batches of two sizes",
}
WIDTH, ROWS = 8, (2, 3)
Call = Callable[[int], Any]
"""A call in the shape of this number's turn; it returns an array."""


def make_net(mixed: bool) -> Any:
    import ngraph_mxnet  # isort: skip  # noqa: F401  # makes the import of mxnet work on current NumPy
    import mxnet as mx
    from mxnet.gluon import nn

    class Mixed(nn.HybridSequential):
        def hybrid_forward(self, F: Any, x: Any) -> Any:  # noqa: N803  # MXNet's name
            x = super().hybrid_forward(F, x)
            # MXNet keeps linalg_inverse.
            return F.broadcast_mul(x, F.sum(F.linalg_inverse(F.one_hot(F.arange(8), depth=8) * 2)).reshape((1, 1)))

    mx.random.seed(0)
    net = Mixed() if mixed else nn.HybridSequential()
    for _ in range(6):
        net.add(nn.Dense(WIDTH, in_units=WIDTH, flatten=False))
    net.initialize()
    return net


def caller(way: str) -> Call:
    net = make_net(way == "mixed")
    import mxnet as mx

    images = [mx.nd.array(np.random.default_rng(rows).uniform(size=(rows, WIDTH))) for rows in ROWS]
    if way == "module":
        module = mx.mod.Module(net(mx.sym.var("data")), ["data"], None)
        module.bind([("data", images[1].shape)], for_training=False)
        module.init_params()
        batches = [mx.io.DataBatch([image], provide_data=[("data", image.shape)]) for image in images]

        def forward(turn: int) -> Any:
            module.forward(batches[turn % 2], is_train=False)
            return module.get_outputs()[0]

        return forward
    if way == "reshape":
        executor = net(mx.sym.var("data")).simple_bind(mx.cpu(), data=images[1].shape, grad_req="null")
        for name, parameter in net.collect_params().items():
            parameter.data().copyto(executor.arg_dict[name])

        def reshape(turn: int) -> Any:
            nonlocal executor
            executor = executor.reshape(data=images[turn % 2].shape, partial_shaping=True, allow_up_sizing=True)
            return executor.forward(data=images[turn % 2])[0]

        return reshape
    net.hybridize(static_alloc=way == "static", static_shape=way == "static")
    return lambda turn: net(images[turn % 2])


def resident() -> int:
    gc.collect()  # what waits for the collector is no growth
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def serve(way: str) -> None:
    """For each request make so many calls, and tell how long they took, and what is resident then."""
    asked, send = workers.requests()
    call = caller(way)
    first = [call(turn).asnumpy() for turn in range(2)]
    for request in asked:
        begin = time.perf_counter()
        for turn in range(request["calls"]):
            call(turn).wait_to_read()
        seconds = time.perf_counter() - begin
        right = all(np.array_equal(call(turn).asnumpy(), first[turn]) for turn in range(2))
        send(seconds=seconds, resident=resident(), right=right)


def measure(way: str, backend: str, calls: int, warm: int) -> dict[str, Any]:
    environment = {**os.environ, "MXNET_SUBGRAPH_BACKEND": backend, "MXNET_SUBGRAPH_VERBOSE": "0",
                   "OMP_NUM_THREADS": "1"}
    # Without a backend MXNet logs a line at each bind, and nothing turns that off.
    with open(os.devnull, "w") as nowhere:
        worker = workers.Worker([sys.executable, __file__, "--serve", way], environment,
                                nowhere if backend == "NONE" else None)
    try:
        answers = []
        for count in (warm, calls):
            worker.send(calls=count)
            answer = worker.answer()
            if answer is None:
                raise click.ClickException(f"{way}, {backend}: the process ended with {worker.process.wait()}")
            if not answer["right"]:
                raise click.ClickException(f"{way}, {backend}: a result is another one than at first")
            answers.append(answer)
    finally:
        worker.close()
    before, after = answers
    return {"way": way, "backend": backend, "calls": calls, "resident_mib": after["resident"] / 2**20,
            "bytes_per_call": (after["resident"] - before["resident"]) / calls, "us": after["seconds"] / calls * 1e6}


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--way", "ways", multiple=True, type=click.Choice([*WAYS]), help="Default: all.")
@click.option("--backend", "backends", multiple=True, type=click.Choice(BACKENDS), help="Default: all.")
@click.option("--calls", default=200_000, show_default=True, type=click.IntRange(min=1), help="That are counted.")
@click.option("--warm", default=5.0, show_default=True, type=click.FloatRange(min=0),
              help="Calls before these, percent of them.")
@click.option("--growth", default=8.0, show_default=True, help="Bytes that a call of NGRAPH may leave behind.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list instead of the table.")
def main(ways: tuple[str, ...], backends: tuple[str, ...], calls: int, warm: float, growth: float,
         as_json: bool) -> None:
    """Call a net with two shapes in turn, five ways, and measure what each call leaves behind."""
    rows: list[dict[str, Any]] = []
    if not as_json:
        print(f"{calls} calls, two shapes in turn")
        print(f"{'way':<40} {'backend':<7} {'bytes a call':>12} {'MiB':>7} {'us':>8}")
    for way in ways or WAYS:
        for backend in backends or BACKENDS:
            row = measure(way, backend, calls, round(calls * warm / 100))
            rows.append(row)
            if not as_json:
                print(f"{way + ': ' + WAYS[way]:<40} {backend:<7} {row['bytes_per_call']:>12.2f} "
                      f"{row['resident_mib']:>7.1f} {row['us']:>8.1f}", flush=True)
    if as_json:
        print(json.dumps(rows))
    sys.exit(any(row["bytes_per_call"] > growth for row in rows if row["backend"] == "NGRAPH"))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(sys.argv[2])
    else:
        main()
