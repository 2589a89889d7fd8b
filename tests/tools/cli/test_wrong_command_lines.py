"""No traceback reaches a user: wrong command lines of all commands end with status 1 or 2 and a message."""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Iterator
from pathlib import Path

import click
import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper

import ngraph_mxnet
from ngraph_mxnet.tools.cli.commands import main

COMMANDS = main.list_commands(click.Context(main))
GRAPH = "graph @small(%x: f32[2,3]) -> (f32[2,3]) {\n  %0: f32[2,3] = relu(%x)\n  return %0\n}\n"
GARBAGE = bytes(np.random.default_rng(11).integers(0, 256, 4096, dtype=np.uint8))

MODEL_COMMANDS = {"explain": "", "show": "", "run": "", "bench": "--rounds 1", "profile": "--rounds 1",
                  "report": "-o out.html --rounds 1", "compile": "-o out.ngraph", "to-onnx": "-o out.onnx",
                  "quantize": "--calibration data.npz"}
"""Commands that take a model, with what they need beside it."""
WRONG_FILES = ("missing.onnx", "folder", "empty.onnx", "garbage.onnx", "cut.onnx", "model.png", "missing-symbol.json",
               "empty-symbol.json", "garbage-symbol.json", "cut-symbol.json", "other-symbol.json", "empty.ngraph",
               "garbage.ngraph", "cut.ngraph", "cut-compiled.ngraph", "cut.package")
BESIDE_SYMBOLS = {**dict.fromkeys(MODEL_COMMANDS, "--shape data=2,3"), "run": "--input data=x.npy --params good.params",
                  **dict.fromkeys(("compile", "to-onnx", "quantize"), "--shape data=2,3 --params good.params")}
"""What the commands need of symbols beside that, so that it is the file that is wrong."""

OTHERS = """
nonsense
--nonsense
explain
explian good.onnx
explain good.onnx more.onnx
explain good.onnx --shape
explain good.onnx --shape x
explain good.onnx --shape x=
explain good.onnx --shape x=two,3
explain good.onnx --shape x=2,-3
explain good.onnx --shape y=2,3
explain good.onnx --shape x=2,3,4
explain good.onnx --dtype x=float32
explain good.onnx --backend toaster
explain good.onnx --backend CPU:fast
explain good.onnx --backend NNP:toaster
explain good.onnx --option pins
explain good.onnx --option speed=1
explain good.onnx --train
explain good.onnx --shapes x
explain good.onnx --shapes x:9
explain good.onnx --shapes y:0
explain good.onnx --svg none/graph.svg --backend HYBRID
explain good.onnx --svg folder --backend HYBRID
explain good.onnx --timeline out.svg
explain good-symbol.json
explain good-symbol.json --shape date=2,3
explain good-symbol.json --shape data=2,3 --shape dense_weight=4,9
explain good-symbol.json --shape data=2,3 --dtype data=float99
explain good-symbol.json --shape data=2,3 --dtype data
explain good-symbol.json --shape data=2,3 --train --kernels
explain good.ngraph
explain compiled.ngraph
show good.onnx --stage melted
show good.onnx --after nonsense
show good.onnx --stage lowered --after cse
show good.onnx --svg none/graph.dot
show good.onnx --svg folder
show good.onnx --dump good.onnx
show good.onnx --dump good.onnx/below
show good.onnx --trace out.json
show good.onnx --params good.params
show good.ngraph --shape x=2,3
show good-symbol.json --shape data=2,3 --params garbage.params
show good-symbol.json --shape data=2,3 --params empty.params
show good-symbol.json --shape data=2,3 --params folder
show good.onnx --threads 0
show good.onnx --threads many
show good.onnx --precision f99
show good.onnx --backend INTERPRETER --stage lowered
to-onnx good.onnx
to-onnx good.onnx -o out.onnx --opset 16
to-onnx good.onnx -o out.onnx --shape x=2,3 --shape x=4,3
to-onnx good.onnx -o none/out.onnx
to-onnx good.onnx -o folder
to-onnx good.onnx -o out.onnx --params good.params
to-onnx good-symbol.json -o out.onnx --params good.params
to-onnx good-symbol.json -o out.onnx --shape data=2,3
to-onnx compiled.ngraph -o out.onnx
run good.onnx
run good.onnx --input missing.npy
run good.onnx --input garbage.npy
run good.onnx --input empty.npy
run good.onnx --input cut.npz
run good.onnx --input zlib.npz
run good.onnx --input encrypted.npz
run good.onnx --input method.npz
run good.onnx --input huge.npz
run good-symbol.json --input data=x.npy --params latin.params
run good.onnx --input folder
run good.onnx --input y=data.npz
run good.onnx --input y=x.npy
run good.onnx --input x.npy --input x.npy
run good.onnx --input wide.npy
run good.onnx --input double.npy
run good.onnx --input x.npy --output none/out.npz
run good.onnx --input x.npy --output folder
run good.onnx --input x.npy --backend nonsense
run good.onnx --input x.npy --backend INTERPRETER --threads 2
run good.onnx --input x.npy --precision int8 --params good.params
run good-symbol.json --input data=x.npy
run good-symbol.json --input data=x.npy --params missing.params
run good-symbol.json --input data=x.npy --params garbage.params
run good-symbol.json --input data=wide.npy --params good.params
run compiled.ngraph --input wide.npy
run compiled.ngraph --input x.npy --precision bf16
run compiled.ngraph --input x.npy --backend NNP
bench open.onnx
bench good.onnx --rounds 0
bench good.onnx --rounds x
bench good.onnx --shape x=3,3
bench good.onnx --threads -1
bench open.onnx --shape x=100000000000,3
bench good-symbol.json
profile compiled.ngraph
profile good.onnx --rounds 0
profile good-symbol.json
profile good-symbol.json --shape data=2,4 --input x.npy
profile good-symbol.json --shape data=2,3 --option chains=0
profile good-symbol.json --shape data=2,3 --params garbage.params
profile good-symbol.json --shape date=2,3
verify good.onnx --against nonsense
verify good.onnx --against mxnet
verify good.onnx --tolerance -1
verify good.onnx --params good.params
verify good.onnx --input missing.npz
verify good.onnx --input wide.npy
verify compiled.ngraph
verify good-symbol.json
verify good-symbol.json --shape data=2,3 --params garbage.params
audit show none
audit show good.onnx
audit diff folder
audit diff none folder
audit diff folder folder --tolerance x
compile good.onnx
compile good.onnx -o none/out.ngraph
compile good.onnx -o folder
compile good.onnx -o out.ngraph --isa sse
compile good.onnx -o out.ngraph --meta nonsense
compile good.onnx -o out.ngraph --shape x=1..
compile good.onnx -o out.ngraph --shape x=8..2,3
compile good.onnx -o out.ngraph --shape x=2,3 --shape x=2,3
compile good.onnx -o out.ngraph --precision f16
compile good.onnx -o out.ngraph --recipe garbage.json
compile good.onnx -o out.ngraph --precision int8 --recipe garbage.json
compile good.onnx -o out.ngraph --params good.params
compile good.ngraph -o out.ngraph --shape x=1,3
compile good-symbol.json -o out.ngraph
compile good-symbol.json -o out.ngraph --shape data=2,3
compile good-symbol.json -o out.ngraph --params good.params
compile good-symbol.json -o out.ngraph --params good.params --shape data=2,3 --dtype data=int32
compile good-symbol.json -o out.ngraph --params garbage.params --shape data=2,3
compile compiled.ngraph -o out.ngraph
quantize good.onnx
quantize good.onnx --calibration missing.npz
quantize good.onnx --calibration garbage.npz
quantize good.onnx --calibration empty.npz
quantize good.onnx --calibration folder
quantize good.onnx --calibration good.onnx
quantize good.onnx --calibration data.npz --metric nonsense
quantize good.onnx --calibration data.npz --metric nowhere:metric
quantize good.onnx --calibration data.npz --metric os:sep
quantize good.onnx --calibration data.npz --max-drop lots
quantize good.onnx --calibration data.npz --method guess
quantize good.onnx --calibration data.npz --shape x=2,3 --shape x=2,3
quantize good.onnx --calibration data.npz -o folder
quantize good.onnx --calibration other.npz
quantize good-symbol.json --calibration data.npz
bench good.onnx --processes 0
bench good.onnx --against nonsense
bench good.onnx --against last --no-record
runs melt
runs list --store garbage.npy
runs list --store missing.sqlite
runs show last --store empty.npy
runs show
runs compare one --store garbage.npy
runs plot last
runs export
doctor now
doctor --import
ops nonsense
ops relu gelu
env now
cache melt
cache show now
""".strip().splitlines()

LINES = [" ".join(filter(None, (command, name, beside, BESIDE_SYMBOLS[command] if name.endswith(".json") else "")))
         for command, beside in MODEL_COMMANDS.items() for name in WRONG_FILES] + OTHERS


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Good files, and what may be wrong with them."""
    import mxnet as mx

    folder = tmp_path_factory.mktemp("files")
    (folder / "folder").mkdir()
    for name, size in (("good.onnx", 2), ("open.onnx", "batch")):
        x, y = (helper.make_tensor_value_info(port, TensorProto.FLOAT, [size, 3]) for port in "xy")
        graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y])
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), folder / name)
    mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=4, name="dense").save(str(folder / "good-symbol.json"))
    mx.nd.save(str(folder / "good.params"), {"arg:dense_weight": mx.nd.ones((4, 3)), "arg:dense_bias": mx.nd.ones(4)})
    (folder / "good.ngraph").write_text(GRAPH)
    executable = ngraph_mxnet.compile(GRAPH, "CPU")
    executable.save(folder / "compiled.ngraph", isas=["baseline"])
    executable.package().save(folder / "whole.package")
    (folder / "other-symbol.json").write_text('{"nodes": [{"op": "null", "name": 3, "inputs": [[7, 0]]}], "heads": 1}')
    for name, whole in (("cut.onnx", "good.onnx"), ("cut-symbol.json", "good-symbol.json"),
                        ("cut.ngraph", "good.ngraph"), ("cut-compiled.ngraph", "compiled.ngraph"),
                        ("cut.package", "whole.package")):
        content = (folder / whole).read_bytes()
        (folder / name).write_bytes(content[:len(content) * 2 // 3])
    for ending in (".onnx", "-symbol.json", ".ngraph", ".params", ".npy", ".npz"):
        (folder / f"empty{ending}").touch()
        (folder / f"garbage{ending}").write_bytes(GARBAGE)
    (folder / "garbage.json").write_bytes(GARBAGE)
    (folder / "model.png").write_bytes(b"\x89PNG\r\n\x1a\n" + GARBAGE)
    for name, array in (("x", np.ones((2, 3), np.float32)), ("wide", np.ones((2, 9), np.float32)),
                        ("double", np.ones((2, 3)))):
        np.save(folder / f"{name}.npy", array)
    np.savez(folder / "data.npz", x=np.ones((2, 3), np.float32))
    np.savez(folder / "other.npz", nothing=np.ones((2, 3), np.float32))
    _damage(folder)
    return folder


def _damage(folder: Path) -> None:
    """Files `.npz` and `.params` of which one thing is wrong."""
    np.savez_compressed(folder / "whole.npz", x=np.arange(600, dtype=np.float32))
    whole = (folder / "whole.npz").read_bytes()
    begin, directory = 30 + len("x.npy"), whole.rindex(b"PK\x01\x02")
    changed = {"zlib": {begin + 40: 255, begin + 41: 255, begin + 42: 255}, "encrypted": {6: 1, directory + 8: 1},
               "method": {8: 77, directory + 10: 77}}
    for name, places in changed.items():
        content = bytearray(whole)
        for place, value in places.items():
            content[place] = value
        (folder / f"{name}.npz").write_bytes(content)
    (folder / "cut.npz").write_bytes(whole[:-30])
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": (10**14,)})
    with zipfile.ZipFile(folder / "huge.npz", "w") as file:
        file.writestr("x.npy", header.getvalue() + bytes(8))
    good = (folder / "good.params").read_bytes()
    (folder / "latin.params").write_bytes(good.replace(b"dense_bias", b"dense_b\xef\xff\xfe"))


@pytest.fixture(autouse=True)
def environment(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The files' folder is the current one; what a command sets ends with it."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("MXNET_SUBGRAPH_BACKEND", "NONE")
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)


def test_there_are_enough_lines_for_all_commands() -> None:
    assert len(LINES) == len(set(LINES)) >= 100
    assert set(COMMANDS) <= {line.split()[0] for line in LINES}


@pytest.mark.parametrize("line", LINES)
def test_a_wrong_line_ends_with_a_message(line: str) -> None:
    before = sorted(os.listdir())
    result = CliRunner().invoke(main, line.split(), prog_name="ngraph-mxnet")
    assert result.exit_code in (1, 2), result.output
    assert result.exception is None or isinstance(result.exception, SystemExit), repr(result.exception)
    assert "Traceback" not in result.output
    explained = "it does not compile for" in result.stdout or "0 of " in result.stdout
    assert explained or any(text.startswith("Error: ") for text in result.stderr.splitlines()), result.output
    assert sorted(os.listdir()) == before, "it left a file"
