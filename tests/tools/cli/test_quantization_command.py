"""`python -m ngraph_mxnet quantize`: models of MXNet and ONNX, what is printed and written, and mistakes."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import mxnet as mx
import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from mxnet.gluon import nn
from onnx_models import network

import ngraph_mxnet
from ngraph_mxnet.program.artefact import load
from ngraph_mxnet.quantisation.apply import Recipe
from ngraph_mxnet.tools.cli.commands import main

RNG = np.random.default_rng(5)
IMAGES = RNG.standard_normal((9, 3, 8, 8)).astype(np.float32)
LABELS = RNG.integers(0, 4, 9)
QUICK = ("--even-if-slower", "--threads", "2", "--method", "minmax")


def command(*arguments: Any) -> Any:
    return CliRunner().invoke(main, ["quantize", *map(str, arguments)])


def succeeds(*arguments: Any) -> Any:
    result = command(*arguments)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout) if "--json" in arguments else result.output


def fails(*arguments: Any) -> str:
    result = command(*arguments)
    assert result.exit_code in (1, 2) and not isinstance(result.exception, AssertionError)
    return " ".join(result.output.replace("│", "").split())


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With a symbol and its weights, an ONNX model, and data for both; the current one."""
    mx.random.seed(1)
    np.random.seed(1)
    net = nn.HybridSequential(prefix="")
    net.add(nn.Conv2D(16, 3, activation="relu", prefix="conv_"), nn.GlobalAvgPool2D(), nn.Dense(4, prefix="dense_"))
    net.initialize(mx.init.Xavier())
    net.hybridize()
    net(mx.nd.array(IMAGES))
    net.export(str(tmp_path / "net"), 0)
    onnx.save(network(1, channels=3), tmp_path / "net.onnx")
    np.savez(tmp_path / "data.npz", data=IMAGES, labels=LABELS)
    for number, image in enumerate(IMAGES):
        (tmp_path / "samples").mkdir(exist_ok=True)
        np.save(tmp_path / "samples" / f"{number}.npy", image)
    monkeypatch.chdir(tmp_path)
    return tmp_path


SYMBOL = ("net-symbol.json", "--params", "net-0000.params")


def test_a_symbol(folder: Path) -> None:
    found = succeeds(*SYMBOL, "--calibration", "data.npz", "--max-drop", "0.2", *QUICK, "-o", "out.ngraph",
                     "--recipe", "out.json", "--json")
    assert found["metric"] == "top1" and found["quantised_metric"] >= found["float_metric"] - 0.2
    assert [row["name"] for row in found["layers"]] == ["mx:conv_fwd Convolution", "mx:dense_fwd FullyConnected"]
    recipe = Recipe.load("out.json")
    assert {row["name"] for row in found["layers"] if row["kept"] is None} == set(recipe.scales) and recipe.scales
    assert found["files"] == {name: Path(name).stat().st_size for name in ("out.ngraph", "out.json")}
    artefact = load("out.ngraph")
    assert artefact.meta.precision == "int8" and artefact.sets[0].inputs[0][1].shape == (1, 3, 8, 8)
    again = CliRunner().invoke(main, ["compile", *SYMBOL, "--shape", "data=1,3,8,8", "--precision", "int8", "--recipe",
                                      "out.json", "-o", "again.ngraph"])
    assert again.exit_code == 0, again.output
    assert load("again.ngraph").summary().sets == artefact.summary().sets
    assert Path("again.ngraph").stat().st_size == Path("out.ngraph").stat().st_size


def test_an_onnx_model_and_a_folder(folder: Path) -> None:
    type_ = onnx.load("net.onnx").graph.input[0].type.tensor_type
    shape = [dim.dim_value for dim in type_.shape.dim]
    for number in range(4):
        np.save(folder / "samples" / f"{number}.npy", RNG.standard_normal(shape).astype(np.float32))
    for number in range(4, 9):
        (folder / "samples" / f"{number}.npy").unlink()
    text = succeeds("net.onnx", "--calibration", "samples", "--report", *QUICK, "-o", "out.ngraph")
    assert "agreement with" in text and "layers are in 8 bits" in text and "out.ngraph: 0." in text
    assert load("out.ngraph").meta.precision == "int8"


def test_without_files_there_is_a_report_alone(folder: Path) -> None:
    before = sorted(folder.iterdir())
    text = succeeds(*SYMBOL, "--calibration", "samples", "--shape", "data=3,3,8,8", "--keep", "mx:conv_fwd Convolution",
                    *QUICK)
    assert "float: asked for" in text and "1 of 2 layers are in 8 bits" in text and "9 samples" in text
    assert sorted(folder.iterdir()) == before


def test_corrections_that_are_asked_for(folder: Path) -> None:
    found = [succeeds(*SYMBOL, "--calibration", "data.npz", "--corrections", names, *QUICK, "--json")["corrections"]
             for names in ("bias,equalisation", "none")]
    assert [row["name"] for row in found[0]] == ["equalisation", "bias"] and all(row["used"] for row in found[0])
    assert found[1] == []


def test_a_metric_of_ones_own(folder: Path) -> None:
    (folder / "own_metric.py").write_text("def spread(outputs, labels):\n    return len(labels) - outputs[0].std()\n")
    found = succeeds(*SYMBOL, "--calibration", "data.npz", "--metric", "own_metric:spread", *QUICK, "--json")
    assert found["metric"] == "spread" and 8 < found["float_metric"] < 9


def test_what_a_recipe_gives(folder: Path) -> None:
    """The same as `ngraph_mxnet.quantize`."""
    succeeds(*SYMBOL, "--calibration", "data.npz", *QUICK, "--recipe", "out.json")
    wanted = ngraph_mxnet.quantize("net-symbol.json", {"data": IMAGES}, params="net-0000.params", method="minmax",
                                   only_faster=False)
    assert Recipe.load("out.json") == wanted.recipe


@pytest.mark.parametrize(("arguments", "message"), [
    ("net.onnx --params net-0000.params --calibration data.npz", "params (--params) are for graphs and symbols"),
    ("net-symbol.json --calibration data.npz", "--params MODEL-0000.params on the command line"),
    ("SYMBOL --calibration nothing.npz", "does not exist"),
    ("SYMBOL", "Missing option '--calibration'"),
    ("SYMBOL --calibration net-0000.params", "found net-0000.params, expected a .npz file or a folder"),
    ("SYMBOL --calibration empty", "found nothing in empty, expected .npy or .npz files"),
    ("SYMBOL --calibration broken.npz", "broken.npz is no .npy or .npz file that can be read"),
    ("SYMBOL --calibration other.npz", "unknown x, missing data; expected the inputs data, and labels"),
    ("SYMBOL --calibration data.npz --metric top5", "expected top1 or MODULE:CALLABLE"),
    ("SYMBOL --calibration data.npz --metric no_such:metric", "no_such:metric can't be imported"),
    ("SYMBOL --calibration data.npz --metric sys:argv", "sys:argv is list, expected a function"),
    ("SYMBOL --calibration data.npz --method best", "'best' is not one of"),
    ("SYMBOL --calibration data.npz --corrections bias,", "corrections: found , expected some of smoothing,"),
    ("SYMBOL --calibration data.npz --max-drop -1", "-1"),
    ("SYMBOL --calibration data.npz --keep conv", "keep: found conv, expected some of"),
    ("SYMBOL --calibration data.npz --shape data=1,3,8,8 --shape data=1,3,8,8", "found two shapes of data"),
    ("SYMBOL --calibration data.npz --shape data=1,3,9,9", "found shape [9, 3, 8, 8], expected [1, 3, 9, 9]"),
    ("SYMBOL --calibration data.npz -o no/out.ngraph", "no/out.ngraph: there is no folder no"),
    ("SYMBOL --calibration data.npz --recipe no/r.json -o out.ngraph", "no/r.json: there is no folder no"),
    ("SYMBOL --calibration data.npz --recipe empty", "is a directory"),
    ("SYMBOL --calibration data.npz --recipe out -o ./out", "out: found two outputs for one file"),
])
def test_mistakes(arguments: str, message: str, folder: Path) -> None:
    (folder / "empty").mkdir()
    (folder / "broken.npz").write_bytes(b"PK\3\4" + b"x" * 100)
    np.savez(folder / "other.npz", x=IMAGES)
    assert message in fails(*arguments.replace("SYMBOL", " ".join(SYMBOL)).split())


def test_outputs_are_checked_before_there_is_work(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work would begin with samples that can't be read."""
    (folder / "broken.npz").write_bytes(b"PK\3\4" + b"x" * 100)
    begin = (*SYMBOL, "--calibration", "broken.npz")
    assert "is no .npy or .npz file that can be read" in fails(*begin)
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "matplotlib.figure", None)
        for option in ("-o", "--recipe", "--plot"):
            assert "there is no folder" in fails(*begin, option, "no/file.svg")
        assert "pip install matplotlib" in fails(*begin, "--plot", "file.svg")
    pytest.importorskip("matplotlib", reason="matplotlib of the extra bench is not installed")
    assert "found the format what" in fails(*begin, "--plot", str(folder / "out.what"))


@pytest.mark.parametrize("fails_to_write", ["-o", "--recipe"])
def test_an_output_that_fails_loses_no_other(folder: Path, fails_to_write: str) -> None:
    """What comes before what fails is written, and what comes behind, too. The metric removes the folder of one."""
    (folder / "gone").mkdir()
    (folder / f"metric_{fails_to_write.strip('-')}.py").write_text("""
import shutil

def metric(outputs, labels):
    shutil.rmtree("gone", ignore_errors=True)
    return 1.0
""")
    places = {"-o": "out.ngraph", "--recipe": "out.json"}
    if importlib.util.find_spec("matplotlib") is not None:
        places["--plot"] = "out.svg"
    places[fails_to_write] = f"gone/{places[fails_to_write]}"
    text = fails(*SYMBOL, "--calibration", "data.npz", *QUICK, "--metric",
                 f"metric_{fails_to_write.strip('-')}:metric", *(each for pair in places.items() for each in pair))
    assert f"{places.pop(fails_to_write)}: No such file or directory" in text and not Path("gone").exists()
    assert all(Path(path).exists() and f"{path}: 0." in text for path in places.values())


def test_a_recipe_for_another_model_is_an_error(folder: Path) -> None:
    succeeds(*SYMBOL, "--calibration", "data.npz", *QUICK, "--recipe", "out.json")
    net = nn.HybridSequential()
    net.add(nn.Dense(64), nn.Dense(8))
    net.initialize()
    net.hybridize()
    net(mx.nd.ones((2, 32)))
    net.export("other")
    other = ["other-symbol.json", "--params", "other-0000.params", "--shape", "data=2,32", "--precision", "int8"]
    for command in (["compile", *other, "-o", "o.ngraph"], ["verify", *other]):
        for recipe, message in ((["--recipe", "out.json"], "fits none of the 2 layers"), ([], "int8 without a recipe")):
            done = CliRunner().invoke(main, [*command, *recipe])
            assert done.exit_code and message in done.output, (command, recipe, done.output)
    assert not Path("o.ngraph").exists()
