"""Shapes that change from call to call: right results, and memory that stays bounded."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pytest
from mxnet_helpers import backend, close, fill, mx, needs_library, run_script

from mxnet.gluon import nn  # isort: skip  # the helpers make it importable
from ngraph_mxnet import _core

pytestmark = needs_library


def small_net() -> nn.HybridSequential:
    net = nn.HybridSequential()
    net.add(nn.Conv2D(8, 3, padding=1, in_channels=3), nn.Activation("relu"), nn.GlobalAvgPool2D(),
            nn.Dense(5, in_units=8))
    net.initialize(mx.init.Uniform(0.5))
    return net


def images(batch: int, size: int) -> mx.nd.NDArray:
    return mx.nd.array(np.random.default_rng([batch, size]).uniform(-1, 1, (batch, 3, size, size)))


@pytest.fixture
def empty_cache():
    _core.clear_compile_cache()
    yield
    _core.clear_compile_cache()


@pytest.mark.parametrize("flags", [{}, {"static_alloc": True}])
def test_gluon_keeps_the_latest_shapes(flags, empty_cache, monkeypatch):
    monkeypatch.setenv("NGRAPH_SHAPES", "4")
    monkeypatch.setenv("NGRAPH_DYNAMIC", "off")
    net, shapes = small_net(), [(batch, size) for batch in (1, 2, 3) for size in (6, 7, 8)]
    with backend(None):
        expected = {shape: net(images(*shape)) for shape in shapes}
    with backend("NGRAPH"):
        net.hybridize(**flags)
        for shape in [*shapes, *shapes, *[shapes[-1]] * 3]:
            close(net(images(*shape)), expected[shape])
    info = _core.compile_cache_info()
    assert info["entries"] == 4
    assert info["misses"] >= 2 * len(shapes), "each shape was displaced before it came back"


def test_a_shape_in_use_stays(empty_cache, monkeypatch):
    monkeypatch.setenv("NGRAPH_SHAPES", "2")
    monkeypatch.setenv("NGRAPH_DYNAMIC", "off")
    net = small_net()
    with backend("NGRAPH"):
        net.hybridize()
        for size in range(5, 12):
            net(images(1, size)).wait_to_read()  # else it may run behind the next one, and be the latest in use
            net(images(1, 5)).wait_to_read()
    assert _core.compile_cache_info()["misses"] == 7


def test_reshaped_executors_are_right():
    net = mx.sym.FullyConnected(mx.sym.Activation(mx.sym.var("data"), act_type="tanh"), num_hidden=4, name="fc")
    executors = {}
    for value in ("NGRAPH", "MKLDNN"):
        with backend(value):
            executors[value] = fill(net.simple_bind(mx.cpu(), grad_req="null", data=(8, 6)))
    for rows in (3, 8, 1, 5, 8):
        outputs = []
        for value, executor in executors.items():
            with backend(value):
                again = executor.reshape(data=(rows, 6), partial_shaping=True, allow_up_sizing=True)
            outputs.append(again.forward(is_train=False, data=mx.nd.ones((rows, 6)) * rows)[0])
        close(*outputs)


def bucketing_module(value: str, buckets: list[int]) -> Callable[[int], np.ndarray]:
    """A bound BucketingModule of an unrolled LSTM; the function gives its output for a bucket."""

    def symbol_for(steps: int):
        cell = mx.rnn.LSTMCell(6, prefix="lstm_")
        embedded = mx.sym.Embedding(mx.sym.var("data"), input_dim=9, output_dim=5, name="embedding")
        outputs, _ = cell.unroll(steps, embedded, layout="NTC", merge_outputs=True)
        return mx.sym.FullyConnected(outputs, num_hidden=3, flatten=False, name="dense"), ("data",), None

    with backend(value):
        module = mx.mod.BucketingModule(symbol_for, default_bucket_key=max(buckets))
        module.bind([("data", (2, max(buckets)))], for_training=False)
        module.init_params(mx.init.Uniform(0.5))
        arguments, _ = module.get_params()
        rng = np.random.default_rng(0)
        module.set_params({name: mx.nd.array(rng.uniform(-0.5, 0.5, array.shape))
                           for name, array in sorted(arguments.items())}, {})

    def run(steps: int) -> np.ndarray:
        data = mx.nd.array(np.arange(2 * steps).reshape(2, steps) % 9)
        with backend(value):
            batch = mx.io.DataBatch([data], bucket_key=steps, provide_data=[("data", data.shape)])
            module.forward(batch, is_train=False)
            return module.get_outputs()[0].asnumpy()

    return run


def test_buckets_are_right():
    buckets = [3, 6, 2, 5]
    ours, theirs = bucketing_module("NGRAPH", buckets), bucketing_module("MKLDNN", buckets)
    for steps in buckets * 2:
        close(ours(steps), theirs(steps))


MEMORY = """
import gc, json, random, sys
import ngraph_mxnet
import mxnet as mx
import numpy as np
from mxnet.gluon import nn

way, calls, shapes = sys.argv[1] if len(sys.argv) > 1 else {way!r}, {calls}, {shapes}


def resident():
    gc.collect()
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096 / 2**20


def gluon(flags):
    net = nn.HybridSequential()
    net.add(nn.Conv2D(64, 3, padding=1, in_channels=3, activation="relu"), nn.Conv2D(64, 3, padding=1, in_channels=64),
            nn.GlobalAvgPool2D(), nn.Dense(4096, in_units=64), nn.Dense(1024, in_units=4096))
    net.initialize(mx.init.Uniform(0.1))
    net.hybridize(**flags)
    return lambda size: net(mx.nd.ones((1, 3, size + 8, size + 8)))


def executor():
    net = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=4096, name="first")
    net = mx.sym.FullyConnected(mx.sym.Activation(net, act_type="relu"), num_hidden=1024, name="second")
    bound = net.simple_bind(mx.cpu(), grad_req="null", data=(shapes + 1, 512))

    def run(rows):
        return bound.reshape(data=(rows, 512), partial_shaping=True).forward(is_train=False)[0]

    return run


def buckets():
    def symbol_for(steps):
        cell = mx.rnn.LSTMCell(256, prefix="lstm_")
        outputs, _ = cell.unroll(steps, mx.sym.var("data"), layout="NTC", merge_outputs=True)
        return mx.sym.FullyConnected(outputs, num_hidden=512, flatten=False, name="dense"), ("data",), None

    module = mx.mod.BucketingModule(symbol_for, default_bucket_key=shapes + 1)
    module.bind([("data", (1, shapes + 1, 64))], for_training=False)
    module.init_params(mx.init.Uniform(0.1))

    def run(steps):
        data = mx.nd.ones((1, steps, 64))
        module.forward(mx.io.DataBatch([data], bucket_key=steps, provide_data=[("data", data.shape)]), is_train=False)
        return module.get_outputs()[0]

    return run


run = {{"gluon": lambda: gluon({{}}), "static": lambda: gluon({{"static_alloc": True}}), "reshape": executor,
       "buckets": buckets}}[way]()
order = list(range(1, shapes + 1))
for size in order[:20]:
    run(size).wait_to_read()
for size in order[:20]:
    run(size).wait_to_read()
levels = [resident()]
rest = (order[20:] + order * (calls // shapes))[:calls - 40]
for number, size in enumerate(rest):
    run(size).wait_to_read()
    if number % (calls // 10 - 3) == 0:  # at small shapes and at large ones
        levels.append(resident())
levels.append(resident())
print(json.dumps(levels))
"""


def levels_of(way: str, value: str, folder, *, calls: int, shapes: int) -> list[float]:
    """Resident MiB after the first 20 shapes, and then from time to time."""
    done = run_script(MEMORY.format(way=way, calls=calls, shapes=shapes), folder, value)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
@pytest.mark.parametrize("way", ["gluon", "static", "reshape", "buckets"])
def test_a_hundred_shapes_need_no_more_memory_than_twenty(way, tmp_path):
    ours = levels_of(way, "NGRAPH", tmp_path, calls=1000, shapes=100)
    native = levels_of(way, "MKLDNN", tmp_path, calls=1000, shapes=100)
    print(way, "ours", [round(level) for level in ours], "native", [round(level) for level in native])
    # What MXNet itself loses at each bind is not ours.
    assert max(ours) <= 1.1 * ours[0] + max(native[-1] - native[0], 0)
