"""Every rule against MXNet itself, and whole models."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from native import compare  # noqa: E402
from op_table import RECORDS, Record  # noqa: E402


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.name)
def test_rule_agrees_with_native(record: Record) -> None:
    compare(record.build(), record.shapes, low=record.low, high=record.high)
