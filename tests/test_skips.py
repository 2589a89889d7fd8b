"""Where the installation must be whole, only what is listed may be skipped."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

REQUIRED = "TESTS_REQUIRE_LIBRARY"
SKIPS = """
import pytest

@pytest.mark.skipif(True, reason="ngraph_mxnet is not activated")
def test_library():
    pass

def test_inside():
    pytest.skip("no _core")

@pytest.mark.skipif(True, reason="the CPU has no AVX2")
def test_avx2():
    pass

@pytest.mark.xfail(reason="known")
def test_known():
    assert False
"""


def outcome(folder: Path, required: str, name: str) -> str:
    """The last line of a pytest that has this checkout's conftest; packages are installed in `folder`."""
    (folder / "installed_here.py").write_text(
        f"import conftest, pathlib\nconftest.SITE_PACKAGES = pathlib.Path({str(folder)!r})\n")
    plugins = [part for name in ("conftest", "installed_here", "no:cacheprovider") for part in ("-p", name)]
    line = [sys.executable, "-m", "pytest", "-q", *plugins, "-c", os.devnull, name]
    paths = [str(folder), str(Path(__file__).parent), *filter(None, sys.path)]
    environment = {**os.environ, REQUIRED: required, "PYTHONPATH": os.pathsep.join(paths)}
    done = subprocess.run(line, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=120)
    *_, last = (done.stdout + done.stderr).strip().splitlines()
    return last


@pytest.mark.parametrize(("name", "text", "lax", "strict"), [
    ("test_some.py", SKIPS, "3 skipped, 1 xfailed", "1 failed, 1 skipped, 1 xfailed, 1 error"),
    ("test_whole.py", "import pytest\npytest.importorskip('ngraph_mxnet.nonsense')\n", "1 skipped", "1 error"),
], ids=["tests", "module"])
def test_a_skip_that_is_not_listed_fails_on_request(tmp_path: Path, name: str, text: str, lax: str,
                                                    strict: str) -> None:
    (tmp_path / name).write_text(text)
    (tmp_path / "ngraph_mxnet_autoload.pth").touch()
    assert outcome(tmp_path, "", name).startswith(lax)
    assert outcome(tmp_path, "1", name).startswith(strict)


def test_an_installation_that_is_not_whole_ends_the_run(tmp_path: Path) -> None:
    (tmp_path / "test_some.py").write_text(SKIPS)
    assert "the package is not installed" in outcome(tmp_path, "1", "test_some.py")
