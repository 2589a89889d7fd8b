"""A recipe in scripts that know nothing of it: the same numbers whatever MXNet calls the layers, and whatever ran
before; what does not fit is told, once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import mxnet as mx
import numpy as np
import pytest

import ngraph_mxnet

MODEL = """
import mxnet as mx, numpy as np
from mxnet.gluon import nn

def make(block=nn.HybridSequential):
    net = block()
    with net.name_scope():
        for channels in (16, 16, 16):
            net.add(nn.Conv2D(channels, 3, padding=1, activation="relu"))
        net.add(nn.GlobalAvgPool2D(), nn.Dense(4))
    net.initialize()
    net(mx.nd.zeros((1, 8, 12, 12)))
    for number, parameter in enumerate(net.collect_params().values()):
        parameter.set_data(mx.nd.array(np.random.RandomState(number).randn(*parameter.shape) * 0.1))
    net.hybridize(static_alloc=True, static_shape=True)
    return net

def other():
    net = nn.HybridSequential()
    net.add(nn.Dense(64), nn.Dense(8))
    net.initialize()
    net.hybridize(static_alloc=True, static_shape=True)
    return net

x = mx.nd.array(np.random.RandomState(99).randn(1, 8, 12, 12))
"""
SHIFTED = "nn.HybridSequential(); nn.Conv2D(1, 1); "


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of the model under its first names."""
    model: dict = {}
    exec(MODEL, model)
    samples = [mx.nd.array(np.random.RandomState(seed).randn(1, 8, 12, 12)) for seed in range(4)]
    with mx.name.NameManager():
        found = ngraph_mxnet.quantize(model["make"](), samples, only_faster=False, progress=False, threads=2,
                                      method="minmax", corrections=[])
    assert len(found.recipe.products) == 4
    path = tmp_path_factory.mktemp("recipe") / "recipe.json"
    found.save_recipe(path)
    return path


def said_by(code: str, folder: Path, **variables: str) -> tuple[list[str], str]:
    environment = {**os.environ, "MXNET_SUBGRAPH_BACKEND": "NGRAPH", "NGRAPH_CACHE_DIR": str(folder / "cache"),
                   "NGRAPH_LOG_LEVEL": "warning", "OMP_NUM_THREADS": "2", **variables}
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", MODEL + code], env=environment, capture_output=True,
                          text=True, check=False, timeout=300, cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines(), done.stderr


def int8(recipe: Path) -> dict[str, str]:
    return {"NGRAPH_PRECISION": "int8", "NGRAPH_CALIBRATION": str(recipe)}


def test_names_decide_nothing_and_what_does_not_fit_is_told_once(recipe: Path, tmp_path: Path) -> None:
    """In one process: three instances of the model, and another model between, whose first layer has a name that a
    layer of the recipe had."""
    code = """
import ngraph_mxnet
class Net(nn.HybridSequential): pass
for one in (make, other, make, lambda: make(Net)):
    net = one()
    print(net(mx.nd.ones((2, 32)) if one is other else x).asnumpy().ravel().tolist())
other()(mx.nd.ones((2, 32))).asnumpy()
for region in ngraph_mxnet.report().regions:
    print(region.precision)
"""
    lines, told = said_by(code, tmp_path, **int8(recipe))
    first, _, second, third, *precisions = lines
    in_float = said_by("print(make()(x).asnumpy().ravel().tolist())", tmp_path)[0][0]
    assert first == second == third != in_float
    np.testing.assert_allclose(np.fromstring(first[1:-1], sep=","), np.fromstring(in_float[1:-1], sep=","), atol=0.05)
    assert sorted(set(precisions)) == ["f32, 0 of 2 layers in 8 bits", "int8, 4 of 4 layers in 8 bits"]
    assert told.count("the recipe of quantisation, of 4 layers, fits none of the 2 layers") == 1
    assert told.count("quantisation") == 1


@pytest.mark.slow
def test_what_ran_before_does_not_decide_the_precision(recipe: Path, tmp_path: Path) -> None:
    """In both orders, on the disk's cache: what a process loads is told as what it compiles."""
    show = "make()(x).asnumpy().ravel().tolist()"
    found = []
    for number, order in enumerate((("", SHIFTED), (SHIFTED, ""))):
        folder = tmp_path / str(number)
        folder.mkdir()
        found += [said_by(f"{names}print({show})", folder, **int8(recipe))[0][0] for names in order]
    assert len(set(found)) == 1
    for _ in range(2):
        told = said_by("other()(mx.nd.ones((2, 32))).asnumpy()", tmp_path, **int8(recipe))[1]
        assert "fits none of the 2 layers" in told


def test_a_file_that_is_no_recipe_is_told_and_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "old.json").write_text('{"format": "ngraph_mxnet recipe", "version": 2, "method": "mse", "kept": {}, '
                                       '"scales": {"mx:hybridsequential0_conv0_fwd Convolution": [0.1, 3]}}')
    lines, told = said_by("print(make()(x).asnumpy().ravel().tolist())", tmp_path, **int8(tmp_path / "old.json"))
    assert lines == said_by("print(make()(x).asnumpy().ravel().tolist())", tmp_path)[0]
    assert told.count("by their names alone") == 1 and "NGRAPH_CALIBRATION" in told
