#!/usr/bin/env python3
"""Measure models whose inputs change their shapes, each once, beside MXNet's own backends and ONNX Runtime.

A run is a process: import, bind, then a call for each of a list of random shapes; the whole of it counts, and the calls
alone. Runs of the peers take turns, outputs are compared first. `new size` is ResNet-50 v2 called with sizes that are
new, beside the same call again. docs/shapes.md quotes the figures.

Exit status: 0; 1 when outputs are off; 2 for a wrong command line.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any, NamedTuple

import click
import numpy as np

OUTPUTS = 8
"""Of so many calls a number of the output is compared."""
TOLERANCE = 1e-4


class Case(NamedTuple):
    """`calls` of a model; `peers`, ours first."""

    calls: int
    peers: tuple[str, ...]


MXNET = ("NGRAPH", "NONE", "MKLDNN")
CASES = {
    "pnet": Case(400, MXNET), "detector": Case(400, MXNET), "detector.onnx": Case(400, ("NGRAPH.onnx", "onnxruntime")),
    "bert": Case(500, (*MXNET, "onnxruntime")), "lstm_lm": Case(300, MXNET), "resnet50_v2": Case(30, MXNET),
}


# ---- models: plain MXNet -------------------------------------------------------------------------------------------


def pnet() -> Any:
    """The first net of MTCNN, for pyramids of images."""
    from mxnet.gluon import nn

    net = nn.HybridSequential()
    net.add(nn.Conv2D(10, 3), nn.LeakyReLU(0.25), nn.MaxPool2D(2, 2, ceil_mode=True), nn.Conv2D(16, 3),
            nn.LeakyReLU(0.25), nn.Conv2D(32, 3), nn.LeakyReLU(0.25), nn.Conv2D(6, 1))
    return net


def detector() -> Any:
    from mxnet.gluon import nn

    net = nn.HybridSequential()
    for channels, stride in ((16, 2), (32, 2), (32, 1), (64, 2), (64, 1), (128, 2), (128, 1)):
        net.add(nn.Conv2D(channels, 3, strides=stride, padding=1, use_bias=False), nn.BatchNorm(),
                nn.Activation("relu"))
    net.add(nn.Conv2D(24, 1))
    return net


def resnet() -> Any:
    from mxnet.gluon.model_zoo import vision

    return vision.resnet50_v2()


def bert() -> Any:
    from peers import bert as parts

    class Encoder(parts.Encoder):
        """For all lengths up to that of its positions."""

        def hybrid_forward(self, F, tokens, positions):  # type: ignore[no-untyped-def]  # noqa: N803
            words = self.words(tokens)
            x = F.broadcast_add(words, F.slice_like(positions, words, axes=(1,)))
            return self.layers(self.norm(F.transpose(x, axes=(1, 0, 2))))

    return Encoder(512)


def language_model() -> Any:
    from mxnet.gluon import HybridBlock, nn, rnn

    class Model(HybridBlock):  # type: ignore[misc]
        """2 layers of 200 units, 10,000 words; texts are [steps, batch]."""

        def __init__(self) -> None:
            super().__init__()
            self.words, self.layers = nn.Embedding(10_000, 200), rnn.LSTM(200, 2, input_size=200)
            self.scores = nn.Dense(10_000, flatten=False, in_units=200)

        def hybrid_forward(self, F, words, h, c):  # type: ignore[no-untyped-def]  # noqa: N803
            return self.scores(self.layers(self.words(words), [h, c])[0])

    return Model()


def images(least: int, most: int) -> Callable[[np.random.Generator], list[np.ndarray]]:
    return lambda rng: [rng.standard_normal((1, 3, *rng.integers(least, most, 2)), np.float32)]


def sentences(rng: np.random.Generator) -> list[np.ndarray]:
    return [rng.integers(0, 30_522, (rng.integers(1, 9), rng.integers(1, 513))).astype(np.float32)]


def texts(rng: np.random.Generator) -> list[np.ndarray]:
    words = rng.integers(0, 10_000, (rng.integers(5, 81), 16)).astype(np.float32)
    return [words, *np.zeros((2, 2, 16, 200), np.float32)]


MODELS: dict[str, tuple[Callable[[], Any], Callable[[np.random.Generator], list[np.ndarray]]]] = {
    "pnet": (pnet, images(24, 480)), "detector": (detector, images(128, 640)), "resnet50_v2": (resnet, images(96, 360)),
    "bert": (bert, sentences), "lstm_lm": (language_model, texts),
}


# ---- a run, in a process of its own ----------------------------------------------------------------------------------


def caller(model: str, peer: str, arrays: list[np.ndarray]) -> Callable[[list[np.ndarray]], np.ndarray]:
    """The function that is timed. `arrays`: those of the first call."""
    if peer in ("NGRAPH.onnx", "onnxruntime"):
        return onnx_caller(model, peer)
    import ngraph_mxnet  # noqa: F401  # isort: skip  # mxnet 1.9.1 then imports on current NumPy
    import mxnet as mx

    mx.random.seed(0)
    net = MODELS[model][0]()
    net.initialize(mx.init.Xavier() if model != "bert" else mx.init.Normal(0.02))
    net.hybridize(static_alloc=True, static_shape=True)
    return lambda given: net(*map(mx.nd.array, given)).asnumpy()


def onnx_caller(model: str, peer: str) -> Callable[[list[np.ndarray]], np.ndarray]:
    """The model as a file of ONNX."""
    path = onnx_file(model)
    if peer == "NGRAPH.onnx":
        import ngraph_mxnet

        run = ngraph_mxnet.compile(path)
        return lambda given: run(*given)[0]  # type: ignore[no-any-return]
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = int(os.environ["OMP_NUM_THREADS"])
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    return lambda given: session.run(None, {name: given[0]})[0]  # type: ignore[no-any-return]


def run(model: str, peer: str, calls: int, again: int, begun: float) -> None:
    """Print what a run took, and some of what it gave."""
    rng = np.random.default_rng(0)
    draw = MODELS[model.removesuffix(".onnx")][1]
    given = [draw(rng) for _ in range(calls)]
    drawn = time.perf_counter()
    call = caller(model, peer, given[0])
    begin = time.perf_counter()
    firsts, warm, sums = [], [], []
    for number, arrays in enumerate(given):
        start = time.perf_counter()
        out = call(arrays)
        firsts.append(time.perf_counter() - start)
        for _ in range(again):
            start = time.perf_counter()
            call(arrays)
            warm.append(time.perf_counter() - start)
        if number % max(calls // OUTPUTS, 1) == 0:
            sums.append(float(np.abs(out).mean()))
    print(json.dumps({"whole": time.time() - begun - (drawn - _STARTED), "calls": time.perf_counter() - begin,
                      "firsts": firsts, "warm": warm, "outputs": sums}))


_STARTED = time.perf_counter()


def measured(model: str, peer: str, calls: int, threads: int, again: int = 0) -> dict[str, Any]:
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "MXNET_SUBGRAPH_BACKEND": peer.split(".")[0]}
    if peer == "onnxruntime":
        environment["MXNET_SUBGRAPH_BACKEND"] = "NONE"
    command = [sys.executable, __file__, "--worker", model, peer, str(calls), str(again)]
    found = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                           check=True)
    result: dict[str, Any] = json.loads(found.stdout.splitlines()[-1])
    return result


def onnx_file(model: str) -> str:
    return os.path.join(os.environ["BENCH_ONNX"], f"{model.removesuffix('.onnx')}.onnx")


def export(model: str) -> None:
    """Write the model as ONNX, with open sizes."""
    import ngraph_mxnet  # noqa: F401  # isort: skip
    import mxnet as mx

    path, rng = onnx_file(model), np.random.default_rng(0)
    make, draw = MODELS[model.removesuffix(".onnx")]
    mx.random.seed(0)
    net, (x,) = make(), draw(rng)
    net.initialize(mx.init.Xavier() if model != "bert" else mx.init.Normal(0.02))
    net.hybridize()
    net(mx.nd.array(x))
    net.export(path)
    names = ("N", "T") if x.ndim == 2 else (1, 3, "H", "W")
    mx.onnx.export_model(f"{path}-symbol.json", f"{path}-0000.params", [x.shape], np.float32, path, dynamic=True,
                         dynamic_input_shapes=[names])


# ---- the comparison --------------------------------------------------------------------------------------------------


def rows(names: list[str], threads: int, rounds: int, share: float) -> Iterator[tuple[str, dict[str, list[Any]]]]:
    for name in names:
        case, found = CASES[name], {}
        for number in range(rounds):
            order = case.peers if number % 2 == 0 else case.peers[::-1]
            for peer in order:
                calls = max(int(case.calls * share), 3)
                found.setdefault(peer, []).append(measured(name, peer, calls, threads))
        yield name, found


@click.command(help=__doc__, context_settings={"show_default": True})
@click.option("--models", default="all", help=f"{', '.join(CASES)}, with commas between, or all.")
@click.option("--threads", default=2, type=click.IntRange(1), help="OMP_NUM_THREADS.")
@click.option("--rounds", default=3, type=click.IntRange(1), help="Runs of each peer.")
@click.option("--share", default=1.0, type=click.FloatRange(0.01, 1.0), help="Of the calls.")
def main(models: str, threads: int, rounds: int, share: float) -> None:
    import tempfile

    from rich.console import Console
    from rich.table import Table

    names = list(CASES) if models == "all" else models.split(",")
    unknown = [name for name in names if name not in CASES]
    if unknown:
        raise click.BadParameter(f"found {', '.join(unknown)}, expected of {', '.join(CASES)}", param_hint="--models")
    table, wrong = Table("model", "peer", "whole s", "calls s", "whole, ours / it", "calls, ours / it"), False
    with tempfile.TemporaryDirectory() as folder:
        os.environ["BENCH_ONNX"] = folder
        os.environ["NGRAPH_CACHE_DIR"] = f"{folder}/cache"
        for name in names:
            if "onnxruntime" in CASES[name].peers:
                export(name)
        for name, found in rows(names, threads, rounds, share):
            ours = next(iter(found))
            times = {peer: {kind: median(each[kind] for each in runs) for kind in ("whole", "calls")}
                     for peer, runs in found.items()}
            for peer, runs in found.items():
                ratios = [times[ours][kind] / times[peer][kind] for kind in ("whole", "calls")]
                table.add_row(name, peer, *(f"{times[peer][kind]:.2f}" for kind in ("whole", "calls")),
                              *("" if peer == ours else f"{ratio:.2f}" for ratio in ratios))
                off = np.abs(np.array(runs[0]["outputs"]) / np.array(found[ours][0]["outputs"]) - 1).max()
                wrong |= bool(off > TOLERANCE)
        if "resnet50_v2" in names:
            new = measured("resnet50_v2", "NGRAPH", CASES["resnet50_v2"].calls, threads, again=7)
            warm = [median(new["warm"][7 * n:7 * n + 7]) for n in range(len(new["firsts"]))]
            more = [(first - after) * 1e3 for first, after in zip(new["firsts"], warm, strict=True)][2:]
            met = sum(first <= 1.1 * after + 2e-3 for first, after in zip(new["firsts"], warm, strict=True)) - 2
            text = (f"ResNet-50 v2, NGRAPH: a new size's first call takes {median(more):.2f} ms more than the next "
                    f"ones (at most {max(more):.2f}); within 1.10 and 2 ms: {max(met, 0)} of {len(more)}")
        else:
            text = ""
    console = Console(width=110)
    console.print(table)
    console.print(text)
    if wrong:
        sys.exit("outputs are off")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        run(sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5]), time.time())
    else:
        main()
