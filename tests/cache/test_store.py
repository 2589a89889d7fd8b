"""The folder of kept entries: damage, bounds, processes at once, folders that can't be written."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from ngraph_mxnet.__main__ import main
from ngraph_mxnet.cache import Store, open_store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "cache", 1 << 20)


def test_what_is_put_is_got(store: Store):
    assert store.get("code", "key") is None
    assert store.put("code", "key", b"content")
    assert store.get("code", "key") == b"content"
    assert store.get("tuning", "key") is None
    assert store.get("code", "other") is None
    store.put("code", "key", b"")
    assert store.get("code", "key") == b""


@pytest.mark.parametrize("damage", [
    lambda data: b"",
    lambda data: data[:-1],
    lambda data: data[:40],
    lambda data: data + b"x",
    lambda data: data[:-1] + bytes([data[-1] ^ 1]),
    lambda data: b"X" + data[1:],
])
def test_a_damaged_entry_is_absent_and_told(store: Store, caplog: pytest.LogCaptureFixture, damage):
    store.put("code", "key", b"content")
    (entry,) = store.entries()
    entry.path.write_bytes(damage(entry.path.read_bytes()))
    with caplog.at_level(logging.WARNING, "ngraph_mxnet"):
        assert store.get("code", "key") is None
    assert "damaged" in caplog.text
    assert store.entries() == []
    store.put("code", "key", b"content")
    assert store.get("code", "key") == b"content"


def test_an_entry_under_another_name_is_damaged(store: Store):
    store.put("code", "key", b"content")
    store.put("code", "other", b"other")
    one, two = (entry.path for entry in store.entries())
    os.replace(one, two)
    assert store.get("code", "key") is None or store.get("code", "other") is None


def test_the_bound_removes_what_was_used_longest_ago(tmp_path: Path):
    store = Store(tmp_path, 3000)
    for number in range(3):
        store.put("code", str(number), bytes(800))
        (newest,) = [e for e in store.entries() if e.path == store._path("code", str(number))]
        os.utime(newest.path, (1000 + number,) * 2)
    assert store.get("code", "0") is not None  # used now
    store.put("code", "3", bytes(800))
    assert [store.get("code", str(n)) is not None for n in range(4)] == [True, False, True, True]
    assert sum(entry.bytes for entry in store.entries()) <= 3000


def test_what_a_dead_process_left_goes(store: Store):
    store.put("code", "key", b"content")
    left = store.root / "code" / "abc.tmp"
    left.write_bytes(b"half")
    store.put("code", "key", b"content")
    assert left.exists()  # perhaps someone is writing it
    os.utime(left, (1000, 1000))
    store.put("code", "key", b"content")
    assert not left.exists()


def test_a_folder_that_cannot_be_made_keeps_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    (tmp_path / "file").write_text("no folder")
    store = Store(tmp_path / "file" / "cache", 1000)
    with caplog.at_level(logging.INFO, "ngraph_mxnet"):
        assert not store.put("code", "key", b"content")
    assert "not kept" in caplog.text
    assert store.get("code", "key") is None
    assert store.entries() == [] and store.clear() == 0


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_read_only_folder_is_read(store: Store):
    store.put("code", "key", b"content")
    (store.root / "code").chmod(0o500)
    try:
        assert store.get("code", "key") == b"content"
        assert not store.put("code", "other", b"content")
    finally:
        (store.root / "code").chmod(0o700)


def test_processes_at_once(tmp_path: Path):
    text = """
import sys
from pathlib import Path
from ngraph_mxnet.cache import Store
store = Store(Path(sys.argv[1]), 20000)
for turn in range(60):
    key = str(turn % 7)
    found = store.get("code", key)
    assert found in (None, key.encode() * 1000), key
    store.put("code", key, key.encode() * 1000)
"""
    workers = [subprocess.Popen([sys.executable, "-c", text, str(tmp_path)], stderr=subprocess.PIPE) for _ in range(3)]
    for worker in workers:
        _, errors = worker.communicate(timeout=120)
        assert worker.returncode == 0, errors.decode()
        assert b"damaged" not in errors
    store = Store(tmp_path, 20000)
    assert len(store.entries()) == 7
    assert not list(tmp_path.rglob("*.tmp"))


def test_where_the_folder_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture):
    monkeypatch.setenv("NGRAPH_CACHE_DIR", str(tmp_path / "own"))
    monkeypatch.setenv("NGRAPH_CACHE_MB", "3")
    store = open_store()
    assert store is not None and store.root == tmp_path / "own" and store.limit == 3 << 20
    monkeypatch.delenv("NGRAPH_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    store = open_store()
    assert store is not None and store.root == tmp_path / "ngraph_mxnet"
    monkeypatch.setenv("NGRAPH_CACHE_DIR", "off")
    assert open_store() is None
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    monkeypatch.setenv("NGRAPH_CACHE_DIR", str(tmp_path / "open"))
    assert open_store() is None
    assert "everyone may write" in caplog.text


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("NGRAPH_CACHE_DIR", str(tmp_path))
    Store(tmp_path, 1 << 20).put("code", "key", bytes(1000))
    run = CliRunner().invoke
    assert "code" in run(main, ["cache"]).output
    found = json.loads(run(main, ["cache", "show", "--json"]).output)
    assert found["folder"] == str(tmp_path)
    assert found["kinds"]["code"]["entries"] == 1 and found["kinds"]["code"]["bytes"] > 1000
    assert json.loads(run(main, ["cache", "clear", "--json"]).output) == {"removed": 1}
    assert "0 entries" in run(main, ["cache", "clear"]).output
    monkeypatch.setenv("NGRAPH_CACHE_DIR", "off")
    assert "off" in run(main, ["cache"]).output
