"""What tells builds of the package apart."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import ngraph_mxnet
from ngraph_mxnet.program.cache import digest_of_files, open_store, package_identity


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package."""
    monkeypatch.setenv("NGRAPH_CACHE_DIR", str(tmp_path / "cache"))
    package = tmp_path / "package"
    (package / "inner").mkdir(parents=True)
    for name in ("__init__.py", "inner/module.py", "inner/library.so", "inner/notes.txt"):
        (package / name).write_text(f"# {name}")
    yield package
    digest_of_files.cache_clear()


def identity(package: Path) -> str:
    digest_of_files.cache_clear()
    return digest_of_files(package)


def test_the_identity_is_of_this_package() -> None:
    assert package_identity().startswith(digest_of_files(Path(ngraph_mxnet.__file__).parent))


@pytest.mark.parametrize("name", ["__init__.py", "inner/module.py", "inner/library.so"])
def test_another_content_of_the_same_size_and_time(package: Path, name: str):
    """As reproducible builds and unpacked archives have it."""
    before, status = identity(package), (package / name).stat()
    text = (package / name).read_text()
    (package / name).write_text(text.replace("#", "!"))
    os.utime(package / name, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert identity(package) != before
    (package / name).write_text(text)
    assert identity(package) == before


def test_only_modules_and_libraries_count(package: Path):
    before = identity(package)
    (package / "inner/notes.txt").write_text("other")
    assert identity(package) == before
    (package / "inner/module.py").rename(package / "inner/renamed.py")
    assert identity(package) != before


def test_the_content_is_read_once(package: Path, audited: Callable[[str], list[str]]):
    read = audited("open")
    before = identity(package)
    assert str(package / "__init__.py") in read
    read.clear()
    assert identity(package) == before
    assert read and not any(path.startswith(str(package)) for path in read)


def test_without_a_folder(package: Path, monkeypatch: pytest.MonkeyPatch):
    before = identity(package)
    monkeypatch.setenv("NGRAPH_CACHE_DIR", "off")
    assert open_store() is None and identity(package) == before
