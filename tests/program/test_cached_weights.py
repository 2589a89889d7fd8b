"""NGRAPH_CACHE_WEIGHTS: prepared weights in files."""

from __future__ import annotations

import gc
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from ngraph_mxnet.ir import Builder, Graph
from ngraph_mxnet.program.compile import compile

DEPTH, COLUMNS = 1200, 2048  # 9.8 MB


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NGRAPH_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("NGRAPH_CACHE_WEIGHTS", "1")
    return tmp_path / "weights"


def product() -> Graph:
    b = Builder()
    x, w = b.parameter("x", (3, DEPTH)), b.weight("w", (DEPTH, COLUMNS))
    return b.results(b.relu(b.matmul(x, w)))


def arrays(seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.uniform(-1, 1, shape).astype(np.float32) for shape in ((3, DEPTH), (DEPTH, COLUMNS))]


def prepares(seed: int = 0) -> int:
    """How often a new executable prepares these weights; its result is right."""
    gc.collect()  # executables of the same program share what they prepare
    executable = compile(product(), "CPU")
    x, w = arrays(seed)
    for _ in range(2):
        np.testing.assert_allclose(executable(x, w)[0], np.maximum(x @ w, 0), rtol=1e-4, atol=1e-4)
    return executable.native.prepare_runs  # type: ignore[attr-defined]


def test_prepared_once_for_all(folder: Path):
    assert [prepares(), prepares()] == [1, 0]
    assert [prepares(1), prepares(1), prepares()] == [1, 0, 0]
    assert len(list(folder.iterdir())) == 2


def test_another_process_finds_them(folder: Path):
    assert prepares() == 1
    code = f"import sys; sys.path.append({str(Path(__file__).parent)!r}); import {__name__} as t; print(t.prepares())"
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True,
                            timeout=120).stdout
    assert output.split() == ["0"]


@pytest.mark.parametrize("damage", [
    lambda data: b"",
    lambda data: data[:-1],
    lambda data: data[:5000],
    lambda data: b"X" + data[1:],
    lambda data: data[:5000] + bytes([data[5000] ^ 1]) + data[5001:],
    lambda data: data[:40] + bytes([data[40] ^ 1]) + data[41:],
], ids=["empty", "short", "much too short", "another format", "a bit of the weights", "a bit of the header"])
def test_a_damaged_file_is_made_anew(folder: Path, damage, capfd: pytest.CaptureFixture[str]):
    prepares()
    (path,) = folder.iterdir()
    path.chmod(0o600)
    path.write_bytes(damage(path.read_bytes()))
    assert prepares() == 1
    assert f"{path} is damaged" in capfd.readouterr().err
    assert prepares() == 0
    assert capfd.readouterr().err == ""


def replace_by_zeros(path: Path) -> None:
    other = path.with_suffix(".new")
    other.write_bytes(bytes(path.stat().st_size))
    other.rename(path)


@pytest.mark.parametrize("change", [Path.unlink, replace_by_zeros], ids=["removed", "replaced"])
def test_a_running_model_outlives_its_file(folder: Path, change):
    prepares()
    executable = compile(product(), "CPU")
    x, w = arrays()
    before = executable(x, w)[0]
    assert executable.native.prepare_runs == 0  # type: ignore[attr-defined]
    for path in folder.iterdir():
        change(path)
    np.testing.assert_array_equal(executable(x, w)[0], before)


def mapped_bytes(path: Path, field: str) -> int:
    """The sum of a field of this process's mappings of the file."""
    total, inside = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        name, _, rest = line.partition(":")
        if " " in name:
            inside = line.endswith(str(path))
        elif inside and name == field:
            total += int(rest.split()[0]) << 10
    return total


def test_the_file_is_mapped_and_nobody_writes_to_it(folder: Path):
    prepares()
    (path,) = folder.iterdir()
    assert stat.S_IMODE(path.stat().st_mode) == 0o400
    gc.collect()
    executable = compile(product(), "CPU")
    assert mapped_bytes(path, "Size") == 0
    executable(*arrays())
    assert mapped_bytes(path, "Rss") >= DEPTH * COLUMNS * 4
    assert mapped_bytes(path, "Anonymous") == 0  # all pages are the file's, as other processes map them
    del executable
    gc.collect()
    assert mapped_bytes(path, "Size") == 0


def test_a_file_of_other_weights_in_its_place(folder: Path, capfd: pytest.CaptureFixture[str]):
    assert [prepares(0), prepares(1)] == [1, 1]
    one, two = folder.iterdir()
    for path in (one, two):
        path.rename(path.with_suffix(".old"))
    one.with_suffix(".old").rename(two)
    assert prepares(0) + prepares(1) == 2
    assert "not written by this cache" in capfd.readouterr().err


def test_a_file_that_another_cache_sealed(folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    """The content hash without a key could be met by whoever chose one word."""
    prepares()
    (path,) = folder.iterdir()
    (tmp_path / "key").write_bytes(bytes(32))
    assert prepares() == 1
    (other,) = set(folder.iterdir()) - {path}
    path.rename(other)
    assert prepares() == 1
    assert "not written by this cache" in capfd.readouterr().err


@pytest.mark.parametrize("mode", [0o620, 0o602])
def test_a_file_that_others_may_write_to(folder: Path, mode: int):
    prepares()
    for path in folder.iterdir():
        path.chmod(mode)
    assert prepares() == 1


def test_a_link_is_not_followed(folder: Path, tmp_path: Path):
    prepares()
    for path in folder.iterdir():
        path.rename(tmp_path / "elsewhere")
        path.symlink_to(tmp_path / "elsewhere")
    assert prepares() == 1


def test_the_bound_of_the_folder(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("NGRAPH_CACHE_MB", "1")
    assert [prepares(), prepares()] == [1, 1]
    assert not folder.exists()  # the file was written, and then drove out all others and itself


def test_no_folder_no_file(folder: Path):
    folder.write_text("in the way")
    assert [prepares(), prepares()] == [1, 1]


def test_only_where_asked_for(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("NGRAPH_CACHE_WEIGHTS", "0")
    assert [prepares(), prepares()] == [1, 1]
    assert not folder.exists()
