"""How the backend gets into a process, what that costs if not wanted, and what happens when it can't."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest
from mxnet_helpers import PACKAGE, PTH, backend, environment, mx, needs_library, run_script

from ngraph_mxnet.mxnet_bridge import activation, autoload, numpy_shim

BIND = """
import mxnet as mx
x = mx.sym.Variable("x")
executor = mx.sym.Activation(x, act_type="relu").simple_bind(mx.cpu(), grad_req="null", x=(2, 3))
executor.arg_dict["x"][:] = -1
print(executor.forward()[0].asnumpy().sum(), "NGraphSubgraphOp" in executor.debug_str())
"""


def test_the_pth_line_costs_nothing_without_the_variable():
    line = PTH.read_text()
    assert line.count("\n") == 1
    assert line.startswith("import "), "site runs only lines that begin with import"
    code = compile(line, str(PTH), "exec")
    with backend(None):
        start = time.perf_counter()
        for _ in range(1000):
            exec(code)
        assert (time.perf_counter() - start) / 1000 < 1e-3


def test_the_pth_line_imports_nothing_without_the_variable(tmp_path):
    code = "import sys; print([m for m in sys.modules if m.startswith(('ngraph_mxnet', 'numpy', 'mxnet'))])"
    for value in (None, "MKLDNN", "NONE"):
        assert run_script(code, tmp_path, value).stdout.strip() == "[]"
    loaded = run_script(code, tmp_path, "ngraph").stdout
    assert "ngraph_mxnet.mxnet_bridge.autoload" in loaded
    assert "numpy" not in loaded
    assert "activation" not in loaded


@needs_library
@pytest.mark.parametrize("value", ["NGRAPH", "ngraph", "nGraph"])
def test_an_unmodified_script(tmp_path, value):
    done = run_script(BIND, tmp_path, value)
    assert done.stdout.split() == ["-0.0", "True"] or done.stdout.split() == ["0.0", "True"], done.stderr


MXNET_FIRST = pytest.param(
    "import mxnet, ngraph_mxnet",
    marks=pytest.mark.skipif(sys.version_info >= (3, 12), reason="mxnet alone needs distutils, gone from Python 3.12"),
)


@needs_library
@pytest.mark.parametrize("imports", ["import ngraph_mxnet, mxnet", MXNET_FIRST])
def test_import_by_hand_in_either_order_without_the_pth(tmp_path, imports):
    """As under `python -S` or `pip install --target`: no .pth file is read, the import does the same."""
    shim = "import numpy\nfor kind in (bool, int):\n    vars(numpy).setdefault(kind.__name__, kind)\n"
    script = tmp_path / "script.py"
    script.write_text(shim + imports + "\n" + BIND)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(PACKAGE.parent), *filter(None, sys.path)])}
    done = subprocess.run(
        [sys.executable, "-S", str(script)],
        env={**env, environment.VARIABLE: "NGRAPH"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.stdout.split()[1:] == ["True"], done.stderr


def test_the_finder_survives_a_probe_and_a_failed_import(tmp_path):
    code = """
    import importlib.util, sys
    from ngraph_mxnet.mxnet_bridge import autoload
    count = lambda: sum(isinstance(f, autoload.MXNetFinder) for f in sys.meta_path)
    path, sys.path = sys.path, []
    try:
        import mxnet
    except ImportError:
        sys.path = path
    spec = importlib.util.find_spec("mxnet")
    print(count(), end=" ")
    import mxnet
    from ngraph_mxnet.mxnet_bridge import environment
    loaders = mxnet.__loader__, mxnet.__spec__.loader
    print(count(), environment.activated(), *(type(loader).__name__ for loader in loaders))
    """
    done = run_script(textwrap.dedent(code), tmp_path, "NGRAPH")
    assert done.stdout.split() == ["1", "0", "True", "SourceFileLoader", "SourceFileLoader"], done.stderr


def test_install_is_idempotent():
    before = list(sys.meta_path)
    autoload.install()
    autoload.install()
    assert sys.meta_path == before


# Each leaves another library where ours is looked for.
BREAK_CORE = {
    "missing": """
import importlib.util as util
find_spec = util.find_spec
util.find_spec = lambda name, *rest: None if name == "ngraph_mxnet._core" else find_spec(name, *rest)
""",
    "another_mxnet": """
import ngraph_mxnet
ngraph_mxnet.__path__.insert(0, "built_for_another")
""",
    "not_a_library": """
import ngraph_mxnet
ngraph_mxnet.__path__.insert(0, "not_a_library")
""",
}
WARNINGS = {
    "missing": "found no library",
    "another_mxnet": "was built for mxnet 1.8.0, found mxnet 1.9.1",
    "not_a_library": "does not load",
}


def put_libraries(folder):
    (folder / "built_for_another").mkdir()
    (folder / "built_for_another" / "_core.py").write_text("built_for_mxnet = '1.8.0'")
    (folder / "not_a_library").mkdir()
    (folder / "not_a_library" / "_core.so").write_bytes(b"not ELF" * 100)


@pytest.mark.parametrize("how", BREAK_CORE)
def test_without_a_usable_library_mxnet_works_and_says_so_once(tmp_path, how):
    code = (
        BREAK_CORE[how]
        + BIND
        + """
from mxnet.gluon import nn
net = nn.Dense(2)
net.initialize()
net.hybridize()
print(net(mx.nd.ones((1, 3))).shape)
executor = mx.sym.Activation(x, act_type="relu").simple_bind(mx.cpu(), x=(2, 3))
executor.reshape(x=(1, 3)).forward(is_train=True)
executor.forward()
try:
    mx.sym.Activation(x, act_type="relu").optimize_for("NGRAPH")
except mx.MXNetError as error:
    print("explicit:", error)
"""
    )
    put_libraries(tmp_path)
    done = run_script(code, tmp_path, "NGRAPH")
    assert done.returncode == 0, done.stderr
    assert "False\n(1, 2)\nexplicit: the backend NGRAPH is not usable" in done.stdout
    assert done.stderr.count(WARNINGS[how]) == 1
    assert "_core" in done.stderr


def test_activation_that_raises_does_not_break_the_import(tmp_path):
    code = """
    import ngraph_mxnet.mxnet_bridge as bridge, types, sys
    broken = types.ModuleType("ngraph_mxnet.mxnet_bridge.activation")
    sys.modules[broken.__name__] = bridge.activation = broken
    import mxnet
    print(mxnet.__version__)
    """
    done = run_script(textwrap.dedent(code), tmp_path, "NGRAPH")
    assert done.stdout.strip() == "1.9.1"
    assert "could not be activated" in done.stderr


def test_activation_happens_once():
    environment_before = environment.problem()
    bind = mx.sym.Symbol.bind
    activation.activate(mx)
    assert mx.sym.Symbol.bind is bind
    assert environment.problem() == environment_before


def test_the_numpy_shim_changes_nothing_that_exists():
    numpy_shim.install()
    before = dict(vars(np))
    numpy_shim.install()
    assert dict(vars(np)) == before
    assert np.bool is bool or np.bool is np.bool_
    assert np.isposinf(np.PINF)
    assert np.isnan(np.NaN)


def test_the_version_stub_orders_versions(monkeypatch):
    monkeypatch.setitem(sys.modules, "distutils", None)
    monkeypatch.setitem(sys.modules, "distutils.version", None)
    del sys.modules["distutils"], sys.modules["distutils.version"]
    numpy_shim._install_distutils_version()
    from distutils.version import LooseVersion, StrictVersion

    assert LooseVersion("1.9.0") < LooseVersion("1.17") <= LooseVersion("1.17rc1") < LooseVersion("2.0.0")
    assert StrictVersion("1.26.4") > "1.24"
    assert LooseVersion("1.2") == LooseVersion("1.2")
