"""examples/own_framework.py: its rules give what NumPy gives, saved nets are the same, what it can't do it says."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import ngraph_mxnet

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "own_framework.py"


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(EXAMPLE.parent))
    return importlib.import_module("own_framework")


def test_it_runs_as_the_page_says() -> None:
    for backend in ("CPU", "INTERPRETER"):
        done = subprocess.run([sys.executable, str(EXAMPLE), "--backend", backend], capture_output=True, text=True,
                              check=False, timeout=300)
        assert done.returncode == 0 and "gives the same bits" in done.stdout, done.stdout + done.stderr


def test_layers_compute_what_numpy_does(own: ModuleType) -> None:
    """Of one pixel, where a convolution is the product with the middle of its kernel."""
    layers = [own.conv("c", 3, 4), own.relu("r"), own.mean_pool("p"), own.dense("d", 4, 5)]
    weights = own.random_weights(layers, seed=3)
    x = np.random.default_rng(0).normal(size=(2, 3, 1, 1)).astype("f4")
    hidden = np.maximum(x[:, :, 0, 0] @ weights["c.kernel"][:, :, 1, 1].T + weights["c.bias"], 0)
    expected = hidden @ weights["d.kernel"].T + weights["d.bias"]
    for backend in ("CPU", "INTERPRETER"):
        net = own.Net(own.to_graph(layers, x.shape), weights, backend)
        np.testing.assert_allclose(net(x), expected, rtol=1e-5, atol=1e-6)


def test_a_net_that_is_loaded_needs_no_rules(own: ModuleType, tmp_path: Path) -> None:
    layers = [own.dense("d", 6, 2), own.relu("r")]
    net = own.Net(own.to_graph(layers, (4, 6)), own.random_weights(layers, seed=1))
    net.save(tmp_path)
    x, rules = np.random.default_rng(0).normal(size=(4, 6)).astype("f4"), dict(own.RULES)
    own.RULES.clear()
    try:
        assert own.Net.load(tmp_path)(x).tobytes() == net(x).tobytes()
    finally:
        own.RULES.update(rules)


def test_what_does_not_fit_names_the_layer(own: ModuleType) -> None:
    with pytest.raises(ngraph_mxnet.NGraphError, match=r"odd: no rule for a layer 'swirl'; there are conv, dense"):
        own.to_graph([own.Layer("swirl", "odd")], (1, 3, 8, 8))
    with pytest.raises(ngraph_mxnet.NGraphError, match=r"own:stem conv"):
        own.to_graph([own.conv("stem", 4, 8)], (1, 3, 8, 8))
    with pytest.raises(ValueError, match="there is a rule for 'conv' already"):
        own.rule("conv")(lambda b, x, layer, weights: x)
