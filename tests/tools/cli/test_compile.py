"""`python -m ngraph_mxnet compile`: every kind of model, what it tells, and what it says of mistakes."""

from __future__ import annotations

import json
import os
import resource
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper, numpy_helper

from ngraph_mxnet.program.artefact import load
from ngraph_mxnet.tools.cli.commands import main

GRAPH = """
graph @small(%x: f32[2,3,5,6]) -> (f32[2,3,5,6]) {
  %0: f32[2,3,5,6] = relu(%x)
  return %0
}
"""


def command(*arguments: str) -> Any:
    return CliRunner().invoke(main, ["compile", *arguments])


def succeeds(*arguments: str) -> Any:
    result = command(*arguments)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout) if "--json" in arguments else result.output


def fails(*arguments: str) -> str:
    result = command(*arguments)
    assert result.exit_code in (1, 2) and not isinstance(result.exception, AssertionError)
    return " ".join(result.output.replace("│", "").split())


@pytest.fixture
def out(tmp_path: Path) -> str:
    return str(tmp_path / "out.ngraph")


@pytest.fixture
def model(tmp_path: Path) -> str:
    weights = numpy_helper.from_array(np.ones((3, 4), np.float32), "w")
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("Add", ["a", "b"], ["y"])]
    x, b, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", size])
               for name, size in (("x", 3), ("b", 4), ("y", 4)))
    graph = helper.make_graph(nodes, "g", [x, b], [y], [weights])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)]), tmp_path / "model.onnx")
    return str(tmp_path / "model.onnx")


@pytest.fixture
def symbol(tmp_path: Path) -> list[str]:
    import mxnet as mx

    mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=4, name="fc").save(str(tmp_path / "model-symbol.json"))
    mx.nd.save(str(tmp_path / "model.params"), {"arg:fc_weight": mx.nd.ones((4, 3)), "arg:fc_bias": mx.nd.ones(4)})
    return [str(tmp_path / "model-symbol.json"), "--params", str(tmp_path / "model.params")]


def test_an_onnx_model_for_two_sets_of_shapes(model: str, out: str) -> None:
    sets = "--shape x=1,3 --shape b=1,4 --shape x=2,3 --shape b=2,4".split()
    found = succeeds(model, "-o", out, *sets, "--meta", "version=3", "--with-reference", "--json")
    assert found["bytes"] == Path(out).stat().st_size and found["metadata"] == {"version": "3"}
    assert [(one["shapes"], one["isa"]) for one in found["programs"]] == [
        (number, isa) for number in (0, 1) for isa in ("avx512", "avx2", "baseline")]
    assert found["programs"][3]["inputs"] == {"x": "f32[2,3]", "b": "f32[2,4]"}
    assert found["programs"][3]["outputs"] == {"y": "f32[2,4]"} and found["references"] == 2
    assert all(one["constant_bytes"] and one["instructions"] for one in found["programs"])
    assert len(load(out).sets) == 6 and load(out).meta.name == "out"


def test_the_table_and_show(model: str, out: str) -> None:
    text = succeeds(model, "-o", out, "--shape", "x=1,3", "--shape", "b=1,4", "--isa", "avx2,baseline", "--meta",
                    "by=[red]me")
    assert "f32[1,3]" in text and "avx2" in text and "avx512" not in text and "by: [red]me" in text
    result = CliRunner().invoke(main, ["show", out])
    assert result.exit_code == 0 and result.output == text
    Path(out).write_bytes(Path(out).read_bytes()[:-1])
    result = CliRunner().invoke(main, ["show", out])
    assert result.exit_code == 1 and "cut off" in result.output


def test_a_symbol(symbol: list[str], out: str) -> None:
    found = succeeds(*symbol, "-o", out, "--shape", "data=2,3", "--json")
    assert found["programs"][0]["inputs"] == {"data": "f32[2,3]"}
    assert found["programs"][0]["outputs"] == {"fc_output": "f32[2,4]"}


def test_a_graph(tmp_path: Path, out: str) -> None:
    (tmp_path / "graph.ngraph").write_text(GRAPH)
    assert "f32[2,3,5,6]" in succeeds(str(tmp_path / "graph.ngraph"), "-o", out)
    assert "graphs hold their own" in fails(str(tmp_path / "graph.ngraph"), "-o", out, "--shape", "x=1")


def test_a_file_that_can_not_be_written(tmp_path: Path) -> None:
    (tmp_path / "graph.ngraph").write_text(GRAPH)
    output = tmp_path / "none" / "out.ngraph"
    assert f"{output}: No such file or directory" in fails(str(tmp_path / "graph.ngraph"), "-o", str(output))


def test_a_disk_that_is_full(model: str, out: str) -> None:
    """Of the output, as no other file is written; the limit of a file's size stands for the disk's end."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        text = fails(model, "-o", out, "--shape", "x=1,3", "--shape", "b=1,4")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert f"Error: {out}: File too large" in text
    assert sorted(path.name for path in Path(out).parent.iterdir()) == ["model.onnx"]


def test_what_is_no_file_is_not_replaced(model: str, tmp_path: Path) -> None:
    """Such as /dev/null, by root."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    text = fails(model, "-o", str(pipe), "--shape", "x=1,3", "--shape", "b=1,4")
    assert f"{pipe}: expected a file or nothing there, found neither" in text and pipe.is_fifo()


@pytest.mark.parametrize(("name", "further"), [
    ("x.onnx", ""), ("x.ngraph", ""), ("x-symbol.json", "--params PARAMS --shape data=2,3"),
    ("SYMBOL", "--params x.params --shape data=2,3")])
def test_a_file_that_can_not_be_read_is_named(name: str, further: str, symbol: list[str], out: str,
                                              tmp_path: Path) -> None:
    """/proc/self/mem is there and gives an error to who reads it, root too."""
    unreadable = tmp_path / (name if name != "SYMBOL" else "x.params")
    unreadable.symlink_to("/proc/self/mem")
    model = symbol[0] if name == "SYMBOL" else str(unreadable)
    given = further.replace("PARAMS", symbol[2]).replace("x.params", str(unreadable))
    text = fails(model, "-o", out, *given.split())
    assert str(unreadable) in text and out not in text


def test_external_data_that_can_not_be_read_are_named(model: str, out: str, tmp_path: Path) -> None:
    """They are there, and are larger than the memory that the process may have: root is denied nothing else."""
    proto = onnx.load(model)
    (weights,) = proto.graph.initializer
    weights.dims[:] = [3, 1 << 29]
    onnx.save(proto, model, save_as_external_data=True, location="w.bin", size_threshold=0)
    proto = onnx.load(model, load_external_data=False)
    for entry in proto.graph.initializer[0].external_data:
        if entry.key == "length":
            entry.value = str(12 << 29)
    onnx.save(proto, model)
    os.truncate(tmp_path / "w.bin", 12 << 29)
    held = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (held + (4 << 30), before[1]))
    try:
        text = fails(model, "-o", out, "--shape", "x=1,3", "--shape", "b=1,4")
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
    assert f"'w': its external data can't be read, {tmp_path / 'w.bin'}: Cannot allocate memory" in text
    assert out not in text


@pytest.mark.parametrize(("arguments", "message"), [
    ("--shape x=1,3 --shape x=2,3 --shape b=2,4", "set 1 of shapes and the first one differ in b"),
    ("--shape x=1,3 --shape x=1,3", "two sets of shapes are the same"),
    ("--shape x=1,3", "b"),
    ("--shape x", "expected NAME=D,D,..."),
    ("--isa avx9", "found avx9, expected some of baseline,avx2,avx512,avx_vnni,amx"),
    ("--meta version", "expected KEY=VALUE"),
    ("--precision int4", "int4"),
    ("--dtype x=int8 --shape x=1,3 --shape b=1,4", "dtypes (--dtype) are for symbols and Gluon blocks"),
    ("--shape x=1,3 --shape b=1,4 --params PARAMS", "params (--params) are for graphs and symbols"),
])
def test_mistakes(arguments: str, message: str, model: str, out: str, tmp_path: Path) -> None:
    (tmp_path / "w.params").touch()
    given = arguments.replace("PARAMS", str(tmp_path / "w.params")).split()
    assert message in fails(model, "-o", out, *given)
    assert not Path(out).exists()


def test_what_a_symbol_needs(symbol: list[str], out: str) -> None:
    assert "needs the shapes of its" in fails(*symbol, "-o", out)
    assert "a symbol needs its weights" in fails(symbol[0], "-o", out, "--shape", "data=1,3")


def test_another_backend_makes_none(model: str, out: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NGRAPH_BACKEND", "INTERPRETER")
    assert "such as do: CPU" in fails(model, "-o", out, "--shape", "x=1,3", "--shape", "b=1,4")


def test_ranges_of_sizes(model: str, out: str) -> None:
    found = succeeds(model, "-o", out, "--shape", "x=1..32,3", "--shape", "b=1..32,4", "--shape", "x=8,3", "--shape",
                     "b=8,4", "--isa", "avx2", "--json")
    (program,), (ranged,) = found["programs"], found["ranges"]
    assert program["inputs"] == {"x": "f32[8,3]", "b": "f32[8,4]"}
    assert ranged["inputs"] == {"x": "f32[batch,3]", "b": "f32[batch,4]"} and ranged["symbols"] == {"batch": "1..32"}
    assert ranged["outputs"] == {"y": "f32[batch,4]"} and ranged["programs"]
    shown = CliRunner().invoke(main, ["show", out]).output
    assert "f32[batch,3]" in shown and "batch: 1..32" in shown and "guards" in shown


@pytest.mark.parametrize(("shape", "text"), [
    ("x=1..3..2,3", "input 'x': found the size '1..3..2', expected a number, a range as '1..32'"),
    ("x=,3..1", "found the size '3..1'"),
    ("x", "expected NAME=D,D"),
])
def test_ranges_that_are_none(model: str, out: str, shape: str, text: str) -> None:
    assert text in fails(model, "-o", out, "--shape", shape)


def test_a_symbol_for_a_range(tmp_path: Path, out: str) -> None:
    """No shape that is inferred may change with the sizes."""
    mx = pytest.importorskip("mxnet", reason="mxnet is not installed")
    net = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=4, name="dense"), name="softmax")
    net.save(str(tmp_path / "net-symbol.json"))
    mx.nd.save(str(tmp_path / "net-0000.params"), {"arg:dense_weight": mx.nd.ones((4, 3)), "arg:dense_bias":
                                                   mx.nd.ones((4,))})
    symbol, params = str(tmp_path / "net-symbol.json"), str(tmp_path / "net-0000.params")
    found = succeeds(symbol, "-o", out, "--params", params, "--shape", "data=N:1..16,3", "--json")
    assert {tuple(one["inputs"].values()) for one in found["ranges"]} == {("f32[N,3]",)}
    told = mx.sym.broadcast_add(mx.sym.var("data"), mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=3, name="d"))
    told = told + mx.sym.var("other")
    told.save(str(tmp_path / "net-symbol.json"))
    mx.nd.save(params, {"arg:d_weight": mx.nd.ones((3, 3)), "arg:d_bias": mx.nd.ones((3,))})
    assert "the shape of other changes with sizes that are ranges: give it" in fails(
        symbol, "-o", out, "--params", params, "--shape", "data=N:5..6,3")
