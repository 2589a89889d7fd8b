"""`scripts/bench_training.py` without TensorFlow and PyTorch, which no extra installs."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import bench_training
import click
import numpy as np
import pytest
from peers import report, spec
from peers.spec import SpecError
from rich.console import Console
from training_peers.idioms import IDIOMS
from training_peers.spec import BATCHES, NETS, TRAININGS, parse_models, training_of

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "bench_training.py"


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(SCRIPT), *map(str, arguments)], capture_output=True, text=True,
                          env={**os.environ, "NO_COLOR": "1"})


def test_models():
    assert parse_models("vgg16, mlp,vgg16") == ["vgg16", "mlp"]
    assert parse_models("mlp,all") == ["mlp", *(name for name in TRAININGS if name != "mlp")]
    assert parse_models("mlp,nets") == ["mlp", *NETS]
    rows = parse_models("mlp:idioms,mlp:mean")
    assert rows[0] == "mlp:plain" and "mlp:mean" in rows and len(rows) == len({*rows}) == len(IDIOMS)
    for text in ("resnet18_v1", ",", "", "mlp:median", "all:idioms"):
        with pytest.raises(SpecError):
            parse_models(text)


@pytest.mark.parametrize("name", [*TRAININGS, *NETS])
def test_batches_differ_and_are_the_same_for_all_peers(name: str):
    training = training_of(name)
    data, labels = training.batches()
    assert data.shape == (BATCHES, *training.inputs)
    assert labels.shape[1:] == (training.target or training.inputs[:training.labelled])
    assert training.samples in training.inputs and (training.target or labels.max() < training.classes)
    assert not np.array_equal(data[0], data[1]) and not np.array_equal(labels[0], labels[1])
    np.testing.assert_array_equal(data, training.batches()[0])


def test_nets_are_those_of_the_blocks():
    from training_peers.blocks import BLOCKS

    assert BLOCKS.keys() == NETS.keys()


def test_a_net_is_measured_with_its_numbers_compared():
    done = run("--models", "factorisation", "--peers", "none,ngraph", "--rounds", 1, "--burst", 1, "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    case, = json.loads(done.stdout)["cases"]
    assert [result["peer"] for result in case["results"]] == ["none", "ngraph"]


def test_an_idiom_is_measured():
    done = run("--models", "mlp:l2_term", "--peers", "none,ngraph", "--rounds", 1, "--burst", 1, "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    case, = json.loads(done.stdout)["cases"]
    assert case["model"] == "mlp:l2_term" and case["results"][1]["relative_error"] < 1e-5


def test_errors_are_of_losses_and_of_gradients():
    def error(*found: float, nudged: tuple[float, ...] = (2.0, 1.0, 1.0, 10.0, 1e-3)) -> float:
        own = (2.0, 1.0, 1.0, 10.0, 1e-3)
        return bench_training.error(np.array([*found, *nudged]), np.array([*own, *nudged]))

    assert error(2.0, 1.0, 1.0, 10.0, 1e-3) == 0
    assert error(2.0002, 1.0, 1.0, 10.0, 1e-3) == pytest.approx(1e-3)
    assert error(2.0, 1.01, 1.0, 10.0, 1e-3) == pytest.approx(1e-3)
    assert error(2.0, 1.0, 1.0, 10.1, 1e-3) == pytest.approx(1e-3)
    assert np.isnan(error(2.0, 1.0, 1.0, np.nan, 1e-3))
    # Where the reference's own gradients move by 1 %, 5 % are tolerated, of these only.
    assert error(2.0, 1.0, 1.0, 10.1, 1e-3, nudged=(2.0, 1.0, 1.0, 9.9, 1e-3)) == pytest.approx(1e-4 / 5)
    assert error(2.0, 1.01, 1.0, 10.1, 1e-3, nudged=(2.0, 1.0, 1.0, 9.9, 1e-3)) == pytest.approx(1e-3)


def test_peers_that_are_not_installed_are_left_out(capsys: pytest.CaptureFixture[str]):
    bench_training.has.cache_clear()
    peers = spec.parse_peers("none,torch,ngraph-module", spec.TRAIN)
    bare = Path(sys.executable).with_name("none")
    found = bench_training.installed([peers[0], peers[2]], str(bare))
    assert found == [peers[0], peers[2]]
    with pytest.raises(SpecError, match="expected one of none"):
        spec.parse_peers("torch")  # to infer
    with pytest.raises(click.UsageError, match="none of the peers"):
        bench_training.installed([spec.PeerSpec("torch")], _without_packages())
    assert "torch.compile left out: torch is not installed in" in capsys.readouterr().err


def _without_packages() -> str:
    """This Python where nothing is installed: the one that environments are made of, if it has no PyTorch either."""
    base = getattr(sys, "_base_executable", sys.executable)
    if bench_training.has(base, "torch"):
        pytest.skip("PyTorch is installed")
    return base


def test_ours_trains_whatever_the_default_is():
    plain, off = spec.parse_peers("ngraph,ngraph[NGRAPH_TRAINING=0]", spec.TRAIN)
    assert bench_training.program(plain, "/p")[:3] == ("env", "NGRAPH_TRAINING=1", sys.executable)
    assert bench_training.program(off, "/p")[1] == "NGRAPH_TRAINING=0"
    assert bench_training.program(spec.PeerSpec("tensorflow"), "/p")[2] == "/p"


@pytest.mark.parametrize(("arguments", "message"), [
    (("--peers", "onnxruntime"), "found peer 'onnxruntime'"), (("--models", "resnet51"), "found model 'resnet51'"),
    (("--threads", "0"), "expected positive integers"),
])
def test_wrong_command_lines(arguments: tuple[str, ...], message: str):
    done = run(*arguments)
    assert done.returncode == 2 and message in " ".join(done.stderr.split())


def test_a_run():
    """The smallest model by both interfaces: losses and gradients agree, and every figure is there."""
    done = run("--models", "mlp", "--peers", "none,ngraph,ngraph-module", "--rounds", 2, "--burst", 2, "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    (case,) = found["cases"]
    native, ours, module = case["results"]
    assert case["batch"] == 64 and native["relative_error"] == 0
    for result in (native, ours, module):
        assert 0 < result["min_ms"] <= result["median_ms"] <= result["p90_ms"] and result["relative_error"] < 1e-5
        assert result["compile_ms"] > 0 and result["peak_mib"] > result["imported_mib"] > 0
    assert native["ratio"] > 0 and "ratio" not in ours and module["warm_compile_ms"] > 0
    printed = io.StringIO()
    report.print_report(found, Console(file=printed, width=150), "steps", bench_training.NOTES,
                        bench_training.compared(report.COMPARED))
    text = printed.getvalue()
    assert "2 rounds of 2 steps" in text and re.search(r"median step, ours over theirs: batch 64", text)
    assert "…" not in text and "\x1b" not in text


def test_losses_that_are_off_fail(tmp_path: Path):
    """A folder that was exported before is read again; a weight in it is none."""
    assert bench_training.export("mlp", 64, tmp_path) == str(tmp_path / "mlp")
    with np.load(tmp_path / "mlp-weights.npz") as file:
        weights = [file[key] for key in file.files]
    assert [weight.shape for weight in weights] == [(256, 784), (256,), (128, 256), (128,), (10, 128), (10,)]
    weights[4][0, 0] = np.nan
    np.savez(tmp_path / "mlp-weights.npz", *weights)
    done = run("--models", "mlp", "--peers", "none", "--rounds", 1, "--burst", 1, "--json", "--work", tmp_path)
    assert done.returncode == 1
    assert "none: outputs are off by nan" in json.loads(done.stdout)["failures"][0]["reason"]


FIXED = """
import numpy as np
from training_peers import mxnet_peer
from training_peers.idioms import IDIOMS
from training_peers.spec import Training

nn = mxnet_peer.import_mxnet("none").gluon.nn

def network(name):
    net = nn.HybridSequential()
    net.add(nn.BatchNorm(scale=False, center=False), nn.Dense(3))
    return net

mxnet_peer.network = network
training = Training((4, 5), 3, "sgd", 0.1)
weights = [np.linspace(-1, 1, 15, dtype=np.float32).reshape(3, 5), np.zeros(3, np.float32)]
losses = []
for kind in (mxnet_peer.Gluon, mxnet_peer.Module):
    peer = kind("none")
    peer.load("net", training, weights)
    batches = [peer.native(*pair) for pair in zip(*training.batches())]
    peer.compile()
    losses.append([peer.loss_of(peer.step(batch)) for batch in batches])
np.testing.assert_allclose(*losses, rtol=1e-5)
assert len(set(losses[0])) == len(batches)
"""


def test_a_module_trains_a_net_with_fixed_parameters() -> None:
    """As ResNet v2's first batch norm has: the same losses as by Gluon."""
    subprocess.run([sys.executable, "-c", FIXED], cwd=SCRIPT.parent, check=True,
                   env={**os.environ, "MXNET_SUBGRAPH_BACKEND": "NONE"})
