"""Whole runs of training: the losses and the accuracy that MXNet gives, and the same bits each time."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from loss_curves import CURVES, DROPPING, Run, train

STEPS, FEW, SAME = 1000, 25, 20
"""Of a whole run; of a short one; those at the beginning in which losses are the same."""
POINT = 0.01
SEEDS = 5

needs_digits = pytest.mark.skipif(importlib.util.find_spec("sklearn") is None,
                                  reason="the packages that examples/README.md names are not installed")
on_digits = [pytest.param(name, marks=needs_digits) for name in DROPPING]
every_curve = pytest.mark.parametrize("name", [*on_digits, *(name for name in CURVES if name not in DROPPING)])


def both(name: str, steps: int, monkeypatch: pytest.MonkeyPatch, seed: int = 0, *, dropout: bool = False) -> list[Run]:
    """The run by MXNet alone, then compiled."""
    runs = []
    for value, settings in (("NONE", "0"), ("NGRAPH", "1")):
        monkeypatch.setenv("MXNET_SUBGRAPH_BACKEND", value)
        monkeypatch.setenv("NGRAPH_TRAINING", settings)
        runs.append(train(name, steps, seed, dropout=dropout))
    native, ours = runs
    assert native.compiled == 0 and ours.compiled == steps
    return runs


def check_beginning(native: Run, ours: Run) -> None:
    np.testing.assert_allclose(ours.losses[:SAME], native.losses[:SAME], rtol=1e-3)
    assert not np.array_equal(ours.losses, native.losses), "both runs were computed by the same code"


@every_curve
def test_a_run_begins_as_mxnets(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    native, ours = both(name, FEW, monkeypatch)
    check_beginning(native, ours)


@pytest.mark.slow
@every_curve
def test_a_run_ends_as_mxnets(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    native, ours = both(name, STEPS, monkeypatch)
    check_beginning(native, ours)
    assert native.losses[-50:].mean() < 0.7 * native.losses[:50].mean(), "MXNet's run learns nothing"
    assert abs(ours.accuracy - native.accuracy) <= POINT, f"{ours.accuracy:.4f} of {native.accuracy:.4f}"


@pytest.mark.slow
@pytest.mark.parametrize("name", on_digits)
def test_runs_with_dropout_end_as_mxnets(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Masks differ from MXNet's, so it is the mean over some seeds."""
    runs = [both(name, STEPS, monkeypatch, seed, dropout=True) for seed in range(SEEDS)]
    native, ours = (float(np.mean([pair[number].accuracy for pair in runs])) for number in range(2))
    assert abs(ours - native) <= POINT, f"{ours:.4f} of {native:.4f}"


SCRIPT = """
import hashlib, sys
from loss_curves import train
found = train(sys.argv[1], int(sys.argv[2]), dropout=sys.argv[1] == "cnn")
assert found.compiled == int(sys.argv[2])
print(hashlib.sha256(b"".join(found.weights[name].tobytes() for name in sorted(found.weights))).hexdigest())
"""


def digest(name: str, steps: int, threads: int) -> str:
    """Of all weights after a run in a process of its own."""
    environment = {**os.environ, "MXNET_SUBGRAPH_BACKEND": "NGRAPH", "NGRAPH_TRAINING": "1",
                   "OMP_NUM_THREADS": str(threads)}
    done = subprocess.run([sys.executable, "-c", SCRIPT, name, str(steps)], cwd=Path(__file__).parent, env=environment,
                          capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()[-1]


@pytest.mark.parametrize("name", [pytest.param("cnn", marks=needs_digits), "resnet20", "lstm"])
def test_the_same_bits_whatever_else_runs(name: str) -> None:
    """The second run shares the cores with processes that do nothing but take them."""
    quiet = digest(name, FEW, 2)
    assert len(quiet) == hashlib.sha256().digest_size * 2
    load = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(3)]
    try:
        assert digest(name, FEW, 2) == quiet
    finally:
        for process in load:
            process.kill()
            process.wait()
