#!/usr/bin/env python3
"""Call compiled files in `ngraph_runtime` from many threads, a million times, load and unload them, and look at every
result and at the memory.

Needs the package installed (`pip install ./runtime`), or NGRAPH_RUNTIME_LIBRARY and PYTHONPATH, and MXNet to make the
files; the process that is looked at has neither MXNet nor ngraph_mxnet.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import click
import numpy as np

import ngraph_runtime
from ngraph_runtime import InputError, Model, ModelError

INPUTS = 8
CHILD_SECONDS = 60
SHAPES = {"mlp": (4, 32), "cnn": (1, 3, 16, 16), "lstm": (5, 1, 12)}
"""Of each model's input; also the models' names."""
MAKE = """
import sys
import ngraph_mxnet
import mxnet as mx
from mxnet.gluon import nn, rnn

def mlp():
    net = nn.HybridSequential()
    net.add(nn.Dense(32, activation="tanh"), nn.Dense(32, activation="relu"), nn.Dense(8))
    return net

def cnn():
    net = nn.HybridSequential()
    net.add(nn.Conv2D(16, 3, padding=1), nn.BatchNorm(), nn.Activation("relu"), nn.MaxPool2D(), nn.Dense(5))
    return net

for name, shape in {shapes!r}.items():
    for version in "ab":
        mx.random.seed(ord(version))
        block = dict(mlp=mlp, cnn=cnn, lstm=lambda: rnn.LSTM(16, num_layers=2))[name]()
        block.initialize(mx.init.Xavier())
        block(mx.nd.zeros(shape))
        ngraph_mxnet.export(block, f"{{sys.argv[1]}}/{{name}}.{{version}}", data=shape)
"""


def resident_mib() -> float:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


class Watched:
    """Memory in use, by how much of the work was done."""

    def __init__(self, what: str, total: int) -> None:
        self.what, self.total = what, total
        self.seen: list[tuple[int, float]] = []

    def watch(self, threads: list[threading.Thread], done: Callable[[], int], each_part: Callable[[], None],
              parts: int) -> None:
        """Start the threads and wait for them. `each_part` is called `parts` times meanwhile, evenly spread."""
        for thread in threads:
            thread.start()
        part = 0
        while any(thread.is_alive() for thread in threads):
            time.sleep(0.05)
            now = done()
            self.seen.append((now, resident_mib()))
            if part < parts and now >= self.total * (part + 1) / (parts + 1):
                each_part()
                part += 1
        for thread in threads:
            thread.join()
        self.seen.append((done(), resident_mib()))

    def at(self, share: float) -> float:
        return next((mib for done, mib in self.seen if done >= share * self.total), self.seen[-1][1])

    def report(self) -> float:
        """MiB by which it grew in the last three quarters, which it prints."""
        late = [(done, mib) for done, mib in self.seen if done >= self.total / 4]
        slope = np.polyfit(*np.transpose(late), 1)[0] if len(late) > 2 else 0.0
        print(f"memory over {self.total} {self.what}: {self.seen[0][1]:.1f} MiB at first, {self.at(0.25):.1f} after a "
              f"quarter, {self.seen[-1][1]:.1f} at the end, {1024 * 1e4 * slope:+.1f} KiB in 10,000 since the quarter")
        return self.seen[-1][1] - self.at(0.25)


class Soak:
    def __init__(self, folder: Path, threads: int) -> None:
        self.folder, self.threads = folder, threads
        draw = np.random.default_rng(0)
        self.inputs = {name: [draw.standard_normal(shape).astype(np.float32) for _ in range(INPUTS)]
                       for name, shape in SHAPES.items()}
        self.expected = {(name, version): [model.run([x], threads=1) for x in self.inputs[name]]
                         for name in SHAPES for version in "ab"
                         for model in [ngraph_runtime.load(folder / f"{name}.{version}")]}
        self.wrong: list[str] = []
        self.refused, self.forks, self.versions = [0] * threads, 0, [0] * threads

    # ---- calls -------------------------------------------------------------------------------------------------------

    def calls(self, total: int, forks: int) -> float:
        """All models called by all threads, on files that are gone or others by then. Returns MiB that it grew by."""
        files = {name: self.folder / f"{name}.called" for name in SHAPES}
        for name, path in files.items():
            shutil.copy(self.folder / f"{name}.a", path)
        models = {name: ngraph_runtime.load(path) for name, path in files.items()}
        files["mlp"].unlink()
        self.replace("cnn", "b", files["cnn"])
        self.replace("mlp", "a", files["lstm"])
        done = [0] * self.threads

        def work(number: int) -> None:
            rng = random.Random(number)
            while done[number] < total // self.threads and not self.wrong:
                if rng.random() < 0.001:
                    self.must_fail(models, rng)
                    self.refused[number] += 1
                name, which = rng.choice(list(models)), rng.randrange(INPUTS)
                self.compare(models[name], name, "a", which, rng.choice((1, 1, 1, 2, 3, 0)))
                done[number] += 1

        watched = Watched("calls", total)
        watched.watch(self.started(work), lambda: sum(done), lambda: self.fork(models), forks)
        return watched.report()

    def must_fail(self, models: dict[str, Model], rng: random.Random) -> None:
        """One call that is refused: by the package, by the library, or when loading."""
        name = rng.choice(list(models))
        model, good = models[name], self.inputs[name][0]
        way = rng.randrange(4)
        try:
            if way == 0:
                model(good[..., 1:])
            elif way == 1:
                model(good.astype(np.float64))
            elif way == 2:
                model.run(good, threads=5000)  # more than the library takes
            else:
                ngraph_runtime.load(self.folder / "damaged")
        except (InputError, ModelError):
            return
        self.wrong.append(f"{name}: nothing was refused, in way {way}")

    def compare(self, model: Model, name: str, versions: str, which: int, threads: int) -> int:
        """The number of the version whose result it was."""
        found = model.run([self.inputs[name][which]], threads=threads)
        for number, version in enumerate(versions):
            if all(map(np.array_equal, found, self.expected[name, version][which])):
                return number
        self.wrong.append(f"{name}, input {which}, {threads} threads")
        return 0

    def fork(self, models: dict[str, Model]) -> None:
        """A child runs all models while the parent's threads go on."""
        child = os.fork()
        if child == 0:
            code = 1
            try:
                for name, model in models.items():
                    for which in range(INPUTS):
                        self.compare(model, name, "a", which, 2)
                code = 2 if self.wrong else 0
            finally:
                os._exit(code)
        deadline = time.monotonic() + CHILD_SECONDS
        found, status = 0, 0
        while not found and time.monotonic() < deadline:
            time.sleep(0.005)
            found, status = os.waitpid(child, os.WNOHANG)
        if not found:
            os.kill(child, 9)
            os.waitpid(child, 0)
        if not found or status:
            self.wrong.append(f"a forked child ended with {status}" if found else "a forked child came to a halt")
        self.forks += 1

    # ---- loading -----------------------------------------------------------------------------------------------------

    def loads(self, total: int) -> float:
        """Files loaded, called once and let go, while they are replaced. Returns MiB that it grew by."""
        files = {name: self.folder / f"{name}.loaded" for name in SHAPES}
        for name, path in files.items():
            shutil.copy(self.folder / f"{name}.a", path)
        done = [0] * self.threads

        def work(number: int) -> None:
            rng = random.Random(number)
            while done[number] < total // self.threads and not self.wrong:
                name = rng.choice(list(files))
                if rng.random() < 0.02:
                    self.replace(name, rng.choice("ab"), files[name])
                model = ngraph_runtime.load(files[name])
                self.versions[number] += self.compare(model, name, "ab", rng.randrange(INPUTS), rng.choice((1, 2)))
                done[number] += 1

        watched = Watched("loads", total)
        watched.watch(self.started(work), lambda: sum(done), lambda: None, 0)
        return watched.report()

    def replace(self, name: str, version: str, path: Path) -> None:
        """As writers do it: a new file gets the old one's name."""
        new = path.with_suffix(f".new{threading.get_ident()}")
        shutil.copy(self.folder / f"{name}.{version}", new)
        new.replace(path)

    def started(self, work: Callable[[int], None]) -> list[threading.Thread]:
        def guarded(number: int) -> None:
            try:
                work(number)
            except BaseException as error:
                self.wrong.append(f"thread {number}: {error!r}")

        return [threading.Thread(target=guarded, args=[number]) for number in range(self.threads)]


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--calls", default=1_000_000, show_default=True, help="Of all threads together.")
@click.option("--loads", default=10_000, show_default=True, help="Of all threads together, each with a call.")
@click.option("--threads", default=4, show_default=True)
@click.option("--forks", default=20, show_default=True)
@click.option("--growth", default=4.0, show_default=True, help="MiB of memory more in three quarters.")
def main(calls: int, loads: int, threads: int, forks: int, growth: float) -> None:
    """Call three compiled files from many threads, then load and unload them, and look at every result and at memory.

    The calls are on one to three threads each; some are wrong and must fail; from time to time the process forks, and
    the child calls, too. The files are removed or replaced while they are mapped. It ends with 0 if no result was
    wrong, no call failed but those that must, each child came back well, and memory has not grown.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        subprocess.run([sys.executable, "-c", MAKE.format(shapes=SHAPES), name], check=True)
        (folder / "damaged").write_bytes((folder / "cnn.a").read_bytes()[:-100])
        soak = Soak(folder, threads)
        began = time.monotonic()
        grown = soak.calls(calls, forks)
        middle = time.monotonic()
        grown = max(grown, soak.loads(loads))
        ended = time.monotonic()
    print(f"{calls} calls of {threads} threads in {middle - began:.0f} s, {sum(soak.refused)} that had to fail, "
          f"{soak.forks} forks; {loads} loads in {ended - middle:.0f} s, {sum(soak.versions)} of the other version; "
          f"wrong: {len(soak.wrong)}")
    for line in soak.wrong[:10]:
        print(" ", line)
    sys.exit(int(bool(soak.wrong) or grown > growth))


if __name__ == "__main__":
    main()
