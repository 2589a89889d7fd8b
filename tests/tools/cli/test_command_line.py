"""What the command line says of wrong settings, in one line, and how its tables and JSON look to another program."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
import tomllib
from click.testing import CliRunner, Result

import ngraph_mxnet
from ngraph_mxnet.base import config, installation
from ngraph_mxnet.base.errors import listed
from ngraph_mxnet.tools.cli.commands import main

PACKAGE = Path(ngraph_mxnet.__file__).parent
ROOT = Path(__file__).parents[3]


def command(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments))


def as_a_user(*arguments: str, folder: Path | None = None, **variables: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(PACKAGE.parent), os.environ["PYTHONPATH"]])
    environment = {**os.environ, "PYTHONPATH": path, **variables}
    return subprocess.run([sys.executable, "-m", "ngraph_mxnet", *arguments], capture_output=True, text=True,
                          check=False, cwd=folder, env=environment, timeout=120)


@pytest.fixture
def symbol(tmp_path: Path) -> str:
    import mxnet as mx

    net = mx.sym.Variable("data")
    for number in range(20):
        net = mx.sym.FullyConnected(net, num_hidden=64, name=f"layer{number}")
    path = tmp_path / "model-symbol.json"
    net.save(str(path))
    return str(path)


def test_a_full_disk_below_stdout_is_one_line(symbol: str) -> None:
    for arguments in (["--help"], ["ops", "relu"], ["explain", symbol, "--shape", "data=1,64"]):
        with open("/dev/full", "w") as full:
            done = subprocess.run([sys.executable, "-m", "ngraph_mxnet", *arguments], stdout=full, text=True,
                                  stderr=subprocess.PIPE, check=False, timeout=120)
        assert done.returncode == 1
        assert done.stderr == "Error: standard output: No space left on device\n"


def test_the_nearest_command_is_told() -> None:
    assert "No such command 'explian'. Did you mean 'explain'?" in command("explian").output
    assert command("zzz").output.endswith("No such command 'zzz'.\n")


def test_a_hidden_option_is_no_suggestion() -> None:
    told = command("bench", "--sample").output
    assert "No such option" in told and "--samples" not in told
    assert "--precision" in command("bench", "--precison", "bf16").output


def test_a_misspelt_variable_is_told_and_a_value_that_is_not_allowed_once(symbol: str) -> None:
    told = as_a_user("ops", "relu", NGRAPH_PRECISON="bf16")
    assert told.returncode == 0
    assert told.stderr == "NGRAPH_PRECISON is set, but there is no such variable: did you mean NGRAPH_PRECISION?\n"
    told = as_a_user("explain", symbol, NGRAPH_LOG_LEVEL="verbose")
    assert (told.returncode, told.stderr.count("NGRAPH_LOG_LEVEL")) == (1, 1)
    assert told.stderr.startswith("Error: ")


def test_at_most_eight_names_are_listed_the_nearest_first() -> None:
    names = [f"layer{number}_weight" for number in range(20)] + ["data"]
    assert listed(["a", "b"]) == "a, b" and listed([]) == ""
    assert listed(names).endswith("layer7_weight and 13 more")
    assert listed(names, "dat").startswith("data, ")


@pytest.mark.parametrize("line", ["explain --backend NNP:foo", "explain --backend HYBRID:foo",
                                  "profile", "bench --backend HYBRID:foo"])
def test_a_wrong_device_is_one_line(symbol: str, line: str) -> None:
    name, *options = line.split()
    done = as_a_user(name, symbol, "--shape", "data=1,64", *options, NGRAPH_BACKEND="HYBRID:foo")
    assert done.returncode == 1
    *before, last = done.stderr.splitlines()
    assert last.startswith("Error: no device 'foo'; known: nnp-i-1100") and len(before) <= 2, done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(("variable", "value"), [("NGRAPH_LOG_LEVEL", "loud"), ("NGRAPH_CPU_ISA", "sse"),
                                                 ("NGRAPH_SHAPES", "many"), ("NGRAPH_BACKEND", "GPU")])
def test_a_wrong_variable_is_an_error(variable: str, value: str) -> None:
    done = as_a_user("ops", "relu", **{variable: value})
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.splitlines()[-1].startswith(f"Error: {variable}={value!r} is not allowed: expected ")
    assert "Traceback" not in done.stderr
    told = as_a_user("env", "--json", **{variable: value})
    (row,) = (row for row in json.loads(told.stdout)["variables"] if row["variable"] == variable)
    assert value in row["error"] and row["value"] is None


@pytest.mark.parametrize(("arguments", "message"), [
    (["explain"], "the shape of data is not known: give it"),
    (["explain", "--shape", "data=0,64"], "input 'data': found the shape (0, 64), expected sizes of 1 or more"),
    (["explain", "--shape", "date=1,64"], "no input is called date; the inputs: data, "),
    (["explain", "--shape", "data=1,64", "--dtype", "data=float99"], "input data: found dtype 'float99'"),
    (["explain", "--shape", "data=1,64", "--option", "foo=1"], "no plan that options could change"),
    (["explain", "--shape", "data=1,64", "--backend", "hybrid", "--option", "foo=1"], "has no option foo"),
    (["profile", "--shape", "layer3_bias=64"], "the shape of data is not known"),
    (["profile", "--shape", "date=1,64"], "and 33 more"),
])
def test_mistakes_end_a_command(symbol: str, arguments: list[str], message: str,
                                monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MXNET_SUBGRAPH_BACKEND", "NONE")  # `profile` sets it
    name, *options = arguments
    result = command(name, symbol, *options)
    assert result.exit_code == 1
    assert message in result.output and len(result.output.splitlines()) == 1, result.output


def test_what_does_not_compile_exits_with_one(tmp_path: Path) -> None:
    import mxnet as mx

    path = tmp_path / "model-symbol.json"
    mx.sym.cast_storage(mx.sym.Variable("data"), stype="default").save(str(path))
    result = command("explain", str(path), "--shape", "data=2,3")
    assert result.exit_code == 1
    assert "0 of 1 nodes run on CPU" in result.output and "cast_storage stays with MXNet" in result.output


def test_what_is_piped_has_a_row_a_line() -> None:
    lines = command("ops").output.splitlines()
    (row,) = (line for line in lines if line.startswith("│ transpose "))
    assert row.count("│") == 5 and "…" not in row and "yes" in row
    (row,) = (line for line in command("env").output.splitlines() if line.startswith("│ NGRAPH_CACHE_MB "))
    assert config.VARIABLES["NGRAPH_CACHE_MB"].help in row


def parsed(*arguments: str) -> Any:
    result = command(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.output)


def test_json() -> None:
    rows = {row["op"]: row for row in parsed("ops")}
    assert rows["relu"]["CPU kernel"] is True and rows["relu"]["definition"]
    softmax = parsed("ops", "softmax")
    assert "attribute axis" in softmax["IR op"] and softmax["MXNet operator"]["names"]
    assert [row["variable"] for row in parsed("env")["variables"]] == list(config.VARIABLES)


def test_a_checkout_that_is_not_built_says_so(tmp_path: Path) -> None:
    shutil.copytree(PACKAGE, tmp_path / "ngraph_mxnet", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    for arguments in ([], ["ops"], ["env"]):
        done = as_a_user(*arguments, folder=tmp_path, PYTHONPATH="")
        assert done.returncode == 1, done
        assert done.stderr.splitlines()[-1].startswith("Error: ") and "Traceback" not in done.stderr
        assert f"{tmp_path / 'ngraph_mxnet'} is not built" in done.stderr and "pip install -e ." in done.stderr
    done = as_a_user("doctor", folder=tmp_path, PYTHONPATH="")
    assert done.returncode == 1 and "Traceback" not in done.stdout + done.stderr
    assert f"wrong: {tmp_path / 'ngraph_mxnet'} is not built" in done.stdout
    assert "[fine] libraries" in done.stdout and "] self-test" in done.stdout


def test_what_is_missing_is_looked_for_under_its_name() -> None:
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    names = {line.split(">")[0].split("=")[0] for line in wanted}
    assert names == set(installation.NEEDED)
    assert installation.missing_part() is None


def test_the_console_script_is_the_module(tmp_path: Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (point,) = (EntryPoint(name, value, "console_scripts") for name, value in project["scripts"].items())
    script = tmp_path / point.name
    script.write_text(f"import sys\nfrom {point.module} import {point.attr}\nsys.exit({point.attr}())\n")  # as pip does

    def as_script(*arguments: str) -> tuple[int, str, str]:
        done = subprocess.run([sys.executable, str(script), *arguments], capture_output=True, text=True, check=False,
                              env={**os.environ, "PYTHONPATH": str(PACKAGE.parent)}, timeout=120)
        return done.returncode, done.stdout, done.stderr

    outputs = []
    for arguments in (["--version"], ["ops", "relu"], ["ops", "nonsense"]):
        outputs.append(as_script(*arguments))
        of_module = as_a_user(*arguments)
        assert outputs[-1] == (of_module.returncode, of_module.stdout, of_module.stderr)
    assert [code for code, _, _ in outputs] == [0, 0, 1]
    assert outputs[0][1] == f"ngraph_mxnet {ngraph_mxnet.__version__}\n"
    assert as_script("--help")[1].startswith("Usage: ngraph-mxnet [OPTIONS]")


def test_the_help_imports_no_compiler() -> None:
    done = as_a_user("--help", NGRAPH_LOG_LEVEL="warning")
    assert done.returncode == 0
    assert all(name in done.stdout for name in ("explain", "show", "run", "bench", "profile", "ops", "env", "cache"))
