#!/usr/bin/env python3
"""Direct execution against codegen mode (and autotuning), on zoo models and on graphs of many elementwise ops.

All modes are compiled in one process and run in turns on the same arrays; outputs are compared first. The ratio is
the median over the rounds of a mode's time / direct execution's. Compile times are each of a fresh process, from the
IR to the bound Program, without any cache.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from ngraph_mxnet.ir import Builder, Graph, Value

IMAGE = (1, 3, 224, 224)


def gelu_mlp() -> Graph:
    """Four blocks of a transformer's feed-forward part: 128 rows of 768."""
    b = Builder(name="gelu_mlp")
    x = b.parameter("x", (1, 128, 768))
    for i in range(4):
        y = b.add(b.matmul(x, weight(b, f"up{i}", 768, 3072)), weight(b, f"bias{i}", 3072))
        y = b.matmul(b.gelu(y), weight(b, f"down{i}", 3072, 768))
        x = layer_norm(b, b.add(x, b.add(y, weight(b, f"b{i}", 768))), i)
    return b.results(x)


def swish_net() -> Graph:
    """Depthwise-separable blocks with swish and a gate per channel, as in EfficientNet."""
    b = Builder(name="swish_net")
    x = b.parameter("x", (1, 32, 56, 56))
    for i in range(6):
        y = swish(b, b.convolution(x, weight(b, f"up{i}", 128, 32, 1, 1)))
        y = b.convolution(y, weight(b, f"d{i}", 128, 1, 3, 3), pads_begin=(1, 1), pads_end=(1, 1), groups=128)
        y = swish(b, y)
        gate = b.reduce_mean(y, axes=(2, 3), keep_dims=True)
        gate = b.sigmoid(b.convolution(gate, weight(b, f"g{i}", 128, 128, 1, 1)))
        x = b.add(x, b.convolution(b.multiply(y, gate), weight(b, f"down{i}", 32, 128, 1, 1)))
    return b.results(b.reduce_mean(x, axes=(2, 3)))


def norm_chain() -> Graph:
    """Residual, layer norm and scaled softmax over and over: 384 rows of 768."""
    b = Builder(name="norm_chain")
    x = b.parameter("x", (1, 384, 768))
    for i in range(4):
        y = b.softmax(b.multiply(layer_norm(b, x, i), b.constant(0.125)), axis=-1)
        x = b.add(x, b.multiply(y, b.tanh(x)))
    return b.results(x)


def weight(b: Builder, name: str, *shape: int) -> Value:
    return b.weight(name, shape)


def swish(b: Builder, x: Value) -> Value:
    return b.multiply(x, b.sigmoid(x))


def layer_norm(b: Builder, x: Value, i: int) -> Value:
    return b.layer_norm(x, weight(b, f"gamma{i}", 768), weight(b, f"beta{i}", 768), axis=-1)


GRAPHS: dict[str, Callable[[], Graph]] = {f.__name__: f for f in (gelu_mlp, swish_net, norm_chain)}


def zoo(name: str) -> Graph:
    """A model of MXNet's vision zoo, its parameters as weights."""
    import mxnet as mx

    from ngraph_mxnet.frontends.mxnet.importer import import_symbol

    symbol = mx.gluon.model_zoo.vision.get_model(name)(mx.sym.var("data"))
    arguments, _, states = symbol.infer_shape(data=IMAGE)
    names = [*symbol.list_arguments(), *symbol.list_auxiliary_states()]
    return import_symbol(symbol.tojson(), dict(zip(names, [*arguments, *states], strict=True)), name=name)


def graph_named(name: str) -> Graph:
    return GRAPHS[name]() if name in GRAPHS else zoo(name)


def arrays_for(graph: Graph) -> list[np.ndarray]:
    """Random data; weights small, variances near 1."""
    rng = np.random.default_rng(7)
    arrays = []
    for p in graph.parameters:
        values = rng.standard_normal(p.shape).astype(np.float32)
        if p.is_weight:
            fan_in = max(1, int(np.prod(p.shape[1:])))
            values = np.abs(values) / 10 + 1 if "var" in p.name else values * np.float32(fan_in**-0.5)
        arrays.append(values)
    return arrays


def compare(name: str, modes: dict[str, dict[str, int]], threads: int, rounds: int) -> dict[str, dict[str, float]]:
    """Milliseconds and ratio of every mode; the first is the reference."""
    from ngraph_mxnet import compile

    graph = graph_named(name)
    arrays = arrays_for(graph)
    executables = {mode: compile(graph, "CPU", threads=threads, **options) for mode, options in modes.items()}
    outputs = {mode: [np.empty(p.type.shape, p.type.element.numpy) for p in e.outputs]
               for mode, e in executables.items()}
    for mode, executable in executables.items():
        for _ in range(3):
            executable.native.run(arrays, outputs[mode])  # type: ignore[attr-defined]
    reference, *_ = outputs.values()
    for mode, found in outputs.items():
        for one, other in zip(found, reference, strict=True):
            off = float(np.abs(one - other).max() / np.abs(other).max())
            if not off < 1e-4:
                sys.exit(f"{name}: {mode} is off by {off:.1e}")
    times: dict[str, list[float]] = {mode: [] for mode in modes}
    for turn in range(rounds):
        order = list(executables) if turn % 2 else list(executables)[::-1]
        for mode in order:
            start = time.perf_counter()
            executables[mode].native.run(arrays, outputs[mode])  # type: ignore[attr-defined]
            times[mode].append(time.perf_counter() - start)
    first, *_ = times.values()
    return {
        mode: {"min_ms": min(own) * 1e3, "ratio": median(a / b for a, b in zip(own, first, strict=True)),
               "kernels": sum(len(level) for level in executables[mode].main.levels())}  # type: ignore[attr-defined]
        for mode, own in times.items()
    }


def compile_ms(name: str, codegen: int) -> float:
    """Milliseconds of one compile in a fresh process: a second one would find code in memory."""
    command = [sys.executable, __file__, "--compile-once", str(codegen), name]
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "NGRAPH_CACHE_DIR": folder}
        return float(subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout)


def compile_once(name: str, codegen: int) -> float:
    """Milliseconds, without the imports that direct execution needs too."""
    from ngraph_mxnet import compile

    graph = graph_named(name)
    b = Builder()
    compile(b.results(b.relu(b.parameter("x", (2,)))), "CPU", codegen=0)
    start = time.perf_counter()
    compile(graph, "CPU", codegen=codegen)
    return (time.perf_counter() - start) * 1e3


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*",
                        default=["resnet50_v2", "mobilenetv2_1.0", "densenet121", *GRAPHS])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--autotune", action="store_true", help="measure autotuning too")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--compile-once", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.compile_once is not None:
        print(compile_once(options.models[0], options.compile_once))
        return
    modes = {"dex": {"codegen": 0, "autotune": 0}, "codegen": {"codegen": 1, "autotune": 0}}
    if options.autotune:
        modes["autotune"] = {"codegen": 0, "autotune": 1}
    if not options.json:
        print("| model | mode | min ms | ratio to DEX | instructions | compile ms |\n|---|---|---|---|---|---|")
    for name in options.models:
        found = compare(name, modes, options.threads, options.rounds)
        for mode in ("dex", "codegen"):
            found[mode]["compile_ms"] = compile_ms(name, modes[mode]["codegen"])
        if options.json:
            print(json.dumps({"model": name, "threads": options.threads, **found}), flush=True)
            continue
        for mode, row in found.items():
            print(f"| {name} | {mode} | {row['min_ms']:.2f} | {row['ratio']:.3f} | {row['kernels']:.0f} | "
                  f"{row.get('compile_ms', float('nan')):.0f} |", flush=True)


if __name__ == "__main__":
    main()
