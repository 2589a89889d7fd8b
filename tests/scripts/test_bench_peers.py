"""`scripts/bench_peers.py` without the peers that the `bench` extra installs."""

from __future__ import annotations

import io
import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import mxnet as mx
import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from peers import driver, layers, machine, nets, report, spec, stats
from peers.process import PeerError, PeerProcess, PeerUnavailable
from rich.console import Console

from ngraph_mxnet import explain
from ngraph_mxnet.frontends.onnx.importer import import_model
from ngraph_mxnet.frontends.onnx.model import read_model
from ngraph_mxnet.tools.experiments.store import Store

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "bench_peers.py"
TIMES = st.lists(st.floats(0.1, 1e3), min_size=1, max_size=8)


# Names


def test_peers_with_variables():
    peers = spec.parse_peers("none, ngraph[NGRAPH_PRECISION=bf16,A=b=c] ,NGRAPH[]")
    assert [str(peer) for peer in peers] == ["none", "ngraph[NGRAPH_PRECISION=bf16,A=b=c]", "ngraph"]
    assert peers[1].label == "NGRAPH PRECISION=bf16 A=b=c"
    assert peers[1].tolerance > peers[2].tolerance
    assert spec.parse_peers("ngraph[NGRAPH_PRECISION=auto]")[0].tolerance == peers[1].tolerance


def test_the_peers_of_every_part():
    """No part of the script for one CPU names a peer that isn't there, or twice."""
    text = SCRIPT.with_name("bench_this_cpu.sh").read_text()
    variants = "ngraph,ngraph[NGRAPH_CPU_ISA=avx2],ngraph[NGRAPH_PRECISION=bf16],openvino-bf16"
    found = re.findall(r'--peers[ \\\n]+(?:"([^"]*)"|(\S+))', text)
    assert len(found) >= 7
    for quoted, plain in found:
        names = (quoted or plain).replace("$variants", variants).replace("$bf16", "NGRAPH_PRECISION=bf16")
        if "$" not in names:
            assert spec.parse_peers(names), names


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tvm", "expected one of none, mkldnn"),
        ("ngraph[A=1", "expected one of"),
        ("ngraph[A]", "expected VAR=VALUE"),
        ("none,none", "twice"),
        ("ngraph[A=1],ngraph[A=1]", "twice"),
        (" , ", "found no peer"),
    ],
)
def test_peers_that_are_refused(text: str, message: str):
    with pytest.raises(spec.SpecError, match=re.escape(message)):
        spec.parse_peers(text)


def test_models():
    assert spec.parse_models("vgg16,resnet50_v2,vgg16") == ["vgg16", "resnet50_v2"]
    assert spec.parse_models("vgg16,zoo")[:2] == ["vgg16", "alexnet"]
    assert spec.parse_models("nets") == [f"net:{name}" for name in nets.NETS]
    assert spec.parse_models("layers,vgg16") == [*(f"layer:{name}" for name in layers.LAYERS), "vgg16"]
    assert spec.input_shape("layer:lstm_128_35", 1) == (1, 35, 16, 64)
    assert spec.input_shape("net:mlp_784_512_512_10", 3) == (3, 784)


@pytest.mark.parametrize(("models", "able", "usual"), [
    (["vgg16"], spec.INFER, spec.DEFAULT_PEERS),
    (["vgg16", "net:points_800"], spec.READS_ONNX, spec.DEFAULT_FILE_PEERS),
    (["vgg16", "layer:lrn_96_55"], spec.READS_SYMBOL, spec.READS_SYMBOL),
    (["net:points_800", "layer:lrn_96_55"], (), ()),
])
def test_peers_read_models_of_their_kinds(models: list[str], able: Sequence[str], usual: Sequence[str]):
    assert spec.readers(models) == (able, usual)


def test_a_peer_that_does_not_read_a_layer_is_refused():
    done = run("--models", "layer:lrn_96_55", "--peers", "ngraph,openvino")
    assert done.returncode == 2
    assert "openvino can't read all of layer:lrn_96_55; those that can: none, mkldnn, ngraph" in done.stderr


@pytest.mark.parametrize("name", layers.LAYERS)
def test_a_layer_is_a_symbol_of_one_input(name: str):
    """Whose other arguments have shapes by then, and which is taken whole."""
    symbol = layers.LAYERS[name].make(mx.sym, mx.sym.Variable("data"))
    shapes = {"data": (1, *layers.LAYERS[name].shape)}
    _, outputs, _ = symbol.infer_shape(**shapes)
    assert len(outputs) == 1 and np.prod(outputs[0]) > 0
    assert len(explain(symbol, shapes).partition.regions) == 1


@pytest.mark.parametrize("name", nets.NETS)
def test_a_net_is_a_model_of_numbers(name: str, tmp_path: Path):
    """Each imports, with the shapes that its builder counts with, and its inputs fit."""
    nets.write_model(f"net:{name}", 2, tmp_path)
    proto, inputs = onnx.load(tmp_path / f"{name}-b2.onnx"), np.load(tmp_path / f"{name}-b2.npy")
    onnx.checker.check_model(proto, full_check=True)
    graph = import_model(read_model(proto)).graph
    x, *_ = graph.parameters
    assert x.shape == inputs.shape[1:] == (2, *nets.NETS[name].shape)
    assert x.type.element.numpy == inputs.dtype
    assert graph.results[0].type.element.name == "f32"
    assert len(spec.parse_models("zoo,vgg16")) == len(spec.ZOO)
    assert spec.parse_models("bert12_64,bert12_128") == ["bert12_64", "bert12_128"]
    assert spec.input_shape("bert12_64", 8) == (8, 64)
    for name in ("resnet51", "bert12", "bert12_0", "bert12_513"):
        with pytest.raises(spec.SpecError, match=name):
            spec.parse_models(name)


def small_onnx(path: Path) -> str:
    """One product of the last axis with weights: [?, 3, 4] to [?, 3, 5]."""
    import onnx
    from onnx import helper, numpy_helper

    x, y = (helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["n", 3, size])
            for name, size in (("x", 4), ("y", 5)))
    weights = numpy_helper.from_array(np.random.default_rng(0).standard_normal((4, 5)).astype(np.float32), "w")
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", [x], [y], [weights])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    return str(path)


def test_files_as_models(tmp_path: Path):
    import bench_peers

    file = small_onnx(tmp_path / "small.onnx")
    assert spec.parse_models(f"{file}[3x4],vgg16") == [f"{file}[3x4]", "vgg16"]
    assert spec.input_shape(f"{file}[3x4]", 8) == (8, 3, 4)
    assert spec.file_prefix(f"{file}[3x4]") == "small-3x4"
    wrong = {f"{file}[3x]": "as FILE.onnx", file: "as FILE.onnx", "none.onnx[3]": "no file none.onnx"}
    for name, message in wrong.items():
        with pytest.raises(spec.SpecError, match=message):
            spec.parse_models(name)
    assert [peer.kind for peer in bench_peers._fitting([], [f"{file}[3x4]"])] == list(spec.DEFAULT_FILE_PEERS)
    assert "ngraph-onnx" not in [peer.kind for peer in bench_peers._fitting([], ["vgg16"])]
    with pytest.raises(click.UsageError, match=r"mkldnn can't read all of .*small.onnx"):
        bench_peers._fitting(spec.parse_peers("ngraph-onnx,mkldnn"), [f"{file}[3x4]"])


def test_a_run_on_a_file(tmp_path: Path):
    file = small_onnx(tmp_path / "small.onnx")
    done = run("--models", f"{file}[3x4]", "--peers", "ngraph-onnx,ngraph-onnx[NGRAPH_CPU_WINOGRAD=0]", "--batch", 2,
               "--rounds", 2, "--burst", 2, "--json", environment={"NGRAPH_RUNS": str(tmp_path / "runs.sqlite")})
    assert done.returncode == 0, done.stderr
    (case,) = json.loads(done.stdout)["cases"]
    assert case["model"] == "small-3x4" and len(case["results"]) == 2
    runs = Store(tmp_path / "runs.sqlite").runs("bench_peers")
    assert [one.settings["peer"] for one in runs] == [result["peer"] for result in case["results"]]
    for one, result in zip(runs, case["results"], strict=True):
        assert one.blocks == "round" and [len(block) for block in one.samples["latency_ms"]] == [2, 2]
        assert one.median() == result["median_ms"] and one.metrics["peak_mib"] == [(0, result["peak_mib"])]
        assert one.facts["threads"] == 1 and one.facts["affinity"] == case["cpus"]
    assert all(result["relative_error"] < 1e-5 and result["median_ms"] > 0 for result in case["results"])
    done = run("--models", f"{file}[3x4x1]", "--peers", "ngraph-onnx", "--rounds", 1, "--burst", 1, "--json")
    assert done.returncode == 1
    assert "takes 3 dimensions" in json.loads(done.stdout)["failures"][0]["reason"]


def test_the_zoo_is_mxnets():
    import ngraph_mxnet  # noqa: F401  # isort: skip
    from mxnet.gluon.model_zoo import vision

    with pytest.raises(ValueError, match="not supported") as error:
        vision.get_model("none")
    names = set(re.findall(r"^\t(\S+)$", str(error.value), re.MULTILINE))
    assert names == set(spec.ZOO)


def test_numbers():
    assert spec.parse_numbers("1, 32") == [1, 32]
    for text in ("0", "-1", "", "1,,2", "two"):
        with pytest.raises(spec.SpecError):
            spec.parse_numbers(text)


def test_peers_get_equal_threads_and_nothing_left_over_from_the_shell(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OMP_WAIT_POLICY", "passive")
    monkeypatch.setenv("NGRAPH_CPU_ISA", "baseline")
    monkeypatch.setenv("KEPT", "1")
    backends = {"none": "NONE", "mkldnn": "MKLDNN", "openvino": "NONE", "ngraph[NGRAPH_X=1]": "NGRAPH"}
    for text, backend in backends.items():
        environment = spec.parse_peer(text).environment(3, "/cache")
        assert environment["OMP_NUM_THREADS"] == "3" and environment["KEPT"] == "1"
        assert environment["MXNET_SUBGRAPH_BACKEND"] == backend
        assert not {"OMP_WAIT_POLICY", "NGRAPH_CPU_ISA"} & environment.keys()
        assert environment.get("NGRAPH_X") == ("1" if "ngraph" in text else None)


def test_threads_get_physical_cores_first(tmp_path: Path):
    for cpu, core in enumerate((0, 0, 1, 1)):
        folder = tmp_path / f"cpu{cpu}" / "topology"
        folder.mkdir(parents=True)
        (folder / "physical_package_id").write_text("0\n")
        (folder / "core_id").write_text(f"{core}\n")
    assert machine.choose_cpus(2, [0, 1, 2, 3], tmp_path) == [0, 2]
    assert machine.choose_cpus(3, [3, 2, 1, 0], tmp_path) == [0, 1, 2]
    assert machine.choose_cpus(2, [5, 7], tmp_path) == [5, 7]
    with pytest.raises(ValueError, match="expected 3 or more"):
        machine.choose_cpus(3, [0, 1], tmp_path)


# Figures


@given(TIMES)
def test_percentile_is_the_smallest_that_enough_do_not_exceed(times: list[float]):
    ordered = sorted(times)
    value = stats.percentile(ordered, 90)
    assert sum(time <= value for time in ordered) * 10 >= len(ordered) * 9
    assert all(sum(time <= less for time in ordered) * 10 < len(ordered) * 9 for less in ordered if less < value)


def test_ratios():
    ours, theirs = [[1.0, 1.0, 9.0], [4.0]], [[2.0], [2.0, 2.0]]
    assert stats.summarise(ours) == {"min_ms": 1.0, "median_ms": 2.5, "p90_ms": 9.0, "p99_ms": 9.0}
    assert stats.ratio_of_medians(ours, theirs) == 1.25
    assert stats.paired_ratio(ours, theirs) == 1.25  # of 0.5 and 2
    assert stats.geometric_mean([0.5, 2.0, 8.0]) == pytest.approx(2.0)


def test_a_slow_round_does_not_change_the_paired_ratio():
    theirs = [[10.0], [11.0], [100.0]]
    assert stats.paired_ratio([[time / 2 for time in round_] for round_ in theirs], theirs) == 0.5


def test_relative_error():
    assert stats.relative_error(np.float32([1, 2.5]), np.float32([1, 2])) == 0.25
    assert math.isnan(stats.relative_error(np.float32([1, np.nan]), np.float32([1, 2])))


def test_every_peer_comes_first_equally_often():
    orders = list(driver.turns(["a", "b", "c"], 6))
    assert [order[0] for order in orders] == ["a", "b", "c"] * 2
    assert all(sorted(order) == ["a", "b", "c"] for order in orders)


# Reports


def some_report() -> dict[str, Any]:
    def case(model: str, threads: int, ours: float) -> dict[str, Any]:
        results = [
            {"peer": "none", "label": "MXNet NONE", "median_ms": 8.0, "peak_mib": 100.0, "compile_ms": 9.0},
            {"peer": "openvino", "label": "OpenVINO f32", "median_ms": 4.0, "warm_compile_ms": 50.0},
            {"peer": "ngraph", "label": "NGRAPH", "median_ms": ours, "peak_mib": 50.0, "warm_compile_ms": 25.0},
        ]
        return {"model": model, "batch": 1, "threads": threads, "cpus": [0], "results": results,
                "skipped": {"openvino-bf16": "the CPU has no bf16"}}

    return {"machine": machine.describe(), "date": "2000-01-01", "command": "bench", "rounds": 2, "burst": 3,
            "cases": [case("alexnet", 1, 2.0), case("vgg16", 1, 8.0), case("vgg16", 2, 1.0)],
            "failures": [{"model": "vgg11", "reason": "outputs are off [x]"}]}


def test_ratios_by_model():
    (_, single), (name, double) = report.groups(some_report()["cases"])
    latency = report.COMPARED["median latency"]
    assert report.ratios(single, latency) == {
        "alexnet": {"MXNet NONE": 0.25, "OpenVINO f32": 0.5}, "vgg16": {"MXNet NONE": 1.0, "OpenVINO f32": 2.0},
    }
    assert name == "batch 1, 2 thread(s)" and report.ratios(double, latency)["vgg16"]["OpenVINO f32"] == 0.25
    assert report.ratios(single, report.COMPARED["peak resident memory"])["vgg16"] == {"MXNet NONE": 0.5}


def test_the_report_shows_means_failures_and_who_was_left_out():
    printed = io.StringIO()
    report.print_report(some_report(), Console(file=printed, width=140))
    text = printed.getvalue()
    assert re.search(r"geometric mean.*0\.500.*1\.000", text)
    assert "OpenVINO bf16 left out: the CPU has no bf16" in text
    assert "failed: vgg11: outputs are off [x]" in text
    assert "\x1b" not in text


def test_the_plot(tmp_path: Path):
    pytest.importorskip("matplotlib")
    from peers.plot import write_plot

    write_plot(some_report(), tmp_path / "img" / "peers.svg")
    text = (tmp_path / "img" / "peers.svg").read_text()
    assert "OpenVINO f32" in text and "geometric mean" in text and "vgg16" in text
    with pytest.raises(ValueError, match="found no case"):
        write_plot({"cases": []}, tmp_path / "none.svg")


def run(*arguments: object, environment: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """`environment`: what is added to this process's."""
    return subprocess.run([sys.executable, str(SCRIPT), *map(str, arguments)], capture_output=True, text=True,
                          env={**os.environ, **(environment or {})})


def test_former_results_are_shown_and_failures_are_the_exit_status(tmp_path: Path):
    (tmp_path / "results.json").write_text(json.dumps(some_report()))
    done = run("--results", tmp_path / "results.json", "--json")
    assert done.returncode == 1
    assert json.loads(done.stdout) == some_report()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--peers", "tvm"), "found peer 'tvm'"),
        (("--models", "resnet51"), "found model 'resnet51'"),
        (("--threads", "9999", "--peers", "none"), "expected 9999 or more"),
        (("--cpus", "0-x"), "found '0-x'"),
    ],
)
def test_wrong_command_lines(arguments: tuple[str, ...], message: str):
    done = run(*arguments)
    assert done.returncode == 2 and message in " ".join(done.stderr.split())


def test_a_peer_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch):
    import bench_peers

    monkeypatch.setitem(sys.modules, "openvino", None)  # as Python notes what can't be imported
    bench_peers._check_modules([spec.PeerSpec("none")])
    with pytest.raises(click.UsageError, match=r"openvino is not installed: run `pip install '\.\[bench\]'`"):
        bench_peers._check_modules([spec.PeerSpec("openvino-bf16")])


# Processes


def test_a_failing_peer_is_named_with_its_reason(tmp_path: Path):
    process = PeerProcess(spec.PeerSpec("none"), 1, sorted(os.sched_getaffinity(0))[:1],
                          (tmp_path / "cache", False), tmp_path / "log", 60.0)
    try:
        with pytest.raises(PeerError, match=r"none: compile: .*No such file"):
            process.ask("compile", prefix=str(tmp_path / "missing"), batch=1)
        process.pause()
        status = Path(f"/proc/{process.worker.process.pid}/status")
        assert "State:\tT" in status.read_text()
    finally:
        process.close()


def test_bf16_is_left_out_where_there_is_none(tmp_path: Path):
    wanted = spec.PeerSpec("ngraph", {"NGRAPH_PRECISION": "bf16", "NGRAPH_CPU_ISA": "baseline"})
    cpus, cache = sorted(os.sched_getaffinity(0))[:1], (tmp_path / "cache", False)
    process = PeerProcess(wanted, 1, cpus, cache, tmp_path / "log", 60.0)
    try:
        with pytest.raises(PeerUnavailable, match="Everything runs in float32"):
            process.ask("compile", prefix=str(tmp_path / "model"), batch=1)
    finally:
        process.close()


@pytest.mark.slow
def test_a_whole_run(tmp_path: Path):
    done = run("--models", "mobilenet0.25", "--peers", "none,ngraph", "--rounds", 2, "--burst", 2, "--json",
               "--work", tmp_path, "--pause", "0,3", "--busy", 1)
    assert done.returncode == 0, done.stderr
    case, paused = json.loads(done.stdout)["cases"]
    assert (case["pause"], case["busy"], paused["pause"], paused["busy"]) == (0, 1, 3, 1)
    native, ours = case["results"]
    assert native["peer"] == "none" and ours["peer"] == "ngraph"
    assert native["relative_error"] == 0 and ours["relative_error"] < 1e-4
    assert ours["detail"].startswith("1 of")
    for result in (native, ours):
        assert 0 < result["min_ms"] <= result["median_ms"] <= result["p90_ms"]
        assert result["cpu_ms"] > 0 and result["compile_ms"] > 0 and result["peak_mib"] > result["imported_mib"] > 0
    assert native["ratio"] > 0 and native["paired_ratio"] > 0 and "ratio" not in ours
    assert ours["warm_compile_ms"] > 0 and "warm_compile_ms" not in native
