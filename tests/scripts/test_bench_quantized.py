"""`scripts/bench_quantized.py`: int8 beside float32."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_a_small_model() -> None:
    arguments = ["--model", "resnet18_v1", "--size", "64", "--rounds", "2"]
    done = subprocess.run([sys.executable, str(ROOT / "scripts" / "bench_quantized.py"), *arguments],
                          capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(re.findall(r"^\w+ (?:int8|float32): median [\d.]+ ms, least [\d.]+ ms$", done.stdout, re.M)) == 4
    assert re.search(r"^int8 results differ by 0\.\d+ of their norm$", done.stdout, re.M)
