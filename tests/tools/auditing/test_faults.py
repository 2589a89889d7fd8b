"""A planted fault is named at the right node: one weight of one layer changed, or one kernel made wrong."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from planted import MODELS, SMALL, can_be_wrong, parting, reader_of, recorded, wrong_kernel

from ngraph_mxnet.program.recorder import named

JOINED = " + "
PLACES = 20


def changed(weight: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """One element is another."""
    found = weight.copy()
    found.flat[random.integers(found.size)] += np.float32(2 * np.abs(weight).max() + 0.5)
    return found


def check_weights(name: str, folder: Path, places: int) -> None:
    model = MODELS[name]()
    symbol, weights, _ = model
    recorded(folder / "right", model)
    random = np.random.default_rng(len(name))
    for number, at in enumerate(random.choice(len(weights), min(places, len(weights)), replace=False)):
        weight = list(weights)[at]
        recorded(folder / str(number), model, {**weights, weight: changed(weights[weight], random)})
        found = parting(folder / "right", folder / str(number))
        assert [pair.a.tensor.name for pair in found.weights] == [weight]
        assert found.node is not None and reader_of(symbol, weight) in found.node.split(JOINED), (weight, found.node)


def check_kernels(name: str, folder: Path, places: int) -> None:
    model = MODELS[name]()
    executable = recorded(folder / "right", model)
    possible = [stored for stored in executable.values.stored if can_be_wrong(executable, stored)]
    random = np.random.default_rng(len(name))
    for number, at in enumerate(random.choice(len(possible), min(places, len(possible)), replace=False)):
        with wrong_kernel(executable, possible[at]):
            recorded(folder / str(number), model)
        found = parting(folder / "right", folder / str(number))
        assert not found.weights and found.node == named(possible[at].node)


@pytest.mark.parametrize("name", SMALL)
def test_a_changed_weight_of_a_small_model(name: str, tmp_path: Path) -> None:
    check_weights(name, tmp_path, 4)


@pytest.mark.parametrize("name", SMALL)
def test_a_wrong_kernel_of_a_small_model(name: str, tmp_path: Path) -> None:
    check_kernels(name, tmp_path, 4)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_changed_weights(name: str, tmp_path: Path) -> None:
    check_weights(name, tmp_path, PLACES)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_wrong_kernels(name: str, tmp_path: Path) -> None:
    check_kernels(name, tmp_path, PLACES)


def test_equal_runs_do_not_part(tmp_path: Path) -> None:
    model = MODELS["small"]()
    for name in "ab":
        recorded(tmp_path / name, model)
    found = parting(tmp_path / "a", tmp_path / "b")
    assert not found.differs and found.node is None and found.compared[0] > 15


def test_borders_alone_name_the_weight_and_the_result(tmp_path: Path) -> None:
    model = MODELS["small"]()
    weights = dict(model[1])
    recorded(tmp_path / "a", model, tensors="borders")
    weights["conv1_weight"] = changed(weights["conv1_weight"], np.random.default_rng(0))
    recorded(tmp_path / "b", model, weights, tensors="borders")
    found = parting(tmp_path / "a", tmp_path / "b")
    assert found.node == "mx:conv1 Convolution" and found.first is not None
    assert found.first.a.tensor.kind == "result" and found.first.node == "mx:softmax softmax"
