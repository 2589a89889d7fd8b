"""docs/caches.md lists every bounded table of the package."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from blocks import ROOT

PAGE = (ROOT / "docs" / "caches.md").read_text(encoding="utf-8")


def tables(module: Path) -> Iterator[str]:
    """The names of what is assigned a `Recent`, or several: `Class.attribute`, or `module.name`."""
    def found(node: ast.AST, owner: str) -> Iterator[str]:
        for child in ast.iter_child_nodes(node):
            inner = child.name if isinstance(child, ast.ClassDef) else owner
            value = getattr(child, "value", None)
            targets = getattr(child, "targets", None) or [getattr(child, "target", None)]
            if isinstance(child, (ast.Assign, ast.AnnAssign)) and value is not None and makes_table(value):
                for target in targets:
                    first = target.elts[0] if isinstance(target, ast.Tuple) else target
                    yield f"{owner}.{first.attr if isinstance(first, ast.Attribute) else first.id}"
            else:
                yield from found(child, inner)

    return found(ast.parse(module.read_text()), module.stem)


def makes_table(value: ast.AST) -> bool:
    calls = (node.func for node in ast.walk(value) if isinstance(node, ast.Call))
    return any(getattr(called, "id", "") == "Recent" for called in calls)


def test_every_table_is_listed_and_no_other() -> None:
    there = {name for module in (ROOT / "ngraph_mxnet").rglob("*.py") for name in tables(module)}
    assert len(there) > 10
    assert set(re.findall(r"^\| `([\w.]+)` \|", PAGE, re.M)) == there
