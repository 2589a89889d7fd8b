"""`scripts/alternate_shapes.py`, for a few hundred calls; `test_siblings.py` makes thousands."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "scripts" / "alternate_shapes.py"


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    return subprocess.run([sys.executable, SCRIPT, "--calls", "100", "--warm", "50", *arguments], env=environment,
                          cwd=folder, capture_output=True, text=True, timeout=300, check=False)


def test_table(tmp_path: Path) -> None:
    done = run(tmp_path, "--way", "reshape", "--growth", "1e6")
    assert done.returncode == 0, done.stderr
    assert re.findall(r"^reshape: Executor.reshape +(\w+) +-?[\d.]+ +[\d.]+ +[\d.]+$", done.stdout, re.M) == [
        "NGRAPH", "NONE"], done.stdout


def test_json_and_growth(tmp_path: Path) -> None:
    done = run(tmp_path, "--way", "static", "--way", "mixed", "--backend", "NGRAPH", "--json", "--growth", "-1e9")
    rows = json.loads(done.stdout)
    assert [(row["way"], row["backend"], row["calls"]) for row in rows] == [
        ("static", "NGRAPH", 100), ("mixed", "NGRAPH", 100)], done.stderr
    assert all(row["us"] > 0 and row["resident_mib"] > 10 for row in rows)
    assert done.returncode == 1, "more was left behind than -1e9 bytes"
