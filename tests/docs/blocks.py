"""The fenced blocks of the documentation's pages.

`<!-- not run: REASON -->` in the line above a block says that no test runs it, and why.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("examples/*.md"), *ROOT.glob("runtime/*.md")])
NOT_RUN = re.compile(r"<!-- not run: (\S.*) -->")


@dataclass(frozen=True)
class Block:
    """A block: its page, the number of its first line, its language, its text, and why it is not run ("" if it is)."""

    page: Path
    line: int
    language: str
    text: str
    not_run: str = ""

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks_of(page: Path, text: str) -> list[Block]:
    """In the order of the page. An indented block, which has no language, is one of the language "indented"."""
    found: list[Block] = []
    lines = text.splitlines()
    number = 0
    while number < len(lines):
        fence = re.match(r"(`{3,})(.*)$", lines[number])
        above = lines[number - 1] if number else ""
        if fence is not None:
            end = next((n for n in range(number + 1, len(lines)) if lines[n].rstrip() == fence[1]), len(lines))
            reason = NOT_RUN.fullmatch(above)
            found.append(Block(page, number + 2, fence[2].strip(), "\n".join(lines[number + 1:end]),
                               reason[1] if reason else ""))
            number = end
        elif re.match(r" {4}\s*\S", lines[number]) and (not above.strip() or above.startswith("#")):
            found.append(Block(page, number + 1, "indented", lines[number]))
        number += 1
    return found


def blocks(*languages: str) -> list[Block]:
    """Of all pages, those of these languages; of all languages without any."""
    return [block for page in PAGES for block in blocks_of(page, page.read_text(encoding="utf-8"))
            if not languages or block.language in languages]
