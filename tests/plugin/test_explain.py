"""The explanation in Python and on the command line."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from mxnet_helpers import needs_library
from native_runs import mx

import ngraph_mxnet
from ngraph_mxnet.base import config
from ngraph_mxnet.base.errors import ConfigError, ModelError
from ngraph_mxnet.base.rendered import short
from ngraph_mxnet.tools.cli.commands import main

sym = mx.sym
SHAPES = {"data": (2, 3, 8, 8)}


def model() -> mx.sym.Symbol:
    """Two regions with an unsupported node between them, and a reshape alone behind another."""
    conv = sym.Convolution(sym.var("data"), kernel=(3, 3), num_filter=4, name="conv")
    norm = sym.BatchNorm(conv, fix_gamma=False, name="norm")
    middle = sym.cast_storage(sym.Activation(norm, act_type="relu", name="act"), stype="default", name="middle")
    dense = sym.FullyConnected(middle, num_hidden=5, name="dense")
    last = sym.reshape(sym.cast_storage(dense, stype="default", name="last"), shape=(-1,), name="alone")
    return sym.Group([last, sym.SoftmaxOutput(dense, name="out")])


def test_operators_that_share_a_name_are_explained_as_a_bind_takes_them() -> None:
    data = sym.cast_storage(sym.exp(sym.var("data"), name="same"), stype="default", name="middle")
    symbol = sym.tanh(sym.exp(data, name="same"), name="last")
    explanation = ngraph_mxnet.explain(symbol, {"data": (64, 64, 8)}).to_dict()
    assert [[node["name"] for node in region["nodes"]] for region in explanation["regions"]] == [
        ["same"], ["same_again1", "last"]]
    assert [node["name"] for node in explanation["left"]] == ["middle"]


def test_regions_and_reasons() -> None:
    explanation = ngraph_mxnet.explain(model(), SHAPES, backend="interpreter").to_dict()
    assert explanation["backend"] == "INTERPRETER"
    regions = [[node["name"] for node in region["nodes"]] for region in explanation["regions"]]
    assert sorted(regions, key=len) == [["dense", "out"], ["conv", "norm", "act"]]
    first = next(region for region in explanation["regions"] if len(region["nodes"]) == 3)
    assert first["macs"] == 2 * 4 * 36 * 27
    assert first["ops"] == {"Convolution": 1, "BatchNorm": 1, "Activation": 1}
    assert set(first["inputs"]) == {"data", "conv_weight", "conv_bias", "norm_gamma", "norm_beta",
                                    "norm_moving_mean", "norm_moving_var"}
    assert first["outputs"] == ["act"]
    assert first["bytes"] == 4 * (2 * 3 * 64 + 4 * 27 + 5 * 4 + 2 * 4 * 36)
    left = {node["name"]: node["reason"] for node in explanation["left"]}
    assert left["middle"] == left["last"] == "cast_storage stays with MXNet: it works on sparse arrays"
    assert "only moves elements" in left["alone"]
    json.dumps(explanation)


def test_it_prints_as_tables() -> None:
    text = str(ngraph_mxnet.explain(model(), SHAPES, backend="interpreter"))
    assert "5 of 8 nodes run on INTERPRETER, in 2 regions" in text
    assert "cast_storage stays with MXNet" in text


def test_other_types_are_explained() -> None:
    net = sym.FullyConnected(sym.var("x"), num_hidden=2, name="fc")
    explanation = ngraph_mxnet.explain(net, {"x": (2, 3)}, {"x": "float64"}, backend="interpreter").to_dict()
    assert explanation["regions"] == []
    assert "f64" in explanation["left"][0]["reason"]


def test_a_model_of_the_zoo_is_one_region() -> None:
    net = mx.gluon.model_zoo.vision.resnet18_v1(prefix="net_")(sym.var("data"))
    explanation = ngraph_mxnet.explain(net, {"data": (1, 3, 224, 224)}, backend="interpreter").to_dict()
    assert len(explanation["regions"]) == 1
    assert explanation["left"] == []
    assert 1.81e9 < explanation["regions"][0]["macs"] < 1.83e9


@needs_library
def test_nothing_is_left_behind() -> None:
    """A later bind of another graph whose nodes share names must not be partitioned by this one's."""
    ngraph_mxnet.explain(model(), SHAPES)
    other = sym.cast_storage(sym.var("data"), stype="default", name="conv")
    executor = other.simple_bind(mx.cpu(), data=(3,), grad_req="null")
    assert executor.forward()[0].shape == (3,)


def test_mistakes_are_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no input is called date"):
        ngraph_mxnet.explain(model(), {"date": (1, 2)})
    with pytest.raises(ModelError, match="can't infer the model's shapes"):
        ngraph_mxnet.explain(model(), {"data": (2, 3, 8, 8), "conv_weight": (4, 9, 3, 3)})
    with pytest.raises(ConfigError, match="no backend 'TOASTER'"):
        ngraph_mxnet.explain(model(), SHAPES, backend="TOASTER")
    corrupt = tmp_path / "corrupt-symbol.json"
    corrupt.write_text('{"nodes": [')
    with pytest.raises(ModelError, match="does not parse"):
        ngraph_mxnet.explain(str(corrupt), SHAPES)
    with pytest.raises(ModelError, match="can't read"):
        ngraph_mxnet.explain(tmp_path / "missing.json", SHAPES)


# ---- command line ---------------------------------------------------------------------------------------

@pytest.fixture
def saved(tmp_path: Path) -> str:
    path = tmp_path / "model-symbol.json"
    model().save(str(path))
    return str(path)


def test_explain_command(saved: str) -> None:
    arguments = ["explain", saved, "--shape", "data=2,3,8,8", "--backend", "interpreter"]
    text = CliRunner().invoke(main, arguments)
    assert text.exit_code == 0, text.output
    assert "5 of 8 nodes run on INTERPRETER" in text.output
    as_json = CliRunner().invoke(main, [*arguments, "--json"])
    assert json.loads(as_json.stdout)["backend"] == "INTERPRETER"


@pytest.mark.parametrize(("arguments", "message"), [
    (["--shape", "data"], "expected NAME=D,D"), (["--shape", "data=a"], "expected NAME=D,D"),
    (["--dtype", "data"], "expected NAME=DTYPE"), (["--shape", "nobody=1"], "no input is called nobody"),
])
def test_explain_command_names_mistakes(saved: str, arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(main, ["explain", saved, *arguments])
    assert result.exit_code != 0
    assert message in result.output


def test_ops_command() -> None:
    assert "convolution" in CliRunner().invoke(main, ["ops"]).output
    softmax = CliRunner().invoke(main, ["ops", "softmax"]).output
    assert "IR op softmax" in softmax
    assert "attribute axis" in softmax
    assert "MXNet operator softmax" in softmax
    missing = CliRunner().invoke(main, ["ops", "nonsense"])
    assert missing.exit_code == 1
    assert "is called 'nonsense'" in missing.output


def test_env_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("NGRAPH_BACKEND", "nonsense")
    output = CliRunner().invoke(main, ["env"]).output
    assert all(name in output for name in config.VARIABLES)
    assert "not allowed" in output


def test_what_this_machine_lacks_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NGRAPH_PRECISION", "bf16")
    monkeypatch.setenv("NGRAPH_CPU_ISA", "baseline")
    done = CliRunner().invoke(main, ["env"])
    assert "Everything runs in float32." in " ".join(done.output.split())
    found = ngraph_mxnet.explain(mx.sym.relu(mx.sym.Variable("data")), {"data": (2, 3)})
    assert found.notices[0].startswith("NGRAPH_PRECISION=bf16: ")
    assert found.to_dict()["notices"] == list(found.notices)
    assert found.notices[0] in " ".join(str(found).split())
    monkeypatch.setenv("NGRAPH_PRECISION", "f32")
    assert not ngraph_mxnet.explain(mx.sym.relu(mx.sym.Variable("data")), {"data": (2, 3)}).notices


def test_short_numbers() -> None:
    assert [short(n) for n in (0, 999, 1820000000, 5e15)] == ["0", "999", "1.82 G", "5e+03 T"]


def small_network() -> mx.sym.Symbol:
    wide = sym.Convolution(sym.var("data"), kernel=(3, 3), pad=(1, 1), num_filter=64, name="wide")
    small = sym.Convolution(sym.relu(wide), kernel=(1, 1), num_filter=16, name="small")
    return sym.FullyConnected(small, num_hidden=5, name="dense")


@needs_library
def test_kernels_of_each_contraction(monkeypatch: pytest.MonkeyPatch) -> None:
    shapes = {"data": (1, 64, 56, 56)}
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    explanation = ngraph_mxnet.explain(small_network(), shapes, backend="cpu", kernels=True)
    (found,) = explanation.to_dict()["kernels"]
    by_name = {name: row for row in found for name in ("wide", "small", "dense") if f"mx:{name} " in row["node"]}
    assert [by_name[name]["algorithm"] for name in ("wide", "small", "dense")] == ["F(4x4)", "direct", "direct"]
    assert by_name["wide"]["tasks"] > 1
    assert "F(4x4)" in str(explanation)
    (use,) = explanation.to_dict()["memory"]
    assert 0 < use["least"] <= use["planned"] <= use["separate"]
    assert use["prepared"] > 0
    assert f"{use['planned'] / 1e6:.2f}" in str(explanation)
    assert explanation.to_dict()["threads"] == [min(2, os.cpu_count() or 1)]
    monkeypatch.setenv("NGRAPH_CPU_WINOGRAD", "0")
    assert "F(4x4)" not in str(ngraph_mxnet.explain(small_network(), shapes, backend="cpu", kernels=True))
    with pytest.raises(ConfigError, match="no kernels"):
        ngraph_mxnet.explain(small_network(), shapes, backend="interpreter", kernels=True)


@needs_library
def test_kernels_around_an_operator_that_insists_on_types(capfd: pytest.CaptureFixture[str]) -> None:
    net = sym.FullyConnected(sym.Dropout(sym.var("data")), num_hidden=5, name="dense")
    explanation = ngraph_mxnet.explain(net, {"data": (2, 3)}, backend="cpu", kernels=True)
    assert [len(region) for region in explanation.to_dict()["kernels"]] == [1]
    assert "error" not in capfd.readouterr().out


@pytest.mark.parametrize("between", [False, True], ids=["results", "read by another region"])
def test_states_of_recurrent_layers(between: bool) -> None:
    """Outputs of an RNN that only the caller reads, or that another region reads."""
    data, weights, *states = (mx.sym.Variable(name) for name in ("data", "weights", "h", "c"))
    out, h, c = mx.sym.RNN(data, weights, *states, state_size=16, num_layers=1, mode="lstm", state_outputs=True,
                           name="lstm")
    symbol = mx.sym.Group([out, h, c])
    if between:  # MXNet's sampler stands between two regions
        drawn = mx.sym.sample_multinomial(mx.sym.softmax(out), shape=1, name="drawn")
        rows = mx.sym.cast(mx.sym.reshape(drawn, shape=(1, -1, 1)), "float32")
        wide = mx.sym.FullyConnected(mx.sym.broadcast_mul(c, rows), num_hidden=64, flatten=False, name="dense")
        symbol = mx.sym.Group([wide, h])
    size = 4 * 16 * (8 + 16 + 2)
    shapes = {"data": (1, 2, 8), "weights": (size,), "h": (1, 2, 16), "c": (1, 2, 16)}
    found = ngraph_mxnet.explain(symbol, shapes, kernels=True)
    assert len(found.partition.regions) == 1 + between
    assert len(found.to_dict()["kernels"]) == 1 + between



@needs_library
def test_kernels_on_the_command_line(tmp_path: Path) -> None:
    path = tmp_path / "net-symbol.json"
    small_network().save(str(path))
    arguments = ["explain", str(path), "--shape", "data=1,64,8,8", "--kernels"]
    assert "Contractions" in CliRunner().invoke(main, arguments).output
    ((first, *_),) = json.loads(CliRunner().invoke(main, [*arguments, "--json"]).output)["kernels"]
    assert "images=1 " in first["parameters"] and "lower=0.0" in first["parameters"]
    assert f"{first['tasks']} tasks\nfor " in first["loops"] and "for tile in " in first["loops"]


def two_layers(cut: bool) -> mx.sym.Symbol:
    """A convolution and a dense layer, between which MXNet runs a node if the graph is `cut`."""
    conv = sym.Convolution(sym.var("data"), kernel=(3, 3), num_filter=16, name="second" if cut else "first")
    middle = sym.Activation(conv, act_type="relu")
    middle = sym.cast_storage(middle, stype="default") if cut else middle
    return sym.FullyConnected(middle, num_hidden=16, name="first" if cut else "second")


def test_each_regions_precision(monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
                                caplog: pytest.LogCaptureFixture) -> None:
    """With a recipe of the same layers in one region, where each had the other one's name."""
    shapes, rng = {"data": (2, 8, 8, 8)}, np.random.default_rng(0)
    whole, cut = two_layers(False), two_layers(True)
    known = dict(zip(whole.list_arguments(), whole.infer_shape(**shapes)[0], strict=True))
    params = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in known.items() if name != "data"}
    found = ngraph_mxnet.quantize(whole, rng.standard_normal(shapes["data"]).astype(np.float32), params=params,
                                  shapes=shapes, only_faster=False, method="minmax", corrections=[], threads=1)
    found.save_recipe(tmp_path / "recipe.json")
    assert not caplog.records  # the recipes that were tried are not told of
    assert [region["precision"] for region in ngraph_mxnet.explain(cut, shapes).to_dict()["regions"]] == ["f32"] * 2
    monkeypatch.setenv("NGRAPH_PRECISION", "int8")
    monkeypatch.setenv("NGRAPH_CALIBRATION", str(tmp_path / "recipe.json"))
    for symbol, counts in ((whole, [2]), (cut, [1, 1])):
        explanation = ngraph_mxnet.explain(symbol, shapes)
        assert [region["precision"] for region in explanation.to_dict()["regions"]] == [
            f"int8, {count} of {count} layers in 8 bits" for count in counts]
        assert "precision" in str(explanation)
    other = ngraph_mxnet.explain(model(), SHAPES).to_dict()["regions"]
    assert sorted(region["precision"] for region in other) == ["f32, 0 of 1 layers in 8 bits"] * 2
