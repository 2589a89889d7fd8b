"""What `explain --shapes` and `report` say of models whose shapes change."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from mxnet_helpers import backend, mx, needs_library

from mxnet.gluon import nn  # isort: skip  # the helpers make it importable
import ngraph_mxnet
from ngraph_mxnet import _core
from ngraph_mxnet.base.errors import ConfigError, ModelError
from ngraph_mxnet.plugin import regions
from ngraph_mxnet.tools.cli.commands import main

pytestmark = needs_library


def classifier() -> mx.sym.Symbol:
    x = mx.sym.Activation(mx.sym.Convolution(mx.sym.var("data"), kernel=(3, 3), num_filter=8, name="c"),
                          act_type="relu")
    return mx.sym.FullyConnected(mx.sym.Pooling(x, global_pool=True, pool_type="avg"), num_hidden=4, name="scores")


def test_a_model_for_all_sizes() -> None:
    found = ngraph_mxnet.explain_shapes(classifier(), {"data": (1, 3, 16, 16)}, {"data": (0, 2, 3)})
    (verdict,) = found.verdicts
    assert found.compiles and found.fixed == 0
    assert verdict.name == "scores" and verdict.inputs == ("data: f32[N,3,H,W]",) and verdict.reason is None
    assert not any("is" in each.condition for each in verdict.assumptions)


def test_the_reason_is_told() -> None:
    x = mx.sym.broadcast_add(mx.sym.var("data"), mx.sym.contrib.arange_like(mx.sym.var("data"), axis=1, name="places"))
    (verdict,) = ngraph_mxnet.explain_shapes(x, {"data": (4, 16)}, {"data": (1,)}).verdicts
    assert verdict.reason is None
    x = mx.sym.broadcast_add(mx.sym.var("data"), mx.sym.contrib.arange_like(mx.sym.var("data"), axis=1, repeat=2,
                                                                            name="places"))
    found = ngraph_mxnet.explain_shapes(x, {"data": (4, 16)}, {"data": (1,)})
    assert not found.compiles
    (verdict,) = found.verdicts
    assert verdict.reason is not None and "T is 16" in verdict.reason and "places" in verdict.reason


def test_weights_of_other_sizes_are_a_reason() -> None:
    x = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=4, name="scores")
    (verdict,) = ngraph_mxnet.explain_shapes(x, {"data": (2, 3, 5)}, {"data": (2,)}).verdicts
    assert verdict.reason is not None and "scores_weight" in verdict.reason


def test_regions_behind_what_stays_with_mxnet() -> None:
    mixed = mx.sym.shuffle(mx.sym.relu(mx.sym.var("data") + 1), name="mixed")
    found = ngraph_mxnet.explain_shapes(mx.sym.tanh(mixed * 2, name="end"), {"data": (4, 7)}, {"data": (0, 1)})
    assert [verdict.inputs for verdict in found.verdicts][-1] == ("mixed: f32[N,T]",)
    assert found.compiles


def between_shuffles() -> mx.sym.Symbol:
    """`root` is alone between operators of MXNet: a region of 1024 elements on."""
    mixed = mx.sym.shuffle(mx.sym.relu(mx.sym.var("data") + 1, name="first"), name="mixed")
    return mx.sym.shuffle(mx.sym.sqrt(mixed, name="root"), name="last")


def test_regions_at_other_sizes_only_are_told() -> None:
    found = ngraph_mxnet.explain_shapes(between_shuffles(), {"data": (16, 40)}, {"data": (0, 1)})
    first, root = found.verdicts
    assert first.name == "first" and first.reason is None
    assert root.name == "root" and not found.compiles
    assert root.reason is not None and root.reason.startswith("at data=(16, 40) root stays with MXNet: alone between")


def test_regions_at_these_sizes_only_are_told() -> None:
    """A side of a cond is computed in vain, so that both must not be large."""
    data = mx.sym.var("data")
    chosen = mx.sym.contrib.cond(mx.sym.sum(data) > 0, lambda: mx.sym.relu(data), lambda: data * 2)
    found = ngraph_mxnet.explain_shapes(mx.sym.tanh(chosen, name="end"), {"data": (2000, 2000)}, {"data": (0, 1)})
    assert found.verdicts[0].name == "end" and not found.compiles
    reason = found.verdicts[0].reason
    assert reason is not None and "at data=(4000, 6000) " in reason and "stays with MXNet: " in reason


def test_regions_are_paired_by_their_nodes() -> None:
    """Of `small` there is a region at the larger sizes only, before that of `end`."""
    x = mx.sym.var("data")
    small = mx.sym.shuffle(mx.sym.sqrt(mx.sym.shuffle(x), name="small"))
    end = mx.sym.tanh(mx.sym.shuffle(mx.sym.concat(small, small, dim=0)) * 2, name="end")
    found = ngraph_mxnet.explain_shapes(end, {"data": (16, 40)}, {"data": (1,)})
    reasons = {verdict.name: verdict.reason for verdict in found.verdicts}
    assert reasons.keys() == {"small", "end"} and reasons["end"] is None and reasons["small"] is not None


def test_regions_with_a_cond_have_the_models_names() -> None:
    data = mx.sym.var("data")
    chosen = mx.sym.contrib.cond(mx.sym.sum(data) > 0, lambda: mx.sym.relu(data), lambda: data * 2)
    end = mx.sym.tanh(mx.sym.shuffle(mx.sym.negative(chosen, name="minus"), name="mixed") * 3, name="end")
    found = ngraph_mxnet.explain_shapes(end, {"data": (16, 40)}, {"data": (0, 1)})
    assert [(verdict.name, verdict.inputs) for verdict in found.verdicts] == [
        ("minus", ("data: f32[N,T]",)), ("end", ("mixed: f32[N,T]",))]


def test_ranks_that_change_are_a_reason() -> None:
    mixed = mx.sym.shuffle(mx.sym.squeeze(mx.sym.var("data")), name="mixed")
    found = ngraph_mxnet.explain_shapes(mx.sym.tanh(mixed * 2, name="end"), {"data": (1, 7)}, {"data": (0,)})
    assert [(verdict.name, verdict.reason) for verdict in found.verdicts][-1] == (
        "end", "its inputs have other ranks when the sizes change")


def test_sizes_that_stay_are_counted() -> None:
    found = ngraph_mxnet.explain_shapes(mx.sym.relu(mx.sym.var("data")), {"data": (4, 7)}, {})
    assert found.verdicts == () and found.fixed == 1


def test_bad_input() -> None:
    with pytest.raises(ConfigError, match="axis 4 of 'data' is to change"):
        ngraph_mxnet.explain_shapes(classifier(), {"data": (1, 3, 16, 16)}, {"data": (4,)})
    flat = mx.sym.FullyConnected(mx.sym.var("data"), mx.sym.var("w", shape=(4, 12)), num_hidden=4, no_bias=True)
    with pytest.raises(ModelError, match="can't infer"):
        ngraph_mxnet.explain_shapes(flat, {"data": (2, 12)}, {"data": (1,)})


def test_command(tmp_path: Path) -> None:
    path = tmp_path / "net-symbol.json"
    classifier().save(str(path))
    command = ["explain", str(path), "--shape", "data=1,3,16,16", "--shapes", "data:0,2,3"]
    result = CliRunner().invoke(main, [*command, "--json"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.output)["verdicts"][0]["inputs"] == ["data: f32[N,3,H,W]"]
    assert "1 of 1 are compiled once for a range of sizes" in CliRunner().invoke(main, command).output
    between_shuffles().save(str(path))
    command[3] = "data=16,40"
    command[5] = "data:1"
    result = CliRunner().invoke(main, [*command, "--json"])
    assert result.exit_code == 1
    assert {entry["name"]: entry["reason"] is None for entry in json.loads(result.output)["verdicts"]} == {
        "first": True, "root": False}
    result = CliRunner().invoke(main, command)
    assert result.exit_code == 1 and "1 of 2 are compiled once for a range of sizes" in result.output
    assert "root" in result.output
    wrong = CliRunner().invoke(main, [*command[:-1], "data"])
    assert wrong.exit_code == 2 and "data:0,2,3" in wrong.output


def test_the_report_has_ranges() -> None:
    _core.clear_compile_cache()
    regions.forget()
    with backend("NGRAPH"):
        net = nn.HybridSequential()
        net.add(nn.Dense(4, in_units=6))
        net.initialize()
        net.hybridize()
        for batch in (1, 2, 3):
            net(mx.nd.zeros((batch, 6))).asnumpy()
    (verdict,) = ngraph_mxnet.report().ranges
    assert verdict.inputs == ("data: f32[N,6]",) and verdict.reason is None
    assert "Ranges of sizes" in str(ngraph_mxnet.report())
    _core.clear_compile_cache()
