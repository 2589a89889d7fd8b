"""Goldens: IR text in tests/golden. `pytest tests/passes --update-goldens` rewrites them; review the diff."""

from __future__ import annotations

from pathlib import Path

import pytest

GOLDEN = Path(__file__).parent.parent / "golden"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-goldens", action="store_true", help="rewrite tests/golden")


@pytest.fixture
def golden(request: pytest.FixtureRequest):
    """`golden(name, text)` compares text with tests/golden/<name>."""

    def compare(name: str, text: str) -> None:
        path = GOLDEN / name
        # Unknown when pytest was started above this folder: then goldens are only compared.
        if request.config.getoption("--update-goldens", default=False):
            path.write_text(text, encoding="utf-8")
        assert path.exists(), f"no {path.name}: run pytest tests/passes --update-goldens"
        assert text == path.read_text(encoding="utf-8"), f"{name} differs; if rightly so, --update-goldens"

    return compare
