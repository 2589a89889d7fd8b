"""`scripts/model_matrix.py` without the libraries whose models it examines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matrix import as_onnx, compare, driver, graph, report, stages, weights, worker
from matrix.model import Model

import ngraph_mxnet  # noqa: F401  # lets MXNet 1.9.1 import on NumPy >= 1.24

ENTRY = driver.Entry("gluon_zoo", "net 1.0", "toys")


def detections(count: int, seed: int = 0) -> list[np.ndarray]:
    """Classes, scores and corners of `count` boxes, and two rows that are none."""
    rng = np.random.default_rng(seed)
    classes = np.concatenate([rng.integers(0, 3, (1, count, 1)), -np.ones((1, 2, 1))], axis=1)
    return [classes, rng.uniform(0, 1, (1, count + 2, 1)), rng.uniform(0, 300, (1, count + 2, 4))]


# ---- compare --------------------------------------------------------------------------------------------

def test_values_differ_by_the_norm_of_the_worst_output() -> None:
    expected = [np.ones((2, 2)), np.full((4,), 10.0)]
    found = [np.ones((2, 2)), np.array([10.0, 10.0, 10.0, 12.0])]
    assert compare.error(found, expected, "values") == pytest.approx(0.1)
    assert compare.error(expected, expected, "values") == 0


def test_means_of_samples_are_compared_by_their_errors() -> None:
    rng = np.random.default_rng(1)
    first, second = (rng.standard_normal((8, 100, 12)) for _ in range(2))
    assert 1 < compare.means_apart([first], [second]) < compare.MOST_APART < compare.means_apart([first], [second + 1])
    assert compare.means_apart([first], [second[:, :50]]) == float("inf")


def test_shapes_and_what_is_not_finite_must_be_alike() -> None:
    expected = [np.array([1.0, np.inf, np.nan])]
    assert compare.error(expected, expected, "values") == 0
    assert compare.error([np.array([1.0, -np.inf, np.nan])], expected, "values") == np.inf
    assert compare.error([np.array([1.0, 2.0, np.nan])], expected, "values") == np.inf
    assert compare.error([np.ones(4)], expected, "values") == np.inf


def test_boxes_may_stand_in_another_order() -> None:
    expected = detections(5)
    order = np.array([4, 6, 0, 2, 1, 5, 3])
    assert compare.error([array[:, order] for array in expected], expected, "boxes") == 0
    assert compare.box_count(expected) == 5


@pytest.mark.parametrize("output", [0, 1, 2])
def test_a_box_that_differs_counts(output: int) -> None:
    expected = detections(4)
    found = [array.copy() for array in expected]
    found[output][0, 1, 0] += 1
    assert compare.error(found, expected, "boxes") == pytest.approx(0.25)


def test_masks_belong_to_boxes() -> None:
    masks = np.random.default_rng(1).uniform(0, 1, (1, 6, 2, 3, 3))
    expected = [*detections(4), masks]
    assert compare.error([*detections(4), masks], expected, "boxes") == 0
    assert compare.error([*detections(4), 1 - masks], expected, "boxes") == 1


def test_more_boxes_than_expected_count() -> None:
    expected = detections(4)
    found = [array.copy() for array in expected]
    found[0][0, -1, 0] = 0
    assert compare.error(found, expected, "boxes") == pytest.approx(0.25)


def test_samples_are_compared_by_their_means() -> None:
    rng = np.random.default_rng(0)
    first, second = ([rng.normal(5, 0.1, (2, 1000, 3))] for _ in range(2))
    assert compare.error(first, second, "values") > 0.01 > compare.error(first, second, "samples")


# ---- driver ---------------------------------------------------------------------------------------------

def plan(folder: Path, script: str, seconds: float = 30) -> driver.Plan:
    """Runs a shell script in place of the library's Python; it lists no models and reads a request before `script`."""
    python = folder / "python"
    python.write_text(f"#!/bin/sh\necho '{{}}'\nread request\n{script}\n")
    python.chmod(0o755)
    return driver.Plan({"gluon_zoo": str(python)}, ("regions",), 1, seconds, folder)


def examine(made: driver.Plan) -> dict[str, Any]:
    examiner = driver.Examiner(made)
    try:
        return examiner.examine(ENTRY, {"0f": "other"})
    finally:
        examiner.close()


def test_what_the_process_tells_is_kept(tmp_path: Path) -> None:
    facts = json.dumps({"step": "regions", "regions": 1, "left": [], "taken": 7})
    made = plan(tmp_path, f"echo '{facts}'; echo '{{\"done\": true}}'")
    assert driver.kept(made, ENTRY) is None
    found = examine(made)
    assert found["taken"] == 7 and "failure" not in found
    assert driver.kept(made, ENTRY) == found
    assert driver.kept(driver.Plan(made.pythons, ("regions", "run"), 1, 30, tmp_path), ENTRY) is None


def test_a_process_examines_several_models(tmp_path: Path) -> None:
    answer = "echo \"{\\\"process\\\": $$, \\\"done\\\": true}\""
    made = plan(tmp_path, f"while true; do {answer}; read request || exit; done")
    examiner = driver.Examiner(made)
    found = [examiner.examine(ENTRY, {})["process"] for _ in range(driver.MODELS_PER_PROCESS + 1)]
    examiner.close()
    assert len(set(found[:-1])) == 1 and found[-1] != found[0]


def test_the_process_is_told_the_model_and_known_graphs(tmp_path: Path) -> None:
    found = examine(plan(tmp_path, "echo \"$request\"; echo '{\"done\": true}'"))
    assert (found["model"], found["steps"], found["known"]) == ("net 1.0", ["regions"], {"0f": "other"})


def test_another_run_adds_its_steps(tmp_path: Path) -> None:
    def told(steps: tuple[str, ...], **facts: object) -> dict[str, Any]:
        made = plan(tmp_path, f"echo '{json.dumps({**facts, 'done': True})}'")
        return examine(driver.Plan(made.pythons, steps, 1, 30, tmp_path))

    told(("regions",), digest="a", regions=1)
    found = told(("run",), digest="a", error=0.0)
    assert (found["steps"], found["regions"], found["error"]) == (["regions", "run"], 1, 0.0)
    assert [found["runs"][step] for step in ("regions", "run")] == [{"threads": 1}] * 2
    assert "regions" not in told(("run",), digest="b", error=0.0)


def test_figures_keep_the_run_that_they_are_of(tmp_path: Path) -> None:
    def told(steps: tuple[str, ...], threads: int, day: str) -> dict[str, Any]:
        made = plan(tmp_path, "echo '{\"digest\": \"a\", \"done\": true}'")
        return examine(driver.Plan(made.pythons, steps, threads, 30, tmp_path, {"when": day}))

    first, second = {"when": "first", "threads": 2}, {"when": "second", "threads": 1}
    assert told(("regions", "time"), 2, "first")["runs"] == {"regions": first, "time": first, "run": first}
    assert told(("block",), 1, "second")["runs"] == {"regions": first, "time": first, "run": second, "block": second}


@pytest.mark.parametrize(("script", "failure"), [
    ("kill -SEGV $$", "crash: SIGSEGV"),
    ("echo 'ValueError: bad' >&2; exit 1", "ValueError: bad"),
    ("exit 1", "no message"),
])
def test_a_failure_says_where_and_why(tmp_path: Path, script: str, failure: str) -> None:
    found = examine(plan(tmp_path, f"echo '{{\"step\": \"trace\"}}'; {script}"))
    assert (found["step"], found["failure"]) == ("trace", failure)


def test_a_process_that_hangs_is_ended(tmp_path: Path) -> None:
    found = examine(plan(tmp_path, "echo '{\"step\": \"run\"}'; sleep 60", seconds=0.5))
    assert (found["step"], found["failure"]) == ("run", "not done within 0.5 s")


def test_a_missing_environment_is_told(tmp_path: Path) -> None:
    with pytest.raises(driver.MatrixError, match=r"scripts/model_matrix\.sh makes the environments"):
        driver.list_models(driver.Plan({"gluon_zoo": str(tmp_path / "no")}, (), 1, 1, tmp_path), "gluon_zoo")


# ---- graph, weights and stages --------------------------------------------------------------------------

DATA = {"data": np.random.default_rng(0).standard_normal((2, 3, 9, 9)).astype(np.float32)}


def net(classes: int = 4, channels: int = 8, name: str = "") -> Any:
    import mxnet as mx

    hidden = mx.sym.Convolution(mx.sym.Variable("data"), kernel=(3, 3), num_filter=channels, name=f"{name}first")
    hidden = mx.sym.BatchNorm(hidden, fix_gamma=False, use_global_stats=True, name=f"{name}norm")
    return mx.sym.FullyConnected(mx.sym.Activation(hidden, act_type="relu"), num_hidden=classes, name=f"{name}last")


def test_graphs_are_equal_but_for_names_and_classes() -> None:
    def digest(symbol: Any, inputs: Any = DATA) -> str:
        return graph.digest(symbol, inputs, {})

    assert digest(net()) == digest(net(classes=7, name="other_"))
    assert digest(net()) != digest(net(channels=9))
    assert digest(net()) != digest(net(), {"data": np.zeros((1, 3, 9, 9))})


class Net:
    """A block without constants."""

    def collect_params(self) -> dict[str, Any]:
        return {}


def test_batch_norms_get_the_statistics_of_their_data() -> None:
    import mxnet as mx

    symbol = net()
    model = Model(Net(), DATA)  # type: ignore[arg-type]
    executor = weights.bind(symbol, model, "NONE")
    read = symbol.get_internals()["first_output"]
    given = {name: executor.arg_dict[name] for name in read.list_arguments()}
    data = read.bind(mx.cpu(), given).forward()[0].asnumpy()
    np.testing.assert_allclose(executor.aux_dict["norm_moving_mean"].asnumpy(), data.mean((0, 2, 3)), atol=1e-5)
    np.testing.assert_allclose(executor.aux_dict["norm_moving_var"].asnumpy(), data.var((0, 2, 3)), rtol=1e-3)
    again = weights.bind(symbol, model, "NONE", executor)
    np.testing.assert_array_equal(stages.outputs(again)[0], stages.outputs(executor)[0])


def test_heads_give_numbers_of_deviation_one() -> None:
    from dataclasses import replace

    model = Model(Net(), {"data": DATA["data"] * 1e4}, "boxes")  # type: ignore[arg-type]
    given = replace(model, kind="values")
    assert stages.outputs(weights.bind(net(), given, "NONE"))[0].std() != pytest.approx(1, rel=0.1)
    assert stages.outputs(weights.bind(net(), model, "NONE"))[0].std() == pytest.approx(1, rel=1e-3)


def test_scores_that_order_what_another_contraction_reads_have_deviation_one() -> None:
    import mxnet as mx

    scores = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=20, name="scores")
    chosen = mx.sym.topk(mx.sym.sigmoid(scores), k=3, ret_typ="value")
    symbol = mx.sym.Group([mx.sym.FullyConnected(chosen, num_hidden=4, name="last"), scores])
    executor = weights.bind(symbol, Model(Net(), {"data": DATA["data"] * 1e4}, "boxes"), "NONE")  # type: ignore[arg-type]
    assert stages.outputs(executor)[1].std() == pytest.approx(1, rel=1e-3)


def detector() -> tuple[Any, Model]:
    """A suppression of 20 boxes whose scores tie, and its data."""
    import mxnet as mx

    data = mx.sym.Variable("data") * 1.0
    kept = mx.sym.contrib.box_nms(data, overlap_thresh=0.5, coord_start=2, score_index=1, id_index=0)
    parts = [mx.sym.slice_axis(kept, axis=2, begin=begin, end=end) for begin, end in ((0, 1), (1, 2), (2, 6))]
    rows = np.random.default_rng(1).uniform(0, 1, (1, 20, 6)).astype(np.float32)
    rows[..., 0] = np.arange(20) % 3
    rows[..., 1] = 0.5  # all tie
    model = Model(Net(), {"data": rows}, "boxes")  # type: ignore[arg-type]
    return mx.sym.Group(parts), model


def test_stages_are_compared_on_the_same_data() -> None:
    symbol, model = detector()
    assert graph.in_stages(symbol)[2] == ["stage0"]
    native = weights.bind(symbol, model, "NONE")
    found = stages.stages(symbol, model, native,
                          lambda whole: stages.outputs(weights.bind(whole, model, "NGRAPH", native)))
    assert 0 < found.pop("native_change") < 1e-5
    assert found == {"stage_error": 0.0, "stage_boxes": 0.0}


def test_where_boxes_differ_an_onnx_file_is_compared_by_stages() -> None:
    pytest.importorskip("onnxruntime", reason="onnxruntime of the extra bench is not installed")
    symbol, model = detector()
    ours = weights.bind(symbol, model, "NGRAPH")
    kinds, scores, corners = stages.outputs(ours)
    found = as_onnx.facts(symbol, model, ours, [kinds, scores, corners])
    assert found["onnx"] == 0.0 and "onnx_stage_error" not in found
    kept = int((kinds >= 0).sum())
    corners[0, 0] += 0.1  # as if rounding had chosen another
    found = as_onnx.facts(symbol, model, ours, [kinds, scores, corners])
    assert found["onnx"] == pytest.approx(1 / kept)
    assert found["onnx_stage_error"] == found["onnx_stage_boxes"] == 0.0


def test_a_block_that_mxnet_runs_is_told() -> None:
    import mxnet as mx

    before = worker.fallbacks()
    model = Model(Net(), {"data": np.eye(3, dtype=np.float32)})  # type: ignore[arg-type]
    symbol = mx.sym.linalg.potrf(mx.sym.Variable("data"))
    worker.as_block(symbol, model, weights.bind(symbol, model, "NONE"))
    (reason,) = worker.fallbacks()[len(before):]
    assert "LAPACK" in reason


def test_a_peer_whose_second_call_fails_is_told() -> None:
    class Executor:
        def __init__(self, calls: int) -> None:
            self._left = calls

        def forward(self, is_train: bool) -> list[Any]:
            self._left -= 1
            if self._left < 0:
                raise RuntimeError("Traceback\n  of C++\nCheck failed: layout\n")
            return []

    assert worker.second_call_fails(Executor(1)) is None
    assert worker.second_call_fails(Executor(0)) == "Check failed: layout"


def test_classes_and_places_are_not_perturbed() -> None:
    rows = np.stack([np.arange(-1, 79), np.linspace(0.1, 0.9, 80)], 1).astype(np.float32)
    found = stages.perturbed({"rows": rows})["rows"]
    assert found[:, 0].tolist() == rows[:, 0].tolist()
    assert 0 < abs(found[:, 1] - rows[:, 1]).max() < 1e-5


# ---- report ---------------------------------------------------------------------------------------------

EARLY, LATE = ({"when": f"2026-01-0{day}", "commit": f"c{day}", "machine": "m", "threads": day} for day in (1, 2))


def result(model: str, **facts: Any) -> dict[str, Any]:
    return {"library": "gluon_zoo", "model": model, "genre": "toys", "step": "block", "inputs": {"data": [1, 3]},
            "kind": "values", "finite": True, "regions": 1, "left": [], "taken": 5, "error": 0.0,
            "runs": dict.fromkeys(worker.STEPS, LATE), **facts}


def test_the_page_has_every_model() -> None:
    results = [
        result("good", ratio=0.5, ours_ms=1.0, native_ms=2.0),
        result("single", ratio=0.7, ours_ms=1.4, native_ms=2.0, runs={"regions": LATE, "run": EARLY, "time": EARLY}),
        result("old", ratio=0.9, ours_ms=1.8, native_ms=2.0, runs={}),
        result("slow", ratio=1.5, ours_ms=3.0, native_ms=2.0),
        result("split", regions=2, left=[["sort", "no rule for input 3", 4]]),
        result("untimed", mkldnn_failure="a | layout"),
        result("wrong", error=0.5),
        result("native", fallbacks=["it does | not"]),
        result("tied", kind="boxes", error=0.5, stage_error=1e-6, stage_boxes=0.0),
        {"library": "gluon_zoo", "model": "twin", "genre": "toys", "step": "same", "inputs": {}, "same_as": "good"},
        {"library": "gluon_zoo", "model": "gone", "genre": "toys", "left_out": "a download"},
        {"library": "gluon_zoo", "model": "broken", "genre": "toys", "step": "trace", "failure": "ValueError: x | y"},
    ]
    page = report.write_page(report.resolved(results), "header")
    rows = {line.split(" | ")[0].removeprefix("| "): line for line in page.splitlines() if line.startswith("| ")}
    # of one thread, of two, of an unknown number
    assert "| toys | 10 | 1 | 9 | 0 | 10 | 8 | 1 | 0 | 0 | 1 | 0.70 | 3 | 0.50 | 1 | 0.90 |" in page
    assert "| 1e-03 |  |  | 2 | 3.0 / 2.0 | 1.50 | R2 |" in rows["slow"]
    assert "| 1 | 1.4 / 2.0 | 0.70 | regions: R2; error, time: R1 |" in rows["single"]
    assert "| unknown | 1.8 / 2.0 | 0.90 | unknown |" in rows["old"]
    assert "| 0e+00; stages 1e-03 |" in rows["tied"]
    assert "| R1 | 2026-01-01 | c1 | m | 1 | 0 | 1 | 0 | 0 | 0 | 1 |" in page
    assert "graph of good" in next(line for line in page.splitlines() if line.startswith("| twin"))
    assert "| sort | no rule for input # | 1 | 4 | toys 1 |" in page
    assert "**differs**" in next(line for line in page.splitlines() if line.startswith("| wrong"))
    assert rows["native"].endswith("| **MXNet ran it**: it does \\| not |")
    assert rows["untimed"].endswith("| not timed: MKLDNN's second call fails, a \\| layout |")
    assert "* a download: gone" in page
    assert "* trace failed: ValueError: x \\| y: broken" in page


def test_the_page_says_what_is_right_as_onnx() -> None:
    results = [
        result("good", onnx=1e-6, onnx_openvino=2e-5, mxnet_onnx="it | refuses"),
        result("far", onnx=1e-6, onnx_openvino=2e-3, mxnet_onnx=1e-6),
        result("tied", onnx=0.01, onnx_stage_error=1e-6, onnx_stage_boxes=0.0, onnx_openvino=0.01,
               onnx_openvino_stage_error=1e-6, onnx_openvino_stage_boxes=0.01),
        result("random", regions=2, left=[["sort", "no rule", 1]], onnx="refused", mxnet_onnx="refused"),
        result("untried"),
    ]
    page = report.write_page(results, "header")
    assert "| toys | 3 | 3 | 1 | 1 |" in page and "| **all** | 3 | 3 | 1 | 1 |" in page
    assert "* far, ours in OpenVINO: differs by 2e-03" in page and "* good" not in page
    assert "* tied, ours in OpenVINO: differs by 1e-02" in page and "* tied, ours in ONNX Runtime" not in page


def test_the_page_says_what_runs_from_a_file() -> None:
    unrun = {"runs": {"file": EARLY}, "step": "file"}
    bare = {key: value for key, value in result("").items() if key not in ("model", "error", "finite", "kind")}
    results = [
        {**bare, **unrun, "model": "good", "file": "same bits", "file_bytes": 12_345_678, "file_difference": 0.0},
        {**bare, "model": "twin", "step": "same", "same_as": "good"},
        {**bare, **unrun, "model": "random", "regions": 3, "file": "refused", "file_reason": "draws | numbers"},
        {**bare, **unrun, "model": "gap", "file": "refused", "file_reason": "no rule"},
        {**bare, **unrun, "model": "wrong", "file": "differs", "file_bytes": 10**6, "file_difference": 2e-7},
        {**bare, **unrun, "model": "drawn", "file": "same means", "file_bytes": 10**6, "file_difference": 3.14},
        result("without"),
    ]
    page = report.write_page(report.resolved(results), "header")
    rows = {line.split(" | ")[0].removeprefix("| "): line for line in page.splitlines() if line.startswith("| ")}
    assert "| toys | 7 | 1 | 6 | 0 | 1 | 1 | 0 | 6 | 2 |" in page
    assert "| R1 | 2026-01-01 | c1 | m | 1 | 0 | 0 | 0 | 6 | 0 | 0 |" in page
    assert "| 12.3 |  |  |  | regions: unknown; file: R1 |  |" in rows["good"]
    assert "| 12.3 |" in rows["twin"] and rows["twin"].endswith("| graph of good |")
    assert "| refused |" in rows["random"] and rows["random"].endswith("| as a file: draws \\| numbers |")
    assert "| **refused** |" in rows["gap"]
    assert "| **differs** |" in rows["wrong"] and rows["wrong"].endswith("| as a file it differs by 2e-07 |")
    assert "| 1.0 |" in rows["drawn"]
    assert rows["drawn"].endswith("| as a file its samples' means differ by 3.1 standard errors |")
    assert "|  |" in rows["without"]
    fails = [row["model"] for row in report.resolved(results) if report.fails_as_file(row)]
    assert fails == ["gap", "wrong"]
