"""The order in which the packages may import each other, and the size of modules."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "ngraph_mxnet"
MODULES = sorted(PACKAGE.rglob("*.py"))
MOST_LINES = 400

_BASE = {"errors", "config", "forks"}
# What each part may import besides itself: `ir <- ops <- {bridges, autodiff, passes} <- partition`,
# `runtime` only `ir`, `runtime <- {interpreter, cpu} <- mxnet_bridge`.
ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "cores": set(),
    "forks": set(),
    "config": {"cores", "errors"},
    "ir": {"errors"},
    "cache": {"_core", *_BASE},
    "ops": {"ir", "errors"},
    "compositions": {"ir", "ops", *_BASE},
    "passes": {"ir", "ops", *_BASE},
    "autodiff": {"ir", "ops", *_BASE},
    "partition": {"ir", "ops", "passes", "autodiff", "runtime", *_BASE},
    "runtime": {"ir", *_BASE},
    "interpreter": {"ir", "ops", "runtime", *_BASE},
    "cpu": {"cache", "ir", "ops", "passes", "runtime", "_core", *_BASE},
    "nnp": {"ir", "ops", "passes", "runtime", *_BASE},
    "hybrid": {"cache", "cpu", "interpreter", "ir", "nnp", "ops", "partition", "passes", "runtime", "_core", *_BASE},
    "debug": {"ir", "ops", "passes", "runtime", *_BASE},
    "onnx_bridge": {"cache", "compositions", "ir", "ops", "passes", "runtime", *_BASE},
    "cli": {
        "api",
        "cache",
        "cpu",
        "debug",
        "ir",
        "mxnet_bridge",
        "onnx_bridge",
        "partition",
        "passes",
        "runtime",
        *_BASE,
    },
    "api": {"ir", "mxnet_bridge", "onnx_bridge", "runtime", *_BASE},
    "mxnet_bridge": {
        "cache",
        "compositions",
        "ir",
        "ops",
        "passes",
        "partition",
        "runtime",
        "interpreter",
        "cpu",
        "debug",
        "_core",
        *_BASE,
    },
}
# The op table loads the ops when it is first asked for one.
EXCEPTIONS = {("ir/opdef.py", "ops")}


def _part(module: Path) -> str:
    return module.relative_to(PACKAGE).parts[0].removesuffix(".py")


def _imports(module: Path) -> Iterator[str]:
    """Full names of everything that the module imports, inside functions too."""
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: a relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _id(module: Path) -> str:
    return str(module.relative_to(PACKAGE))


@pytest.mark.parametrize("module", MODULES, ids=_id)
def test_import_order(module: Path):
    part = _part(module)
    if part in ("__init__", "__main__"):
        return
    assert part in ALLOWED, f"say in ALLOWED what {part} may import"
    for name in _imports(module):
        top, *rest = name.split(".")
        if top == "ngraph_mxnet" and rest and rest[0] != part and (_id(module), rest[0]) not in EXCEPTIONS:
            assert rest[0] in ALLOWED[part], f"{_id(module)} imports {name}"


@pytest.mark.parametrize("module", MODULES, ids=_id)
def test_only_the_mxnet_bridge_imports_mxnet(module: Path):
    if _part(module) != "mxnet_bridge":
        assert not [name for name in _imports(module) if name.split(".")[0] == "mxnet"]


@pytest.mark.parametrize("module", MODULES, ids=_id)
def test_modules_are_short(module: Path):
    assert len(module.read_text().splitlines()) <= MOST_LINES


@pytest.mark.parametrize("module", MODULES, ids=_id)
def test_modules_say_what_they_are_for(module: Path):
    tree = ast.parse(module.read_text())
    assert ast.get_docstring(tree) or len(tree.body) <= 1  # a package's __init__ may be empty


def test_test_files_have_names_of_their_own():
    """pytest imports them all as top-level modules."""
    names = [path.name for path in Path(__file__).parent.rglob("test_*.py")]
    assert len(names) == len(set(names)), sorted(name for name in set(names) if names.count(name) > 1)
