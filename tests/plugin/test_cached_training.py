"""Training programs and updates that one process compiled, the next one finds on disk."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from mxnet_helpers import needs_library, run_script

COMPILERS = ("ngraph_mxnet.autodiff", "ngraph_mxnet.program.compile", "ngraph_mxnet.targets.cpu.backend")

GLUON = """
net = gluon.nn.HybridSequential()
net.add(gluon.nn.Conv2D(8, 3, padding=1), gluon.nn.BatchNorm(), gluon.nn.Activation("relu"), gluon.nn.Dropout(0.3),
        gluon.nn.Dense(5))
net.initialize(mx.init.Xavier())
net.hybridize(static_alloc=True)
loss = gluon.loss.SoftmaxCrossEntropyLoss()
trainer = gluon.Trainer(net.collect_params(), optimizer, {"learning_rate": 0.01})
for step in range(3):
    with autograd.record():
        value = loss(net(data), label)
    value.backward()
    trainer.step(4)
    print(value.mean().asscalar())
found = [parameter.data() for parameter in net.collect_params().values()]
"""

MODULE = """
net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=5, name="fc")
net = mx.sym.SoftmaxOutput(mx.sym.Activation(net, act_type="relu"), name="softmax")
module = mx.mod.Module(net)
module.fit(mx.io.NDArrayIter(data, label, 2), optimizer=optimizer, num_epoch=2, initializer=mx.init.Xavier())
found = [array for _, array in sorted(module.get_params()[0].items())]
"""

# A net with a custom operator trains in parts.
PARTS = """
from mxnet.operator import CustomOp, CustomOpProp, register

class Same(CustomOp):
    def forward(self, is_train, req, in_data, out_data, aux):
        self.assign(out_data[0], req[0], in_data[0])

    def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
        self.assign(in_grad[0], req[0], out_grad[0])

@register("same")
class SameProp(CustomOpProp):
    def create_operator(self, ctx, shapes, dtypes):
        return Same()

net = mx.sym.Convolution(mx.sym.Variable("data"), kernel=(3, 3), num_filter=64, pad=(1, 1), name="first")
net = mx.sym.Convolution(net, kernel=(3, 3), num_filter=64, pad=(1, 1), name="second")
net = mx.sym.FullyConnected(mx.sym.Custom(net, op_type="same"), num_hidden=5, name="fc")
net = mx.sym.SoftmaxOutput(net, name="softmax")
module = mx.mod.Module(net)
module.fit(mx.io.NDArrayIter(data, label, 2), optimizer=optimizer, num_epoch=2, initializer=mx.init.Xavier())
found = [array for _, array in sorted(module.get_params()[0].items())]
"""


def run(tmp_path: Path, script: str, optimizer: str, **environment: str) -> tuple[list[str], np.ndarray, str]:
    """Which of COMPILERS were imported, all parameters after the script, and the log."""
    code = f"""
import sys
import mxnet as mx
import numpy as np
import ngraph_mxnet
from mxnet import autograd, gluon
optimizer = {optimizer!r}
mx.random.seed(3)
random = np.random.RandomState(0)
data = mx.nd.array(random.rand(4, 3, 16, 16))
label = mx.nd.array(random.randint(0, 5, 4))
{script}
np.concatenate([array.asnumpy().ravel() for array in found]).tofile("out")
assert ngraph_mxnet.report().steps and ngraph_mxnet.report().updates, ngraph_mxnet.report()
print("imported", *[name for name in {COMPILERS} if name in sys.modules])
"""
    settings = {"NGRAPH_TRAINING": "1", "NGRAPH_CACHE_DIR": str(tmp_path / "cache"), "NGRAPH_PROFILE": ""}
    done = run_script(code, tmp_path, "NGRAPH", **{**settings, **environment})
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1].split()[1:], np.fromfile(tmp_path / "out", np.float32), done.stderr


@needs_library
@pytest.mark.parametrize("script", [GLUON, MODULE, PARTS], ids=["gluon", "module", "parts"])
def test_the_second_process_trains_without_the_compiler(script: str, tmp_path: Path) -> None:
    imported, expected, log = run(tmp_path, script, "adam")
    assert imported == list(COMPILERS), log
    entries = sorted((tmp_path / "cache" / "program").iterdir())
    imported, found, log = run(tmp_path, script, "adam")
    assert imported == [] or script is PARTS, log  # to find parts, a graph is differentiated
    assert sorted((tmp_path / "cache" / "program").iterdir()) == entries
    np.testing.assert_array_equal(found, expected)


@needs_library
def test_what_is_compiled_depends_on_settings_optimizers_and_what_is_saved(tmp_path: Path) -> None:
    run(tmp_path, GLUON, "sgd")
    assert run(tmp_path, GLUON, "sgd")[0] == []
    for settings in ({"OMP_NUM_THREADS": "1"}, {"NGRAPH_REMATERIALIZE": "1"}, {"NGRAPH_CPU_ISA": "baseline"}):
        assert run(tmp_path, GLUON, "sgd", **settings)[0] == list(COMPILERS)
    assert run(tmp_path, GLUON, "nag")[0]


@needs_library
def test_damaged_entries_are_compiled_anew(tmp_path: Path) -> None:
    _, expected, _ = run(tmp_path, GLUON, "rmsprop")
    for path in (tmp_path / "cache" / "program").iterdir():
        content = bytearray(path.read_bytes())
        content[-9] ^= 1
        path.write_bytes(content)
    imported, found, log = run(tmp_path, GLUON, "rmsprop")
    assert imported == list(COMPILERS) and "is damaged" in log
    np.testing.assert_array_equal(found, expected)
