"""The backend HYBRID through MXNet: results, pins by attributes, and what `explain` tells."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from click.testing import CliRunner
from mxnet_helpers import backend, conv_net, mx, needs_library, run_script

from ngraph_mxnet.targets.hybrid.backend import HybridBackend
from ngraph_mxnet.targets.hybrid.plan import Plan
from ngraph_mxnet.tools.cli.commands import main

pytestmark = needs_library
SHAPE = (2, 3, 16, 16)


@pytest.fixture
def plans(own_backend: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> list[Plan]:
    """The plans of all regions that are compiled, by a backend like HYBRID."""
    found: list[Plan] = []

    def compile(*arguments: Any) -> Any:
        executable = HybridBackend.compile(*arguments)
        found.append(executable.plan)
        return executable

    own_backend(HybridBackend, compile=compile)
    monkeypatch.setenv("NGRAPH_BACKEND", "OWN")
    return found


def outputs(symbol: mx.sym.Symbol, value: str) -> np.ndarray:
    with backend(value):
        executor = symbol.simple_bind(mx.cpu(), grad_req="null", data=SHAPE)
        rng = np.random.default_rng(5)
        for arrays in (executor.arg_dict, executor.aux_dict):
            for name, array in arrays.items():
                values = rng.uniform(0.5, 1.5, array.shape) if "var" in name else rng.uniform(-1, 1, array.shape)
                array[:] = values / max(1, np.prod(array.shape[1:])) ** 0.5
        return executor.forward(is_train=False)[0].asnumpy()


def test_results_are_right(plans: list[Plan]) -> None:
    found, expected = outputs(conv_net(), "NGRAPH"), outputs(conv_net(), "NONE")
    assert len(plans) == 1
    assert np.linalg.norm(found - expected) <= 1e-2 * np.linalg.norm(expected)


def pinned_net(**attributes: str) -> mx.sym.Symbol:
    """A pinned convolution between two others, and an activation."""
    net = mx.sym.Convolution(mx.sym.Variable("data"), num_filter=4, kernel=(3, 3), name="first")
    with mx.AttrScope(**attributes):
        net = mx.sym.Convolution(net, num_filter=4, kernel=(3, 3), name="second")
    return mx.sym.Activation(mx.sym.Convolution(net, num_filter=4, kernel=(3, 3), name="third"), act_type="sigmoid",
                             name="last")


@pytest.mark.parametrize(("attributes", "device"), [
    ({"__ngraph_device__": "NNP"}, "NNP"), ({"ctx_group": "nnp"}, "NNP"), ({"__ngraph_device__": "CPU"}, "CPU"),
    ({"ctx_group": "dev1"}, None),
])
def test_attributes_pin(plans: list[Plan], attributes: dict[str, str], device: str | None) -> None:
    net = pinned_net(**attributes)
    found, expected = outputs(net, "NGRAPH"), outputs(net, "NONE")
    (plan,) = plans
    (node,) = [node for node in plan.nodes if node.name == "second"]
    if device is None:
        assert "pinned" not in node.why
    else:
        assert (node.device, node.why) == (device, "pinned by the user")
    assert np.linalg.norm(found - expected) <= 1e-2 * np.linalg.norm(expected)


def test_an_attribute_that_names_no_device_is_told(plans: list[Plan], caplog: pytest.LogCaptureFixture) -> None:
    """MXNet runs what can't be compiled."""
    outputs(pinned_net(__ngraph_device__="GPU"), "NGRAPH")
    assert "is pinned to 'GPU', expected one of CPU, NNP" in caplog.text
    assert not plans


def test_a_script_that_knows_nothing_of_it(tmp_path: Path) -> None:
    script = """
import mxnet as mx
from mxnet.gluon import nn
net = nn.HybridSequential()
net.add(nn.Conv2D(8, 3, activation="relu"), nn.BatchNorm(), nn.Flatten(), nn.Dense(4))
net.initialize(mx.init.One())
net.hybridize(static_alloc=True)
print(net(mx.nd.arange(192).reshape((1, 3, 8, 8)) / 192).asnumpy().tolist())
"""
    results = []
    for value in ("NGRAPH", None):
        done = run_script(script, tmp_path, value, NGRAPH_BACKEND="HYBRID")
        assert done.returncode == 0, done.stderr
        results.append(ast.literal_eval(done.stdout))
    np.testing.assert_allclose(*results, rtol=2e-2)


@pytest.fixture
def saved(tmp_path: Path) -> str:
    path = tmp_path / "net-symbol.json"
    pinned_net(__ngraph_device__="NNP").save(str(path))
    return str(path)


def test_explain_tells_the_plan(saved: str, tmp_path: Path) -> None:
    arguments = ["explain", saved, "--shape", "data=2,3,16,16", "--backend", "hybrid"]
    pictures = [tmp_path / "graph.svg", tmp_path / "time.svg"]
    done = CliRunner().invoke(main, [*arguments, "--svg", str(pictures[0]), "--timeline", str(pictures[1])])
    assert done.exit_code == 0, done.output
    for text in ("as placed", "all on CPU", "all on NNP", "NNP's costs are simulated", "pinned by the user"):
        assert text in done.output
    for picture in pictures:
        assert "simulated" in "".join(ElementTree.parse(picture).getroot().itertext())
    done = CliRunner().invoke(main, [*arguments, "--json", "--option", "pins=second=CPU,third=NNP"])
    (plan,) = json.loads(done.stdout)["plans"]
    assert {region["simulated_seconds"] for region in plan["regions"]} == {None}
    assert plan["devices"] == ["CPU", "NNP"]
    where = {node["name"]: node["device"] for node in plan["nodes"]}
    assert (where["second"], where["third"]) == ("CPU", "NNP")
    assert {transfer["to"] for transfer in plan["transfers"]} == {"CPU", "NNP"}


def test_explain_simulates_what_is_compiled(saved: str) -> None:
    arguments = ["explain", saved, "--shape", "data=2,3,16,16", "--backend", "hybrid", "--simulate"]
    pins = ["--option", "pins=second=CPU,third=NNP"]
    assert "as compiled: with the transfers" in CliRunner().invoke(main, [*arguments, *pins]).output
    (plan,) = json.loads(CliRunner().invoke(main, [*arguments, *pins, "--json"]).stdout)["plans"]
    for region in plan["regions"]:
        assert (region["simulated_seconds"] is not None) == (region["device"] == "NNP")
        assert region["simulated_seconds"] is None or 1e-7 < region["simulated_seconds"] < 1e-3


def test_explain_of_another_backend_draws_nothing(saved: str, tmp_path: Path) -> None:
    arguments = ["explain", saved, "--shape", "data=2,3,16,16", "--backend", "cpu"]
    done = CliRunner().invoke(main, [*arguments, "--svg", str(tmp_path / "graph.svg")])
    assert done.exit_code == 1
    assert "the backend has no plan to draw; such as have: HYBRID" in done.output
    done = CliRunner().invoke(main, [*arguments, "--option", "overlap=0"])
    assert done.exit_code == 1
    assert "backend CPU makes no plan that options could change" in done.output
