"""docs/operators.md is what `scripts/operator_table.py` makes of the rules, the registry and the conformance table."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "operator_table.py"


def test_the_page_is_up_to_date(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))  # the script adds the checkout, which must not hide the package
    spec = importlib.util.spec_from_file_location("operator_table", SCRIPT)
    assert spec is not None and spec.loader is not None
    table = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(table)
    assert table.PAGE.read_text(encoding="utf-8") == table.page(), "run scripts/operator_table.py"
