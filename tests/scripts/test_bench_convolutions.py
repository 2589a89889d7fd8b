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
