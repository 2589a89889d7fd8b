"""`scripts/bench_start.py`: what comes before a first result."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_a_small_model() -> None:
    arguments = ["--model", "mobilenet0.25", "--size", "64", "--rounds", "2"]
    done = subprocess.run([sys.executable, str(ROOT / "scripts" / "bench_start.py"), *arguments],
                          capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    rows = re.findall(r"^model \d: bind \d+, weights \d+, first result \d+; together \d+ ms$", done.stdout, re.M)
    assert len(rows) == 2
    assert re.search(r"^graph to bound program, no cache: \d+ to \d+ ms, median \d+ ms$", done.stdout, re.M)
