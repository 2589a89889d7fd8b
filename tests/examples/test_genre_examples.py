"""Examples of recommendation, reinforcement learning and image generation: nets like MXNet's, and results as told."""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import mxnet as mx
import numpy as np
import pytest

import ngraph_mxnet

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
needs_digits = pytest.mark.skipif(importlib.util.find_spec("sklearn") is None,
                                  reason="the packages that examples/README.md names are not installed")


def run(script: str, *arguments: str, backend: str = "NGRAPH") -> str:
    """What it prints, and whether steps were compiled if the backend is ours; it knows neither."""
    package = "ngraph_mxnet" if backend == "NGRAPH" else "ngraph_mxnet_autoload"
    path = EXAMPLES / script
    code = (f"import sys, runpy, {package}; sys.argv = [{str(path)!r}, *sys.argv[1:]]; "
            "runpy.run_path(sys.argv[0], run_name='__main__')")
    code += "; assert ngraph_mxnet.report().updates" if backend == "NGRAPH" else ""
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False,
                          cwd=EXAMPLES, timeout=600, env={**os.environ, "MXNET_SUBGRAPH_BACKEND": backend})
    assert done.returncode == 0, done.stderr
    return done.stdout


def told(text: str, what: str) -> float:
    found = re.search(rf"{what}:? ([\d.]+)", text)
    assert found, text
    return float(found.group(1))


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Imports one by name."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    mx.random.seed(3)

    def found(name: str) -> ModuleType:
        return importlib.import_module(name)

    return found


def check_like_mxnet(net: Any, inputs: dict[str, Any]) -> None:
    """As one region, with MXNet's results."""
    arrays = {name: array.asnumpy() for name, array in inputs.items()}
    found = ngraph_mxnet.verify(net, "mxnet", inputs=arrays, tolerance=1e-4)
    assert found.agrees and found.note is None, found
    explained = ngraph_mxnet.explain(net, {name: array.shape for name, array in arrays.items()})
    assert len(explained.partition.regions) == 1, explained


# ---- recommendation --------------------------------------------------------------------------------------------


def test_ratings_are_like_mxnets(example: Any) -> None:
    recommend = example("recommend")
    net = recommend.Recommender(20, 30, 3.5)
    net.initialize(mx.init.Normal(0.5))
    check_like_mxnet(net, {"user": mx.nd.array([3] * 30), "item": mx.nd.arange(30)})


def test_learning_to_recommend() -> None:
    text = run("recommend.py")
    assert told(text, "error") < 0.88 * told(text, "error of the means")
    losses = [told(run("recommend.py", "--epochs", "1", backend=backend), "epoch  1: loss")
              for backend in ("NONE", "NGRAPH")]
    assert losses[1] == pytest.approx(losses[0], rel=0.02)  # dropout draws other numbers


def test_the_error_of_means(example: Any) -> None:
    """By hand: one item is rated 5 ten times, by ten users, and another one 1."""
    recommend = example("recommend")
    users = np.tile(np.arange(10), 2)
    known = recommend.Ratings(users, np.repeat([0, 1], 10), np.repeat([5.0, 1.0], 10))
    asked = recommend.Ratings(np.array([0]), np.array([0]), np.array([5.0]))
    assert recommend.error_of_means(known, asked) == pytest.approx(2 - 2 * 10 / 15)


# ---- reinforcement learning --------------------------------------------------------------------------------------


def test_decisions_are_like_mxnets(example: Any) -> None:
    catch = example("play_catch")
    check_like_mxnet(catch.network(), {"frames": mx.nd.array(catch.Games(8, np.random.default_rng(0)).frames)})


def test_games(example: Any) -> None:
    catch = example("play_catch")
    games = catch.Games(3, np.random.default_rng(0))
    games.ball, games.drift, games.paddle = (np.array(column) for column in ((0, 6, 3), (-1, 1, 0), (0, 0, 3)))
    first = games.frames
    assert not games.step(np.array([1, 0, 2])).any() and first[:, 1].sum() >= 3  # its frames stay as they were
    assert games.ball.tolist() == [1, 5, 3] and games.paddle.tolist() == [0, 0, 4]
    while not games.is_over:
        rewards = games.step(np.sign(games.ball - games.paddle) + 1)
    assert rewards.tolist() == [1 if ball == paddle else -1 for ball, paddle in zip(games.ball, games.paddle,
                                                                                   strict=True)]
    assert rewards[2] == 1


def test_learning_to_catch() -> None:
    text = run("play_catch.py", "--rounds", "200", "--games", "500")
    assert told(text, "caught before") < 0.3 and told(text, "caught") > 0.8


# ---- image generation --------------------------------------------------------------------------------------------


def test_drawings_are_like_mxnets(example: Any) -> None:
    draw = example("draw_digits")
    random = np.random.default_rng(0)
    decoder, encoder = draw.Decoder(), draw.Encoder()
    for net in (decoder, encoder):
        net.initialize(mx.init.Xavier())
    kinds = mx.nd.arange(10)
    check_like_mxnet(decoder, {"noise": mx.nd.array(random.standard_normal((10, draw.NOISE))), "kinds": kinds})
    check_like_mxnet(encoder, {"images": mx.nd.array(random.random((10, 1, 8, 8))), "kinds": kinds})


@needs_digits
def test_learning_to_draw() -> None:
    text = run("draw_digits.py", "--epochs", "8")
    assert told(text, "read as asked for") > 0.9
    assert sum(map(text.count, "*#%@")) > 200
    native = run("draw_digits.py", "--epochs", "1", backend="NONE")
    assert told(text, "epoch  1: loss") == pytest.approx(told(native, "epoch  1: loss"), rel=2e-3)
