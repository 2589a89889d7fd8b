"""docs/operators.md is what `scripts/operator_table.py` makes of the rules, the registry and the conformance table."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "operator_table.py"


def test_the_page_is_up_to_date() -> None:
    spec = importlib.util.spec_from_file_location("operator_table", SCRIPT)
    assert spec is not None and spec.loader is not None
    table, path = importlib.util.module_from_spec(spec), list(sys.path)
    try:
        spec.loader.exec_module(table)
        assert table.PAGE.read_text(encoding="utf-8") == table.page(), "run scripts/operator_table.py"
    finally:
        sys.path[:] = path  # the script adds the checkout, which must not hide the package
