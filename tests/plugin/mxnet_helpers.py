"""What the tests of MXNet's side share: models, the environment variable, and scripts in a new process."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import ngraph_mxnet  # isort: skip  # makes the import of mxnet work on current NumPy
import mxnet as mx
import numpy as np
import pytest

from ngraph_mxnet.plugin.binding import environment, partitioner
from ngraph_mxnet.program import program_cache
from ngraph_mxnet.program.backend import load, load_template
from ngraph_mxnet.program.package import Package, unpack

PACKAGE = Path(ngraph_mxnet.__file__).parent
PTH_NAME = "ngraph_mxnet_autoload.pth"
PTH_INSTALLED = (Path(sysconfig.get_paths()["purelib"]) / PTH_NAME).exists()
PTH = Path(sysconfig.get_paths()["purelib"]) / PTH_NAME if PTH_INSTALLED else PACKAGE.parent / PTH_NAME

needs_library = pytest.mark.skipif(environment.problem() is not None, reason=str(environment.problem()))


@contextmanager
def backend(value: str | None) -> Iterator[None]:
    """The environment variable has this value; None: it is not set."""
    before = os.environ.pop(environment.VARIABLE, None)
    if value is not None:
        os.environ[environment.VARIABLE] = value
    try:
        yield
    finally:
        os.environ.pop(environment.VARIABLE, None)
        if before is not None:
            os.environ[environment.VARIABLE] = before


def forget_graphs() -> None:
    """What this process knows of graphs, so that all is done again."""
    from ngraph_mxnet import _core

    partitioner.recent.clear()
    partitioner.latest.clear()
    _core.clear_compile_cache()


def check_that_all_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on what is compiled for training must be such as the folder keeps and another process loads."""
    def put(kind: str, content: bytes | None) -> None:
        assert content is not None
        for plain in unpack(content)["programs"]:
            (load_template if kind == "template" else load)(Package.from_plain(plain))

    def place(kind: str, key: str, *, small: bool) -> SimpleNamespace:
        return SimpleNamespace(get=lambda: None, put=partial(put, kind))

    monkeypatch.setattr(program_cache, "open_store", lambda: True)
    monkeypatch.setattr(program_cache, "place_for", place)


def conv_net(dropout: float = 0.0) -> mx.sym.Symbol:
    """Convolution, batch norm, ReLU, a residual sum, a dense layer."""
    data = mx.sym.Variable("data")
    conv = mx.sym.Convolution(data, num_filter=4, kernel=(3, 3), pad=(1, 1), name="conv")
    norm = mx.sym.BatchNorm(conv, fix_gamma=False, name="norm")
    relu = mx.sym.Activation(norm, act_type="relu", name="relu")
    second = mx.sym.Convolution(relu, num_filter=4, kernel=(1, 1), name="second")
    total = mx.sym.elemwise_add(second, relu, name="total")
    if dropout:
        total = mx.sym.Dropout(total, p=dropout, name="drop")
    return mx.sym.FullyConnected(total, num_hidden=5, name="dense")


def classifier() -> mx.sym.Symbol:
    data = mx.sym.Variable("data")
    hidden = mx.sym.FullyConnected(data, num_hidden=8, name="fc1")
    hidden = mx.sym.Activation(hidden, act_type="relu", name="relu1")
    return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(hidden, num_hidden=3, name="fc2"), name="softmax")


CONV_SHAPE = (2, 3, 6, 6)


def fill(executor: mx.executor.Executor, seed: int = 0) -> mx.executor.Executor:
    """The same values for the same names and shapes, whatever the order."""
    for arrays in (executor.arg_dict, executor.aux_dict):
        for name, array in sorted(arrays.items()):
            values = np.random.default_rng([seed, *name.encode()]).uniform(0.1, 1.0, array.shape)
            array[:] = values.astype(array.dtype)
    return executor


def bound(symbol: mx.sym.Symbol, value: str | None, grad_req: object = "null", **shapes: tuple[int, ...]):
    """A filled executor, bound with the variable set to `value`."""
    with backend(value):
        return fill(symbol.simple_bind(mx.cpu(), grad_req=grad_req, **shapes))


def is_partitioned(executor: mx.executor.Executor) -> bool:
    return "NGraphSubgraphOp" in executor.debug_str()


def close(actual: object, expected: object, rtol: float = 1e-4, atol: float = 1e-5) -> None:
    pair = [value.asnumpy() if isinstance(value, mx.nd.NDArray) else value for value in (actual, expected)]
    np.testing.assert_allclose(*pair, rtol=rtol, atol=atol)


def run_script(
    code: str, folder: Path, value: str | None, **environ: str
) -> subprocess.CompletedProcess[str]:
    """Run a script that knows nothing of us in a new process, as if our `.pth` file were installed."""
    env = {**os.environ, **environ}
    env.pop(environment.VARIABLE, None)
    if value is not None:
        env[environment.VARIABLE] = value
    paths = [path for path in sys.path if path]
    if not PTH_INSTALLED:
        site = folder / "site"
        site.mkdir(exist_ok=True)
        (site / "sitecustomize.py").write_text(PTH.read_text())
        paths = [str(site), str(PACKAGE.parent), *paths]
    env["PYTHONPATH"] = os.pathsep.join(paths)
    return subprocess.run(
        [sys.executable, "-c", code],
        env=env,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
