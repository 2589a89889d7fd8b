#!/usr/bin/env python3
"""Look for stale results, hangs and leaks: threads write to weights in all ways of MXNet, beside running forwards.

Each model has one writer at a time; everybody runs it meanwhile. After a write the model's result is compared with
MXNet's own operators on the same arrays. From time to time all pause for a fork, in whose child a model is written to
and compared too, and the main thread is interrupted while it binds.

Exit status: 0; 1 when a result is off, a thread hangs, or memory grows by more than --growth.
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

os.environ.setdefault("MXNET_SUBGRAPH_BACKEND", "NGRAPH")

import ngraph_mxnet  # noqa: F401  # makes the import of mxnet work on current NumPy; isort: skip
import mxnet as mx
import numpy as np
from mxnet import gluon

TOLERANCE = 1e-3
HANG_SECONDS = 120
CHANNELS, UNITS, SIZE = 24, 40, 12

Arrays = dict[str, mx.nd.NDArray]
rng = np.random.default_rng(7)


def values(shape: tuple[int, ...]) -> np.ndarray:
    return (rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]) or 1)).astype(np.float32)


def expected(x: mx.nd.NDArray, w: Arrays) -> np.ndarray:
    """The model by MXNet's own operators, one by one. Of copies: they put weights into MKL-DNN's layout, in place."""
    w = {name: array.copy() for name, array in w.items()}
    y = mx.nd.Convolution(x, w["conv_weight"], w["conv_bias"], kernel=(3, 3), pad=(1, 1), num_filter=CHANNELS)
    y = mx.nd.Activation(y, act_type="relu")
    y = mx.nd.Convolution(y, w["second_weight"], no_bias=True, kernel=(1, 1), num_filter=CHANNELS)
    return mx.nd.FullyConnected(mx.nd.flatten(y), w["dense_weight"], w["dense_bias"], num_hidden=UNITS).asnumpy()


def model_symbol() -> mx.sym.Symbol:
    data = mx.sym.Variable("data")
    y = mx.sym.Convolution(data, kernel=(3, 3), pad=(1, 1), num_filter=CHANNELS, name="conv")
    y = mx.sym.Activation(y, act_type="relu")
    y = mx.sym.Convolution(y, no_bias=True, kernel=(1, 1), num_filter=CHANNELS, name="second")
    return mx.sym.FullyConnected(mx.sym.flatten(y), num_hidden=UNITS, name="dense")


SHAPES = {
    "conv_weight": (CHANNELS, 3, 3, 3), "conv_bias": (CHANNELS,), "second_weight": (CHANNELS, CHANNELS, 1, 1),
    "dense_weight": (UNITS, CHANNELS * SIZE * SIZE), "dense_bias": (UNITS,),
}


class Model:
    """One set of weights and what runs on it."""

    def __init__(self) -> None:
        self.writing = threading.Lock()
        self.calling = threading.Lock()
        self.x = mx.nd.array(values((2, 3, SIZE, SIZE)))

    def weights(self) -> Arrays:
        raise NotImplementedError

    def run(self) -> mx.nd.NDArray:
        raise NotImplementedError

    def replace(self, name: str, array: mx.nd.NDArray) -> None:
        """Make `array` the weight of that name."""
        raise NotImplementedError

    def forward(self) -> None:
        with self.calling:
            self.run().wait_to_read()

    def is_right(self) -> bool:
        with self.calling:
            found, wanted = self.run().asnumpy(), expected(self.x, self.weights())
        return bool(np.abs(found - wanted).max() <= TOLERANCE * max(1.0, np.abs(wanted).max()))


class Executor(Model):
    def __init__(self) -> None:
        super().__init__()
        self._weights = {name: mx.nd.array(values(shape)) for name, shape in SHAPES.items()}
        self.bind()

    def bind(self) -> None:
        executor = model_symbol().bind(mx.cpu(), {"data": self.x, **self._weights}, grad_req="null")
        with self.calling:
            self._executor = executor

    def weights(self) -> Arrays:
        return self._weights

    def run(self) -> mx.nd.NDArray:
        return self._executor.forward()[0]

    def replace(self, name: str, array: mx.nd.NDArray) -> None:
        self._weights[name] = array
        self.bind()


class Module(Model):
    def __init__(self) -> None:
        super().__init__()
        self._module = mx.mod.Module(model_symbol(), label_names=None)
        self._module.bind([("data", self.x.shape)], for_training=False)
        self._module.init_params(mx.init.Uniform(0.2))

    def weights(self) -> Arrays:
        executor = self._module._exec_group.execs[0]
        return {name: executor.arg_dict[name] for name in SHAPES}

    def run(self) -> mx.nd.NDArray:
        self._module.forward(mx.io.DataBatch([self.x]), is_train=False)
        return self._module.get_outputs()[0]

    def replace(self, name: str, array: mx.nd.NDArray) -> None:
        with self.calling:
            self._module.set_params({name: array}, {}, allow_missing=True)


class Block(Model):
    def __init__(self, **flags: bool) -> None:
        super().__init__()
        self._net = gluon.SymbolBlock(model_symbol(), [mx.sym.Variable("data")])
        self._net.initialize(mx.init.Uniform(0.2))
        self._net(self.x)
        self._net.hybridize(**flags)

    def parameters(self) -> gluon.ParameterDict:
        return self._net.params

    def weights(self) -> Arrays:
        return {name: self._net.params[name].data() for name in SHAPES}

    def run(self) -> mx.nd.NDArray:
        return self._net(self.x)

    def replace(self, name: str, array: mx.nd.NDArray) -> None:
        with self.calling:
            parameter = self._net.params[name]
            parameter._data = None
            parameter._load_init(array, mx.cpu())

    def reload(self) -> None:
        with self.calling, tempfile.NamedTemporaryFile(suffix=".params") as file:
            mx.nd.save(file.name, {f"arg:{name}": mx.nd.array(values(shape)) for name, shape in SHAPES.items()})
            loaded = {name.split(":")[1]: array for name, array in mx.nd.load(file.name).items()}
            for name, array in loaded.items():
                self._net.params[name].set_data(array)

    def cast(self) -> None:
        with self.calling:
            self._net.cast("float32")


# ---- writers -------------------------------------------------------------------------------------------

def one_element(array: mx.nd.NDArray) -> np.ndarray:
    """The array's values with one changed, anywhere."""
    content = array.asnumpy()
    content.reshape(-1)[random.randrange(content.size)] += 1
    return content


def write_numpy(model: Model, name: str, array: mx.nd.NDArray) -> None:
    array[:] = one_element(array)


def write_element(model: Model, name: str, array: mx.nd.NDArray) -> None:
    array.reshape((-1,))[random.randrange(array.size)] = random.random()


def write_slice(model: Model, name: str, array: mx.nd.NDArray) -> None:
    row = random.randrange(array.shape[0])
    array[row:row + 1] *= 0.5


def write_add(model: Model, name: str, array: mx.nd.NDArray) -> None:
    array += mx.nd.array(one_element(array)) - array


def write_out(model: Model, name: str, array: mx.nd.NDArray) -> None:
    mx.nd.broadcast_add(array, mx.nd.array([0.01]).reshape((1,) * array.ndim), out=array)


def write_update(model: Model, name: str, array: mx.nd.NDArray) -> None:
    gradient = mx.nd.array(values(array.shape))
    mx.nd.sgd_update(array, gradient, lr=0.1, wd=0.0, out=array)


def write_copy(model: Model, name: str, array: mx.nd.NDArray) -> None:
    mx.nd.array(values(array.shape)).copyto(array)


def write_pull(model: Model, name: str, array: mx.nd.NDArray) -> None:
    store = mx.kv.create("local")
    store.init(0, mx.nd.array(values(array.shape)))
    store.pull(0, out=array)


def write_bulk(model: Model, name: str, array: mx.nd.NDArray) -> None:
    more = mx.nd.array(values(array.shape)) * 0.1
    with mx.engine.bulk(random.randrange(2, 20)):
        model.forward()
        array += more
        model.forward()
        array += more


def replace_new(model: Model, name: str, array: mx.nd.NDArray) -> None:
    model.replace(name, mx.nd.array(one_element(array)))


def replace_shared(model: Model, name: str, array: mx.nd.NDArray) -> None:
    memory = one_element(array)
    model.replace(name, mx.nd.from_numpy(memory.view()))
    for _ in range(3):
        model.forward()
        memory.reshape(-1)[random.randrange(memory.size)] -= 1


def share_and_write(model: Model, name: str, array: mx.nd.NDArray) -> None:
    other = mx.nd.from_dlpack(mx.nd.to_dlpack_for_write(array))
    model.forward()
    other[:] = one_element(array)
    other.wait_to_read()


def set_data(model: Model, name: str, array: mx.nd.NDArray) -> None:
    if isinstance(model, Block):
        content = one_element(array)
        model.parameters()[name].set_data(random.choice([mx.nd.array(content), content]))


def reload(model: Model, name: str, array: mx.nd.NDArray) -> None:
    if isinstance(model, Block):
        model.reload()


def cast(model: Model, name: str, array: mx.nd.NDArray) -> None:
    if isinstance(model, Block):
        model.cast()


def rebind(model: Model, name: str, array: mx.nd.NDArray) -> None:
    if isinstance(model, Executor):
        model.bind()


WRITERS: list[Callable[[Model, str, mx.nd.NDArray], None]] = [
    write_numpy, write_element, write_slice, write_add, write_out, write_update, write_copy, write_pull, write_bulk,
    replace_new, replace_shared, share_and_write, set_data, reload, cast, rebind,
]


# ---- the run -------------------------------------------------------------------------------------------

class Interrupted(BaseException):
    """What the alarm raises in the main thread."""


def interrupted(work: Callable[[], object], first: float, again: float) -> None:
    """Work over and over until an alarm ends it, after `first` seconds."""
    def alarm(*_: object) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGALRM, alarm)
    try:
        # Again and again: what a handler raises within MXNet's `NDArray.__del__` Python reports and drops.
        signal.setitimer(signal.ITIMER_REAL, first, again)
        while True:
            work()
    except Interrupted:
        pass
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class Run:
    def __init__(self, models: list[Model], threads: int) -> None:
        self.models = models
        self.done: Counter[str] = Counter()
        self.stale: Counter[str] = Counter()
        self.failures: list[str] = []
        self._over = threading.Event()
        self._running = threading.Semaphore(threads)
        self._threads = threads
        self.latest = [time.monotonic()] * threads
        self.workers = [threading.Thread(target=self._work, args=(number,), daemon=True) for number in range(threads)]

    def _work(self, number: int) -> None:
        while not self._over.is_set():
            self.latest[number] = time.monotonic()
            with self._running:
                try:
                    self.step(random.choice(self.models))
                except Exception as error:  # whatever it is, the run has failed
                    self.failures.append(repr(error))
                    return
            time.sleep(0)

    def step(self, model: Model) -> None:
        if random.random() < 0.6 or not model.writing.acquire(blocking=False):
            model.forward()
            self.done["forward"] += 1
            return
        try:
            name, writer = random.choice(list(SHAPES)), random.choice(WRITERS)
            writer(model, name, model.weights()[name])
            mx.nd.waitall()
            kind = f"{type(model).__name__}: {writer.__name__}"
            self.done[kind] += 1
            if not model.is_right():
                self.stale[kind] += 1
        finally:
            model.writing.release()

    @contextmanager
    def paused(self) -> Iterator[None]:
        for _ in range(self._threads):
            if not self._running.acquire(timeout=HANG_SECONDS):
                raise TimeoutError("a thread does not come to its end")
        try:
            mx.nd.waitall()
            yield
        finally:
            for _ in range(self._threads):
                self._running.release()

    def fork(self) -> None:
        model = random.choice(self.models)
        with self.paused():
            child = os.fork()
            if child == 0:
                signal.alarm(HANG_SECONDS // 2)
                right = model.is_right()
                name = random.choice(list(SHAPES))
                write_numpy(model, name, model.weights()[name])
                os._exit(0 if right and model.is_right() else 1)
            status = os.waitpid(child, 0)[1]
        self.done["fork"] += 1
        if status:
            self.stale[f"fork, status {status}, {type(model).__name__}"] += 1

    def interrupt(self) -> None:
        interrupted(Executor, random.uniform(0.001, 0.03), 1)
        self.done["interrupt"] += 1

    def hung(self) -> bool:
        return any(time.monotonic() - latest > HANG_SECONDS for latest in self.latest)

    def stop(self) -> None:
        self._over.set()
        for worker in self.workers:
            worker.join(HANG_SECONDS)


def resident() -> float:
    """MiB."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--growth", type=float, default=64, help="MiB that memory may grow after the first quarter")
    parser.add_argument("--no-forks", action="store_true")
    options = parser.parse_args()
    faulthandler.enable()
    random.seed(options.seed)
    models = [Executor(), Executor(), Module(), Block(), Block(static_alloc=True),
              Block(static_alloc=True, static_shape=True)]
    run = Run(models, options.threads)
    for worker in run.workers:
        worker.start()
    begin, early, told = time.monotonic(), None, 0.0
    while time.monotonic() - begin < options.minutes * 60 and not run.failures:
        run.interrupt()
        if not options.no_forks:
            run.fork()
        time.sleep(0.5)
        elapsed = time.monotonic() - begin
        if early is None and elapsed > options.minutes * 15:
            early = resident()
        if elapsed - told > 20:
            told = elapsed
            print(f"{elapsed:6.0f} s: {sum(run.done.values())} steps, {sum(run.stale.values())} stale, "
                  f"{resident():.0f} MiB", file=sys.stderr)
        if run.hung():
            faulthandler.dump_traceback(all_threads=True)
            print("a thread hangs", file=sys.stderr)
            os._exit(1)
    run.stop()
    growth = resident() - (early or resident())
    stale = sum(run.stale.values())
    for kind, count in sorted(run.done.items()):
        print(f"{kind:<40}{count:>8}{run.stale.pop(kind, 0):>6} stale")
    for kind, count in sorted(run.stale.items()):
        print(f"{kind:<40}{'':>8}{count:>6} wrong")
    print(f"memory after the first quarter: {growth:+.0f} MiB; failures: {run.failures or 'none'}")
    sys.stdout.flush()
    return 1 if run.failures or growth > options.growth or stale else 0


if __name__ == "__main__":
    sys.exit(main())
