#!/usr/bin/env python3
"""Look for wrong results, hangs and leaks in what training scripts do, for a while.

Threads train and call nets of their own: lengths and batches that change, calls that are never gone back through,
methods that are replaced and come back, copies, pickles, frozen layers. Each step's loss, gradients and statistics are
compared with MXNet's own operators. Meanwhile the main thread trains until a signal interrupts it, forks children that
train, and starts processes that end while daemon threads compute.

Exit status: 0; 1 when a result is off, a process or thread hangs or dies, or memory grows by more than --growth.
"""

from __future__ import annotations

import copy
import faulthandler
import os
import pickle
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

os.environ.setdefault("MXNET_SUBGRAPH_BACKEND", "NGRAPH")

import ngraph_mxnet  # noqa: F401  # makes the import of mxnet work on current NumPy; isort: skip
import click
import mxnet as mx
import numpy as np
from mxnet import autograd, gluon
from mxnet.gluon import nn, rnn
from stress_weights import HANG_SECONDS, interrupted, resident

TOLERANCE = 2e-3
WORDS, CLASSES = 40, 6

Arrays = dict[str, np.ndarray]
_classes = threading.Lock()
"""Of whoever replaces methods."""


class Tagger(gluon.HybridBlock):
    """Embedding, LSTM, dense layer: of sentences [N, T]."""

    def __init__(self) -> None:
        super().__init__()
        with self.name_scope():
            self.words = nn.Embedding(WORDS, 16)
            self.cells = rnn.LSTM(24, layout="NTC", input_size=16)
            self.last = nn.Dense(CLASSES, flatten=False, in_units=24)

    def hybrid_forward(self, F: Any, x: Any) -> Any:  # noqa: N803 - MXNet's name
        return self.last(self.cells(self.words(x)))

    @staticmethod
    def draw() -> tuple[mx.nd.NDArray, mx.nd.NDArray]:
        shape = random.randint(1, 6), random.randint(1, 24)
        return (mx.nd.array(np.random.randint(0, WORDS, shape)), mx.nd.array(np.random.randint(0, CLASSES, shape)))


class Images(gluon.HybridBlock):
    """Two convolutions with a batch norm between, and a dense layer: of images [N, 3, H, W]."""

    def __init__(self) -> None:
        super().__init__()
        with self.name_scope():
            self.first = nn.Conv2D(16, 3, padding=1, in_channels=3)
            self.norm = nn.BatchNorm(in_channels=16)
            self.second = nn.Conv2D(16, 3, padding=1, strides=2, in_channels=16)
            self.last = nn.Dense(CLASSES, in_units=16)

    def hybrid_forward(self, F: Any, x: Any) -> Any:  # noqa: N803
        y = F.relu(self.norm(self.first(x)))
        return self.last(F.Pooling(F.relu(self.second(y)), global_pool=True, pool_type="avg"))

    @staticmethod
    def draw() -> tuple[mx.nd.NDArray, mx.nd.NDArray]:
        n, h, w = random.randint(2, 6), random.randint(7, 20), random.randint(7, 20)
        return mx.nd.random.uniform(-1, 1, (n, 3, h, w)), mx.nd.array(np.random.randint(0, CLASSES, n))


METHODS = {(kind, name): getattr(kind, name) for kind in (Tagger, Images)
           for name in ("forward", "hybrid_forward", "__call__")}


def made(kind: type) -> gluon.HybridBlock:
    net = kind()
    net.initialize(mx.init.Xavier())
    return net


class Session:
    """A net of one thread, hybridized, and its twin with the same parameters, which MXNet runs operator by operator."""

    def __init__(self, kind: type, done: Counter[str], wrong: Counter[str]) -> None:
        self.kind, self.done, self.wrong = kind, done, wrong
        self.loss = gluon.loss.SoftmaxCELoss()
        self.loss.hybridize()
        self.set_net(made(kind))

    def set_net(self, net: gluon.HybridBlock) -> None:
        self.net, self.twin = net, made(self.kind)
        self.net.hybridize(**random.choice([{}, {"static_alloc": True}]))

    def copied(self) -> None:
        """The twin gets the net's values and what is frozen."""
        for own, other in zip(self.net.collect_params().values(), self.twin.collect_params().values(), strict=True):
            other.grad_req = own.grad_req
            other.set_data(own.data().copy())

    def compared(self, what: str, found: Arrays, wanted: Arrays) -> None:
        self.done[what] += 1
        for name, array in wanted.items():
            most = max(1e-2, float(np.abs(array).max(initial=0)))
            if found[name].shape != array.shape or not np.abs(found[name] - array).max(initial=0) <= TOLERANCE * most:
                self.wrong[f"{what}: {name}"] += 1

    def step(self, net: gluon.HybridBlock, x: mx.nd.NDArray, label: mx.nd.NDArray) -> Arrays:
        with autograd.record():
            y = net(x)
            loss = self.loss(y, label)
        loss.backward()
        found = {"loss": loss.asnumpy()}
        for number, parameter in enumerate(net.collect_params().values()):
            found[f"value {number}"] = parameter.data().asnumpy()
            if parameter.grad_req != "null":
                found[f"gradient {number}"] = parameter.grad().asnumpy()
        return found

    # ---- what a script does ------------------------------------------------------------------------------

    def train(self, what: str = "a step") -> None:
        x, label = self.kind.draw()
        self.copied()
        self.compared(what, self.step(self.net, x, label), self.step(self.twin, x, label))
        for parameter in self.net.collect_params().values():
            if parameter.grad_req != "null":
                parameter.set_data(parameter.data() - 0.01 * parameter.grad())

    def predict(self, what: str = "a prediction") -> None:
        x, _ = self.kind.draw()
        self.copied()
        self.compared(what, {"output": self.net(x).asnumpy()}, {"output": self.twin(x).asnumpy()})

    def drop(self) -> None:
        """Calls that nobody goes back through."""
        for _ in range(random.randint(1, 12)):
            with autograd.record():
                y = self.net(self.kind.draw()[0])
        y.wait_to_read()
        self.train("a step behind calls that are dropped")

    def replace(self) -> None:
        """A method on the instance or the class, for a call."""
        x, label = self.kind.draw()
        owner: Any = self.net if random.random() < 0.5 else self.kind
        name = random.choice(["forward", "hybrid_forward", "__call__"])
        known, calls = METHODS[self.kind, name], []

        def other(*given: Any, **named: Any) -> Any:
            calls.append(name)
            return known(self.net, *given, **named) if owner is self.net else known(*given, **named)

        if owner is self.net and name == "__call__":
            return
        with _classes:
            before = owner.__dict__.get(name)
            setattr(owner, name, other)
            try:
                self.step(self.net, x, label)
            finally:
                if before is None:
                    delattr(owner, name)
                else:
                    setattr(owner, name, before)
        if owner is self.net and name == "forward" and not calls:
            self.wrong[f"{name} on the net was not called"] += 1
        self.train(f"a step behind another {name}")

    def duplicate(self) -> None:
        self.net.hybridize(active=False)  # MXNet's cached op can't be copied
        if random.random() < 0.5:
            net = copy.deepcopy(self.net)
            for parameter in net.collect_params().values():
                if parameter.grad_req == "write":  # a copy's arrays are none of autograd's variables
                    parameter.grad_req = "null"
                    parameter.grad_req = "write"
        else:
            arrays = pickle.loads(pickle.dumps([one.data() for one in self.net.collect_params().values()]))
            net = made(self.kind)
            for parameter, array in zip(net.collect_params().values(), arrays, strict=True):
                parameter.set_data(array)
        self.set_net(net)
        self.predict("a copy's prediction")
        self.train("a copy's step")

    def freeze(self) -> None:
        """Some layers, for a step: of a dense layer's bias alone MXNet leaves the gradient 0."""
        layers = random.sample(list(self.net._children.values()), random.randint(1, len(self.net._children) - 1))
        frozen = [one for layer in layers for one in layer.collect_params().values() if one.grad_req == "write"]
        for parameter in frozen:
            parameter.grad_req = "null"
        try:
            self.train("a step of frozen layers")
        finally:
            for parameter in frozen:
                parameter.grad_req = "write"

    def write(self) -> None:
        parameter = random.choice([one for one in self.net.collect_params().values() if one.grad_req == "write"])
        array = parameter.data()
        array[:] = array * 0.9
        self.predict("a prediction behind a write")

    def act(self) -> None:
        ways: list[Callable[[], None]] = [self.train, self.train, self.predict, self.drop, self.replace, self.duplicate,
                                          self.freeze, self.write]
        random.choice(ways)()


EXITING = """
import threading, sys
sys.path.insert(0, {folder!r})
import stress_scripts as s
from collections import Counter
s.random.seed({seed}); s.mx.random.seed({seed})
sessions = [s.Session(kind, Counter(), Counter()) for kind in (s.Tagger, s.Images)]
def work(session):
    while True: session.act()
for session in sessions:
    session.train()
    threading.Thread(target=work, args=(session,), daemon=True).start()
s.time.sleep({pause})
print(sum(session.wrong.total() for session in sessions))
"""


class Run:
    def __init__(self, threads: int) -> None:
        self.done, self.wrong = Counter[str](), Counter[str]()
        self.failures: list[str] = []
        self._over, self._running = threading.Event(), threading.Semaphore(threads)
        self._threads, self.latest = threads, [time.monotonic()] * threads
        self.own = Session(Tagger, self.done, self.wrong)
        for kind in (Tagger, Images):
            # What first calls import is there then: a signal's exception within Python's import may leave its lock
            # taken, and all threads wait for it from then on.
            Session(kind, self.done, self.wrong).train()
            Session(kind, self.done, self.wrong).predict()
        self.workers = [threading.Thread(target=self._work, args=(number,), daemon=True) for number in range(threads)]
        for worker in self.workers:
            worker.start()

    def _work(self, number: int) -> None:
        session = Session((Tagger, Images)[number % 2], self.done, self.wrong)
        while not self._over.is_set():
            self.latest[number] = time.monotonic()
            with self._running:
                try:
                    session.act()
                except Exception as error:  # whatever it is, the run has failed
                    self.failures.append(repr(error))
                    return
            time.sleep(0)

    def interrupt(self) -> None:
        interrupted(lambda: self.own.step(self.own.net, *self.own.kind.draw()), random.uniform(0.001, 0.2), 0.3)
        self.done["an interrupt"] += 1
        autograd.set_recording(False)  # MXNet's scopes may have been left on the way out of them
        autograd.set_training(False)
        self.own.train("a step behind an interrupt")

    def fork(self) -> None:
        for _ in range(self._threads):
            if not self._running.acquire(timeout=HANG_SECONDS):
                faulthandler.dump_traceback(all_threads=True)
                raise TimeoutError("a thread does not come to its end")
        try:
            mx.nd.waitall()
            child = os.fork()
            if child == 0:
                signal.alarm(HANG_SECONDS // 2)
                self.wrong.clear()
                self.own.train()
                self.own.predict()
                os._exit(bool(self.wrong))
            status = os.waitpid(child, 0)[1]
        finally:
            for _ in range(self._threads):
                self._running.release()
        self.done["a fork"] += 1
        if status:
            self.wrong[f"a fork, status {status}"] += 1

    def exit(self) -> None:
        """A process that ends while daemon threads compute."""
        code = EXITING.format(folder=os.path.dirname(os.path.abspath(__file__)), seed=random.randrange(1000),
                              pause=random.uniform(0, 2))
        try:
            done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True,
                                  timeout=HANG_SECONDS, check=False)
        except subprocess.TimeoutExpired:
            self.wrong["an exit that hangs"] += 1
            return
        self.done["an exit"] += 1
        if done.returncode or done.stdout.strip() != "0":
            self.wrong[f"an exit, status {done.returncode}, {done.stdout.strip()} wrong, {done.stderr[-300:]}"] += 1

    @property
    def hangs(self) -> bool:
        return any(time.monotonic() - latest > HANG_SECONDS for latest in self.latest)

    def stop(self) -> None:
        self._over.set()
        for worker in self.workers:
            worker.join(HANG_SECONDS)


@click.command(help=(__doc__ or "").partition("\n")[0])
@click.option("--minutes", default=30.0, show_default=True)
@click.option("--threads", default=4, show_default=True)
@click.option("--seed", default=0, show_default=True)
@click.option("--growth", default=96.0, show_default=True, help="MiB that memory may grow behind the first third.")
def main(minutes: float, threads: int, seed: int, growth: float) -> None:
    faulthandler.enable()
    random.seed(seed)
    np.random.seed(seed)
    run = Run(threads)
    begin, early, told = time.monotonic(), None, 0.0
    while time.monotonic() - begin < minutes * 60 and not run.failures:
        run.interrupt()
        random.choice([run.fork, run.exit, run.own.drop])()
        elapsed = time.monotonic() - begin
        if early is None and elapsed > minutes * 20:
            early = resident()
        if elapsed - told > 20:
            told = elapsed
            print(f"{elapsed:6.0f} s: {run.done.total()} steps, {run.wrong.total()} wrong, {resident():.0f} MiB",
                  file=sys.stderr)
        if run.hangs:
            faulthandler.dump_traceback(all_threads=True)
            print("a thread hangs", file=sys.stderr)
            os._exit(1)
    run.stop()
    grown = resident() - (early or resident())
    for kind, count in sorted(run.done.items()):
        print(f"{kind:<50}{count:>8}")
    for kind, count in sorted(run.wrong.items()):
        print(f"{kind:<50}{count:>8} wrong")
    print(f"memory behind the first third: {grown:+.0f} MiB; failures: {run.failures or 'none'}")
    sys.stdout.flush()
    os._exit(bool(run.failures or run.wrong or grown > growth))


if __name__ == "__main__":
    main()
