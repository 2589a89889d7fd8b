"""The backend beside other NumPy versions than the installed one: an old pin, and NumPy 2."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import ngraph_mxnet

SCRIPT = """
import mxnet as mx, numpy as np, sys
assert np.__version__ == sys.argv[1], np.__version__
data = mx.sym.Variable("data")
net = mx.sym.Convolution(data, num_filter=8, kernel=(3, 3), pad=(1, 1), name="conv")
net = mx.sym.Activation(mx.sym.BatchNorm(net, name="norm"), act_type="relu")
net = mx.sym.FullyConnected(mx.sym.Pooling(net, kernel=(2, 2), stride=(2, 2), pool_type="max"), num_hidden=4, name="fc")
executor = net.simple_bind(mx.cpu(), data=(2, 3, 8, 8), grad_req="null")
for name, array in [*executor.arg_dict.items(), *executor.aux_dict.items()]:
    array[:] = np.random.default_rng(len(name)).uniform(0.1, 1, array.shape)
assert "NGraphSubgraphOp" in executor.debug_str()
print(float(executor.forward(is_train=False)[0].sum().asscalar()))
"""


@pytest.mark.slow
def test_the_same_result_beside_each_numpy(tmp_path: Path) -> None:
    """Needs the package registry. NumPy's versions with wheels for this Python only."""
    results = set()
    for version in ("1.23.5", "1.26.4", "2.2.6"):
        folder = tmp_path / version
        install = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(folder)]
        done = subprocess.run([*install, f"numpy=={version}"], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            continue  # no wheel for this Python
        start = folder / "sitecustomize.py"
        start.write_text("import ngraph_mxnet_autoload\n")
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(folder), str(Path(ngraph_mxnet.__file__).parents[1])]),
            "MXNET_SUBGRAPH_BACKEND": "NGRAPH",
        }
        command = [sys.executable, "-W", "ignore", "-c", SCRIPT, version]
        ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, f"numpy {version}: {ran.stderr[-2000:]}"
        results.add(ran.stdout)
    assert len(results) == 1
