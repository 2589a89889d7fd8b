"""Scripts that know nothing of us, each in a new process, with and without the environment variable."""

from __future__ import annotations

import ast

import numpy as np
import pytest
from mxnet_helpers import needs_library, run_script

pytestmark = needs_library

SCRIPTS = {
    "bind": """
        a, b = mx.sym.Variable("a"), mx.sym.Variable("b")
        net = mx.sym.Activation(a, act_type="relu") + b
        arrays = [mx.nd.array([[-1, 2]]), mx.nd.array([[3, 4]])]
        show(net.bind(mx.cpu(), arrays).forward()[0])
        show(net.bind(mx.cpu(), dict(zip("ab", arrays))).forward()[0])
        show(net.eval(mx.cpu(), a=arrays[0], b=arrays[1])[0])
    """,
    "module": """
        np.random.seed(0); mx.random.seed(0)
        net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=4)
        net = mx.sym.SoftmaxOutput(mx.sym.Activation(net, act_type="relu"), name="softmax")
        x, y = np.random.rand(16, 3).astype("f"), np.arange(16) % 4
        data = mx.io.NDArrayIter(x, y, 4, label_name="softmax_label")
        mod = mx.mod.Module(net)
        mod.fit(data, num_epoch=2, initializer=mx.init.One())
        show(mod.predict(data))
        mod.save_checkpoint("m", 1)
        again = mx.mod.Module.load("m", 1)
        again.bind(data.provide_data, data.provide_label, for_training=False)
        show(again.predict(data))
    """,
    "gluon": """
        from mxnet.gluon import nn, SymbolBlock
        net = nn.HybridSequential()
        net.add(nn.Conv2D(3, 3, activation="relu"), nn.BatchNorm(), nn.Dropout(0.3), nn.Dense(4))
        net.initialize(mx.init.One())
        x = mx.nd.arange(96).reshape((2, 3, 4, 4)) / 96
        net.hybridize()
        show(net(x))
        net.export("g")
        show(SymbolBlock.imports("g-symbol.json", ["data"], "g-0000.params")(x))
    """,
    "numpy_interface": """
        from mxnet import npx
        from mxnet.gluon import nn
        npx.set_np()
        net = nn.HybridSequential()
        net.add(nn.Dense(3, activation="relu"), nn.Dense(2))
        net.initialize(mx.init.One())
        net.hybridize()
        show(net(mx.np.ones((2, 5))))
        show(net(mx.np.ones((4, 5))))
    """,
    "empty_batch": """
        with mx.util.np_shape(True):
            net = mx.sym.Activation(mx.sym.Variable("data"), act_type="relu")
            show(net.bind(mx.cpu(), [mx.nd.zeros((0, 3))]).forward()[0])
    """,
    "exit_with_work_pending": """
        x = mx.sym.Variable("x")
        executor = mx.sym.Activation(x, act_type="relu").simple_bind(mx.cpu(), grad_req="null", x=(64, 64))
        for _ in range(500):
            executor.forward()
        show(executor.outputs[0][0, :2])
        for _ in range(500):
            executor.forward()
    """,
    "forked_workers": """
        from mxnet import gluon
        net = gluon.nn.Dense(2)
        net.initialize(mx.init.One())
        net.hybridize()
        data = gluon.data.ArrayDataset(np.arange(24, dtype="f").reshape(8, 3))
        for batch in gluon.data.DataLoader(data, batch_size=4, num_workers=1):
            show(net(batch.as_in_context(mx.cpu())))
    """,
}

PRELUDE = """
import mxnet as mx
import numpy as np
def show(array):
    print(array.asnumpy().tolist(), flush=True)
"""


def outputs(name, folder, value, **environ):
    folder.mkdir()
    lines = [line[8:] for line in SCRIPTS[name].splitlines()]
    done = run_script(PRELUDE + "\n".join(lines), folder, value, **environ)
    assert done.returncode == 0, done.stderr
    return [np.array(ast.literal_eval(line)) for line in done.stdout.splitlines() if line.startswith("[")]


@pytest.mark.parametrize("name", SCRIPTS)
def test_script(name, tmp_path):
    ours = outputs(name, tmp_path / "ours", "ngraph")
    stock = outputs(name, tmp_path / "stock", None)
    assert len(ours) == len(stock) > 0
    for mine, theirs in zip(ours, stock, strict=True):
        assert mine.shape == theirs.shape
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5)


def test_naive_engine(tmp_path):
    ours = outputs("gluon", tmp_path / "ours", "NGRAPH", MXNET_ENGINE_TYPE="NaiveEngine")
    stock = outputs("gluon", tmp_path / "stock", None)
    np.testing.assert_allclose(ours, stock, rtol=1e-4, atol=1e-5)


def test_a_partitioned_export_runs_in_a_new_process(tmp_path):
    export = (
        PRELUDE
        + """
net = mx.gluon.nn.HybridSequential()
net.add(mx.gluon.nn.Dense(4, activation="relu"), mx.gluon.nn.Dense(2))
net.initialize(mx.init.Xavier())
net.optimize_for(mx.nd.ones((1, 3)), backend="NGRAPH")
show(net(mx.nd.ones((1, 3))))
net.export("p")
"""
    )
    load = """
net = mx.gluon.SymbolBlock.imports("p-symbol.json", ["data"], "p-0000.params")
show(net(mx.nd.ones((1, 3))))
"""
    first = run_script(export, tmp_path, "NGRAPH")
    by_variable = run_script(PRELUDE + load, tmp_path, "NGRAPH")
    by_import = run_script("import ngraph_mxnet\n" + PRELUDE + load, tmp_path, None)
    for done in (first, by_variable, by_import):
        assert done.returncode == 0, done.stderr
    assert "NGraphSubgraphOp" in (tmp_path / "p-symbol.json").read_text()
    values = [ast.literal_eval(done.stdout) for done in (first, by_variable, by_import)]
    np.testing.assert_allclose(values[1:], [values[0]] * 2, rtol=1e-5)
