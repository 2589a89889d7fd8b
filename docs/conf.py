"""The site of the documentation: `python -m sphinx -W --keep-going -b html -c docs . build/site`.

Its source folder is the checkout and not docs/, so that the links by which pages lead to each other, to the READMEs and
to files are the same here and where the repository is browsed.
"""

from __future__ import annotations

import re
from pathlib import Path

from sphinx.application import Sphinx

from ngraph_mxnet.base.version import __version__

DOCS = Path(__file__).resolve().parent

project = "ngraph_mxnet"
release = version = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
root_doc = "docs/index"
include_patterns = ["*.md", "docs/*.md", "examples/README.md", "runtime/README.md"]
exclude_patterns = ["build", "dist", ".*"]

myst_heading_anchors = 6
"""Headings get the anchors that links name where the repository is browsed."""
autodoc_member_order = "bysource"
default_role = "code"
"""What stands between single backquotes in docstrings."""

html_theme = "furo"
html_title = f"ngraph_mxnet {version}"
html_additional_pages = {"index": "redirect.html"}
templates_path = ["_templates"]

REST = "<!-- pages that no list above has -->"


def list_the_rest(app: Sphinx, page: str, source: list[str]) -> None:
    """A new page is in the site before somebody finds its place in the index."""
    if page != root_doc:
        return
    listed = set(re.findall(r"^[\w-]+$", source[0], re.MULTILINE)) | {"index"}
    rest = sorted(path.stem for path in DOCS.glob("*.md") if path.stem not in listed)
    lines = ["```{toctree}", ":caption: More", ":maxdepth: 1", "", *rest, "```"] if rest else []
    source[0] = source[0].replace(REST, "\n".join(lines))


def setup(app: Sphinx) -> None:
    app.connect("source-read", list_the_rest)
    app.connect("env-get-outdated", lambda *_: [root_doc])  # it depends on which pages there are
