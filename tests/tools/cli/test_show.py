"""`python -m ngraph_mxnet show`: every kind of model at every stage, and what it says of mistakes."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import onnx
import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper

from ngraph_mxnet.ir import parse_graph
from ngraph_mxnet.tools.cli.commands import main
from ngraph_mxnet.tools.cli.models import STAGES

GRAPH = """
graph @small(%x: f32[2,3,5,6], %w: f32[4,3,1,1] weight) -> (f32[2,4,5,6]) {
  %0: f32[2,4,5,6] = convolution(%x, %w)
  %1: f32[2,4,5,6] = relu(%0)
  %2: f32[2,4,5,6] = identity(%1)
  return %2
}
"""


@pytest.fixture
def text(tmp_path: Path) -> list[str]:
    (tmp_path / "small.ngraph").write_text(GRAPH)
    return [str(tmp_path / "small.ngraph")]


def command(*arguments: object) -> Any:
    return CliRunner().invoke(main, ["show", *map(str, arguments)])


def shown(*arguments: object) -> str:
    result = command(*arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.mark.parametrize("kind", ["text", "model", "symbol"])
def test_all_kinds_at_all_stages(kind: str, request: pytest.FixtureRequest) -> None:
    arguments = request.getfixturevalue(kind)
    found = {stage: shown(*arguments, "--stage", stage) for stage in STAGES}
    assert " = relu(" in found["imported"] and "lower=0.0" not in found["imported"]
    assert " = relu(" not in found["optimised"] and "lower=0.0" in found["optimised"]
    assert shown(*arguments) == found["optimised"] == shown(*arguments, "--text")
    assert "main: " in found["lowered"] and "level 0" in found["lowered"] and "ng_contraction_" in found["lowered"]
    assert "on CPU in" in found["placed"] and "Where each node goes" in found["placed"]


def test_instructions_of_other_devices(text: list[str]) -> None:
    program = shown(*text, "--stage", "lowered", "--backend", "NNP", "--option", "devices=2")
    assert program.startswith('program "small" for "nnp-i-1100') and "0: host.dma0 copy" in program
    pinned = shown(*text, "--stage", "lowered", "--backend", "HYBRID", "--option", "pins=*=CPU")
    assert pinned.startswith("step 1 on CPU") and "level 0" in pinned


def test_a_simulated_call_as_a_trace(text: list[str], tmp_path: Path) -> None:
    nnp = "--stage", "lowered", "--backend", "NNP"
    assert shown(*text, *nnp, "--trace", str(tmp_path / "trace.json")) == ""
    content = json.loads((tmp_path / "trace.json").read_text())
    assert content["otherData"] == {"times": "simulated"} and len(content["traceEvents"]) > 10
    assert shown(*text, *nnp, "--text", "--trace", str(tmp_path / "trace.json")).startswith("program")


def test_a_symbols_weights_become_constants(symbol: list[str], tmp_path: Path) -> None:
    params = "--params", tmp_path / "model-0000.params"
    assert "%dense_weight: f32[4,3] weight" in shown(*symbol, *params, "--stage", "imported")
    assert "%dense_weight: f32[4,3] weight" in shown(*symbol)
    assert "%dense_weight" not in shown(*symbol, *params)
    assert "f16[2,3]" in shown(*symbol, "--dtype", "data=float16", "--stage", "imported")


def test_what_is_shown_whole_can_be_read_again(model: list[str], tmp_path: Path) -> None:
    printed = shown(*model, "--constants")
    (tmp_path / "again.ngraph").write_text(printed)
    assert parse_graph(printed).parameters[0].name == "x"
    assert shown(tmp_path / "again.ngraph", "--stage", "imported", "--constants") == printed


def test_after_a_pass(text: list[str]) -> None:
    assert " = relu(" in shown(*text, "--after", "dropout_removal")
    clamped = shown(*text, "--after", "algebraic")
    assert " = clamp(" in clamped and "identity" not in clamped
    assert ", bias=" in shown(*text, "--after", "clamp_fusion", "--backend", "NNP")
    unchanged = command(*text, "--after", "pad_fusion")
    assert unchanged.exit_code == 0 and "pad_fusion changed nothing" in unchanged.stderr
    wrong = command(*text, "--after", "clampfusion")
    assert wrong.exit_code == 1 and len(wrong.output.splitlines()) == 1
    assert "no pass of CPU is called clampfusion; there are affine_folding, " in wrong.output
    assert "clamp_fusion" in wrong.output and "split_sums" not in wrong.output
    assert "there are none" in command(*text, "--after", "cse", "--backend", "INTERPRETER").output


def test_a_dump_has_every_pass(text: list[str], tmp_path: Path) -> None:
    shown(*text, "--dump", tmp_path / "dump")
    names = [name.split(".", 2)[2] for name in sorted(os.listdir(tmp_path / "dump"))]
    assert names == ["algebraic.dot", "algebraic.ngraph", "clamp_fusion.dot", "clamp_fusion.ngraph"]
    (tmp_path / "file").touch()
    assert "Not a directory" in command(*text, "--dump", tmp_path / "file" / "dump").output


def test_pictures(text: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(*text, "--svg", tmp_path / "graph.dot") == ""
    assert (tmp_path / "graph.dot").read_text().startswith('digraph "small"')
    assert shown(*text, "--stage", "placed", "--svg", tmp_path / "plan.svg") == ""
    assert (tmp_path / "plan.svg").read_text().startswith("<svg")
    assert "graph @small" in shown(*text, "--svg", tmp_path / "graph.dot", "--text")


@pytest.mark.parametrize("backend", ["CPU", "NNP", "HYBRID", "INTERPRETER"])
def test_the_picture_of_every_backends_graph(text: list[str], tmp_path: Path, backend: str) -> None:
    assert shown(*text, "--backend", backend, "--svg", tmp_path / "graph.svg") == ""
    picture = (tmp_path / "graph.svg").read_text()
    assert picture.startswith("<svg") and ("relu" in picture) == (backend == "INTERPRETER")
    assert "convolution" in picture and "f32[2,4,5,6]" in picture


@pytest.mark.parametrize(("arguments", "status", "message"), [
    (["--after", "cse", "--stage", "lowered"], 2, "the stage is optimised"),
    (["--dump", "x", "--stage", "placed"], 2, "the stage is optimised"),
    (["--stage", "lowered", "--svg", "x"], 2, "there is text alone"),
    (["--trace", "x"], 2, "--stage lowered"),
    (["--stage", "lowered", "--trace", "x"], 1, "simulates nothing; NNP does"),
    (["--stage", "melted"], 2, "'melted' is not one of"),
    (["--stage", "lowered", "--backend", "interpreter"], 1, "no instructions to show; CPU, NNP and HYBRID have"),
    (["--stage", "placed", "--backend", "CPU"], 1, "the backend CPU places nothing; such as do: HYBRID"),
    (["--stage", "placed", "--option", "pins=nothing"], 1, "option pins"),
    (["--backend", "toaster"], 1, "no backend 'toaster'"),
    (["--shape", "x=2,3"], 1, "shapes (--shape) are for symbols, Gluon blocks and ONNX models"),
    (["--params", "FILE"], 1, "can't read parameters by name"),
    (["--svg", "none/graph.dot"], 1, "none/graph.dot: No such file"),
])
def test_mistakes_are_named(text: list[str], arguments: list[str], status: int, message: str) -> None:
    result = command(*text, *(argument.replace("FILE", text[0]) for argument in arguments))
    assert result.exit_code == status, result.output
    assert message in " ".join(result.output.split()) and "Traceback" not in result.output


def test_damaged_files_are_named(text: list[str], model: list[str], symbol: list[str]) -> None:
    Path(text[0]).write_text(GRAPH.replace("relu", "rely"))
    assert f"Error: {text[0]}: line 4: no op 'rely'" in command(*text).output
    Path(text[0]).write_bytes(b"\xff\xfe")
    assert "Error: can't read " in command(*text).output
    assert "give its shape" in command(model[0]).output
    assert "dtypes (--dtype) are for symbols" in command(*model, "--dtype", "x=float32").output
    assert "needs the shapes of its data inputs" in command(symbol[0]).output
    assert "no input is called date" in command(symbol[0], "--shape", "date=1,3").output


def test_a_model_that_goes_on_behind_its_data_says_where(tmp_path: Path) -> None:
    nodes = [helper.make_node("Relu", ["x"], ["r"]), helper.make_node("NonZero", ["r"], ["n"], name="where"),
             helper.make_node("Gather", ["r", "n"], ["y"], name="behind")]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    path = tmp_path / "model.onnx"
    onnx.save(helper.make_model(helper.make_graph(nodes, "g", [x], [y]), opset_imports=[helper.make_opsetid("", 21)]),
              path)
    result = command(path)
    assert result.exit_code == 0, result.output
    assert "the graph ends before node behind Gather: the shape of what it reads depends" in result.stderr
    assert " = clamp(" in result.stdout
