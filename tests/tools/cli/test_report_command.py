"""`python -m ngraph_mxnet report`: a page of every kind of model, and what it says of mistakes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import onnx
import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper

from ngraph_mxnet.tools.cli.commands import main

GRAPH = """
graph @small(%x: f32[2,3,5,6]) -> (f32[2,3,5,6]) {
  %0: f32[2,3,5,6] = relu(%x)
  return %0
}
"""


@pytest.fixture
def text(tmp_path: Path) -> list[str]:
    (tmp_path / "small.ngraph").write_text(GRAPH)
    return [str(tmp_path / "small.ngraph")]


def command(*arguments: object) -> Any:
    return CliRunner().invoke(main, ["report", *map(str, arguments)])


def reported(tmp_path: Path, *arguments: object) -> dict[str, Any]:
    """The page's data."""
    result = command(*arguments, "-o", tmp_path / "page.html", "--rounds", 1)
    assert result.exit_code == 0 and " MB" in result.output and len(result.output.splitlines()) == 1, result.output
    found = re.search(r'id="data">(.*?)</script>', (tmp_path / "page.html").read_text(), re.DOTALL)
    assert found
    data: dict[str, Any] = json.loads(found.group(1))
    return data


@pytest.mark.parametrize("kind", ["text", "model", "symbol"])
def test_a_page_of_every_kind(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    arguments = request.getfixturevalue(kind)
    data = reported(tmp_path, *arguments, "--verify", "--threads", 1)
    assert data["title"] == Path(arguments[0]).name
    assert data["kernels"]["threads"] == 1 and data["kernels"]["rows"] and data["timeline"]["rows"]
    assert data["accuracy"]["rows"][0]["share"] < 1e-5
    assert any("random" in note for note in data["notes"]) == (kind == "symbol")


def test_a_symbol_with_its_weights(symbol: list[str], tmp_path: Path) -> None:
    data = reported(tmp_path, *symbol, "--params", tmp_path / "model-0000.params")
    assert {"CPU", "made"} <= {name for name, _ in data["facts"]}
    assert data["notes"] == [] and ["inputs", "data: f32[2,3]"] in data["facts"]


def test_placed_nodes_tell_their_device(model: list[str], tmp_path: Path) -> None:
    data = reported(tmp_path, *model, "--backend", "HYBRID", "--option", "pins=*=CPU")
    placed = [node for node in data["graph"]["nodes"] if "device" in node]
    assert placed and all(node["device"] == "CPU" and node["why"] == "pinned by the user" for node in placed)


def test_the_first_part_of_a_model_says_so(tmp_path: Path) -> None:
    nodes = [helper.make_node("Relu", ["x"], ["r"]), helper.make_node("NonZero", ["r"], ["n"], name="where"),
             helper.make_node("Gather", ["r", "n"], ["y"], name="behind")]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    path = tmp_path / "model.onnx"
    onnx.save(helper.make_model(helper.make_graph(nodes, "g", [x], [y]), opset_imports=[helper.make_opsetid("", 21)]),
              path)
    assert "which ends before node behind Gather" in reported(tmp_path, path)["notes"][0]


@pytest.mark.parametrize(("arguments", "status", "message"), [
    ([], 2, "Missing option '-o'"),
    (["-o", "FOLDER"], 2, "is a directory"),
    (["-o", "none/page.html"], 1, "none/page.html: No such file"),
    (["-o", "PAGE", "--rounds", "-1"], 2, "-1 is not in the range"),
    (["-o", "PAGE", "--backend", "toaster"], 1, "no backend 'toaster'"),
    (["-o", "PAGE", "--option", "speed=1"], 1, "speed"),
    (["-o", "PAGE", "--option", "speed"], 2, "expected NAME=VALUE"),
    (["-o", "PAGE", "--shape", "x=2,3"], 1, "shapes (--shape) are for symbols, Gluon blocks and ONNX models"),
    (["-o", "PAGE", "--params", "MODEL"], 1, "can't read parameters by name"),
    (["-o", "PAGE", "--input", "MODEL"], 2, "file that can be read"),
    (["-o", "PAGE", "--precision", "f99"], 2, "'f99' is not one of"),
])
def test_mistakes_are_named(text: list[str], tmp_path: Path, arguments: list[str], status: int, message: str) -> None:
    names = {"FOLDER": str(tmp_path), "PAGE": str(tmp_path / "page.html"), "MODEL": text[0]}
    result = command(*text, *(names.get(argument, argument) for argument in arguments))
    assert result.exit_code == status, result.output
    assert message in " ".join(result.output.split()) and "Traceback" not in result.output
    assert not (tmp_path / "page.html").exists()


def test_damaged_files_are_named(text: list[str], model: list[str], symbol: list[str], tmp_path: Path) -> None:
    page = ["-o", tmp_path / "page.html"]
    Path(text[0]).write_text(GRAPH.replace("relu", "rely"))
    assert f"Error: {text[0]}: line 3: no op 'rely'" in command(*text, *page).output
    assert "give its shape" in command(model[0], *page).output
    Path(model[0]).write_bytes(b"no model")
    assert command(*model, *page).output.startswith("Error: ")
    assert "needs the shapes of its data inputs" in command(symbol[0], *page).output
    assert "no input is called date" in command(symbol[0], "--shape", "date=1,3", *page).output
    assert not (tmp_path / "page.html").exists()
