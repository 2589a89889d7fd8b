"""How the backend gets into a process, what that costs if not wanted, and what happens when it can't."""

from __future__ import annotations

import ast
import importlib
import os
import subprocess
import sys
import sysconfig
import textwrap
from pathlib import Path

import numpy as np
import pytest
from mxnet_helpers import PACKAGE, PTH, environment, mx, needs_library, run_script

import ngraph_mxnet_autoload
from ngraph_mxnet.plugin.binding import activation
from ngraph_mxnet_autoload import numpy_shim

BIND = """
import mxnet as mx
x = mx.sym.Variable("x")
executor = mx.sym.Activation(x, act_type="relu").simple_bind(mx.cpu(), grad_req="null", x=(2, 3))
executor.arg_dict["x"][:] = -1
print(executor.forward()[0].asnumpy().sum(), "NGraphSubgraphOp" in executor.debug_str())
"""


def test_the_pth_file_is_one_line_that_imports():
    line = PTH.read_text()
    assert line.count("\n") == 1
    assert line.startswith("import "), "site runs only lines that begin with import"


@pytest.mark.parametrize("value", [None, "NONE", "NGRAPH"])
def test_the_start_imports_only_a_finder(tmp_path, value):
    """Also not `__future__`, `os` or `typing` for its sake: what these cost, every start of Python pays."""
    names = run_script("import sys; print(*sys.modules)", tmp_path, value).stdout.split()
    assert {n for n in names if n.startswith(("ngraph_mxnet", "numpy", "mxnet"))} == {"ngraph_mxnet_autoload"}
    assert not {"__future__", "importlib.util", "re", "typing", "warnings"} & set(names)


@pytest.mark.slow
@pytest.mark.parametrize(("value", "bound"), [(None, 1e-3), ("NGRAPH", 5e-3)])
def test_what_the_start_costs(tmp_path, value, bound):
    def seconds() -> float:
        done = run_script("pass", tmp_path, value, PYTHONPROFILEIMPORTTIME="1", PYTHONDONTWRITEBYTECODE="")
        (line,) = [line for line in done.stderr.splitlines() if line.endswith("ngraph_mxnet_autoload")]
        return int(line.split("|")[1]) / 1e6

    assert min(seconds() for _ in range(20)) < bound


def test_a_leftover_pth_file_says_nothing(tmp_path):
    (tmp_path / PTH.name).write_text(PTH.read_text())
    code = f"import site; site.addsitedir({str(tmp_path)!r}); print('started')"
    done = subprocess.run([sys.executable, "-S", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True,
                          env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"})
    assert (done.stdout, done.stderr) == ("started\n", "")


@pytest.mark.parametrize("value", [None, "", "NONE", "MKLDNN"])
def test_without_our_name_mxnet_runs_as_ever(tmp_path, value):
    code = """
import sys, numpy
def names():
    return ({name for name, value in vars(numpy).items() if type(value) is not type(sys)},
            [hasattr(numpy, name) for name in ("irr", "bool", "PINF", "compat")])
before = names()
import mxnet as mx
import builtins
print("ngraph_mxnet" in sys.modules, before == names(), builtins.__import__.__module__)
print(mx.nd.ones(2).asnumpy().sum(), mx.sym.Symbol.bind.__module__)
"""
    done = run_script("import warnings; warnings.simplefilter('ignore')" + code, tmp_path, value)
    assert done.stdout.split("\n")[:2] == ["False True builtins", "2.0 mxnet.symbol.symbol"], done.stderr


@needs_library
def test_the_variable_set_just_before_the_import(tmp_path):
    done = run_script(f"import os; os.environ['MXNET_SUBGRAPH_BACKEND'] = 'NGRAPH'\n{BIND}", tmp_path, None)
    assert done.stdout.split()[1:] == ["True"], done.stderr


@needs_library
def test_a_later_import_of_the_package_activates(tmp_path):
    code = "import mxnet, ngraph_mxnet, os\nos.environ['MXNET_SUBGRAPH_BACKEND'] = 'NGRAPH'\n"
    assert run_script(code + BIND, tmp_path, None).stdout.split()[1:] == ["True"]


def of_an_import(folder, value, whole):
    """What is told of the variable when MXNet, or else an empty module in its place, has been imported."""
    if not whole:
        (folder / "mxnet.py").touch()
    done = run_script("import mxnet; print(mxnet.__file__)", folder, value)
    assert done.stdout.endswith("__init__.py\n" if whole else "mxnet.py\n")
    return done.stderr


@pytest.mark.parametrize(("value", "meant", "whole"), [("NGRPH", "NGRAPH", True), ("nGrap", "NGRAPH", False),
                                                       ("MKLDN", "MKLDNN", False)])
def test_a_misspelt_backend(tmp_path, value, meant, whole):
    told = of_an_import(tmp_path, value, whole)
    assert told.count(f"{value}: MXNet has no such backend; did you mean {meant}?") == 1


@pytest.mark.parametrize(("value", "whole"), [("default_v2", True), ("MKLDNN_QUANTIZE", False),
                                              ("OurOwnBackend", False)])
def test_a_backend_of_somebody_elses(tmp_path, value, whole):
    assert "did you mean" not in of_an_import(tmp_path, value, whole)


@needs_library
def test_misspelt_and_bad_variables_are_told_once_and_nothing_stops(tmp_path):
    bad = {"NGRAPH_BAKEND": "CPU", "NGRAPH_LOG_LEVEL": "verbose", "OMP_NUM_THREADS": "0"}
    bad |= {"NGRAPH_BACKEND": "TOASTER", "NGRAPH_CPU_ISA": "mmx", "NGRAPH_PRECISION": "f7", "NGRAPH_CODEGEN": "maybe"}
    bad |= {"NGRAPH_SHAPES": "-1", "NGRAPH_CPU_WINOGRAD": "yes", "NGRAPH_INTER_OP_PARALLELISM": "?"}
    done = run_script(BIND + BIND, tmp_path, "NGRAPH", **bad)
    assert done.stdout.split()[1::2] == ["True", "True"], done.stderr
    assert done.stderr.count("NGRAPH_BAKEND is set, but there is no such variable: did you mean NGRAPH_BACKEND?") == 1
    for name in set(bad) - {"NGRAPH_BAKEND"}:
        assert done.stderr.count(f"{name}={bad[name]!r} is not allowed") == 1, done.stderr


@needs_library
@pytest.mark.parametrize("value", ["NGRAPH", "ngraph", "nGraph"])
def test_an_unmodified_script(tmp_path, value):
    done = run_script(BIND, tmp_path, value)
    assert done.stdout.split() == ["-0.0", "True"] or done.stdout.split() == ["0.0", "True"], done.stderr


def run_without_pth(code, folder, paths, value=None):
    script = folder / "script.py"
    script.write_text(code)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths)), environment.VARIABLE: value or "NONE"}
    return subprocess.run([sys.executable, "-S", str(script)], env=env, capture_output=True, text=True, timeout=300,
                          check=False)


MXNET_FIRST = pytest.param(
    "import mxnet, ngraph_mxnet",
    marks=pytest.mark.skipif(sys.version_info >= (3, 12), reason="mxnet alone needs distutils, gone from Python 3.12"),
)


@needs_library
@pytest.mark.parametrize("imports", ["import ngraph_mxnet, mxnet", MXNET_FIRST])
def test_import_by_hand_in_either_order_without_the_pth(tmp_path, imports):
    """As under `python -S` or `pip install --target`: no .pth file is read, the import does the same."""
    shim = "import numpy\nfor kind in (bool, int):\n    vars(numpy).setdefault(kind.__name__, kind)\n"
    done = run_without_pth(shim + imports + "\n" + BIND, tmp_path, [PACKAGE.parent, *filter(None, sys.path)], "NGRAPH")
    assert done.stdout.split()[1:] == ["True"], done.stderr


@needs_library
def test_an_import_of_the_executor_activates(tmp_path):
    """It imports mxnet, and so runs the activation in its own middle."""
    done = run_script("import ngraph_mxnet.plugin.binding.executor\n" + BIND, tmp_path, "NGRAPH")
    assert done.stdout.split()[1:] == ["True"], done.stderr


@needs_library
def test_any_import_of_ours_may_come_first(tmp_path):
    """`report`, for one, imports mxnet on its way. Modules that the activation brings in and that import mxnet stand in
    packages that do so first: none is half imported when the activation asks for it."""
    done = run_script("import ngraph_mxnet\nngraph_mxnet.report()\n" + BIND, tmp_path, "NGRAPH")
    assert done.stdout.split()[1:] == ["True"], done.stderr
    assert "Warning" not in done.stderr
    listed = run_script("import mxnet, sys\nprint(*[name for name in sys.modules if 'ngraph_mxnet.plugin' in name])",
                        tmp_path, "NGRAPH")
    for name in listed.stdout.split():
        module = sys.modules.get(name) or importlib.import_module(name)
        if _imports_mxnet_first(Path(module.__file__), anywhere=True):
            assert any(_imports_mxnet_first(folder / "__init__.py") for folder in Path(module.__file__).parents), name


@needs_library
def test_a_symbol_file_may_be_compiled_first(tmp_path):
    """It imports no mxnet in the middle of our modules, where the activation would find them half imported."""
    mx.sym.relu(mx.sym.var("data")).save(str(tmp_path / "net-symbol.json"))
    code = "import ngraph_mxnet\nngraph_mxnet.compile('net-symbol.json', shapes={'data': (2, 3)})\n"
    done = run_script(code + BIND, tmp_path, "NGRAPH")
    assert done.stdout.split()[1:] == ["True"], done.stderr
    assert "Warning" not in done.stderr


def _imports_mxnet_first(path: Path, anywhere: bool = False) -> bool:
    """Whether the first import of a file, or any at its top, is mxnet's."""
    imports = [node for node in ast.parse(path.read_text()).body if isinstance(node, (ast.Import, ast.ImportFrom))
               and getattr(node, "module", None) != "__future__"] if path.exists() else []
    return any(map(_imports_mxnet, imports if anywhere else imports[:1]))


def _imports_mxnet(node: ast.stmt) -> bool:
    if isinstance(node, ast.ImportFrom):
        return (node.module or "").partition(".")[0] == "mxnet"
    return isinstance(node, ast.Import) and any(each.name.partition(".")[0] == "mxnet" for each in node.names)


@needs_library
def test_the_import_serves_calls_that_name_the_backend(tmp_path):
    """Without a `.pth` file and without the variable."""
    code = """
import ngraph_mxnet, mxnet as mx
net = mx.gluon.nn.Dense(2)
net.initialize()
net.hybridize(backend="NGRAPH")
print(net(mx.nd.ones((1, 3))).shape, ngraph_mxnet.report().regions != ())
"""
    done = run_without_pth(code, tmp_path, [PACKAGE.parent, *filter(None, sys.path)])
    assert done.stdout == "(1, 2) True\n", done.stderr


MODEL_ALONE = """
import sys
before = list(sys.meta_path)
import ngraph_mxnet
import numpy as np
from onnx import TensorProto, helper
x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xy")
graph = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "g", [x], [y])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
(result,) = ngraph_mxnet.compile(model.SerializeToString(), backend="INTERPRETER")(np.array([1, 2], np.float32))
print(result.tolist(), sys.meta_path == before, "ngraph_mxnet_autoload" in sys.modules)
"""


def test_models_without_mxnet_leave_the_import_system_alone(tmp_path):
    """Where MXNet is not installed and no `.pth` file is read."""
    site = tmp_path / "site"
    site.mkdir()
    for folder in (PACKAGE.parent, sysconfig.get_path("purelib"), sysconfig.get_path("platlib")):
        for entry in Path(folder).iterdir():
            if not entry.name.startswith("mxnet") and not (site / entry.name).exists():
                (site / entry.name).symlink_to(entry)
    done = run_without_pth(MODEL_ALONE, tmp_path, [site])
    assert done.stdout == "[-1.0, -2.0] True False\n", done.stderr


def test_beside_the_pth_the_import_adds_no_second_finder(tmp_path):
    code = "import sys; before = list(sys.meta_path); import ngraph_mxnet; print(sys.meta_path == before)"
    assert run_script(code, tmp_path, None).stdout == "True\n"


def test_the_finder_survives_a_probe_and_a_failed_import(tmp_path):
    code = """
    import importlib.util, sys
    path, sys.path = sys.path, []
    try:
        import mxnet
    except ImportError:
        sys.path = path
    spec = importlib.util.find_spec("mxnet")
    import mxnet
    from ngraph_mxnet.plugin.binding import environment
    loaders = mxnet.__loader__, mxnet.__spec__.loader
    print(environment.activated(), *(type(loader).__name__ for loader in loaders))
    """
    done = run_script(textwrap.dedent(code), tmp_path, "NGRAPH")
    assert done.stdout.split() == ["True", "SourceFileLoader", "SourceFileLoader"], done.stderr


def test_install_is_idempotent():
    before = list(sys.meta_path)
    ngraph_mxnet_autoload.install()
    ngraph_mxnet_autoload.activate()
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
    line = code[:code.index("import mxnet as mx")].count("\n") + 1
    assert f"<string>:{line}: RuntimeWarning: ngraph_mxnet: " in done.stderr, "where the program imports mxnet"


# Each keeps a module that the activation needs from being imported, in its own way.
BREAK_ACTIVATION = {
    "dependency": 'broken = "networkx", ImportError("no networkx")',
    "module": 'broken = "ngraph_mxnet.plugin.binding.gluon_patch", RuntimeError("out of luck")',
    "package": 'broken = "ngraph_mxnet", OSError("an unreadable disk")',
}


@pytest.mark.parametrize("how", BREAK_ACTIVATION)
def test_whatever_fails_in_the_activation_mxnet_works(tmp_path, how):
    code = f"""
import importlib.util, os, sys
{BREAK_ACTIVATION[how]}
class Breaks:
    def find_spec(self, name, path=None, target=None):
        if name == broken[0]:
            raise broken[1]
        if {how == "dependency"} and name == "ngraph_mxnet.plugin.binding.executor":
            return importlib.util.spec_from_file_location(name, "needs_more/symbol_patch.py")
sys.meta_path.insert(0, Breaks())
{BIND}
executor = mx.sym.Activation(x, act_type="relu").bind(mx.cpu(), [mx.nd.ones((2, 3))])
executor.reshape(x=(1, 3)).forward(is_train=True)
net = mx.gluon.nn.Dense(2)
net.initialize()
net.hybridize()
print(net(mx.nd.ones((1, 3))).shape, os.environ["MXNET_SUBGRAPH_BACKEND"])
"""
    (tmp_path / "needs_more").mkdir()
    (tmp_path / "needs_more" / "symbol_patch.py").write_text("import networkx")
    done = run_script(code, tmp_path, "NGRAPH")
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[0].endswith(" False")
    assert done.stdout.split("\n")[1] == "(1, 2) NGRAPH"
    error = BREAK_ACTIVATION[how].partition(", ")[2].partition("(")[0]
    assert done.stderr.count(f"could not be activated ({error}") == 1


def test_activation_happens_once():
    environment_before = environment.problem()
    bind = mx.sym.Symbol.bind
    activation.activate(mx)
    assert mx.sym.Symbol.bind is bind
    assert environment.problem() == environment_before


def test_mxnet_sees_the_names_that_numpy_had():
    older = numpy_shim.older_numpy()
    assert older.bool in (bool, np.bool_)
    assert np.isposinf(older.PINF)
    assert np.isnan(older.NaN)
    assert older.ndarray is np.ndarray
    with pytest.raises(AttributeError):
        older.no_such_name  # noqa: B018


USES = """
import scipy.stats  # of which test_utils has no part otherwise, see tests/quick_start
import numpy, mxnet as mx
from mxnet import np, npx, test_utils
npx.set_np()
array = np.array([[1.0, 2.0], [3.0, 4.0]])
print(np.full((2,), True, dtype=None).dtype, np.array([True, False]).dtype, array[np.array([True, False])].shape)
print(array[[True, False]].shape, np.take(array, np.array([0]), mode="clip").shape, np.bool is bool or np.bool)
print(np.trapz(array).shape, np.in1d(array, array).shape, np.msort(array).shape, np.alltrue(array > 0))
test_utils.assert_almost_equal(np.ones(3, dtype=bool), numpy.ones(3, dtype=bool))
test_utils.chi_square_check(lambda count: numpy.random.default_rng(0).uniform(0, 1, count), [(0, 0.5), (0.5, 1)],
                            [0.5, 0.5], nsamples=1000)
from mxnet.gluon.contrib.estimator import event_handler
print(event_handler.EarlyStoppingHandler(mx.gluon.metric.Loss() if hasattr(mx.gluon, "metric") else mx.metric.Loss(),
                                         mode="min").monitor_op.__name__)
import mxnet.onnx.mx2onnx, mxnet.rnn, mxnet.contrib.quantization, mxnet.contrib.amp
"""


def test_what_mxnet_needs_of_older_numpy_when_it_runs(tmp_path):
    """Every place in the wheel that reads such a name in a function, and modules that `import mxnet` leaves out."""
    done = run_script(USES, tmp_path, None)
    assert done.returncode == 0, done.stderr


def test_the_version_stub_orders_versions():
    version = numpy_shim._distutils()
    loose, strict = version.LooseVersion, version.StrictVersion
    assert loose("1.9.0") < loose("1.17") <= loose("1.17rc1") < loose("2.0.0")
    assert strict("1.26.4") > "1.24"
    assert loose("1.2") == loose("1.2")
