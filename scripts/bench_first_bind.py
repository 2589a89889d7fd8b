#!/usr/bin/env python3
"""Measure what comes between a bind and the first result of a model in MXNet, in processes in turns.

MXNet with MKLDNN, this package without any cache, and from a compiled file (NGRAPH_PACKAGE), without and with the
cache. Outputs are compared. docs/benchmarks.md quotes the figures.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path

import click
import numpy as np

SHAPE = (1, 3, 224, 224)
STEPS = ("bind", "weights", "first result")


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--model", default="resnet50_v2", show_default=True, help="A name of MXNet's vision zoo.")
@click.option("--rounds", default=7, show_default=True, type=click.IntRange(min=1), help="Processes of each way.")
@click.option("--child", hidden=True, type=Path)
def main(model: str, rounds: int, child: Path | None) -> None:
    """Print milliseconds, medians, and their ratio to MKLDNN's, paired."""
    if child is not None:
        click.echo(json.dumps(_first_result(child)))
        return
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        _write_model(model, place)
        ours = {"MXNET_SUBGRAPH_BACKEND": "NGRAPH", "NGRAPH_CACHE_DIR": "off"}
        package = {**ours, "NGRAPH_PACKAGE": str(place / "model.ngraph")}
        ways = {"MKLDNN": {"MXNET_SUBGRAPH_BACKEND": "MKLDNN"}, "NGRAPH, no cache": ours,
                "from the file, no cache": package,
                "from the file": {**package, "NGRAPH_CACHE_DIR": str(place / "cache")}}
        _run(place, ways["from the file"])  # fills the cache
        times = {way: [] for way in ways}
        outputs = []
        for _ in range(rounds):
            for way, environment in ways.items():
                times[way].append(_run(place, environment))
                outputs.append(np.load(place / "output.npy"))
        worst = max(float(np.linalg.norm(each - outputs[0]) / np.linalg.norm(outputs[0])) for each in outputs)
        same = all(np.array_equal(outputs[1], outputs[number]) for number in range(len(outputs)) if number % 4)
    for way, found in times.items():
        steps = ", ".join(f"{name} {statistics.median(each[at] for each in found):.0f}"
                          for at, name in enumerate(STEPS))
        ratio = statistics.median(sum(each) / sum(peer) for each, peer in zip(found, times["MKLDNN"], strict=True))
        click.echo(f"{way}: {steps}; together {statistics.median(map(sum, found)):.0f} ms, {ratio:.2f} of MKLDNN's")
    click.echo(f"largest difference of an output from the first, norm-wise: {worst:.1e}; "
               f"ours are {'the same bits' if same else 'NOT the same bits'}")


def _write_model(model: str, place: Path) -> None:
    import ngraph_mxnet  # isort: skip
    import mxnet as mx

    net = mx.gluon.model_zoo.vision.get_model(model)
    net.initialize(mx.init.Xavier())
    data = mx.nd.random.uniform(shape=SHAPE)
    net.hybridize()
    net(data)
    net.export(str(place / "model"))
    np.save(place / "input.npy", data.asnumpy())
    ngraph_mxnet.export(net, place / "model.ngraph", data=SHAPE)


def _run(place: Path, environment: dict[str, str]) -> list[float]:
    done = subprocess.run([sys.executable, __file__, "--child", str(place)], check=True, stdout=subprocess.PIPE,
                          text=True, env={**os.environ, "MXNET_SUBGRAPH_VERBOSE": "0", **environment})
    return [float(each) for each in json.loads(done.stdout.splitlines()[-1])]


def _first_result(place: Path) -> list[float]:
    """Milliseconds of each step, the model's files read before."""
    import ngraph_mxnet  # isort: skip  # noqa: F401  # makes the import of mxnet work on current NumPy
    import mxnet as mx

    symbol = mx.sym.load(str(place / "model-symbol.json"))
    found = mx.nd.load(str(place / "model-0000.params"))
    arguments, states = ({name[4:]: array for name, array in found.items() if name.startswith(kind)}
                         for kind in ("arg:", "aux:"))
    data = mx.nd.array(np.load(place / "input.npy"))
    mx.nd.waitall()
    times = [time.perf_counter()]
    executor = symbol.simple_bind(mx.cpu(), grad_req="null", data=SHAPE)
    times.append(time.perf_counter())
    executor.copy_params_from(arguments, states)
    mx.nd.waitall()
    times.append(time.perf_counter())
    output = executor.forward(is_train=False, data=data)[0].asnumpy()
    times.append(time.perf_counter())
    np.save(place / "output.npy", output)
    return [(end - begin) * 1e3 for begin, end in pairwise(times)]


if __name__ == "__main__":
    main()
