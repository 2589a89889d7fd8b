"""Unmodified MXNet scripts under NGRAPH_AUDIT and NGRAPH_AUDIT_GUARD, on each way that their calls take."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import ngraph_mxnet
from ngraph_mxnet.tools.audits import difference, open_run

NET = """
import os
import numpy as np
import mxnet as mx
from mxnet import autograd, gluon

mx.random.seed(0)
net = gluon.nn.HybridSequential(prefix="net_")
with net.name_scope():
    for _ in range(2):
        net.add(gluon.nn.Conv2D(8, 3, padding=1), gluon.nn.BatchNorm(), gluon.nn.Activation("relu"))
    net.add(gluon.nn.Dense(10))
net.initialize(mx.init.Xavier())
net.hybridize(static_alloc=True, static_shape=True)
x = mx.nd.array(np.random.default_rng(0).standard_normal((1, 3, 8, 8)))

def change(name, value):
    array = net.collect_params()[name].data().asnumpy()
    array.flat[0] = value
    net.collect_params()[name].set_data(array)
"""
CALLS = """
for number in range(6):
    if number == 3 and "CHANGED" in os.environ:
        change("net_conv1_weight", float(os.environ["CHANGED"]))
    net(x + number).asnumpy()
from ngraph_mxnet import _core
print("direct", _core.direct_calls())
"""
EXECUTOR = """
net(x)
executor = net(mx.sym.var("data")).simple_bind(mx.cpu(), data=(2, 3, 8, 8), grad_req="null")
for arrays in (executor.arg_dict, executor.aux_dict):
    for name in arrays:
        if name != "data":
            arrays[name][:] = net.collect_params()[name].data()
for number in range(4):
    executor.forward(is_train=False, data=np.full((2, 3, 8, 8), number))
"""
TRAINING = """
trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
for number in range(4):
    with autograd.record():
        loss = (net(mx.nd.concat(x, x, dim=0)) ** 2).mean()
    if number == 3 and "CHANGED" in os.environ:
        change("net_dense0_weight", float(os.environ["CHANGED"]))
    loss.backward()
    trainer.step(1)
mx.nd.waitall()
with autograd.record():
    net(mx.nd.concat(x, x, dim=0)).asnumpy()
"""


def run(script: str, **variables: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(Path(ngraph_mxnet.__file__).parents[1]), os.environ["PYTHONPATH"]])
    environment = {**os.environ, "MXNET_SUBGRAPH_BACKEND": "NGRAPH", "PYTHONPATH": path, **variables}
    return subprocess.run([sys.executable, "-c", NET + script], capture_output=True, text=True, check=False,
                          env=environment, timeout=300)


def audited(script: str, folder: Path, **variables: str) -> str:
    done = run(script, NGRAPH_AUDIT=str(folder), **variables)
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


def test_a_block(tmp_path: Path) -> None:
    """Borders are recorded on the short way, which an audit does not close."""
    told = audited(CALLS, tmp_path / "a")
    assert int(told.split()[-1]) >= 4
    found = open_run(tmp_path / "a")
    assert [call.number for call in found.calls] == list(range(6)) and len(found.checkpoints) == 1
    audited(CALLS, tmp_path / "b", CHANGED="3")
    assert len(open_run(tmp_path / "b").checkpoints) == 2
    parted = difference(found, open_run(tmp_path / "b"))
    assert parted.call is not None and parted.call[1] == 3
    assert parted.node == "mx:net_conv1_fwd Convolution"
    assert [pair.a.tensor.name for pair in parted.weights] == ["net_conv1_weight"]


def test_all_values_of_a_block(tmp_path: Path) -> None:
    audited(CALLS, tmp_path / "a", NGRAPH_AUDIT_TENSORS="all", NGRAPH_AUDIT_CALLS="every:3")
    audited(CALLS, tmp_path / "b", NGRAPH_AUDIT_TENSORS="all", NGRAPH_AUDIT_CALLS="every:3", CHANGED="3")
    found = open_run(tmp_path / "a")
    assert [call.number for call in found.calls] == [0, 3]
    parted = difference(found, open_run(tmp_path / "b"))
    assert parted.node is not None and "mx:net_conv1_fwd Convolution" in parted.node.split(" + ")
    assert parted.first is not None and parted.first.a.tensor.kind == "value"


def test_an_executor_whose_results_nobody_reads(tmp_path: Path) -> None:
    audited(EXECUTOR, tmp_path)
    found = open_run(tmp_path)
    assert [call.number for call in found.calls if call.tensors[0].statistics.shape == (2, 3, 8, 8)] == [0, 1, 2, 3]


def test_steps_of_training(tmp_path: Path) -> None:
    audited(TRAINING, tmp_path)
    shapes = {each.statistics.shape for call in open_run(tmp_path).calls for each in call.tensors}
    assert (8, 3, 3, 3) in shapes  # a gradient


@pytest.mark.parametrize("tensors", ["borders", "all"])
def test_a_guard(tensors: str) -> None:
    done = run(CALLS, NGRAPH_AUDIT_GUARD="nan", NGRAPH_AUDIT_TENSORS=tensors, CHANGED="nan")
    assert done.returncode == 1 and "MXNetError" in done.stderr
    assert "value mx:net_conv1_fwd Convolution + " in done.stderr and "given in net_conv1_weight" in done.stderr
    done = run(CALLS, NGRAPH_AUDIT_GUARD="-100:100", NGRAPH_AUDIT_TENSORS=tensors)
    assert done.returncode == 0, done.stderr[-4000:]


def test_a_guard_of_training() -> None:
    done = run(TRAINING, NGRAPH_AUDIT_GUARD="nan", CHANGED="nan")
    assert done.returncode == 1 and "NaN" in done.stderr and "the guard is nan" in done.stderr
    assert run(TRAINING, NGRAPH_AUDIT_GUARD="nan").returncode == 0


def test_a_folder_that_can_not_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = run(CALLS, NGRAPH_AUDIT=str(tmp_path / "file" / "folder"))
    assert done.returncode == 0 and "nothing is recorded" in done.stderr


PACKAGED = """
import ngraph_mxnet
net(x)
symbol = net(mx.sym.var("data"))
weights = {name: value.data() for name, value in net.collect_params().items()}
ngraph_mxnet.export(symbol, os.environ["NGRAPH_PACKAGE"], weights=weights, data=(1, 3, 8, 8))
os.environ["NGRAPH_AUDIT"] = os.environ["FOLDER"]
executor = symbol.simple_bind(mx.cpu(), data=(1, 3, 8, 8), grad_req="null")
for arrays in (executor.arg_dict, executor.aux_dict):
    for name in arrays:
        if name != "data":
            arrays[name][:] = weights[name]
for number in range(3):
    executor.forward(is_train=False, data=x + number)
"""


def test_what_starts_from_a_file(tmp_path: Path) -> None:
    done = run(PACKAGED, NGRAPH_PACKAGE=str(tmp_path / "net.ngraph"), FOLDER=str(tmp_path))
    assert done.returncode == 0, done.stderr[-4000:]
    found = open_run(tmp_path)
    assert len(found.calls) == 3
    (checkpoint,) = found.checkpoints
    assert len(checkpoint.tensors) == 14
