"""`ngraph-mxnet doctor`: its output for people and programs, and its exit status."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from ngraph_mxnet import __version__
from ngraph_mxnet.tools import doctor as doctor
from ngraph_mxnet.tools.cli.commands import main, without_home
from ngraph_mxnet.tools.doctor import Trial

RESULT = {"seconds": 0.1, "result": [[0.25, 0.75]]}
CHECKS = ["installation", "processor", "threads", "settings", "cache", "libraries", "numpy", "mxnet", "openmp",
          "self-test"]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, Any]:
    """The steps of a trial, which has tests of its own (tests/tools/doctor)."""
    steps = {"INTERPRETER": RESULT, "CPU": RESULT, "MXNet alone": RESULT, "MXNet with NGRAPH": RESULT,
             "import mxnet": {"version": "1.9.1", "library": str(Path.home() / "libmxnet.so"), "problem": None},
             "libraries": []}

    def trial(imports: Sequence[str]) -> Trial:
        return Trial(steps, {f"import {name}": "no such module" for name in imports})

    monkeypatch.setattr(doctor, "try_everything", trial)
    monkeypatch.setenv("NGRAPH_CACHE_DIR", str(tmp_path / "cache"))
    return steps


def command(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["doctor", *arguments])


def test_nothing_is_wrong() -> None:
    result = command()
    assert result.exit_code == 0, result.output
    heads = [line.partition("] ") for line in result.output.splitlines() if line.startswith("[")]
    assert [name for _, _, name in heads] == CHECKS and {status for status, _, _ in heads} <= {"[fine", "[note"}
    assert f"ngraph_mxnet {__version__}: 10 checks, nothing is wrong." in result.output


def test_something_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NGRAPH_SHAPES", "many")  # which would stop other commands
    monkeypatch.setenv("OMP_NUM_THREADS", "4096")
    monkeypatch.setenv("PASSWORD", "a secret")
    result = command("--import", "nonsense")
    assert result.exit_code == 1 and "something is wrong in 3." in result.output
    assert "wrong: NGRAPH_SHAPES='many' is not allowed" in result.output
    assert "wrong: import nonsense: no such module" in result.output
    assert "a secret" not in result.output and "Traceback" not in result.output


def test_json() -> None:
    found = json.loads(command("--json").stdout)
    assert found["version"] == __version__ and found["fine"]
    assert [check["check"] for check in found["checks"]] == CHECKS
    assert all(check.keys() == {"check", "status", "facts", "problems", "notes"} for check in found["checks"])
    wrong = command("--json", "--import", "nonsense")
    assert wrong.exit_code == 1 and not json.loads(wrong.stdout)["fine"]


def test_a_check_that_fails_stops_no_other(quick: dict[str, Any]) -> None:
    quick["import mxnet"] = quick["libraries"]  # what no trial gives
    result = command()
    assert result.exit_code == 1
    assert "[wrong] mxnet\n    wrong: the check itself failed: TypeError: " in result.output
    assert "[fine] self-test" in result.output and "something is wrong in 1." in result.output


def test_the_home_folder_is_not_shown() -> None:
    assert "library: ~/libmxnet.so" in command().output
    assert without_home("/home/someone/x and /home/someone", Path("/home/someone")) == "~/x and ~"
    assert without_home("/home/someone-else/x", Path("/home/someone")) == "/home/someone-else/x"
    assert without_home("/x", Path("/")) == "/x"
