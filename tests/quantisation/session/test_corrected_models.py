"""Bias correction, equalisation and smoothing by `ngraph_mxnet.quantize`: what they do to errors, when they are made,
and the same bits wherever a recipe with them runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import mxnet as mx
import numpy as np
import pytest
from mxnet.gluon import HybridBlock, nn

import ngraph_mxnet
from ngraph_mxnet.base.errors import ConfigError
from ngraph_mxnet.quantisation.apply import Recipe
from ngraph_mxnet.quantisation.session import quantized as session
from ngraph_mxnet.quantisation.session.quantized import Quantized

RNG = np.random.default_rng(5)
IMAGES = RNG.standard_normal((16, 3, 12, 12)).astype(np.float32)
TOKENS = RNG.standard_normal((16, 6, 32)).astype(np.float32)
OUTLIERS = np.where(np.arange(32) % 11 == 3, 40.0, 1.0).astype(np.float32)


def depthwise_net(bound: float | None = None) -> nn.HybridSequential:
    """As MobileNet's, with channels behind the first batch norm that are of very different size, and count the same."""
    mx.random.seed(1)
    np.random.seed(1)
    net = nn.HybridSequential(prefix="")

    def clamped() -> HybridBlock:
        if bound is None:
            return nn.Activation("relu")
        return nn.HybridLambda(lambda operators, x: operators.clip(x, 0, bound))

    net.add(nn.Conv2D(16, 3, use_bias=False, prefix="first_"), nn.BatchNorm(prefix="norm0_"), clamped(),
            nn.Conv2D(16, 3, groups=16, use_bias=False, prefix="depthwise_"), nn.BatchNorm(prefix="norm1_"), clamped(),
            nn.Conv2D(24, 1, prefix="last_"), nn.Activation("relu"), nn.GlobalAvgPool2D(), nn.Dense(5, prefix="dense_"))
    net.initialize(mx.init.Xavier())
    net(mx.nd.array(IMAGES[:1]))
    sizes = np.geomspace(4e-3, 4, 16).astype(np.float32)
    net[1].gamma.set_data(mx.nd.array(sizes))
    net[1].beta.set_data(mx.nd.array(sizes))
    net[3].weight.set_data(net[3].weight.data() / mx.nd.array(sizes).reshape((-1, 1, 1, 1)))
    return net


class Encoder(HybridBlock):
    """A transformer's layer of 32 units, whose layer norms make few channels much larger than the others: in front of
    the products (`first`), or behind the sums, where the next sum reads them, too."""

    def __init__(self, first: bool) -> None:
        super().__init__(prefix="")
        self._first = first
        names = {"query": 32, "key": 32, "value": 32, "output": 32, "wide": 64, "narrow": 32}
        with self.name_scope():
            for name in ("norm0", "norm1"):
                setattr(self, name, nn.LayerNorm(prefix=f"{name}_", in_channels=32))
            for name, units in names.items():
                setattr(self, name, nn.Dense(units, flatten=False, prefix=f"{name}_",
                                             in_units=64 if name == "narrow" else 32))

    def hybrid_forward(self, operators: Any, x: Any) -> Any:
        x = x if self._first else self.norm0(x)
        seen = self.norm0(x) if self._first else x
        weights = operators.softmax(operators.batch_dot(self.query(seen), self.key(seen), transpose_b=True) / 6)
        x = x + self.output(operators.batch_dot(weights, self.value(seen)))
        x = x if self._first else self.norm1(x)
        seen = self.norm1(x) if self._first else x
        return x + self.narrow(operators.LeakyReLU(self.wide(seen), act_type="gelu"))


def encoder(first: bool = True) -> Encoder:
    mx.random.seed(1)
    net = Encoder(first)
    net.initialize(mx.init.Xavier())
    for norm in (net.norm0, net.norm1):
        norm.gamma.set_data(mx.nd.array(OUTLIERS))
    for dense in (net.query, net.key, net.value, net.wide):
        dense.weight.set_data(dense.weight.data() / mx.nd.array(OUTLIERS))
    net(mx.nd.array(TOKENS[:1]))
    return net


def quantized(net: HybridBlock, data: np.ndarray, **options: Any) -> Quantized:
    """With all that can be in 8 bits, whatever is faster here."""
    return ngraph_mxnet.quantize(net, data, **{
        "only_faster": False, "threads": 2, "shapes": {"data": (4, *data.shape[1:])}, "method": "minmax",
        "metric": lambda outputs, labels: 0.0, **options})


def error(net: HybridBlock, found: Quantized, data: np.ndarray) -> float:
    wanted = net(mx.nd.array(data[:4])).asnumpy()
    return float(np.linalg.norm(found(data[:4])[0] - wanted) / np.linalg.norm(wanted))


@pytest.mark.parametrize("bound", [None, 6.0])
def test_a_depthwise_net_with_badly_scaled_channels(bound: float | None) -> None:
    net = depthwise_net(bound)
    without, with_it = (quantized(net, IMAGES, corrections=names) for names in ([], ["equalisation"]))
    assert error(net, with_it, IMAGES) < 0.35 * error(net, without, IMAGES) < 0.35
    assert "mx:depthwise_fwd Convolution" in with_it.recipe.corrections["equalisation"]
    chosen = quantized(net, IMAGES)
    (row,) = [row for row in chosen.report.corrections if row.name == "equalisation"]
    assert row.layers >= row.used == len(chosen.recipe.corrections["equalisation"]) >= 2
    assert row.error_with < 0.2 * row.error_without


@pytest.mark.parametrize("first", [True, False])
def test_a_transformer_with_outlier_channels(first: bool) -> None:
    net = encoder(first)
    without, chosen = quantized(net, TOKENS, corrections=[]), quantized(net, TOKENS)
    assert error(net, chosen, TOKENS) < 0.3 * error(net, without, TOKENS)
    assert [row.name for row in chosen.report.corrections] == ["smoothing", "bias"]
    assert chosen.report.corrections[0].used
    smoothed = chosen.recipe.corrections["smoothing"]
    assert set(smoothed) == {f"mx:{name}_fwd FullyConnected" for name in ("query", "key", "value", "wide")}
    assert smoothed["mx:query_fwd FullyConnected"] == smoothed["mx:value_fwd FullyConnected"]


def test_bias_correction_takes_the_mean_error_away() -> None:
    """Of each channel: of data that 8 bits hold exactly, so that weights alone are rounded."""
    net = nn.HybridSequential(prefix="")
    net.add(nn.Conv2D(12, 1, prefix="first_"), nn.Conv2D(12, 3, groups=12, prefix="depthwise_"))
    mx.random.seed(3)
    net.initialize(mx.init.Xavier())
    images = (RNG.integers(0, 256, (8, 3, 1, 1)) + np.zeros((1, 1, 9, 9))).astype(np.float32)
    images[0, :2, 0, 0] = 0, 255
    wanted = net(mx.nd.array(images)).asnumpy()
    means = []
    for names in ([], ["bias"]):
        found = quantized(net, images, corrections=names, keep=["mx:depthwise_fwd Convolution"],
                          shapes={"data": images.shape})
        assert found.recipe.products == ["mx:first_fwd Convolution"]
        means.append(np.abs((found(images)[0] - wanted).mean(axis=(0, 2, 3))))
    assert means[1].max() < 0.02 * means[0].max() and means[1].max() < 1e-4 * np.abs(wanted).max()


def test_what_is_reported() -> None:
    net = depthwise_net()
    found = quantized(net, IMAGES)
    rows, report = found.report.corrections, found.report
    assert [row.name for row in rows] == ["equalisation", "bias"]  # nothing is there to be smoothed
    assert all((row.used > 0) == (row.error_with < row.error_without) and row.used <= row.layers for row in rows)
    for row in report.layers:
        used = {name for name, table in found.recipe.corrections.items() if row.name in table}
        assert set(row.corrections) == used and all(name in str(report) for name in used)
    assert report.to_dict()["corrections"][0] == {
        "name": "equalisation", "layers": 3, "used": rows[0].used, "error_without": rows[0].error_without,
        "error_with": rows[0].error_with}


@pytest.mark.parametrize(("bad", "used"), [("", 8), ("h", 7), ("ab", 6), ("acfh", 0)])
def test_halves_of_the_layers_and_halves_of_these(bad: str, used: int) -> None:
    """Each is kept where it makes the error less, as long as there are trials left."""
    trials: list[set[str]] = []

    def error_of(recipe: Recipe) -> float:
        trials.append(set(recipe.means))
        return 10 - len(trials[-1] - {*bad}) + 50 * len(trials[-1] & {*bad})

    correction = session.Correction("bias", [*"abcdefgh"], lambda recipe, names: recipe.correcting(
        {name: np.ones(1) for name in names}))
    recipe, row = session.where_less(correction, Recipe({}), 10.0, error_of)
    assert len(recipe.means) == row.used == used and not {*recipe.means} & {*bad}
    assert trials[0] == {*"abcdefgh"} and len(trials) <= session.MOST_TRIALS and row.layers == 8
    assert row.error_without == 10 and row.error_with == (10 - used if used else 10 - 4 + 200)


def test_what_is_asked_for_is_made_and_nothing_else() -> None:
    """Also where it makes the error larger, or no less."""
    net = depthwise_net()
    for names in ([], ["bias"], ["bias", "equalisation"]):
        assert set(quantized(net, IMAGES, corrections=names).recipe.corrections) == set(names)
    mx.random.seed(0)
    np.random.seed(0)
    dense = nn.Dense(8, prefix="only_")
    dense.initialize(mx.init.Xavier())
    rows = TOKENS[:, 0]
    dense(mx.nd.array(rows))
    for given in (rows, rows * 0):
        found, asked = quantized(dense, given), quantized(dense, given, corrections=["bias"])
        (row,) = found.report.corrections
        assert row.error_with >= row.error_without and not found.recipe.corrections
        assert set(asked.recipe.corrections) == {"bias"}
    with pytest.raises(ConfigError, match="corrections: found smooth, expected some of smoothing, equalisation"):
        quantized(net, IMAGES, corrections=["smooth"])


def test_layers_that_stay_in_float_are_not_corrected() -> None:
    net = encoder()
    found = quantized(net, TOKENS, keep=["mx:key_fwd FullyConnected"], corrections=["smoothing", "bias"])
    assert "mx:key_fwd FullyConnected" not in {name for table in found.recipe.corrections.values() for name in table}
    assert 0 < error(net, found, TOKENS) < 0.3 * error(net, quantized(net, TOKENS, corrections=[]), TOKENS)


SCRIPT = """
import sys
import mxnet as mx, numpy as np
net = mx.gluon.SymbolBlock.imports(sys.argv[1], ["data"], sys.argv[2])
net.hybridize()
data = mx.nd.array(np.load(sys.argv[3]))
np.save("first.npy", net(data).asnumpy())
for name, array in mx.nd.load(sys.argv[4]).items():
    net.collect_params()[name.split(":")[1]].set_data(array)
np.save("second.npy", net(data).asnumpy())
"""


@pytest.mark.parametrize("kind", ["depthwise", "depthwise, ReLU6", "norm first", "norm last"])
def test_the_same_bits_everywhere_also_of_other_weights(kind: str, tmp_path: Path) -> None:
    """By a compiled call, a compiled file, and an unmodified script, which changes its weights between two calls: what
    is made of weights is made anew."""
    net, data = {
        "depthwise": lambda: (depthwise_net(), IMAGES), "depthwise, ReLU6": lambda: (depthwise_net(6.0), IMAGES),
        "norm first": lambda: (encoder(), TOKENS), "norm last": lambda: (encoder(first=False), TOKENS)}[kind]()
    data = data[:4]
    net.hybridize()
    net(mx.nd.array(data))
    net.export(str(tmp_path / "net"), 0)
    files = str(tmp_path / "net-symbol.json"), str(tmp_path / "net-0000.params")
    found = quantized(net, data, corrections=["smoothing", "equalisation", "bias"])
    assert len(found.recipe.corrections) == 2
    found.save_recipe(tmp_path / "recipe.json")
    assert Recipe.load(tmp_path / "recipe.json") == found.recipe

    wanted = found(data)[0]
    how: dict[str, Any] = {"precision": "int8", "recipe": str(tmp_path / "recipe.json"), "threads": 2}
    weights = mx.nd.load(files[1])
    changed = {name: array * (0.7 + 0.3 * mx.nd.random.uniform(shape=array.shape)) for name, array in weights.items()}
    mx.nd.save(str(tmp_path / "changed.params"), changed)
    by_call, again = (ngraph_mxnet.compile(files[0], weights=each, shapes={"data": data.shape}, **how)(data)[0]
                      for each in (weights, changed))
    np.testing.assert_array_equal(by_call, wanted)
    np.save(tmp_path / "data.npy", data)
    found.save(tmp_path / "net.ngraph")
    for variables in ({"NGRAPH_CALIBRATION": "recipe.json"}, {"NGRAPH_PACKAGE": "net.ngraph"}):
        environment = {**os.environ, "MXNET_SUBGRAPH_BACKEND": "NGRAPH", "NGRAPH_PRECISION": "int8",
                       "OMP_NUM_THREADS": "2", "NGRAPH_CACHE_DIR": "off", **variables}
        done = subprocess.run([sys.executable, "-c", SCRIPT, *files, "data.npy", "changed.params"], cwd=tmp_path,
                              env=environment, capture_output=True, text=True, check=False, timeout=300)
        assert done.returncode == 0, done.stderr
        np.testing.assert_array_equal(np.load(tmp_path / "first.npy"), wanted, str(variables))
        if "NGRAPH_CALIBRATION" in variables:  # a file is of the weights that are in it
            np.testing.assert_array_equal(np.load(tmp_path / "second.npy"), again)
    assert np.abs(again - wanted).max() > 0.01 * np.abs(wanted).max()
    exact = mx.gluon.SymbolBlock.imports(files[0], ["data"], str(tmp_path / "changed.params"))(mx.nd.array(data))
    assert np.linalg.norm(again - exact.asnumpy()) < 0.1 * np.linalg.norm(exact.asnumpy())
