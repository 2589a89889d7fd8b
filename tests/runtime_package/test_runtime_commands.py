"""The command `ngraph-run`, and verification with what files hold for it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import ngraph_runtime
from ngraph_runtime import InputError
from ngraph_runtime.reference import references, verify
from ngraph_runtime.run import main

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def test_the_version(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"ngraph-runtime {ngraph_runtime.__version__}\n"


def test_references_are_found_and_verified(fake):
    model = ngraph_runtime.load(fake("twice", "reference 0"))
    first, second = references(model)
    assert (first.shape_set, second.shape_set) == (0, 1) and second.inputs[0].shape == (4, 3)
    assert np.array_equal(second.outputs[0], 2 * second.inputs[0]) and second.outputs[1].shape == ()
    compared = verify(model)
    assert [one.output for one in compared] == ["twice", "a/total"] * 2
    assert all(one.matches and one.difference < 1e-6 for one in compared)
    with pytest.raises(InputError, match="no such set of shapes"):
        model.reference(2)


@pytest.mark.parametrize(("error", "tolerance", "matches"), [
    (1e-4, None, True), (0.1, None, False), (0.1, 0.06, True), (np.nan, None, False)])
def test_differences_are_found(fake, error, tolerance, matches):
    twice, total, *_ = verify(ngraph_runtime.load(fake("twice", f"reference {error}")), tolerance)
    assert twice.matches is matches and total.matches
    assert np.isnan(error) or twice.difference == pytest.approx(error / 2, rel=0.1)


def test_a_model_without_references(fake):
    model = ngraph_runtime.load(fake("twice"))
    assert references(model) == [] and model.reference() is None


# ---- the command -------------------------------------------------------------------------------------------


def report(capsys, *arguments: object, status: int = 0) -> dict:
    assert main([*map(str, arguments), "--json"]) == status
    return json.loads(capsys.readouterr().out)


def test_list(fake, capsys):
    path = fake("twice")
    found = report(capsys, path)
    assert found["metadata"] == {"labels": "ä, b"} and found["instruction_set"] == "baseline"
    assert found["inputs"] == [{"name": "data", "element": "f32", "shapes": [[2, 3], [4, 3]], "ranges": []}]
    assert main([path, "--list"]) == 0
    text = capsys.readouterr().out
    assert "metadata labels: ä, b" in text and "set of shapes 1:\n  input data: f32 [4,3]\n" in text


def test_inputs_and_outputs(fake, tmp_path, capsys):
    np.save(tmp_path / "x.npy", X)
    found = report(capsys, fake("twice"), "--input", f"data={tmp_path / 'x.npy'}", "--output-dir", tmp_path / "out",
                   "--time", 3, "--threads", 1)
    assert [one["name"] for one in found["outputs_found"]] == ["twice", "a/total"]
    assert np.array_equal(np.load(tmp_path / "out" / "twice.npy"), 2 * X)
    assert np.load(found["outputs_found"][1]["file"]) == 15
    assert Path(found["outputs_found"][1]["file"]).name == "a_total.npy"
    assert found["time"]["calls"] == 3 and 0 < found["time"]["least_ms"] <= found["time"]["median_ms"]


def test_times_on_random_inputs(fake, capsys):
    assert report(capsys, fake("types"), "--time", 2)["time"]["calls"] == 2
    path = fake("twice")
    assert main([path, "--time", "2", "--shape-set", "1"]) == 0
    assert "2 calls: median" in capsys.readouterr().out
    time = report(capsys, path, "--time", 5, "--pause", 2.5, "--busy", 1)["time"]
    assert time["least_ms"] <= time["median_ms"] <= time["p90_ms"] <= time["p99_ms"] <= time["most_ms"]
    assert time["cpu_ms"] > 0
    for wrong in ("-1", "inf", "soon"):
        with pytest.raises(SystemExit):
            main([path, "--time", "2", f"--pause={wrong}"])
        assert f"found {wrong}, expected milliseconds" in capsys.readouterr().err
    assert main([path, "--time", "2", "--shape-set", "2"]) == 2
    assert "--shape-set: found 2, expected one below 2" in capsys.readouterr().err


def test_verify_ends_with_what_it_found(fake, capsys):
    assert [one["matches"] for one in report(capsys, fake("twice", "reference 0"), "--verify")["verify"]] == [True] * 4
    path = fake("twice", "reference 1")
    assert main([path, "--verify"]) == 1
    assert "set 0, twice: DIFFERS, difference 0.33" in capsys.readouterr().out
    assert main([path, "--verify", "--tolerance", "0.6"]) == 0
    assert main([fake("twice"), "--verify"]) == 1
    assert "the file holds nothing to verify with" in capsys.readouterr().out


@pytest.mark.parametrize(("arguments", "text"), [
    (["--input", "x.npy"], "expected NAME=FILE.npy"),
    (["--input", "data=nowhere.npy"], "nowhere.npy"),
    (["--input", f"data={__file__}"], "is no .npy file"),
    (["--output-dir", "out", "--list"], "--output-dir needs inputs"),
])
def test_use_that_is_refused(fake, capsys, arguments, text):
    assert main([fake("twice"), *arguments]) == 2
    out, err = capsys.readouterr()
    assert err.startswith("error: ") and text in err and not out


def test_models_that_are_refused(fake, capsys):
    assert main([fake("nonsense")]) == 2
    assert "it is no compiled model" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        main([fake("twice"), "--time", "0"])


def test_the_module_is_a_command(fake):
    path = fake("twice")
    done = subprocess.run([sys.executable, "-m", "ngraph_runtime", path], cwd=Path(ngraph_runtime.__file__).parents[1],
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "input data: f32 [2,3]" in done.stdout
