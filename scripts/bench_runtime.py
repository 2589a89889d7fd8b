#!/usr/bin/env python3
"""Measure compiled files in `ngraph_runtime`: a whole process, its memory, what a call costs, threads on one model.

Needs the package installed (`pip install ./runtime`), or NGRAPH_RUNTIME_LIBRARY and PYTHONPATH. docs/benchmarks.md
quotes the figures.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import click
import numpy as np

IMAGE = "(1, 3, 224, 224)"
_FIRST = {
    "ngraph_runtime": "import ngraph_runtime; y = ngraph_runtime.load({file!r})(x)[0]",
    "ONNX Runtime, its optimised model": "import onnxruntime as ort; o = ort.SessionOptions(); "
        "o.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL; "
        "s = ort.InferenceSession({optimised!r}, o); y = s.run(None, {{s.get_inputs()[0].name: x}})[0]",
    "ONNX Runtime": "import onnxruntime as ort; s = ort.InferenceSession({onnx!r}); "
        "y = s.run(None, {{s.get_inputs()[0].name: x}})[0]",
    "ngraph_mxnet.compile of ONNX, nothing kept": "import ngraph_mxnet; y = ngraph_mxnet.compile({onnx!r})(x)[0]",
}
"""What a process does after it has made `x`."""


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--model", default="resnet50_v2", show_default=True, help="Of MXNet's vision zoo, for processes.")
@click.option("--rounds", default=9, show_default=True, type=click.IntRange(min=1))
@click.option("--isa", default=None, help="Compile for these instruction sets only, with commas between.")
def main(model: str, rounds: int, isa: str | None) -> None:
    """Print what starting, calling and sharing a compiled model costs, beside ONNX Runtime."""
    with tempfile.TemporaryDirectory() as folder:
        for name in {model, "mlp", "mobilenetv2_1.0"}:
            make(name, Path(folder), isa)
        processes(Path(folder), model, rounds)
        calls(Path(folder), rounds)
        shared(Path(folder), rounds)


def make(name: str, folder: Path, isa: str | None) -> None:
    """The model as ONNX, as ONNX Runtime optimises it, and compiled; in a process that is then gone."""
    path = str(folder / name)
    command = f"""
import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})
import bench_calls, ngraph_mxnet, onnxruntime as ort
bench_calls.export({name!r}, {path!r} + ".onnx")
ngraph_mxnet.export({path!r} + ".onnx", {path!r} + ".ngraph", isas={isa.split(",") if isa else []})
o = ort.SessionOptions(); o.optimized_model_filepath = {path!r} + ".ort.onnx"
ort.InferenceSession({path!r} + ".onnx", o)
"""
    subprocess.run([sys.executable, "-c", command], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def processes(folder: Path, model: str, rounds: int) -> None:
    files = {name: f"{folder / model}.{suffix}"
             for name, suffix in (("file", "ngraph"), ("onnx", "onnx"), ("optimised", "ort.onnx"))}
    seconds: dict[str, list[float]] = {name: [] for name in _FIRST}
    peak: dict[str, list[float]] = {name: [] for name in _FIRST}
    results: dict[str, np.ndarray] = {}
    for _ in range(rounds):
        for name, work in _FIRST.items():
            out = folder / "y.npy"
            code = (f"import numpy as np; x = np.random.default_rng(0).standard_normal({IMAGE}, np.float32); "
                    f"{work.format(**files)}; np.save({str(out)!r}, y)")
            begin = time.perf_counter()
            child = subprocess.Popen([sys.executable, "-c", code], env={**os.environ, "NGRAPH_CACHE_DIR": "off"})
            _, status, used = os.wait4(child.pid, 0)
            if status:
                raise click.ClickException(f"{name} failed")
            seconds[name].append(time.perf_counter() - begin)
            peak[name].append(used.ru_maxrss / 1024)
            results[name] = np.load(out)
    first = next(iter(_FIRST))
    for name in _FIRST:
        np.testing.assert_allclose(results[name], results[first], rtol=1e-3, atol=1e-3)
        share = median(ours / theirs for ours, theirs in zip(seconds[first], seconds[name], strict=True))
        click.echo(f"{model}, process to first result, {name:44} {median(seconds[name]):6.3f} s ({share:.2f})   "
                   f"peak {median(peak[name]):6.1f} MiB ({median(peak[first]) / median(peak[name]):.2f})")
    for file in ("file", "onnx"):
        click.echo(f"{Path(files[file]).name}: {Path(files[file]).stat().st_size / 1e6:.1f} MB")


def calls(folder: Path, rounds: int) -> None:
    """Of the three-layer MLP on one thread, in one process, by turns."""
    import onnxruntime

    import ngraph_runtime

    x = np.random.default_rng(0).standard_normal((1, 64), np.float32)
    ours = ngraph_runtime.load(f"{folder}/mlp.ngraph", threads=1)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(f"{folder}/mlp.onnx", options)
    name = session.get_inputs()[0].name
    variants: dict[str, Callable[[], Any]] = {"ngraph_runtime": lambda: ours(x)[0],
                                              "ONNX Runtime": lambda: session.run(None, {name: x})[0]}
    np.testing.assert_allclose(*(call() for call in variants.values()), rtol=1e-4, atol=1e-5)
    times: dict[str, list[float]] = {each: [] for each in variants}
    for _ in range(rounds):
        for each, call in variants.items():
            begin = time.perf_counter()
            for _ in range(20000):
                call()
            times[each].append((time.perf_counter() - begin) / 20000 * 1e6)
    for each, found in times.items():
        share = median(a / b for a, b in zip(times["ngraph_runtime"], found, strict=True))
        click.echo(f"MLP, a call, {each:20} {median(found):6.2f} us ({share:.2f})")


_LOOP = """
import sys, time, numpy as np, ngraph_runtime
model = ngraph_runtime.load({file!r}, threads=1); x = np.zeros((1, 3, 224, 224), np.float32)
model(x); print("ready", flush=True); sys.stdin.readline()
begin = time.perf_counter()
for _ in range({calls}): model(x)
print(time.perf_counter() - begin, flush=True)
"""


def shared(folder: Path, rounds: int) -> None:
    """8 threads that call one model, each call on one thread, against two processes with a model each."""
    import ngraph_runtime

    file, number = f"{folder}/mobilenetv2_1.0.ngraph", 240
    model, x = ngraph_runtime.load(file, threads=1), np.zeros((1, 3, 224, 224), np.float32)
    together, apart = [], []
    for _ in range(rounds):
        threads = [threading.Thread(target=lambda: [model(x) for _ in range(number // 8)]) for _ in range(8)]
        begin = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        together.append(time.perf_counter() - begin)
        children = [subprocess.Popen([sys.executable, "-c", _LOOP.format(file=file, calls=number // 2)], text=True,
                                     stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(2)]
        for child in children:
            assert child.stdout is not None
            child.stdout.readline()
        answers = []
        for child in children:
            assert child.stdin is not None
            child.stdin.write("\n")
            child.stdin.flush()
        for child in children:
            answers.append(float(child.communicate()[0]))
        apart.append(max(answers))
    share = median(a / b for a, b in zip(together, apart, strict=True))
    click.echo(f"MobileNetV2, {number} calls: 8 threads on one model {median(together):.3f} s, "
               f"2 processes {median(apart):.3f} s ({share:.2f})")


if __name__ == "__main__":
    main()
