#!/usr/bin/env python3
"""Measure training on several processes of this host beside one process, and beside MXNet's parameter server.

With `--gbit` each process is on a host of its own, with a link of that speed to the others (`network_hosts.py`).
The same batch for each process, `--threads` cores each. The jobs run in turns; a step's time is that of the slowest
process. "Apart" are as many processes at once that know nothing of each other: what they lose beside one, they lose to
the memory and the clock that they share.
Losses of the first three steps, and sums of the weights at the end, are compared first: with the parameter server's,
and between processes.
Exit status: 0; 1 when a job failed or its losses are off; 2 for a wrong command line.
"""

from __future__ import annotations

import json
import os
import socket
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from distributed_worker import MARK
from network_hosts import AS_ROOT, HostsError, find_mpirun
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from training_peers.spec import parse_models

HERE = Path(__file__).parent
WARM = 3
"""Steps that are not counted: compiling, and the order of gradients is learnt in the second."""
TOLERANCES = (1e-4, 1e-2, 1e-2)
"""Of the first losses; behind a step nets with many batch norms magnify roundings."""
STORES = {"one": "device", "ranks": "dist_sync_ngraph", "server": "dist_sync"}


class JobError(Exception):
    """A process has failed; the text has its last words."""


def figures(outputs: Sequence[str]) -> list[dict[str, Any]]:
    """What each process printed, by rank."""
    found = [json.loads(line.split(MARK, 1)[1]) for text in outputs for line in text.splitlines() if MARK in line]
    return sorted(found, key=lambda each: int(each["rank"]))


def launcher(ranks: int, threads: int, network: Sequence[str]) -> list[str]:
    """Starts a program in each rank, bound to its cores; `network`: options of `network_hosts.py`."""
    if network:
        return [sys.executable, str(HERE / "network_hosts.py"), "--hosts", str(ranks), *network, "--"]
    try:
        mpirun = find_mpirun()
    except HostsError as error:
        raise JobError(str(error)) from None
    return [mpirun, "--map-by", f"slot:PE={threads}", "--bind-to", "core", "-n", str(ranks)]


def run_ranks(model: str, ranks: int, threads: int, steps: int, network: Sequence[str]) -> list[dict[str, Any]]:
    words = [*launcher(ranks, threads, network), *worker_words("ngraph", model, STORES["ranks"], steps)]
    done = subprocess.run(words, env=our_environment(threads), capture_output=True, text=True, timeout=1800,
                          check=False)
    if done.returncode:
        raise JobError(done.stdout[-2000:] + done.stderr[-2000:])
    return figures([done.stdout])


def run_apart(model: str, ranks: int, threads: int, steps: int) -> list[dict[str, Any]]:
    """So many jobs of one rank at once."""
    one = worker_words("ngraph", model, STORES["ranks"], steps)
    return figures(finish([bound(rank, threads, one, our_environment(threads)) for rank in range(ranks)]))


def worker_words(kind: str, model: str, store: str, steps: int) -> list[str]:
    return [sys.executable, str(HERE / "distributed_worker.py"), kind, model, store, str(steps)]


def our_environment(threads: int) -> dict[str, str]:
    return {**os.environ, "MXNET_SUBGRAPH_BACKEND": "NGRAPH", "OMP_NUM_THREADS": str(threads), **AS_ROOT}


def bound(rank: int, threads: int, words: Sequence[str], env: dict[str, str]) -> subprocess.Popen[str]:
    """A process on cores of its own."""
    cores = sorted(os.sched_getaffinity(0))[rank * threads:(rank + 1) * threads]
    return subprocess.Popen(["taskset", "-c", ",".join(map(str, cores)), *words], env=env, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True)


def finish(workers: Sequence[subprocess.Popen[str]]) -> list[str]:
    """What each has printed.

    Raises:
        JobError: one has failed, or does not end; all are killed then.
    """
    try:
        told = [worker.communicate(timeout=1800) for worker in workers]
    except subprocess.TimeoutExpired:
        raise JobError("the job does not end") from None
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    if any(worker.returncode for worker in workers):
        raise JobError("\n".join(words[-2000:] for both in told for words in both))
    return [out for out, _ in told]


def run_server(model: str, ranks: int, threads: int, steps: int) -> list[dict[str, Any]]:
    """MXNet's scheduler, one server and workers; the server runs where there is room."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    env = {name: value for name, value in os.environ.items() if not name.startswith("NGRAPH_")}
    env |= {"DMLC_PS_ROOT_URI": "127.0.0.1", "DMLC_PS_ROOT_PORT": str(port), "DMLC_NUM_SERVER": "1",
            "DMLC_NUM_WORKER": str(ranks), "OMP_NUM_THREADS": str(threads), "MXNET_SUBGRAPH_BACKEND": "NONE"}
    others = [subprocess.Popen([sys.executable, "-c", "import ngraph_mxnet_autoload, mxnet"],
                               env={**env, "DMLC_ROLE": role}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
              for role in ("scheduler", "server")]
    words = worker_words("none", model, STORES["server"], steps)
    try:
        return figures(finish([bound(rank, threads, words, {**env, "DMLC_ROLE": "worker"}) for rank in range(ranks)]))
    finally:
        for process in others:
            process.kill()
            process.wait()


def step_times(told: Sequence[dict[str, Any]]) -> list[float]:
    """Seconds of each step that counts, of the slowest process."""
    return [max(seconds) for seconds in zip(*(each["seconds"] for each in told), strict=True)][WARM:]


def off(told: dict[str, list[dict[str, Any]]]) -> str:
    """What is not as it should be; empty: all is well."""
    ours = told["ranks"]
    if len({each["weights"] for each in ours}) > 1:
        return "the processes have other weights than each other"
    for ours_too, theirs in zip(ours, told.get("server", []), strict=False):
        for mine, other, tolerance in zip(ours_too["losses"], theirs["losses"], TOLERANCES, strict=False):
            if abs(mine - other) > tolerance * abs(other):
                return f"losses {ours_too['losses'][:3]} beside {theirs['losses'][:3]} of the parameter server"
    return ""


def measure(model: str, ranks: int, threads: int, steps: int, rounds: int, server: bool, network: Sequence[str],
            progress: Progress) -> dict[str, Any]:
    """The rows of one model; `problem` is not empty where it failed."""
    kinds = ["one", "ranks", *([] if network else ["apart"]), *(["server"] if server else [])]
    task = progress.add_task(model, total=rounds * len(kinds))
    times: dict[str, list[float]] = {}
    told: dict[str, list[dict[str, Any]]] = {}
    for _ in range(rounds):
        for kind in kinds:
            try:
                if kind in ("server", "apart"):
                    found = (run_server if kind == "server" else run_apart)(model, ranks, threads, WARM + steps)
                else:
                    found = run_ranks(model, 1 if kind == "one" else ranks, threads, WARM + steps, network)
            except JobError as error:
                return {"model": model, "problem": f"{kind}: {error}"}
            told[kind] = found
            times.setdefault(kind, []).extend(step_times(found))
            progress.advance(task)
    medians = {kind: statistics.median(each) for kind, each in times.items()}
    return {"model": model, "problem": off(told), "ranks": ranks, "threads": threads, "median_seconds": medians,
            "seconds": times, "throughput_of_one": ranks * medians["one"] / medians["ranks"],
            "throughput_apart": ranks * medians["one"] / medians["apart"] if "apart" in medians else None,
            "throughput_of_server": medians["server"] / medians["ranks"] if server else None,
            "waited_seconds": statistics.mean(each["waited"] for each in told["ranks"]) if ranks > 1 else 0.0,
            "overlapped": all(each.get("overlapped") for each in told["ranks"])}


@click.command()
@click.option("--models", default="resnet50_v2,vgg16,lstm_lm", show_default=True, help="of scripts/bench_training.py")
@click.option("--ranks", default=2, show_default=True, type=click.IntRange(1))
@click.option("--threads", default=1, show_default=True, type=click.IntRange(1), help="cores of each process")
@click.option("--steps", default=8, show_default=True, type=click.IntRange(1), help="that count, in each round")
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(1))
@click.option("--server/--no-server", default=True, show_default=True, help="beside MXNet's parameter server")
@click.option("--gbit", type=click.FloatRange(0, min_open=True), help="each process on a host of its own, with a link "
              "of so many Gb/s each way, by network_hosts.py; as root")
@click.option("--cpu-share", type=click.FloatRange(0.01, 1), help="with --gbit: of a core for each host, so that there "
              "may be more than cores; default: hosts divide the cores")
@click.option("--json", "as_json", is_flag=True, help="all samples, for programs")
def main(models: str, ranks: int, threads: int, steps: int, rounds: int, server: bool, gbit: float | None,
         cpu_share: float | None, as_json: bool) -> None:
    """Measure training on several processes of this host."""
    if gbit is not None and server:
        raise click.UsageError("--gbit needs --no-server: the parameter server runs on this host only")
    if cpu_share is not None and gbit is None:
        raise click.UsageError("--cpu-share needs --gbit")
    network = [] if gbit is None else ["--gbit", str(gbit)]
    network += [] if cpu_share is None else ["--cpu-share", str(cpu_share)]
    console = Console()
    with Progress(console=Console(stderr=True)) as progress:
        rows = [measure(model, ranks, threads, steps, rounds, server, network, progress)
                for model in parse_models(models)]
    if as_json:
        print(json.dumps(rows, indent=1))
    else:
        table = Table("model", "one ms", f"{ranks} ranks ms", "throughput of one", "apart", "waited ms",
                      "server ms", "of server's")
        for row in rows:
            if row["problem"]:
                continue
            medians = {kind: f"{1e3 * value:.1f}" for kind, value in row["median_seconds"].items()}
            table.add_row(row["model"], medians["one"], medians["ranks"], f"{row['throughput_of_one']:.2f}",
                          "-" if row["throughput_apart"] is None else f"{row['throughput_apart']:.2f}",
                          f"{1e3 * row['waited_seconds']:.1f}", medians.get("server", "-"),
                          f"{row['throughput_of_server']:.2f}" if server else "-")
        console.print(table)
    for row in rows:
        if row["problem"]:
            print(f"{row['model']}: {row['problem']}", file=sys.stderr)
    sys.exit(any(row["problem"] for row in rows))


if __name__ == "__main__":
    main()
