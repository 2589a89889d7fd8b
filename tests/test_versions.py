"""One version everywhere, and a changelog that has it (docs/versions.md)."""

from __future__ import annotations

import re
from importlib.metadata import version
from pathlib import Path

import tomllib

from ngraph_mxnet import __version__

ROOT = Path(__file__).parents[1]
HEADING = re.compile(r"^## (Unreleased|(\d+\.\d+\.\d+)(?: \((\d{4}-\d{2}-\d{2})\))?)$", re.MULTILINE)


def headings() -> list[tuple[str, str]]:
    """The version of each, empty of what is not released, and its date."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    found = [match.groups() for match in HEADING.finditer(text)]
    assert len(found) == len(re.findall("^## ", text, re.MULTILINE)), "a heading is no version and date"
    return [(number or "", date or "") for _, number, date in found]


def test_the_changelog_has_the_version() -> None:
    """A version that is released is its first heading, or the one below what is not released yet."""
    numbers = [number for number, _ in headings()]
    assert __version__ in numbers[:2] and "" not in numbers[1:]
    released = [tuple(map(int, number.split("."))) for number in numbers if number]
    assert released == sorted(released, reverse=True)


def test_versions_from_the_second_on_are_dated() -> None:
    dates = [date for number, date in headings() if number and number != "0.1.0"]
    assert all(dates) and dates == sorted(dates, reverse=True)


def test_the_version_stands_in_one_place() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "version" in project["project"]["dynamic"] and "version" not in project["project"]
    assert project["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "ngraph_mxnet.base.version.__version__"}
    assert f"\nversion: {__version__}\n" in (ROOT / "CITATION.cff").read_text()
    assert version("ngraph-mxnet-backend") == __version__
