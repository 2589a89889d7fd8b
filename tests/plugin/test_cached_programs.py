"""What one process found out and compiled, the next one finds on disk."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mxnet_helpers import needs_library
from native_runs import mx

import ngraph_mxnet
from ngraph_mxnet import _core
from ngraph_mxnet.program.cache import small_made
from ngraph_mxnet.targets.interpreter import InterpreterBackend

SCRIPT = """
import sys
import numpy as np
import ngraph_mxnet
import mxnet as mx
from ngraph_mxnet import _core

data = mx.sym.Variable(sys.argv[1] + "data")
net = mx.sym.Convolution(data, kernel=(3, 3), num_filter=20, pad=(1, 1), name=sys.argv[1] + "conv")
net = mx.sym.BatchNorm(net, name=sys.argv[1] + "bn", fix_gamma=False)
net = mx.sym.Activation(net, act_type="relu")
net = mx.sym.Pooling(net, kernel=(2, 2), stride=(2, 2), pool_type="max")
net = mx.sym.FullyConnected(net, num_hidden=7, name=sys.argv[1] + "fc")
executor = net.simple_bind(mx.cpu(), grad_req="null", **{sys.argv[1] + "data": (2, 5, 8, 8)})
random = np.random.RandomState(0)
for array in executor.arg_arrays + executor.aux_arrays:
    array[:] = random.rand(*array.shape)
out = executor.forward(is_train=False)[0].asnumpy()
assert _core.op_calls() == 1
assert "NGraphSubgraphOp" in executor.debug_str()
out.tofile(sys.argv[2])
print("compiled" if "ngraph_mxnet.targets.cpu.backend" in sys.modules else "kept")
"""


def run(tmp_path: Path, prefix: str = "a", **environment: str) -> tuple[str, np.ndarray, str]:
    """How the process came by its program, what that computed, and its log."""
    script, out = tmp_path / "script.py", tmp_path / "out"
    script.write_text(SCRIPT)
    settings = {"MXNET_SUBGRAPH_BACKEND": "NGRAPH", "NGRAPH_CACHE_DIR": str(tmp_path / "cache")}
    path = os.pathsep.join([str(Path(ngraph_mxnet.__file__).parents[1]), os.environ["PYTHONPATH"]])
    done = subprocess.run(
        [sys.executable, str(script), prefix, str(out)], capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": path, **settings, **environment},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip(), np.fromfile(out, np.float32), done.stderr


@needs_library
def test_the_second_process_compiles_nothing(tmp_path: Path) -> None:
    how, expected, _ = run(tmp_path)
    assert how == "compiled"
    for prefix in ("a", "other_names_"):
        how, found, _ = run(tmp_path, prefix)
        assert how == "kept"
        np.testing.assert_array_equal(found, expected)


@needs_library
def test_settings_and_damage_miss(tmp_path: Path) -> None:
    _, expected, _ = run(tmp_path)
    assert run(tmp_path, OMP_NUM_THREADS="1", NGRAPH_CPU_ISA="baseline")[0] == "compiled"
    assert run(tmp_path, NGRAPH_CACHE_DIR="off")[0] == "compiled"
    for path in (tmp_path / "cache" / "program").iterdir():
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
    how, found, log = run(tmp_path)
    assert how == "compiled"
    assert "is damaged" in log
    np.testing.assert_array_equal(found, expected)
    assert run(tmp_path)[0] == "kept"


@needs_library
def test_a_program_that_does_not_load_is_compiled(own_backend: Callable[..., None], monkeypatch: pytest.MonkeyPatch,
                                                  caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    def load(self: Any, package: Any) -> None:
        raise TypeError("an entry of another kind")

    own_backend(InterpreterBackend, load=load)
    monkeypatch.setenv("NGRAPH_BACKEND", "OWN")
    monkeypatch.setenv("NGRAPH_CACHE_DIR", str(tmp_path))
    small_made.clear()
    arrays = {"x": mx.nd.ones((2, 64)), "fc_weight": mx.nd.ones((64, 64)), "fc_bias": mx.nd.ones(64)}
    net = mx.sym.FullyConnected(mx.sym.Variable("x"), num_hidden=64, name="fc").optimize_for("NGRAPH", arrays)
    entries = []
    for told in (False, True):
        _core.clear_compile_cache()
        assert (net.bind(mx.cpu(), arrays, grad_req="null").forward()[0].asnumpy() == 65).all()
        assert ("a cached program does not load" in caplog.text) == told
        (entry,) = (tmp_path / "program").iterdir()
        entries.append((entry.name, entry.stat().st_ino))
    assert entries[0][0] == entries[1][0] and entries[0] != entries[1], "it was kept again"
    _core.clear_compile_cache()


@needs_library
def test_a_partitioned_graph_under_other_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as one that was saved: it tells the settings of its partitioning."""
    monkeypatch.setenv("NGRAPH_CACHE_DIR", str(tmp_path))
    small_made.clear()
    arrays = {"x": mx.nd.ones((2, 64)), "fc_weight": mx.nd.ones((64, 64)), "fc_bias": mx.nd.ones(64)}
    net = mx.sym.FullyConnected(mx.sym.Variable("x"), num_hidden=64, name="fc").optimize_for("NGRAPH", arrays)
    for winograd, count in (("1", 1), ("0", 2), ("1", 2)):
        monkeypatch.setenv("NGRAPH_CPU_WINOGRAD", winograd)
        _core.clear_compile_cache()
        assert (net.bind(mx.cpu(), arrays, grad_req="null").forward()[0].asnumpy() == 65).all()
        assert len(list((tmp_path / "program").iterdir())) == count
    _core.clear_compile_cache()


@needs_library
@pytest.mark.parametrize("backend", ["INTERPRETER", "NNP", "HYBRID"])
def test_programs_of_every_backend_are_kept(backend: str, tmp_path: Path) -> None:
    _, expected, _ = run(tmp_path, NGRAPH_BACKEND=backend)
    (entry,) = (tmp_path / "cache" / "program").iterdir()
    _, found, log = run(tmp_path, NGRAPH_BACKEND=backend, NGRAPH_LOG_LEVEL="info")
    np.testing.assert_array_equal(found, expected)
    assert f"for {backend}" not in log and list(entry.parent.iterdir()) == [entry]
