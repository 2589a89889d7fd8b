"""Measures one model: export, compile times, agreement of outputs, then rounds in turns."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from workers import SCRIPTS, absolute_path

from ngraph_mxnet.tools.experiments.store import busy_processes
from peers import stats
from peers.layers import layer_of
from peers.nets import net_of
from peers.process import PROGRAM, PeerError, PeerProcess, PeerUnavailable
from peers.spec import OURS, PeerSpec, file_prefix, onnx_file

#: Peers that keep compiled models on disk: they are also measured in a second process.
CACHED = (*OURS, "openvino", "openvino-bf16")


@dataclass(frozen=True)
class Case:
    """One model at one batch size and number of threads, on these CPUs, with so many milliseconds of rest behind each
    call, beside so many busy processes."""

    model: str
    batch: int
    threads: int
    cpus: tuple[int, ...]
    pause: float = 0.0
    busy: int = 0

    def __str__(self) -> str:
        return (f"{file_prefix(self.model)}, batch {self.batch}, {self.threads} thread{'s' * (self.threads > 1)}"
                + f", pauses of {self.pause:g} ms" * bool(self.pause) + f", beside {self.busy} busy" * bool(self.busy))


def export(model: str, batch: int, folder: Path) -> str:
    """Write the model's files unless they are there; the prefix of their names.

    Raises:
        PeerError: the export failed.
    """
    prefix = folder / file_prefix(model)
    if not Path(f"{prefix}-b{batch}.npy").exists():
        module = ("peers.nets" if net_of(model) is not None else
                  "peers.layers" if layer_of(model) is not None else
                  "peers.onnx_file" if onnx_file(model) is not None else "peers.export")
        command = [sys.executable, "-m", module, model, str(batch), str(folder)]
        environment = {**os.environ, **absolute_path(), "MXNET_SUBGRAPH_BACKEND": "NONE"}
        done = subprocess.run(command, cwd=SCRIPTS, env=environment, capture_output=True, text=True)
        if done.returncode:
            raise PeerError(f"{model} can't be exported: {(done.stderr.strip() or 'no message').splitlines()[-1]}")
    return str(prefix)


@dataclass(frozen=True)
class Plan:
    """What is measured of each model, batch size and number of threads.

    `export` writes a model's files into a folder and returns what their names begin with, `program` serves as a peer's
    process, `error` compares what two peers wrote.
    """

    peers: tuple[PeerSpec, ...]
    rounds: int
    burst: int
    compile_runs: int
    seconds: float
    warm_up: int = 5
    export: Callable[[str, int, Path], str] = export
    program: Callable[[PeerSpec], Sequence[str]] = lambda peer: PROGRAM
    error: Callable[[np.ndarray, np.ndarray], float] = stats.relative_error

    def steps(self) -> int:
        """How often `advance` is called for one case."""
        return 2 + self.compile_runs + self.rounds


def measure(case: Case, plan: Plan, models: Path, scratch: Path, advance: Callable[[str], None]) -> dict[str, Any]:
    """The results of one case; `advance` is called after each step, while no peer runs.

    Raises:
        PeerError: a peer failed, or an output is off.
    """
    advance(f"{case}: export")
    prefix = plan.export(case.model, case.batch, models)
    running: dict[str, PeerProcess] = {}
    results: dict[str, dict[str, Any]] = {}
    skipped: dict[str, str] = {}
    try:
        for run in range(plan.compile_runs):
            advance(f"{case}: compile")
            last = run == plan.compile_runs - 1
            for index, peer in enumerate(plan.peers):
                if str(peer) not in skipped:
                    times = results.setdefault(str(peer), {"peer": str(peer), "label": peer.label})
                    try:
                        process = _compile(case, plan, peer, prefix, scratch / f"{index}-{run}", times)
                    except PeerUnavailable as reason:
                        skipped[str(peer)] = str(reason)
                        del results[str(peer)]
                        continue
                    if last:
                        running[str(peer)] = process
                    else:
                        process.close()
        for result in results.values():
            for key, value in result.items():
                if isinstance(value, list):
                    result[key] = statistics.median(value)
        advance(f"{case}: compare")
        _compare(plan, running, results, scratch)
        _time(case, plan, running, results, advance)
        for name, process in running.items():
            results[name].update(process.ask("peak"))
    finally:
        for process in running.values():
            process.close()
    return {"model": file_prefix(case.model), "batch": case.batch, "threads": case.threads, "cpus": list(case.cpus),
            "pause": case.pause, "busy": case.busy, "skipped": skipped, "results": list(results.values())}


def _compile(case: Case, plan: Plan, peer: PeerSpec, prefix: str, scratch: Path,
             times: dict[str, Any]) -> PeerProcess:
    """Compile in a fresh process with empty caches, and where the peer has a cache, again with it filled.

    Adds the times to `times`; the process of the first compile stays, paused, and is returned.
    """

    def fresh(name: str, use_cache: bool) -> tuple[PeerProcess, dict[str, Any]]:
        caches, log = (scratch / "cache", use_cache), scratch / f"{name}.log"
        process = PeerProcess(peer, case.threads, case.cpus, caches, log, plan.seconds, plan.program(peer))
        try:
            answer = process.ask("compile", prefix=prefix, batch=case.batch)
        except BaseException:
            process.close()
            raise
        process.pause()
        return process, answer

    process, cold = fresh("cold", use_cache=False)
    try:
        if peer.kind in CACHED:
            if peer.kind not in OURS:  # ours has filled its cache already, as it does by default
                fresh("fill", use_cache=True)[0].close()
            second, warm = fresh("warm", use_cache=True)
            second.close()
            for key in ("load_ms", "compile_ms", "compile_cpu_ms"):
                times.setdefault(f"warm_{key}", []).append(warm[key])
    except BaseException:
        process.close()
        raise
    for key in ("import_ms", "load_ms", "compile_ms", "compile_cpu_ms", "imported_mib"):
        times.setdefault(key, []).append(cold[key])
    times["detail"] = cold["detail"]
    return process


def _compare(plan: Plan, running: dict[str, PeerProcess], results: dict[str, dict[str, Any]], scratch: Path) -> None:
    """Compare all outputs with those of the first peer that is MXNet alone, else of the first.

    Raises:
        PeerError: a peer's outputs are off by more than its tolerance.
    """
    peers = [peer for peer in plan.peers if str(peer) in running]
    reference = min(peers, key=lambda peer: (not peer.kind.startswith("none"), not peer.kind.startswith("mkldnn")))
    outputs = {}
    for peer in peers:
        path = scratch / "outputs.npy"
        process = running[str(peer)]
        answer = process.ask("outputs", path=str(path))
        results[str(peer)]["detail"] = answer.get("detail", results[str(peer)]["detail"])
        process.pause()
        outputs[str(peer)] = np.load(path)
    for peer in peers:
        error = plan.error(outputs[str(peer)], outputs[str(reference)])
        results[str(peer)]["relative_error"] = error
        if not error <= peer.tolerance:
            raise PeerError(f"{peer}: outputs are off by {error:.1e} relative to {reference}'s, "
                            f"expected {peer.tolerance:.0e} at most")


def turns(names: Sequence[str], rounds: int) -> Iterator[list[str]]:
    """The peers in a new order each round: each comes first, second and last equally often."""
    for index in range(rounds):
        shift = index % len(names)
        yield [*names[shift:], *names[:shift]]


def _time(case: Case, plan: Plan, running: dict[str, PeerProcess], results: dict[str, dict[str, Any]],
          advance: Callable[[str], None]) -> None:
    """Bursts in turns; adds the statistics, and for others than ours the ratios."""
    for process in running.values():
        process.ask("burst", count=plan.warm_up, first=0, pause=case.pause)
        process.pause()
    times: dict[str, list[list[float]]] = {name: [] for name in running}
    cpu_times: dict[str, list[list[float]]] = {name: [] for name in running}
    for index, order in enumerate(turns(list(running), plan.rounds)):
        advance(f"{case}: round {index + 1} of {plan.rounds}")
        for name in order:
            with busy_processes(case.busy, case.cpus):
                answer = running[name].ask("burst", count=plan.burst, first=index * plan.burst, pause=case.pause)
            running[name].pause()
            times[name].append(answer["ms"])
            cpu_times[name].append(answer["cpu_ms"])
    ours = next((str(peer) for peer in plan.peers if peer.kind in OURS and str(peer) in running), None)
    for name, rounds in times.items():
        results[name].update(stats.summarise(rounds), cpu_ms=statistics.median(stats.flat(cpu_times[name])),
                             samples={"latency_ms": rounds, "cpu_ms": cpu_times[name]})
        if ours is not None and name != ours:
            results[name]["ratio"] = stats.ratio_of_medians(times[ours], rounds)
            results[name]["paired_ratio"] = stats.paired_ratio(times[ours], rounds)
