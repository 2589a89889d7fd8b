#!/usr/bin/env python3
"""Measure what a call of a small model costs, whether threads' calls overlap, and that Python goes on meanwhile.

Each variant runs in a process of its own, which is stopped while it is not its turn; outputs are compared first. A
ratio is the median over the rounds of NGRAPH's time over the other's in the same round. docs/benchmarks.md quotes the
figures.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import click
import numpy as np
import workers

IMAGE = (1, 3, 224, 224)
NGRAPH, ENGINE = {"MXNET_SUBGRAPH_BACKEND": "NGRAPH"}, {"MXNET_SUBGRAPH_BACKEND": "NGRAPH", "NGRAPH_DIRECT": "0"}
NONE, MKLDNN = {"MXNET_SUBGRAPH_BACKEND": "NONE"}, {"MXNET_SUBGRAPH_BACKEND": "MKLDNN"}
Variants = dict[str, tuple[str, dict[str, str]]]


class Case(NamedTuple):
    """`variants`: the way in and the environment of each, ours first."""

    model: str
    threads: int
    calls: int
    variants: Variants


def _mxnet(way: str, *others: str) -> Variants:
    known = {"MXNet NONE": NONE, "MXNet MKLDNN": MKLDNN, "NGRAPH_DIRECT=0": ENGINE}
    return {"NGRAPH": (way, NGRAPH), **{name: (way, known[name]) for name in others}}


CASES = {
    "MLP, executor": Case("mlp", 1, 2000, _mxnet("executor", "MXNet NONE", "NGRAPH_DIRECT=0")),
    "MLP, Gluon static": Case("mlp", 1, 2000, _mxnet("static", "MXNet NONE", "NGRAPH_DIRECT=0")),
    "MLP, Gluon": Case("mlp", 1, 2000, _mxnet("plain", "MXNet NONE", "NGRAPH_DIRECT=0")),
    "MLP, ONNX": Case("mlp", 1, 5000, {"NGRAPH": ("compiled", {}), "ONNX Runtime": ("onnxruntime", {})}),
    "MobileNet 0.25, Gluon static": Case(
        "mobilenet0.25", 2, 600, {**_mxnet("static", "MXNet MKLDNN"), "ONNX Runtime": ("onnxruntime", {})}),
    "SqueezeNet 1.1, Gluon static": Case(
        "squeezenet1.1", 2, 150, {**_mxnet("static", "MXNet MKLDNN"), "ONNX Runtime": ("onnxruntime", {})}),
    "MobileNetV2, two threads with an executor each": Case("mobilenetv2_1.0", 1, 150, {
        "two threads": ("threads 2", NGRAPH), "one thread": ("threads 1", NGRAPH),
        "two threads, NGRAPH_DIRECT=0": ("threads 2", ENGINE)}),
    "ResNet-50 v2 beside 20 ms of NumPy": Case("resnet50_v2", 1, 5, {
        "NGRAPH": ("overlap", NGRAPH), "NGRAPH_DIRECT=0": ("overlap", ENGINE)}),
}


def make_net(model: str) -> tuple[Any, tuple[int, ...]]:
    import ngraph_mxnet  # isort: skip  # noqa: F401  # makes the import of mxnet work on current NumPy
    import mxnet as mx
    from mxnet.gluon import nn

    mx.random.seed(0)
    if model != "mlp":
        net = mx.gluon.model_zoo.vision.get_model(model)
    else:
        net = nn.HybridSequential()
        net.add(nn.Dense(128, activation="relu"), nn.Dense(128, activation="relu"), nn.Dense(10))
    net.initialize(mx.init.Xavier())
    return net, (1, 64) if model == "mlp" else IMAGE


def bind(net: Any, shape: tuple[int, ...]) -> Any:
    import mxnet as mx

    bound = net(mx.sym.var("data")).simple_bind(mx.cpu(), grad_req="null", data=shape)
    for name, parameter in net.collect_params().items():
        parameter.data().copyto((bound.arg_dict if name in bound.arg_dict else bound.aux_dict)[name])
    return bound


def executor(net: Any, shape: tuple[int, ...]) -> Callable[[Any], np.ndarray]:
    bound = bind(net, shape)
    return lambda x: bound.forward(is_train=False, data=x)[0].asnumpy()


def in_threads(net: Any, shape: tuple[int, ...], count: int) -> Callable[[int], None]:
    """So many calls in all, by threads that share nothing."""
    import mxnet as mx

    calls = [executor(net, shape) for _ in range(count)]
    images = [mx.nd.array(np.random.default_rng(number).uniform(size=shape)) for number in range(count)]

    def body(number: int, times: int) -> None:
        for _ in range(times):
            calls[number](images[number])

    def run(times: int) -> None:
        threads = [threading.Thread(target=body, args=[number, times // count]) for number in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    return run


def overlapped(net: Any, shape: tuple[int, ...]) -> Callable[[Any], np.ndarray]:
    """Issues a forward, works in NumPy for 20 ms, and then asks for the result."""
    bound = bind(net, shape)
    numbers = np.random.default_rng(0).uniform(size=4000)

    def call(x: Any) -> np.ndarray:
        bound.forward(is_train=False, data=x)
        end = time.perf_counter() + 0.02
        while time.perf_counter() < end:
            np.sort(numbers)
        return bound.outputs[0].asnumpy()

    return call


def caller(model: str, way: str, path: str, threads: int) -> tuple[Callable[[int], None], Callable[[], np.ndarray]]:
    """What makes so many calls, and one result."""
    rng = np.random.default_rng(0)
    shape = (1, 64) if model == "mlp" else IMAGE
    arrays: list[Any] = [rng.uniform(size=shape).astype(np.float32) for _ in range(8)]
    if way == "onnxruntime":
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        name = session.get_inputs()[0].name
        call = lambda x: session.run(None, {name: x})[0]  # noqa: E731
    elif way == "compiled":
        import ngraph_mxnet

        executable = ngraph_mxnet.compile(path)
        call = lambda x: executable(x)[0]  # noqa: E731
    else:
        net, shape = make_net(model)
        import mxnet as mx

        arrays = [mx.nd.array(array) for array in arrays]
        net(arrays[0])
        if way.startswith("threads"):
            return in_threads(net, shape, int(way.split()[1])), lambda: executor(net, shape)(arrays[0])
        if way in ("executor", "overlap"):
            call = (executor if way == "executor" else overlapped)(net, shape)
        else:
            net.hybridize(**({"static_alloc": True, "static_shape": True} if way == "static" else {}))
            call = lambda x: net(x).asnumpy()  # noqa: E731

    def run(times: int) -> None:
        for number in range(times):
            call(arrays[number % len(arrays)])

    return run, lambda: call(arrays[0])


def serve(model: str, way: str, path: str, threads: int) -> None:
    asked, send = workers.requests()
    run, result = caller(model, way, path, threads)
    run(8)
    send(output=np.asarray(result()).ravel()[:1000].tolist())
    for request in asked:
        begin = time.perf_counter()
        run(request["calls"])
        send(seconds=time.perf_counter() - begin)


def export(model: str, path: str) -> None:
    net, shape = make_net(model)
    import mxnet as mx

    net.hybridize()
    net(mx.nd.zeros(shape))
    with tempfile.TemporaryDirectory() as folder:
        net.export(f"{folder}/net")
        mx.onnx.export_model(f"{folder}/net-symbol.json", f"{folder}/net-0000.params", [shape], [np.float32], path)


def measure(name: str, case: Case, rounds: int, folder: str) -> None:
    path = f"{folder}/{case.model}.onnx"
    if any(way in ("compiled", "onnxruntime") for way, _ in case.variants.values()) and not Path(path).exists():
        export(case.model, path)
    running: dict[str, workers.Worker] = {}
    with open(os.devnull, "w") as log:
        try:
            for variant, (way, environment) in case.variants.items():
                variables = {**os.environ, **environment, "OMP_NUM_THREADS": str(case.threads)}
                running[variant] = workers.Worker(
                    [sys.executable, __file__, "--serve", case.model, way, path, str(case.threads)], variables, log)
            compare(name, {variant: worker.answer(300) for variant, worker in running.items()})
            times = take_turns(running, case.calls, rounds)
        finally:
            for worker in running.values():
                worker.close()
    ours = next(iter(times))
    print(f"{name}, {case.threads} thread(s)")
    for variant, found in times.items():
        ratio = median(a / b for a, b in zip(times[ours], found, strict=True))
        tail = "" if variant == ours else f"   {ours} over it {ratio:.3f}"
        print(f"  {variant:30} {median(found) / case.calls * 1e6:10.1f} us a call{tail}")


def compare(name: str, answers: dict[str, dict[str, Any] | None]) -> None:
    outputs = {variant: np.array(answer["output"]) for variant, answer in answers.items() if answer is not None}
    if len(outputs) < len(answers):
        raise click.ClickException(f"{name}: {sorted(set(answers) - set(outputs))} ended without an answer")
    first = next(iter(outputs.values()))
    for variant, output in outputs.items():
        off = np.abs(output - first).max() / max(np.abs(first).max(), 1e-30)
        if off > 1e-4:
            raise click.ClickException(f"{name}: the outputs of {variant} are off by {off:.1e}")


def take_turns(running: dict[str, workers.Worker], calls: int, rounds: int) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {variant: [] for variant in running}
    for worker in running.values():
        worker.process.send_signal(signal.SIGSTOP)
    for _ in range(rounds):
        for variant, worker in running.items():
            worker.process.send_signal(signal.SIGCONT)
            worker.send(calls=calls)
            answer = worker.answer(300)
            if answer is None:
                raise click.ClickException(f"{variant} ended with {worker.process.wait()}")
            times[variant].append(answer["seconds"])
            worker.process.send_signal(signal.SIGSTOP)
    return times


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--only", default="", help="Part of the names of the cases to measure.")
@click.option("--rounds", default=9, show_default=True, type=click.IntRange(min=1))
def main(only: str, rounds: int) -> None:
    """Measure what a call of a small model costs, and what overlaps."""
    with tempfile.TemporaryDirectory() as folder:
        for name, case in CASES.items():
            if only.lower() in name.lower():
                measure(name, case, rounds, folder)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(sys.argv[2], sys.argv[3], sys.argv[4], int(sys.argv[5]))
    else:
        main()
