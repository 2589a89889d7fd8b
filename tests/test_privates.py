"""Tests use what the package offers: its private names only where there is no other way, and the list below says why.

It is to become shorter. What a test needs of a private name is mostly worth a public one.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parent
PACKAGE = TESTS.parent / "ngraph_mxnet"

REPLACED = "a stand-in that fails, counts or is quick"
BOUNDED = "counts what is kept: the bound shows nowhere else"
ALLOWED: dict[str, dict[str, str]] = {
    "targets/cpu/test_promises.py": {"_new": REPLACED},
    "targets/cpu/test_tuning.py": dict.fromkeys(("_runner", "_fastest"), REPLACED),
    "plugin/test_replaced_methods.py": dict.fromkeys(("_cached_op_args", "_children"), "Gluon's own"),
    "plugin/test_training_gluon.py": {"_native": "what lies between its calls, where a signal may come"},
    "base/test_narrow_tables.py": {"_repr_html_": "what a notebook calls"},
    "plugin/test_gluon.py": {"_cached_op": "Gluon's own"},
    "targets/nnp/test_nnp_backend.py": {"_loaded": BOUNDED},
    "targets/cpu/test_codegen.py": {"_loaded": "as a new process finds it, with nothing loaded"},
    "scripts/test_bench_peers.py": {"_fitting": "the script's own"},
    "runtime_package/test_instruction_checks.py": {"_replace": "a named tuple's own"},
    "program/test_forks.py": {"_lock": "forked while it is held"},
    "test_compile_any_model.py": dict.fromkeys(("_repr_html_", "_repr_svg_"), "notebooks' own names"),
}
"""Private names by test file, each with its reason."""
CALLS = {"setattr", "getattr", "delattr", "hasattr"}


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name != "_core"


def defined() -> set[str]:
    """The package's private names: functions, classes, variables and attributes."""
    found = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                found.add(node.name)
            elif isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Store):
                found.add(node.id if isinstance(node, ast.Name) else node.attr)
    return set(filter(is_private, found))


def used(path: Path) -> Iterator[str]:
    """Private names that are imported from the package, read off something other than `self`, or named to `setattr`."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("ngraph_mxnet"):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.Attribute) and not (isinstance(node.value, ast.Name) and node.value.id == "self"):
            yield node.attr
        elif isinstance(node, ast.Call) and isinstance(node.func, (ast.Name, ast.Attribute)):
            name = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
            if name in CALLS:
                yield from (a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str))


def test_tests_use_no_private_names_but_these() -> None:
    known = defined()
    found = {str(path.relative_to(TESTS)): {name for name in used(path) if is_private(name) and name in known}
             for path in sorted(TESTS.rglob("*.py"))}
    assert {path: names for path, names in found.items() if names} == {
        path: set(names) for path, names in ALLOWED.items()}
