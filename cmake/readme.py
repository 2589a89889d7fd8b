"""A distribution's long description."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any


def description(readme: Path) -> dict[str, Any]:
    """The arguments of `setup` for the long description. A package index has none of the repository's files, so links
    to these become their text, and their path where the text does not tell it."""
    def told(link: re.Match[str]) -> str:
        text, path = link[1], link[2].partition("#")[0]
        return text if text in path else f"{text} (`{path}`)"

    text = re.sub(r"\[([^\]]+)\]\((?!\w+:)([^)\s]+)\)", told, readme.read_text(encoding="utf-8"))
    return {"long_description": text, "long_description_content_type": "text/markdown"}
