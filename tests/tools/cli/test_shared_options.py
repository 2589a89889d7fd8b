"""One set of options for all commands that take a model."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import mxnet as mx
import numpy as np
import pytest
from click.testing import CliRunner

from ngraph_mxnet.tools.cli import options
from ngraph_mxnet.tools.cli.commands import main

LACKS = {"run": {"shape"}, "verify": set(), "bench": set(), "profile": set(), "report": set(), "show": set(),
         "explain": set(), "compile": {"backend", "option"}, "quantize": {"backend", "precision", "option"},
         "to-onnx": {"backend", "threads", "precision", "option"}}
"""The commands that take a model, with the options that mean nothing there: arrays have shapes, and files are for
CPUs; ONNX is for any runtime. The recipe of `quantize` is what it writes."""


@pytest.fixture(autouse=True)
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a command sets ends with it."""
    monkeypatch.chdir(tmp_path)
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)


def succeeds(*arguments: str) -> Any:
    result = CliRunner().invoke(main, list(arguments))
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout) if "--json" in arguments else result.stdout


@pytest.mark.parametrize("name", LACKS)
def test_every_command_takes_them_by_the_same_names(name: str) -> None:
    command = main.get_command(click.Context(main), name)
    assert command is not None
    found = {option.lstrip("-") for parameter in command.params for option in parameter.opts}
    assert set(options.OF_A_MODEL) - found == LACKS[name]


@pytest.fixture
def half(tmp_path: Path) -> list[str]:
    """A symbol whose weights are float16, and its parameters."""
    hidden = mx.sym.FullyConnected(mx.sym.var("data", dtype="float16"), num_hidden=4, name="dense")
    hidden.save(str(tmp_path / "half-symbol.json"))
    mx.nd.save(str(tmp_path / "half.params"), {"arg:dense_weight": mx.nd.ones((4, 3), dtype="float16"),
                                               "arg:dense_bias": mx.nd.zeros(4, dtype="float16")})
    np.save("half.npy", np.ones((2, 3), np.float16))
    return ["half-symbol.json", "--params", "half.params"]


def test_run_takes_the_dtype_of_its_array_and_tells_the_file(half: list[str]) -> None:
    found = succeeds("run", *half, "--input", "data=half.npy", "--output", "out.npz", "--json")
    assert found["outputs"][0]["dtype"] == "float16" and found["outputs"][0]["max"] == 3
    assert found["file"] == "out.npz" and np.load("out.npz")["dense_output"].dtype == np.float16
    assert succeeds("run", *half, "--input", "data=half.npy", "--output", "out.npz").endswith("out.npz: 1 array\n")


def test_explain_reads_dtypes_of_weights_and_takes_precision_and_threads(half: list[str]) -> None:
    told = succeeds("explain", *half, "--shape", "data=2,3", "--dtype", "data=float16", "--json")
    assert told["regions"] and told["regions"][0]["precision"] == "f32"
    told = succeeds("explain", *half, "--shape", "data=2,3", "--dtype", "data=float16", "--precision", "bf16", "--json",
                    "--threads", "1", "--kernels")
    assert told["regions"][0]["precision"] == "bf16" and told["threads"] == [1]


def test_profile_takes_arrays_and_dtypes_of_a_symbol(half: list[str]) -> None:
    np.save("x.npy", np.ones((2, 3), np.float32))
    hidden = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=4, name="dense")
    hidden.save("net-symbol.json")
    for given in (["--input", "x.npy"], ["--input", "data=x.npy"], ["--shape", "data=2,3"]):
        found = succeeds("profile", "net-symbol.json", *given, "--rounds", "1", "--threads", "1", "--json")
        assert found["rounds"] == 1 and found["threads"] == 1


def test_compile_takes_threads(half: list[str]) -> None:
    hidden = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=4, name="dense")
    hidden.save("net-symbol.json")
    mx.nd.save("net.params", {"arg:dense_weight": mx.nd.ones((4, 3)), "arg:dense_bias": mx.nd.zeros(4)})
    for number, name in ((1, "--with-reference"), (2, "--with-references")):
        found = succeeds("compile", "net-symbol.json", "--params", "net.params", "--shape", "data=2,3", "--threads",
                         str(number), "--isa", "baseline", name, "-o", "out.ngraph", "--json")
        assert found["references"] == 1
