"""Nothing that is read from a file runs: no module unpickles, evaluates a text, or lets NumPy unpickle."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FOLDERS = ("ngraph_mxnet", "ngraph_mxnet_autoload", "runtime/ngraph_runtime")
MODULES = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
UNPICKLING = {"pickle", "_pickle", "cPickle", "pickletools", "cloudpickle", "dill", "joblib", "marshal", "shelve"}
EVALUATING = {"eval", "exec", "execfile", "__import__", "runpy", "code", "codeop"}
LOADERS = {"load", "read_array", "NpzFile"}
"""NumPy's functions that unpickle where they are told to."""


def found(source: str) -> Iterator[str]:
    """What the module does of it, as it is written."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (f"import {name.name}" for name in node.names if _runs(name.name))
        elif isinstance(node, ast.ImportFrom) and _runs(node.module or ""):
            yield f"from {node.module} import"
        elif isinstance(node, ast.Call):
            called = node.func
            name = ast.unparse(called).split(".")[-1]
            if isinstance(called, ast.Name) and name in EVALUATING:
                yield f"{name}()"
            if name == "import_module" and isinstance(node.args[0], ast.Constant) and node.args[0].value in UNPICKLING:
                yield f"import_module({node.args[0].value!r})"
            given = {word.arg: word.value for word in node.keywords}
            allowed = given.get("allow_pickle")
            if allowed is not None and not (isinstance(allowed, ast.Constant) and allowed.value is False):
                yield "allow_pickle"
            if name in LOADERS and allowed is None and _is_numpy(called):
                yield f"{ast.unparse(called)} without allow_pickle=False"


def _runs(module: str) -> bool:
    return module.split(".")[0] in UNPICKLING | EVALUATING


def _is_numpy(called: ast.expr) -> bool:
    return ast.unparse(called).split(".")[0] in ("np", "numpy", "onp")


@pytest.mark.parametrize("module", MODULES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_no_module_runs_what_it_reads(module: Path) -> None:
    assert not list(found(module.read_text()))


@pytest.mark.parametrize("source", [
    "import pickle", "import numpy, pickle as p", "from marshal import loads", "from dill.source import x", "eval('1')",
    "exec(text)", "__import__(name)", "importlib.import_module('pickle')", "import runpy", "np.load(path)",
    "numpy.load(path, allow_pickle=True)", "np.lib.format.read_array(file)", "read(path, allow_pickle=allowed)",
])
def test_running_what_is_read_is_found(source: str) -> None:
    assert list(found(source))


@pytest.mark.parametrize("source", [
    "np.load(path, allow_pickle=False)", "json.load(file)", "symbol.eval(ctx)", "import ast", "re.compile(text)",
    "compile(graph, 'CPU')", "mx.nd.load(path)", "import_module(name)", "from codecs import open",
])
def test_reading_is_no_running(source: str) -> None:
    assert not list(found(source))


def test_the_c_plus_plus_never_calls_pythons_evaluator() -> None:
    for path in (ROOT / "csrc").rglob("*"):
        if path.suffix in (".h", ".cc"):
            text = path.read_text()
            assert not any(name in text for name in ("PyRun_", "PyMarshal_", "py::eval", "py::exec", "Py_CompileString",
                                                     'import("pickle")', 'import("marshal")')), path
