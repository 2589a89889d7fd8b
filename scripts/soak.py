#!/usr/bin/env python3
"""Call six models from many threads, a million times, and look at every result and at the memory."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("MXNET_SUBGRAPH_BACKEND", "NGRAPH")

import ngraph_mxnet  # isort: skip  # makes the import of mxnet work on current NumPy
import click
import mxnet as mx
import numpy as np
from mxnet.gluon import nn
from rich.progress import Progress

from ngraph_mxnet import _core

IMAGES = 8
Call = Callable[[int], np.ndarray]
DISTURBING = """
import os, random, signal, sys, time
process, all_cpus, rng = int(sys.argv[1]), sorted(os.sched_getaffinity(0)), random.Random(0)
signal.signal(signal.SIGTERM, lambda *_: sys.exit())
root, file, form = next((each for each in (("/sys/fs/cgroup/cpu", "cpu.cfs_quota_us", "{}"),
                                           ("/sys/fs/cgroup", "cpu.max", "{} 100000"))
                         if os.path.exists(f"{each[0]}/cgroup.procs")), ("", "", ""))
group, quotas = f"{root}/soak-{process}", [form.format(share) for share in (50000, 120000, 100000 * len(all_cpus))]

def write(path, text):
    with open(path, "r+") as file:
        file.write(text)

try:
    os.mkdir(group)
    write(f"{group}/{file}", quotas[-1])
    write(f"{group}/cgroup.procs", str(process))
    print("its quota of CPU time changes", file=sys.stderr)
except OSError as error:
    print("no quota of CPU time can be set here:", error, file=sys.stderr)
    quotas = []
try:
    while True:
        cpus = rng.sample(all_cpus, rng.randint(1, len(all_cpus)))
        for thread in os.listdir(f"/proc/{process}/task"):
            try:
                os.sched_setaffinity(int(thread), cpus)
            except ProcessLookupError:  # it has ended
                pass
        if quotas:
            write(f"{group}/{file}", rng.choice(quotas))
        time.sleep(rng.uniform(0, 0.1))
        os.kill(process, signal.SIGSTOP)
        time.sleep(rng.uniform(0, 0.05))
        os.kill(process, signal.SIGCONT)
        time.sleep(rng.uniform(0, 0.1))
except ProcessLookupError:  # it has ended
    pass
finally:
    if os.path.exists(f"/proc/{process}"):
        os.kill(process, signal.SIGCONT)
        if quotas:
            write(f"{root}/cgroup.procs", str(process))
    if os.path.isdir(group):
        os.rmdir(group)
"""
"""What a process does to another: it moves it from core to core, stops it for a while, and lowers and raises its quota
of CPU time."""


def resident_mib() -> float:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def numbers(*shape: int, seed: int) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).uniform(-1, 1, shape).astype(np.float32)


def filled(block: nn.HybridBlock, seed: int = 0) -> nn.HybridBlock:
    block.initialize()
    for number, parameter in enumerate(block.collect_params().values()):
        parameter.set_data(mx.nd.array(numbers(*parameter.shape, seed=seed + number)))
    return block


def dense(width: int = 32) -> nn.HybridBlock:
    net = nn.HybridSequential()
    for units in (width, width, 8):
        net.add(nn.Dense(units, in_units=width, activation="tanh"))
    return filled(net)


def convolutions() -> nn.HybridBlock:
    net = nn.HybridSequential()
    net.add(nn.Conv2D(8, 3, in_channels=3, activation="relu"), nn.MaxPool2D(), nn.GlobalAvgPool2D(),
            nn.Dense(4, in_units=8))
    return filled(net)


def wide() -> nn.HybridBlock:
    """Whose layers are worth several threads."""
    net = nn.HybridSequential()
    net.add(nn.Conv2D(32, 3, padding=1, in_channels=3, activation="relu"),
            nn.Conv2D(32, 3, padding=1, strides=2, in_channels=32, activation="relu"),
            nn.Conv2D(64, 3, padding=1, in_channels=32), nn.GlobalAvgPool2D(), nn.Dense(8, in_units=64))
    return filled(net)


class Models:
    """What a thread calls; blocks and the compiled model are everybody's, executors its own."""

    def __init__(self) -> None:
        self.static, self.plain = dense(), convolutions()
        self.static.hybridize(static_alloc=True, static_shape=True)
        self.plain.hybridize()
        self.wide = wide()
        self.wide.hybridize(static_alloc=True, static_shape=True)
        self.photos = [numbers(1, 3, 48, 48, seed=number) for number in range(IMAGES)]
        self.vectors = [numbers(1 + number % 3, 32, seed=number) for number in range(IMAGES)]
        self.pictures = [numbers(1, 3, 12 + number % 3, 12, seed=number) for number in range(IMAGES)]
        with tempfile.TemporaryDirectory() as folder:
            self.plain(mx.nd.array(self.pictures[0]))
            path = Path(folder) / "net"
            self.static(mx.nd.array(self.vectors[0]))
            self.static.export(str(path))
            self.symbol = mx.sym.load(f"{path}-symbol.json")
            onnx = mx.onnx.export_model(f"{path}-symbol.json", f"{path}-0000.params", [(2, 32)], [np.float32],
                                        f"{path}.onnx")
            self.compiled = ngraph_mxnet.compile(onnx)

    def calls(self) -> dict[str, Call]:
        return {"static block": lambda which: self.static(mx.nd.array(self.vectors[which])).asnumpy(),
                "block": lambda which: self.plain(mx.nd.array(self.pictures[which])).asnumpy(),
                "wide block": lambda which: self.wide(mx.nd.array(self.photos[which])).asnumpy(),
                "compiled": lambda which: self.compiled(numbers(2, 32, seed=which))[0],
                "executor": self.executor(), "weights": self.weights()}

    def executor(self) -> Call:
        """Reshaped whenever the batch asks for it."""
        current = self.symbol.simple_bind(mx.cpu(), grad_req="null", data=(3, 32))
        for name, parameter in self.static.collect_params().items():
            parameter.data().copyto(current.arg_dict[name])

        def call(which: int) -> np.ndarray:
            nonlocal current
            vector = self.vectors[which]
            if current.arg_dict["data"].shape != vector.shape:
                current = current.reshape(data=vector.shape, partial_shaping=True, allow_up_sizing=True)
            return current.forward(data=mx.nd.array(vector))[0].asnumpy()

        return call

    def weights(self) -> Call:
        """A block whose weights are other ones at each call."""
        net = dense()
        net.hybridize(static_alloc=True)
        weight = net[0].weight
        versions = [mx.nd.array(numbers(*weight.shape, seed=100 + which)) for which in range(IMAGES)]
        vector = mx.nd.array(self.vectors[0])

        def call(which: int) -> np.ndarray:
            weight.set_data(versions[which])
            return net(vector).asnumpy()

        return call

    def fail(self) -> None:
        """A call that must fail, at once or where its result is awaited."""
        bad = mx.nd.random.normal(0, -1, shape=(1, 32)) if random.random() < 0.5 else mx.nd.ones((1, 31))
        try:
            self.static(bad).asnumpy()
        except mx.MXNetError:
            return
        raise AssertionError("a bad input gave a result")


class Soak:
    def __init__(self, models: Models, threads: int, calls: int, pauses: float = 0.0) -> None:
        self.models, self.threads, self.calls, self.pauses = models, threads, calls, pauses
        own = models.calls()
        self.expected = {name: [call(which) for which in range(IMAGES)] for name, call in own.items()}
        self.done, self.failures = [0] * threads, 0
        self.wrong: list[str] = []
        self.running = threading.Event()
        self.running.set()
        self.at_rest = [False] * threads

    def work(self, number: int) -> None:
        calls, rng = self.models.calls(), random.Random(number)
        names = sorted(calls)
        try:
            while self.done[number] < self.calls // self.threads and not self.wrong:
                if not self.running.is_set():
                    self.at_rest[number] = True
                    self.running.wait()
                    self.at_rest[number] = False
                if rng.random() < 0.0005:
                    self.models.fail()
                    self.failures += 1
                name, which = rng.choice(names), rng.randrange(IMAGES)
                if not np.array_equal(calls[name](which), self.expected[name][which]):
                    self.wrong.append(f"{name}, input {which}, thread {number}")
                self.done[number] += 1
                if self.pauses:
                    time.sleep(rng.choice([0, 1e-4, 1e-3, 1]) * rng.random() * self.pauses / 1e3)
        except BaseException as error:
            self.wrong.append(f"thread {number}: {error!r}")
        finally:
            self.at_rest[number] = True

    def run(self, forks: int) -> tuple[float, float, int]:
        """All calls, and so many forks; MiB in use when half of it was done and at the end, and the forks that were."""
        threads = [threading.Thread(target=self.work, args=[number]) for number in range(self.threads)]
        for thread in threads:
            thread.start()
        half, forked = 0.0, 0
        with Progress() as progress:
            task = progress.add_task("calls", total=self.calls)
            while any(thread.is_alive() for thread in threads):
                time.sleep(0.2)
                done = sum(self.done)
                progress.update(task, completed=done)
                if not half and done >= self.calls / 2:
                    half = resident_mib()
                if forked < forks and done >= self.calls * (forked + 1) / (forks + 1):
                    self.fork()
                    forked += 1
        return half, resident_mib(), forked

    def fork(self) -> None:
        """While the threads rest: MXNet itself hangs at forks beside threads that give it work (docs/limits.md)."""
        self.running.clear()
        while not all(self.at_rest):
            time.sleep(0.001)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                calls = self.models.calls()
                code = 0 if all(np.array_equal(calls[name](which), self.expected[name][which])
                                for name in calls for which in range(IMAGES)) else 2
            finally:
                os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if code:
            self.wrong.append(f"a forked child ended with {code}")
        self.running.set()


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--calls", default=1_000_000, show_default=True, help="Of all threads together.")
@click.option("--threads", default=8, show_default=True)
@click.option("--forks", default=10, show_default=True)
@click.option("--pauses", default=0.0, metavar="MS", show_default=True,
              help="The longest rest of a thread between two calls; most are much shorter.")
@click.option("--disturb", is_flag=True,
              help="Meanwhile another process moves this one from core to core, stops and continues it, and changes "
                   "its quota of CPU time where it may.")
@click.option("--growth", default=8.0, show_default=True, help="MiB that the process may grow by in the second half.")
def main(calls: int, threads: int, forks: int, pauses: float, disturb: bool, growth: float) -> None:
    """Call six models from many threads, and look at every result and at the memory.

    Weights change between calls, some calls fail and are meant to, and from time to time the process forks. It ends
    with 0 if no result was wrong, no call failed that should not have, each child came back well, and the memory has
    not grown.
    """
    soak = Soak(Models(), threads, calls, pauses)
    began = time.monotonic()
    disturbing = [sys.executable, "-c", DISTURBING, str(os.getpid())]
    other = subprocess.Popen(disturbing) if disturb else None
    try:
        half, end, forked = soak.run(forks)
    finally:
        if other is not None:
            other.terminate()
            other.wait()
    print(f"{sum(soak.done)} calls of {threads} threads in {time.monotonic() - began:.0f} s, {_core.direct_calls()} "
          f"past MXNet's op; {soak.failures} that had to fail; {forked} forks")
    print(f"wrong: {len(soak.wrong)}; memory {half:.1f} MiB at half time, {end:.1f} at the end")
    for line in soak.wrong[:10]:
        print(" ", line)
    sys.exit(int(bool(soak.wrong) or end - half > growth))


if __name__ == "__main__":
    main()
