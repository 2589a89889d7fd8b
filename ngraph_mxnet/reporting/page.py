"""The page: one HTML file of the data, the style and the scripts, which needs nothing beside it."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping
from importlib.resources import files
from string import Template
from typing import Any

SCRIPTS = ("elements.js", "model.js", "colours.js", "layout.js", "viewport.js", "details.js", "graph.js", "charts.js",
           "sections.js", "page.js")
"""In the order of loading: each uses those before it."""


def page(data: Mapping[str, Any]) -> str:
    """The HTML of what `collect` gave."""
    asset = files("ngraph_mxnet.reporting").joinpath("assets")
    script = "\n".join(asset.joinpath(name).read_text(encoding="utf-8") for name in SCRIPTS)
    return Template(asset.joinpath("page.html").read_text(encoding="utf-8")).substitute(
        title=html.escape(str(data["title"])), style=asset.joinpath("page.css").read_text(encoding="utf-8"),
        script=script, data=_embedded(data))


def _embedded(data: Mapping[str, Any]) -> str:
    """JSON that can stand within a script element: nothing in it ends one, or begins a comment. Numbers that JSON does
    not know are null."""
    text = json.dumps(_finite(data), separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c")


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if abs(value) < float("inf") else None  # nan is not less
    if isinstance(value, Mapping):
        return {str(key): _finite(entry) for key, entry in value.items()}
    return [_finite(entry) for entry in value] if isinstance(value, (list, tuple)) else value
