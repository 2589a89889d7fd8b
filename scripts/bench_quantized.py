#!/usr/bin/env python3
"""Measure a model of MXNet's zoo in int8, as `quantize_net_v2` makes it, and in float32.

Each with MXNet alone and with NGRAPH: all four run in this process, in turns of several passes. docs/benchmarks.md
quotes the figures.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from typing import Any

import click

VARIABLE = "MXNET_SUBGRAPH_BACKEND"
KINDS = ("MXNet int8", "NGRAPH int8", "MXNet float32", "NGRAPH float32")


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--model", default="resnet18_v1", show_default=True, help="A name of MXNet's vision zoo.")
@click.option("--size", default=224, show_default=True, help="Height and width of the image.")
@click.option("--batch", default=1, show_default=True, type=click.IntRange(min=1))
@click.option("--rounds", default=20, show_default=True, type=click.IntRange(min=1), help="Turns.")
@click.option("--burst", default=3, show_default=True, type=click.IntRange(min=1),
              help="Passes that are timed in a turn; one before them is not, as the threads of others still spin then.")
def main(model: str, size: int, batch: int, rounds: int, burst: int) -> None:
    """Print milliseconds a forward pass, and how far NGRAPH's int8 result is from MXNet's. Status 1: by 0.2."""
    import ngraph_mxnet  # isort: skip  # noqa: F401  # makes the import of mxnet work on current NumPy
    import mxnet as mx
    import numpy as np

    os.environ["MXNET_SUBGRAPH_VERBOSE"] = "0"
    mx.random.seed(0)
    data = mx.nd.random.uniform(shape=(batch, 3, size, size))
    with tempfile.TemporaryDirectory() as folder:
        _make(mx, model, data, folder)
        blocks = {kind: _imported(mx, kind, data, folder) for kind in KINDS}
    times: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for _ in range(rounds):
        for kind, block in blocks.items():
            _choose(kind)
            times[kind].append(_timed(block, data, burst))
    for kind, taken in times.items():
        print(f"{kind}: median {statistics.median(taken):.1f} ms, least {min(taken):.1f} ms")
    for first, second in ((1, 0), (1, 3)):
        ratio = statistics.median(a / b for a, b in zip(times[KINDS[first]], times[KINDS[second]], strict=True))
        print(f"{KINDS[first]} / {KINDS[second]}: {ratio:.2f} (median of ratios in turns)")
    expected, found = (_run(blocks, kind, data) for kind in KINDS[:2])
    difference = float(np.linalg.norm(found - expected) / np.linalg.norm(expected))
    print(f"int8 results differ by {difference:.3f} of their norm")
    sys.exit(difference > 0.2)


def _timed(block: Any, data: Any, burst: int) -> float:
    """The median in milliseconds."""
    block(data).wait_to_read()
    taken = []
    for _ in range(burst):
        begin = time.perf_counter()
        block(data).wait_to_read()
        taken.append((time.perf_counter() - begin) * 1e3)
    return statistics.median(taken)


def _choose(kind: str) -> None:
    os.environ.pop(VARIABLE, None)
    if kind.startswith("NGRAPH"):
        os.environ[VARIABLE] = "NGRAPH"


def _make(mx: Any, model: str, data: Any, folder: str) -> None:
    """The model's files in both kinds, with random weights."""
    from mxnet.contrib.quantization import quantize_net_v2

    os.environ[VARIABLE] = "NONE"  # else MXNet fuses what it calibrates
    net = mx.gluon.model_zoo.vision.get_model(model)
    net.initialize(mx.init.Xavier(rnd_type="gaussian", magnitude=2))
    net.hybridize()
    net(data)
    net.export(f"{folder}/float32")
    examples = mx.io.NDArrayIter(data, batch_size=data.shape[0])
    small = quantize_net_v2(net, calib_data=examples, calib_mode="naive", num_calib_examples=data.shape[0])
    small.hybridize()
    small(data)
    small.export(f"{folder}/int8")


def _imported(mx: Any, kind: str, data: Any, folder: str) -> Any:
    """A block that has run once."""
    _choose(kind)
    files = f"{folder}/{kind.split()[1]}"
    block = mx.gluon.SymbolBlock.imports(f"{files}-symbol.json", ["data"], f"{files}-0000.params")
    block.hybridize(static_alloc=True, static_shape=True)
    block(data).wait_to_read()
    return block


def _run(blocks: dict[str, Any], kind: str, data: Any) -> Any:
    _choose(kind)
    return blocks[kind](data).asnumpy()


if __name__ == "__main__":
    main()
