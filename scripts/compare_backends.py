#!/usr/bin/env python3
"""Compare the inference latency of MXNet's subgraph backends side by side, also on a busy machine.

Each backend has one process that stays: same network, same weights, same inputs. First their outputs are
compared. Then they take turns in short bursts, the order turning with every round, so that what else the
machine does falls on all of them alike. The figure to trust is the ratio: the median over the rounds of (a
backend's median in the round / NGRAPH's median in the same round).

Exit status: 0; 1 when an output is off by more than --tolerance or NGRAPH took no part of the graph; 2 when
a process fails.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import workers

BACKENDS = ("NGRAPH", "NONE", "MKLDNN")
OURS, REFERENCE = "NGRAPH", "NONE"
INPUTS = 4
WARM_UP = 5
#: Between turns, for the threads of the last process to stop spinning.
PAUSE_SECONDS = 0.02
SUBGRAPH_OPS = {"NGRAPH": "NGraphSubgraphOp", "MKLDNN": "_sg_mkldnn_"}


# The worker: one process a backend. It reads one JSON command a line and answers with one JSON object a line.


def make_checkpoint(model: str, shape: tuple[int, ...], prefix: str) -> None:
    """Export a zoo network with random weights, batch-norm statistics too, so that folding them shows."""
    import mxnet as mx

    mx.random.seed(7)
    net = mx.gluon.model_zoo.vision.get_model(model)
    net.initialize(mx.init.Xavier())
    net.hybridize()
    net(mx.nd.zeros(shape)).wait_to_read()
    ranges = {
        "gamma": (0.8, 1.2),
        "beta": (-0.2, 0.2),
        "running_mean": (-0.2, 0.2),
        "running_var": (0.8, 1.2),
    }
    for name, parameter in net.collect_params().items():
        for suffix, (low, high) in ranges.items():
            if name.endswith(suffix):
                parameter.set_data(mx.nd.random.uniform(low, high, parameter.shape))
    net.export(prefix)


class Worker:
    """The commands of one backend's process."""

    def __init__(self) -> None:
        # Lets MXNet 1.9.1 import on NumPy >= 1.24; activates nothing unless MXNET_SUBGRAPH_BACKEND names it.
        import ngraph_mxnet  # noqa: F401

    def checkpoint(self, model: str, shape: list[int], prefix: str) -> dict[str, Any]:
        make_checkpoint(model, tuple(shape), prefix)
        return {}

    def bind(self, shape: list[int], prefix: str, backend: str) -> dict[str, Any]:
        import mxnet as mx

        symbol, arguments, states = mx.model.load_checkpoint(prefix, 0)
        mx.random.seed(11)
        self.inputs = [mx.nd.random.normal(shape=tuple(shape)) for _ in range(INPUTS)]
        mx.nd.waitall()
        start = time.perf_counter()
        self.executor = symbol.simple_bind(ctx=mx.cpu(), data=tuple(shape), grad_req="null")
        self.executor.copy_params_from(arguments, states)
        self.forward(0)
        seconds = time.perf_counter() - start
        marker = SUBGRAPH_OPS.get(backend)
        plan = self.executor.debug_str()
        return {
            "bind_ms": seconds * 1e3,
            "subgraphs": plan.count(f"Op:{marker}") if marker else 0,
            "nodes": plan.count("Op:"),
        }

    def outputs(self, path: str) -> dict[str, Any]:
        import numpy as np

        np.save(path, np.stack([self.forward(index).asnumpy() for index in range(INPUTS)]))
        return {}

    def burst(self, count: int) -> dict[str, Any]:
        self.forward(-1)  # not timed: brings this process's weights back into the caches
        milliseconds = []
        for index in range(count):
            start = time.perf_counter()
            self.forward(index)
            milliseconds.append((time.perf_counter() - start) * 1e3)
        return {"ms": milliseconds}

    def forward(self, index: int) -> Any:
        output = self.executor.forward(is_train=False, data=self.inputs[index % INPUTS])[0]
        output.wait_to_read()
        return output


def work() -> None:
    """Serve commands until the input ends."""
    commands, send = workers.requests()
    worker = Worker()
    for command in commands:
        send(**getattr(worker, command.pop("do"))(**command))


# The other side: starts the workers, compares their outputs, times them in turns, prints.


class Process:
    """A worker process of one backend."""

    def __init__(self, backend: str, threads: int | None) -> None:
        self.backend = backend
        environment = {**os.environ, "MXNET_SUBGRAPH_BACKEND": backend, "MXNET_SUBGRAPH_VERBOSE": "0"}
        if threads:
            environment["OMP_NUM_THREADS"] = str(threads)
        self._worker = workers.Worker([sys.executable, __file__, "--worker"], environment, folder=None)

    def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        self._worker.send(do=do, **arguments)
        answer = self._worker.answer()
        if answer is None:
            print(
                f"error: the process of backend {self.backend} failed at '{do}'; its messages are above",
                file=sys.stderr,
            )
            raise SystemExit(2)
        return answer

    def close(self) -> None:
        self._worker.close()


def relative_errors(processes: list[Process], folder: Path) -> dict[str, float]:
    """Each backend's largest difference from the reference, relative to the largest reference value."""
    import numpy as np

    outputs = {}
    for process in processes:
        path = folder / f"{process.backend}.npy"
        process.ask("outputs", path=str(path))
        outputs[process.backend] = np.load(path).astype(np.float64)
    reference = outputs[REFERENCE]
    scale = np.abs(reference).max()
    return {name: float(np.abs(output - reference).max() / scale) for name, output in outputs.items()}


def turns(processes: list[Process], rounds: int) -> Iterator[list[Process]]:
    """The processes in a new order each round: everyone comes first, second and last equally often."""
    for index in range(rounds):
        shift = index % len(processes)
        yield processes[shift:] + processes[:shift]


def summarise(backend: str, bursts: list[list[float]], ours: list[list[float]], batch: int) -> dict[str, Any]:
    times = sorted(milliseconds for burst in bursts for milliseconds in burst)
    median = statistics.median(times)
    ratios = [
        statistics.median(mine) / statistics.median(other) for mine, other in zip(bursts, ours, strict=True)
    ]
    return {
        "backend": backend,
        "median_ms": median,
        "p90_ms": times[-(-len(times) * 9 // 10) - 1],
        "min_ms": times[0],
        "images_per_second": batch * 1e3 / median,
        "ratio": statistics.median(ratios),
        "ratio_of_medians": median
        / statistics.median(milliseconds for burst in ours for milliseconds in burst),
    }


def compare(options: argparse.Namespace, folder: Path, processes: list[Process]) -> dict[str, Any]:
    size = 299 if options.model.startswith("inception") else 224
    shape, prefix = [options.batch, 3, size, size], str(folder / "model")
    by_name = {process.backend: process for process in processes}
    by_name[REFERENCE].ask("checkpoint", model=options.model, shape=shape, prefix=prefix)
    binds = {
        name: process.ask("bind", shape=shape, prefix=prefix, backend=name)
        for name, process in by_name.items()
    }
    errors = relative_errors(processes, folder)
    for process in processes:
        process.ask("burst", count=WARM_UP)
    bursts: dict[str, list[list[float]]] = {name: [] for name in by_name}
    for order in turns(processes, options.rounds):
        for process in order:
            time.sleep(PAUSE_SECONDS)
            bursts[process.backend].append(process.ask("burst", count=options.burst)["ms"])
    results = [
        {
            **summarise(name, bursts[name], bursts[OURS], options.batch),
            **binds[name],
            "relative_error": errors[name],
        }
        for name in by_name
    ]
    return {
        "model": options.model,
        "batch": options.batch,
        "threads": options.threads,
        "rounds": options.rounds,
        "burst": options.burst,
        "reference": REFERENCE,
        "results": results,
    }


def print_table(report: dict[str, Any]) -> None:
    threads = report["threads"] or f"default (OMP_NUM_THREADS {os.environ.get('OMP_NUM_THREADS', 'unset')})"
    print(
        f"{report['model']}, batch {report['batch']}, threads {threads}, {report['rounds']} rounds of "
        f"{report['burst']} forward passes each, in turns\n"
    )
    row = "{:<8} {:>10} {:>9} {:>9} {:>9} {:>9} {:>10} {:>9} {:>11} {:>11}"
    print(
        row.format(
            "backend",
            "median ms",
            "p90 ms",
            "min ms",
            "images/s",
            f"/ {OURS}",
            "medians /",
            "bind ms",
            "subgraphs",
            "rel. error",
        )
    )
    for result in report["results"]:
        print(
            row.format(
                result["backend"],
                *(f"{result[key]:.2f}" for key in ("median_ms", "p90_ms", "min_ms")),
                f"{result['images_per_second']:.1f}",
                f"{result['ratio']:.2f}",
                f"{result['ratio_of_medians']:.2f}",
                f"{result['bind_ms']:.0f}",
                f"{result['subgraphs']}/{result['nodes']}",
                f"{result['relative_error']:.1e}",
            )
        )
    print(
        f"\n'/ {OURS}': median over the rounds of the ratio to {OURS} in the same round; "
        f"above 1, {OURS} is faster."
        f"\n'medians /': ratio of the overall medians. 'bind ms': from bind to the first result."
        f"\n'subgraphs': nodes that the backend made, of all nodes of the bound graph."
        f"\n'rel. error': largest difference from {REFERENCE}, relative to its largest value, "
        f"over {INPUTS} inputs."
    )


def problems(report: dict[str, Any], tolerance: float) -> list[str]:
    found = []
    for result in report["results"]:
        if not result["relative_error"] <= tolerance:
            found.append(
                f"{result['backend']}: relative error {result['relative_error']:.1e} exceeds {tolerance:.1e}"
            )
        if result["backend"] == OURS and result["subgraphs"] == 0:
            found.append(f"{OURS} took no part of the graph, so its row shows MXNet itself")
    return found


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Compare the inference latency of MXNet's subgraph backends."
    )
    parser.add_argument(
        "--model", default="resnet50_v2", help="a name of the Gluon model zoo; default: %(default)s"
    )
    parser.add_argument("--batch", type=int, default=1, help="images a forward pass; default: %(default)s")
    parser.add_argument("--threads", type=int, help="sets OMP_NUM_THREADS; default: leave it as it is")
    parser.add_argument("--rounds", type=int, default=15, help="default: %(default)s")
    parser.add_argument("--burst", type=int, default=10, help="forward passes a turn; default: %(default)s")
    parser.add_argument(
        "--tolerance", type=float, default=1e-3, help="largest relative error; default: %(default)s"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if min(options.batch, options.threads or 1, options.rounds, options.burst) < 1:
        parser.error("--batch, --threads, --rounds and --burst are at least 1")
    return options


def main() -> int:
    options = parse_arguments()
    if options.worker:
        work()
        return 0
    processes = [Process(backend, options.threads) for backend in BACKENDS]
    try:
        with tempfile.TemporaryDirectory() as folder:
            report = compare(options, Path(folder), processes)
    finally:
        for process in processes:
            process.close()
    if options.json:
        print(json.dumps(report))
    else:
        print_table(report)
    found = problems(report, options.tolerance)
    for problem in found:
        print(f"error: {problem}", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
