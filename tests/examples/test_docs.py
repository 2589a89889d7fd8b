"""What the documentation says must be there is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ngraph_mxnet import config

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("examples/*.md"), *ROOT.glob("runtime/*.md")])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text(encoding="utf-8")):
        assert "://" in target or (page.parent / target).exists(), f"{page.name}: {target}"


def test_the_table_of_variables_is_the_generated_one() -> None:
    page = (ROOT / "docs" / "environment.md").read_text(encoding="utf-8")
    assert config.docs_table() in page, "run scripts/update_docs.py"


def test_scripts_named_in_the_documentation_exist() -> None:
    for page in PAGES:
        for name in re.findall(
            r"\b((?:scripts|examples|docs)/[\w/.-]+\.(?:py|sh|md|svg))\b", page.read_text()
        ):
            assert (ROOT / name).exists(), f"{page.name}: {name}"
