"""The code has no names that the vocabulary in docs/design.md gave up for others."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MODULES = sorted(path for folder in ("ngraph_mxnet", "ngraph_mxnet_autoload", "runtime/ngraph_runtime", "scripts")
                 for path in (ROOT / folder).rglob("*.py"))


def rows() -> list[list[str]]:
    """Word, meaning, and what it is not called, of each row."""
    text = (ROOT / "docs" / "design.md").read_text(encoding="utf-8").partition("## Words\n")[2].partition("\n## ")[0]
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[1:]]


def given_up() -> dict[str, str]:
    """Names in the last column, and the word that stands there instead."""
    return {name: word for word, _, others in rows() for name in re.findall(r"`(\w+)`", others)}


def names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and name of everything that gets one: functions, classes, arguments, variables, attributes."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node.lineno, node.name
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.attr


def test_every_word_has_a_meaning_and_one_row() -> None:
    assert len(rows()) > 30 and all(len(row) == 3 and row[0] and row[1] for row in rows())
    words = [word for row in rows() for word in re.split(r"[,;] ", row[0])]
    assert len(words) == len(set(words))


@pytest.mark.parametrize("module", MODULES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_names_follow_the_vocabulary(module: Path) -> None:
    other = given_up()
    found = [f"{line}: {name}" for line, name in names(ast.parse(module.read_text())) if name.strip("_") in other]
    assert not found, f"{module.name} has names that docs/design.md gave up: {', '.join(found)}"


def test_names_that_were_given_up_are_found() -> None:
    source = "def tell(users):\n    self.uses = gain = 1\n    for consumer in readers: pass"
    assert sorted(name for _, name in names(ast.parse(source)) if name in given_up()) == [
        "consumer", "gain", "tell", "users", "uses"]
