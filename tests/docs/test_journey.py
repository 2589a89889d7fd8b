"""The way of a first call in docs/architecture.md names what is there, and a call goes that way."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text()
WAY = PAGE.split("## The way of a first call")[1].split("\n## ")[0]
FUNCTIONS = re.findall(r"`(\S+\.py): ([\w.]+)`", WAY)


def test_there_are_ten_steps() -> None:
    assert re.findall(r"^\| (\d+) ", WAY, re.MULTILINE) == [str(step) for step in range(1, 11)]


@pytest.mark.parametrize(("file", "name"), FUNCTIONS)
def test_functions_are_there(file: str, name: str) -> None:
    body = ast.parse((ROOT / "ngraph_mxnet" / file).read_text()).body
    for part in name.split("."):
        found = [node for node in body if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name == part]
        assert found, f"{file} has no {name}"
        body = found[0].body


@pytest.mark.parametrize("file", re.findall(r"`(csrc/\S+)`", WAY))
def test_sources_are_there(file: str) -> None:
    assert (ROOT / file).exists()
