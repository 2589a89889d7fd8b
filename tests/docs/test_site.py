"""The site: what its sources must hold for scripts/test.sh to build it whole, and that a broken one does not build."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from blocks import ROOT

import ngraph_mxnet

DOCS = ROOT / "docs"


def test_every_public_name_is_in_the_reference() -> None:
    page = (DOCS / "api.md").read_text(encoding="utf-8")
    named = set(re.findall(r"ngraph_mxnet\.(\w+)(?: *$|`)", page, re.MULTILINE))
    # NGraphError comes with its module.
    assert "ngraph_mxnet.base.errors" in page and set(ngraph_mxnet.__all__) - {"NGraphError"} <= named


def test_every_part_of_the_extending_tests_is_an_extension_point() -> None:
    """What registers the toys, by name, has its docstring on the page."""
    page = (DOCS / "extension-points.md").read_text(encoding="utf-8")
    toys = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests" / "extending").rglob("toy_*.py"))
    registering = set(re.findall(r'^@?([a-z]\w*)\("', toys, re.MULTILINE))
    assert {"register_op", "kernel", "microkernel", "lowers", "rule"} <= registering
    assert not [name for name in registering if not re.search(rf"\.{name}$", page, re.MULTILINE)]


def build(source: Path, target: Path) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", "-c", str(source / "docs"),
            str(source), str(target)]
    return subprocess.run(line, capture_output=True, text=True, check=False, timeout=300)


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A checkout with the site's settings, a README and an index of two pages."""
    pytest.importorskip("sphinx", reason="the extra docs is not installed")
    docs = tmp_path / "checkout" / "docs"
    shutil.copytree(DOCS / "_templates", docs / "_templates")
    shutil.copy(DOCS / "conf.py", docs)
    (docs.parent / "script.py").write_text("print()\n")
    (docs.parent / "README.md").write_text("# The README\n\n## Which way\n")
    (docs / "index.md").write_text(
        "# Index\n\n```{toctree}\n../README\nlisted\n```\n\n<!-- pages that no list above has -->\n")
    (docs / "listed.md").write_text("# Listed\n\n[up](../README.md#which-way), [file](../script.py)\n")
    return docs.parent


def test_links_to_pages_headings_and_files_are_followed(small: Path, tmp_path: Path) -> None:
    assert build(small, tmp_path / "site").returncode == 0
    (small / "docs" / "new.md").write_text("# A page that no list has\n")
    done = build(small, tmp_path / "site")  # into what is there
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "site" / "docs" / "listed.html").read_text()
    assert 'href="../README.html#which-way"' in page and re.search(r'href="[^"]*script\.py"', page)
    assert "new.html" in (tmp_path / "site" / "docs" / "index.html").read_text()
    assert "docs/index.html" in (tmp_path / "site" / "index.html").read_text()


def test_links_that_lead_nowhere_fail_the_build(small: Path, tmp_path: Path) -> None:
    links = {"../README.md#which-door": "which-door", "gone.md": "gone.md", "../gone.py": "../gone.py"}
    (small / "docs" / "listed.md").write_text("# Listed\n\n" + ", ".join(f"[a]({link})" for link in links) + "\n")
    done = build(small, tmp_path / "site")
    assert done.returncode != 0
    assert not [named for named in links.values() if f"'{named}'" not in done.stderr], done.stderr
