"""All records, by family."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from records import Left, Record

RECORDS: list[Record] = []
LEFT: list[Left] = []

for _path in sorted(Path(__file__).parent.glob("[!_]*.py")):
    _family = import_module(f"families.{_path.stem}")
    RECORDS += _family.RECORDS
    LEFT += getattr(_family, "LEFT", [])
