"""The folder of kept entries: damage, bounds, processes at once, folders that can't be written."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from ngraph_mxnet.program.cache import MOST_SMALL, Store, get_or_make, open_store, place_for, small_made
from ngraph_mxnet.tools.cli.commands import main


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


def test_what_is_there_is_not_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    made: list[bytes] = []

    def make(content: bytes) -> bytes:
        made.append(content)
        return content

    monkeypatch.setenv("NGRAPH_CACHE_DIR", str(tmp_path))
    for content in (b"first", b"second"):
        assert get_or_make("code", "key", lambda content=content: make(content)) == b"first"
    for content in (b"", b"other"):
        assert get_or_make("code", "empty", lambda content=content: make(content)) == b""
    assert get_or_make("tuning", "key", lambda: make(b"of another kind")) == b"of another kind"
    monkeypatch.setenv("NGRAPH_CACHE_DIR", "off")
    assert get_or_make("code", "key", lambda: make(b"without")) == b"without"
    assert made == [b"first", b"", b"of another kind", b"without"]


def test_none_is_not_put(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("NGRAPH_CACHE_DIR", str(tmp_path))
    assert get_or_make("code", "key", lambda: None) is None
    assert get_or_make("code", "key", lambda: b"made") == b"made"


def test_a_damaged_entry_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("NGRAPH_CACHE_DIR", str(tmp_path))
    get_or_make("code", "key", lambda: b"first")
    store = open_store()
    assert store is not None
    (entry,) = store.entries()
    entry.path.write_bytes(b"damaged")
    assert [get_or_make("code", "key", lambda made=made: made) for made in (b"second", b"third")] == [b"second"] * 2


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
    store, known = Store(tmp_path, 3000), set[Path]()
    for number in range(3):
        store.put("code", str(number), bytes(800))
        (newest,) = {entry.path for entry in store.entries()} - known
        known.add(newest)
        os.utime(newest, (1000 + number,) * 2)
    assert store.get("code", "0") is not None  # used now
    store.put("code", "3", bytes(800))
    assert [store.get("code", str(n)) is not None for n in range(4)] == [True, False, True, True]
    assert sum(entry.bytes for entry in store.entries()) <= 3000


def test_what_a_dead_process_left_goes(store: Store):
    store.put("code", "key", b"content")
    (entry,) = store.entries()
    left, foreign = Path(f"{entry.path}-1f.tmp"), store.root / "code" / "notes.tmp"
    left.write_bytes(b"half")
    foreign.write_bytes(b"not ours")
    store.tidy()
    assert left.exists()  # perhaps someone is writing it
    os.utime(left, (1000, 1000))
    os.utime(foreign, (1000, 1000))
    store.tidy()
    assert not left.exists()
    assert store.clear() == 1 and foreign.exists()


def test_a_folder_that_cannot_be_made_keeps_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    (tmp_path / "file").write_text("no folder")
    store = Store(tmp_path / "file" / "cache", 1000)
    with caplog.at_level(logging.INFO, "ngraph_mxnet"):
        assert not store.put("code", "key", b"content")
    assert "not kept" in caplog.text
    assert store.get("code", "key") is None
    assert store.entries() == [] and store.clear() == 0


@pytest.mark.parametrize("is_told", [True, False])
def test_a_folder_of_the_users_choice_that_cannot_be_made_is_a_warning(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, is_told: bool):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("NGRAPH_CACHE_DIR", str(tmp_path / "file/cache") if is_told else "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with caplog.at_level(logging.WARNING, "ngraph_mxnet"):
        for _ in range(2):
            store = open_store()
            assert store is not None and not store.put("kind", "a", b"content")
    told = [record.message for record in caplog.records]
    assert len(told) == is_told and all("file/cache does not take what is to be kept: " in text for text in told)


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
from ngraph_mxnet.program.cache import Store
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


def test_a_folder_for_the_user_alone_whatever_the_umask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("NGRAPH_CACHE_DIR", str(tmp_path / "new" / "cache"))
    before = os.umask(0)
    try:
        store = open_store()
        assert store is not None and store.put("code", "key", b"content")
        assert store.stem("weights", "key") is not None
    finally:
        os.umask(before)
    assert {oct(path.stat().st_mode & 0o777) for path in tmp_path.rglob("*")} == {"0o700", "0o600"}
    store = open_store()
    assert store is not None and store.get("code", "key") == b"content"


@pytest.mark.parametrize("mode", [0o777, 0o720, 0o702])
@pytest.mark.parametrize("place", [".", "code"])
def test_a_folder_that_others_may_write_to(store: Store, caplog: pytest.LogCaptureFixture, place: str, mode: int,
                                           monkeypatch: pytest.MonkeyPatch):
    store.put("code", "key", b"content")
    (store.root / place).chmod(mode)
    assert store.get("code", "key") is None
    assert not store.put("code", "key", b"content")
    assert store.get("code", "key") is None
    assert [f"mode {mode:o}" in record.message for record in caplog.records] == [True]  # told once
    monkeypatch.setenv("NGRAPH_CACHE_DIR", str(store.root))
    assert (open_store() is None) == (place == ".")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
@pytest.mark.parametrize("place", [".", "code", "key", "entry"])
def test_what_belongs_to_another_user(store: Store, caplog: pytest.LogCaptureFixture, place: str):
    store.put("code", "key", b"content")
    path = store.entries()[0].path if place == "entry" else store.root / place
    os.chown(path, 12345, -1)
    assert store.get("code", "key") is None
    assert "belongs to user 12345" in caplog.text


def test_links_are_not_followed(store: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture):
    store.put("code", "key", b"content")
    link = tmp_path / "link"
    link.symlink_to(store.root)
    assert Store(link, 1 << 20).get("code", "key") is None
    assert not Store(link, 1 << 20).put("code", "key", b"content")
    assert "a link" in caplog.text
    (store.root / "code").rename(tmp_path / "elsewhere")
    (store.root / "code").symlink_to(tmp_path / "elsewhere")
    assert store.get("code", "key") is None
    assert store.entries() == [] and store.clear() == 0
    assert len(list((tmp_path / "elsewhere").iterdir())) == 1


def test_only_who_has_the_key_writes_entries(store: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture):
    """An entry with right checksums from another folder, of another user or machine."""
    other = Store(tmp_path / "other", 1 << 20)
    for each in (store, other):
        each.put("code", "key", b"content")
    (mine,), (theirs,) = store.entries(), other.entries()
    assert mine.path.name == theirs.path.name
    mine.path.write_bytes(theirs.path.read_bytes())
    assert store.get("code", "key") is None
    assert "not written by this cache" in caplog.text
    assert store.derived_key("weights", 40) != other.derived_key("weights", 40)
    assert store.derived_key("weights", 40) == store.derived_key("weights", 40) != store.derived_key("other", 40)


@pytest.mark.parametrize("damage", [b"", b"short", bytes(33)])
def test_a_damaged_key_is_made_anew(store: Store, damage: bytes):
    store.put("code", "key", b"content")
    (store.root / "key").write_bytes(damage)
    assert store.get("code", "key") is None
    assert store.put("code", "key", b"content") and store.get("code", "key") == b"content"


def test_a_key_that_others_read(store: Store, caplog: pytest.LogCaptureFixture):
    store.put("code", "key", b"content")
    (store.root / "key").chmod(0o640)
    assert store.get("code", "key") is None and not store.put("code", "key", b"content")
    assert "others may read" in caplog.text


def test_a_pipe_in_an_entrys_place_does_not_block(store: Store):
    store.put("code", "key", b"content")
    (entry,) = store.entries()
    entry.path.unlink()
    os.mkfifo(entry.path, 0o600)
    assert store.get("code", "key") is None
    assert store.put("code", "key", b"content") and store.get("code", "key") == b"content"


def test_an_entry_above_the_bound_drives_nothing_out(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    store = Store(tmp_path, 10000)
    store.put("code", "small", b"content")
    for _ in range(2):
        assert not store.put("code", "large", bytes(10001))
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert store.get("code", "small") == b"content"
    smaller = Store(tmp_path, 4000)  # the bound was changed
    store.put("code", "large", bytes(5000))
    smaller.tidy()
    assert smaller.get("code", "small") == b"content" and smaller.get("code", "large") is None


def test_keeping_costs_the_same_whatever_is_there(store: Store, audited: Callable[[str], list[str]]):
    """Folders were listed, and all files looked at, twice for each new entry."""
    store.put("code", "first", b"")
    listed = audited("os.scandir")
    for number in range(300):
        store.put("code", str(number), b"content")
    assert listed == []
    assert len(store.entries()) == 301 and listed


def test_the_number_of_entries_is_bounded(tmp_path: Path):
    store = Store(tmp_path, 1 << 20, most_entries=50)
    for number in range(200):
        store.put("code", str(number), b"content")
        assert len(list((tmp_path / "code").iterdir())) <= 50
    assert store.get("code", "199") == b"content"


@pytest.mark.parametrize("damage", [b"", b"odd", bytes(8), b"\xff" * 24])
def test_damaged_notes_are_made_anew(tmp_path: Path, damage: bytes):
    store = Store(tmp_path, 3000)
    for number in range(20):
        (tmp_path / "sizes").write_bytes(damage)
        store.put("code", str(number), bytes(500))
    store.put("code", "last", bytes(500))
    assert sum(entry.bytes for entry in store.entries()) <= 3000


@pytest.mark.parametrize("wanted", ["", "~/cache", "~no-such-user/cache"])
def test_no_home_no_cache(wanted: str):
    """A container's user number has no entry among the users."""
    text = """
import os, pwd
from ngraph_mxnet.program.cache import open_store, get_or_make
def getpwuid(number): raise KeyError(number)
pwd.getpwuid = getpwuid
assert open_store() is None
assert [get_or_make("code", "key", lambda: b"made") for _ in range(2)] == [b"made"] * 2
"""
    environment = {key: value for key, value in os.environ.items() if key not in ("HOME", "XDG_CACHE_HOME")}
    environment["NGRAPH_CACHE_DIR"] = wanted
    done = subprocess.run([sys.executable, "-c", text], env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("nothing is kept on disk") == 1


def test_a_home_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "home").write_text("no folder")
    monkeypatch.delenv("NGRAPH_CACHE_DIR", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert [get_or_make("code", "key", lambda: b"made") for _ in range(2)] == [b"made"] * 2


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


def test_a_process_keeps_few_small_entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """One that binds hundreds of small graphs does not fill the folder with them."""
    monkeypatch.setenv("NGRAPH_CACHE_DIR", str(tmp_path))
    monkeypatch.setitem(small_made, "code", 0)
    for number in range(MOST_SMALL + 5):
        place = place_for("code", str(number), small=True)
        assert (place is not None) == (number < MOST_SMALL)
        if place is not None:
            place.put(b"made")
    store = open_store()
    assert store is not None and sum(entry.kind == "code" for entry in store.entries()) == MOST_SMALL
    assert place_for("code", "large") is not None
