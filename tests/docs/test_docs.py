"""What the documentation says must be there is there."""

from __future__ import annotations

import re

from blocks import PAGES, ROOT

from ngraph_mxnet.base import config
from ngraph_mxnet.frontends.mxnet.rules.registry import find_whole_rule, why_left


def test_the_table_of_variables_is_the_generated_one() -> None:
    page = (ROOT / "docs" / "environment.md").read_text(encoding="utf-8")
    assert config.docs_table() in page, "run scripts/update_docs.py"


def test_scripts_named_in_the_documentation_exist() -> None:
    for page in PAGES:
        for name in re.findall(
            r"(?<![\w/])((?:scripts|examples|docs)/[\w/.-]+\.(?:py|sh|md|svg))\b", page.read_text()
        ):
            assert (ROOT / name).exists(), f"{page.name}: {name}"


def test_what_the_way_out_says_no_exit_has_no_rule_takes() -> None:
    table = (ROOT / "docs" / "migration.md").read_text("utf-8").split("## What no exit has")[1]
    named = re.findall(r"`(\w+)`", "".join(line for line in table.splitlines() if line.startswith("|")))
    assert len(named) > 20 and not [name for name in named if find_whole_rule(name) or not why_left(name)]
