"""`audit show` and `audit diff`: tables, JSON, exit codes, and what they say of files that are no audits."""

from __future__ import annotations

import dataclasses
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

import ngraph_mxnet
from ngraph_mxnet import _core
from ngraph_mxnet.ir import Builder
from ngraph_mxnet.program.recorder import HASH, NAME
from ngraph_mxnet.tools.audits import open_run
from ngraph_mxnet.tools.cli.commands import main

GOLDEN = Path(__file__).parents[2] / "golden" / "audit_help.txt"
X = np.linspace(-1, 1, 12, dtype="f4").reshape(3, 4)
W = np.linspace(1, 2, 20, dtype="f4").reshape(4, 5)


def command(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["audit", *arguments], terminal_width=100)


def record(folder: Path, weights: Any = W, x: Any = X, name: str = "net") -> str:
    b = Builder(name=name)
    data, w = b.parameter("x", X.shape), b.parameter("w", W.shape)
    b.origin = "toy:fc Dense"
    y = b.matmul(data, w)
    b.origin = "toy:act Tanh"
    with ngraph_mxnet.audit(folder, tensors="all"):
        executable = ngraph_mxnet.compile(b.results(b.tanh(y)), weights={"w": weights})
        executable(X)
        executable(x)
    return str(folder)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("audits")
    other = W.copy()
    other[0, 0] += 1
    return {"a": record(folder / "a"), "same": record(folder / "same"), "weight": record(folder / "weight", other),
            "input": record(folder / "input", x=X + 1), "near": record(folder / "near", x=X * np.float32(1 + 1e-6)),
            "foreign": record(folder / "foreign", name="another")}


def test_help() -> None:
    found = "\n".join(command(*arguments, "--help").output for arguments in ([], ["show"], ["diff"]))
    assert found == GOLDEN.read_text()


def test_equal_runs(runs: dict[str, str]) -> None:
    done = command("diff", runs["a"], runs["same"])
    assert done.exit_code == 0 and done.output.startswith("No difference in ") and "of 2 calls" in done.output
    assert json.loads(command("diff", runs["a"], runs["same"], "--json").output)["differs"] is False


def test_a_weight_that_differs(runs: dict[str, str]) -> None:
    done = command("diff", runs["a"], runs["weight"])
    assert done.exit_code == 1
    assert "The runs part at toy:fc Dense, in call 0 of graph net." in done.output
    assert "weight w, which toy:fc Dense reads, f32[4,5]:" in done.output and done.output.count("hash") == 4
    found = json.loads(command("diff", runs["a"], runs["weight"], "--json").output)
    assert found["node"] == "toy:fc Dense" and found["call"] == {"graph": "net", "number": 0}
    (weight,) = found["weights"]
    assert weight["name"] == "w" and weight["a"]["max"] == 2.0 and weight["a"]["hash"] != weight["b"]["hash"]
    assert found["first"]["name"] == "toy:fc Dense" and found["first"]["kind"] == "value"


def test_an_input_that_differs(runs: dict[str, str]) -> None:
    done = command("diff", runs["a"], runs["input"])
    assert done.exit_code == 1 and "in call 1 of graph net" in done.output and "input x" in done.output


def with_old_hashes(folder: Path) -> str:
    """A run that says that its hashes are of version 1."""
    path = record(folder)
    with closing(sqlite3.connect(folder / NAME)) as database, database:
        for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            database.execute(f"DROP TRIGGER {name}")  # by which rows are only added
        ((text,),) = database.execute("SELECT versions FROM runs")
        database.execute("UPDATE runs SET versions = ?", (json.dumps({**json.loads(text), HASH: 1}),))
    return path


def test_hashes_of_another_version(runs: dict[str, str], tmp_path: Path) -> None:
    """They say nothing of content that was hashed otherwise: it is told, and not taken for a difference."""
    old = with_old_hashes(tmp_path)
    for pair, sides in (((old, runs["a"]), "first run has hashes of version 1, the second of version 2"),
                        ((runs["a"], old), "first run has hashes of version 2, the second of version 1")):
        done = command("diff", *pair)
        assert done.exit_code == 2 and f"contents can't be compared: the {sides}; record again" in done.output
        done = command("diff", *pair, "--tolerance", "1e-6")
        assert done.exit_code == 0 and f"Note: the {sides}; only statistics are compared." in done.output
    assert command("diff", old, with_old_hashes(tmp_path / "again")).exit_code == 0


def test_runs_that_say_no_version_have_the_first(runs: dict[str, str]) -> None:
    run = open_run(runs["a"])
    assert run.hash_version == _core.comparable_hash_version
    versions = {name: version for name, version in run.columns["versions"].items() if name != HASH}
    assert dataclasses.replace(run, columns={**run.columns, "versions": versions}).hash_version == 1


def test_a_tolerance(runs: dict[str, str]) -> None:
    assert command("diff", runs["a"], runs["near"]).exit_code == 1
    assert command("diff", runs["a"], runs["near"], "--tolerance", "1e-5").exit_code == 0
    assert command("diff", runs["a"], runs["input"], "--tolerance", "1e-5").exit_code == 1


def test_show(runs: dict[str, str]) -> None:
    done = command("show", runs["a"])
    assert done.exit_code == 0
    assert all(text in done.output for text in ("toy:fc Dense", "call 1 of graph net", "float32 [3, 5]", "weights of"))
    found = json.loads(command("show", runs["a"], "--json").output)
    assert [each["number"] for each in found["calls"]] == [1] and found["lost_calls"] == 0
    assert {"ngraph_mxnet", "numpy", "python"} <= found["runs"][0]["versions"].keys()
    (checkpoint,) = found["checkpoints"]
    assert checkpoint["bytes"] == W.nbytes and len(checkpoint["digest"]) == 64
    earlier = json.loads(command("show", f"{runs['a']}@1", "--call", "0", "--json").output)
    assert [each["number"] for each in earlier["calls"]] == [0]


def test_several_runs_in_one_folder(tmp_path: Path) -> None:
    record(tmp_path)
    record(tmp_path, W + 1)
    assert len(json.loads(command("show", str(tmp_path), "--json").output)["runs"]) == 2
    assert command("diff", f"{tmp_path}@1", str(tmp_path)).exit_code == 1
    assert command("diff", f"{tmp_path}@2", str(tmp_path / NAME)).exit_code == 0


def test_what_is_no_audit(runs: dict[str, str], tmp_path: Path) -> None:
    text, other = tmp_path / "text", tmp_path / "other.sqlite"
    text.write_text("no database" * 100)
    connection = sqlite3.connect(other)
    connection.execute("CREATE TABLE runs (id)")
    connection.close()
    for where, message in ((str(tmp_path), "there is no audit at"), (str(tmp_path / "none"), "there is no audit at"),
                           (str(text), "is no audit"), (str(other), "another program's SQLite file"),
                           (f"{runs['a']}@7", "has no run 7")):
        for arguments, code in ((["show", where], 1), (["diff", where, runs["a"]], 2), (["diff", runs["a"], where], 2)):
            done = command(*arguments)
            assert done.exit_code == code and message in done.output, done.output
            assert "Traceback" not in done.output and len(done.output.splitlines()) == 1
    done = command("diff", runs["a"], runs["foreign"])
    assert done.exit_code == 2 and "no call in common: found graphs net and another" in done.output
    assert command("show", runs["a"], "--call", "9").exit_code == 1
