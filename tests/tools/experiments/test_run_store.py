"""The store of runs: what is added is there as it was, once and for all, whoever else writes."""

from __future__ import annotations

import math
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from ngraph_mxnet.tools.experiments.store import FORMAT, Run, Store, StoreError, record

RUN = Run("bench", "small net", "0123456789abcdef" * 2, "session", seconds=1.5,
          settings={"threads": 2, "batch": [1, 2]},
          metrics={"loss": [(0, 2.0), (1, math.inf)]},
          samples={"latency_ms": [[1.0, 2.5], [3.0]], "cpu_ms": [[0.5]]},
          facts={"command": ["-m", "ngraph_mxnet"], "source": None})


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "new folder" / "runs?.sqlite")


def test_a_run_is_read_as_it_was_added(store: Store) -> None:
    store.add(RUN)
    assert store.find("0123") == RUN and store.runs() == [RUN]
    assert RUN.median() == 2.5 and RUN.median("nothing") is None
    assert [path.name for path in store.path.parent.iterdir()] == ["runs?.sqlite"]


def test_nan_stays_nan(store: Store) -> None:
    store.add(replace(RUN, metrics={"loss": [(0, math.nan)]}))
    assert math.isnan(store.find("last").metrics["loss"][0][1])


def test_runs_are_found_by_order_id_kind_and_name(store: Store) -> None:
    runs = [Run("bench", "first"), Run("quantize", "second"), Run("bench", "third")]
    for run in runs:
        store.add(run)
    assert [store.find(text).name for text in ("last", "last~1", "last~2", runs[1].id)] == ["third", "second", "first",
                                                                                           "second"]
    assert [run.name for run in store.runs(kind="bench")] == ["first", "third"]
    assert [run.name for run in store.runs(name="con")] == ["second"]
    for wanted in ("last~3", "last~x", "012", "nonsense", ""):
        with pytest.raises(StoreError, match="no run is called"):
            store.find(wanted)


def test_a_beginning_that_several_ids_have_is_refused(store: Store) -> None:
    for digit in "ab":
        store.add(replace(RUN, id="0" * 31 + digit))
    with pytest.raises(StoreError, match="2 runs, 0000"):
        store.find("0000")


def test_a_run_is_there_as_a_whole_or_not_at_all(store: Store) -> None:
    store.add(RUN)
    broken = replace(RUN, id="f" * 32, metrics={"loss": [(0, 1.0), (0, 2.0)]})  # two values of one step
    for run, message in ((RUN, "UNIQUE"), (broken, "UNIQUE")):
        with pytest.raises(StoreError, match=message):
            store.add(run)
    assert store.runs() == [RUN]


@pytest.mark.parametrize("statement", ["UPDATE runs SET name = 'other'", "DELETE FROM samples",
                                       "UPDATE metrics SET value = 0", "DELETE FROM runs"])
def test_runs_are_only_added(store: Store, statement: str) -> None:
    store.add(RUN)
    with closing(sqlite3.connect(store.path)) as database, pytest.raises(sqlite3.IntegrityError, match="only added"):
        database.execute(statement)
    assert store.runs() == [RUN]


WRITER = """
import sys
from pathlib import Path
from ngraph_mxnet.tools.experiments.store import Run
from ngraph_mxnet.tools.experiments.store import Store
for number in range(15):
    Store(Path(sys.argv[1])).add(Run("bench", f"{sys.argv[2]} {number}", samples={"latency_ms": [[1.0] * 200]}))
"""


def test_four_processes_write_at_once_into_a_new_file(store: Store) -> None:
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, str(store.path), str(writer)], stderr=subprocess.PIPE)
               for writer in range(4)]
    for writer in writers:
        assert writer.communicate(timeout=120)[1] == b"" and writer.returncode == 0
    runs = store.runs()
    assert {run.name for run in runs} == {f"{writer} {number}" for writer in range(4) for number in range(15)}
    assert len(runs) == 60
    assert all(len(run.samples["latency_ms"][0]) == 200 for run in runs)


def test_a_writer_that_is_killed_leaves_nothing_of_its_run(store: Store) -> None:
    store.add(RUN)
    code = ("import os, sys\nfrom pathlib import Path\nfrom ngraph_mxnet.tools.experiments.store import Run\n"
            "from ngraph_mxnet.tools.experiments.store import Store\n"
            "class Ends(list):\n    def __iter__(self):\n        yield 1.0\n        os.kill(os.getpid(), 9)\n"
            "Store(Path(sys.argv[1])).add(Run('bench', 'half', samples={'latency_ms': [Ends()]}))")
    done = subprocess.run([sys.executable, "-c", code, str(store.path)], capture_output=True, timeout=60)
    assert done.returncode == -9
    assert store.runs() == [RUN]
    store.add(replace(RUN, id="e" * 32))
    assert len(store.runs()) == 2


@pytest.mark.parametrize(("content", "message"), [
    (b"not a database, but long enough to be looked at as one " * 40, "is damaged, or no store of runs"),
    (b"", "another program's SQLite file, or empty"),
])
def test_a_file_of_something_else(store: Store, content: bytes, message: str) -> None:
    store.path.parent.mkdir()
    store.path.write_bytes(content)
    with pytest.raises(StoreError, match=message):
        store.runs()
    assert store.path.read_bytes() == content


def test_a_damaged_store(store: Store) -> None:
    store.add(replace(RUN, samples={"latency_ms": [[1.0] * 5000]}))
    content = store.path.read_bytes()
    store.path.write_bytes(content[:8192] + bytes(len(content) - 8192))
    with pytest.raises(StoreError, match="damaged"):
        store.runs()


def test_another_programs_file_and_a_later_schema_are_refused(store: Store) -> None:
    store.path.parent.mkdir()
    for application, version, message in ((7, FORMAT.version, "another program's"),
                                          (FORMAT.application, FORMAT.version + 1, "found version 2")):
        with closing(sqlite3.connect(store.path)) as database:
            database.executescript("CREATE TABLE IF NOT EXISTS t (x);"
                                   f"PRAGMA application_id = {application}; PRAGMA user_version = {version}")
        for use in (store.runs, lambda: store.add(RUN)):
            with pytest.raises(StoreError, match=message):
                use()


def test_there_is_no_store_and_none_can_be_made(store: Store, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no store of runs at"):
        store.runs()
    assert not store.path.exists()
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="can't be made"):
        Store(tmp_path / "file" / "runs.sqlite").add(RUN)
    with pytest.raises(StoreError, match="can't be used"):
        Store(tmp_path).add(RUN)


def test_scripts_record_also_when_they_fail(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NGRAPH_RUNS", str(store.path))
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.setenv("MY_SECRET", "x")
    with record("train", "net", {"rate": 0.1, "path": Path("a"), "nothing": None}) as run:
        run.metric("loss", 2)
        run.metric("loss", 1)
        run.sample("step_ms", 5)
    with pytest.raises(ZeroDivisionError), record("train", "net", {}):
        _ = 1 // 0
    first, second = store.runs()
    assert (first.status, second.status) == ("finished", "failed")
    assert first.metrics == {"loss": [(0, 2.0), (1, 1.0)]} and first.samples == {"step_ms": [[5.0]]}
    assert first.settings == {"rate": 0.1, "path": "a"}
    facts = first.facts
    assert facts["variables"]["OMP_NUM_THREADS"] == "3" and facts["threads"] == 3
    assert not {"MY_SECRET", "NGRAPH_RUNS"} & set(facts["variables"])
    assert facts["command"] == sys.argv and facts["machine"]["cpu"] and "numpy" in facts["packages"]
