"""`scripts/bench_convolutions.py`: the table, and what a plan chooses against the clock."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import bench_convolutions
import numpy as np
import pytest

SCRIPT = Path(bench_convolutions.__file__)
REGRET = 1.1
"""The most that choices by cost may take, all layers together, of the fastest algorithm's time."""


def test_random_layers_are_of_the_sizes_that_are_promised():
    layers = bench_convolutions.random_layers(200, 1)
    channels = [number for layer in layers for number in (layer.inputs, layer.outputs)]
    sizes = [layer.size for layer in layers]
    assert min(channels) >= 16 and max(channels) <= 512 and min(sizes) >= 4 and max(sizes) <= 112
    assert layers == bench_convolutions.random_layers(200, 1) != bench_convolutions.random_layers(200, 2)


def test_a_row_has_each_algorithm_and_the_regret():
    command = [sys.executable, SCRIPT, "--layer", "16,16,8", "--repeats", "1"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^\| 16 -> 16 at 8x8 (\| \d+ ){4}(\| [\d.]+x ){2}\| [\d.]+ \|$", done.stdout, re.MULTILINE)
    assert "All together, what is chosen takes" in done.stdout


def test_three_products_of_parts_are_nearly_those_of_float32():
    """Sums in float64: what the parts leave out is all that differs."""
    rng = np.random.default_rng(4)
    x, w = (rng.standard_normal((64, 200)).astype(np.float32) for _ in range(2))
    x[:, :50] *= np.float32(1e-3)
    in_x, in_w = (bench_convolutions.in_parts(each, 1, weights=each is w) for each in (x, w))
    assert not np.any(in_x.view(np.uint32) & 0xFFFF) and not np.any(in_w.view(np.uint32) & 0xFFFF)  # bf16 holds them
    expected = x.astype(np.float64) @ w.astype(np.float64).T
    found = in_x.astype(np.float64) @ in_w.astype(np.float64).T
    assert 0 < np.abs(found - expected).max() <= 1e-5 * np.abs(expected).max()


def test_the_table_of_parts():
    command = [sys.executable, SCRIPT, "--parts", "--only", "512 to 2048", "--batch", "1", "--repeats", "1"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^\| 1x1, 512 to 2048 @7 (\| [\d.]+ ){3}\|$", done.stdout, re.MULTILINE)


@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, 2])
def test_what_is_chosen_is_near_the_fastest(threads: int):
    """Of random layers; the message lists those whose choice takes more than a tenth longer."""
    layers = bench_convolutions.random_layers(14, 3)
    times = {layer: bench_convolutions.measure(layer, 1, threads, 8) for layer in layers}
    chosen = np.array([best[bench_convolutions.CHOSEN] for best in times.values()])
    least = np.array([min(best.values()) for best in times.values()])
    listed = [f"{layer}: {regret:.2f}" for layer, regret in zip(times, chosen / least, strict=True) if regret > REGRET]
    assert chosen.sum() <= REGRET * least.sum(), listed
