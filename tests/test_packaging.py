"""The built wheel: what is in it, and that nothing is left after its removal."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from ngraph_mxnet import __version__

ROOT = Path(__file__).resolve().parents[1]
AUTOLOAD = "ngraph_mxnet_autoload.pth"


def command(*arguments: object, **kwargs: object) -> str:
    done = subprocess.run([str(a) for a in arguments], capture_output=True, text=True, **kwargs)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An unpacked source distribution: it has all that the build needs, and nothing of an earlier one."""
    folder = tmp_path_factory.mktemp("wheel")
    shutil.copytree(ROOT, folder / "copy", ignore=shutil.ignore_patterns(".*", "build", "*.egg-info", "*.so"))
    command(sys.executable, "-m", "venv", folder / "venv")
    python = folder / "venv" / "bin" / "python"
    command(python, "-m", "pip", "install", "-q", "setuptools>=77", "wheel")
    code = "import sys; from setuptools import build_meta; build_meta.build_sdist(sys.argv[1])"
    command(python, "-c", code, folder, cwd=folder / "copy")
    (archive,) = folder.glob("*.tar.gz")
    shutil.unpack_archive(archive, folder)
    return folder / archive.name.removesuffix(".tar.gz")


def build_wheel(source: Path, folder: Path) -> Path:
    """As pip builds it for a user, in an environment that is gone afterwards."""
    command(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", folder, source)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def wheel(source: Path) -> Path:
    return build_wheel(source, source.parent / "dist")


@pytest.fixture(scope="module")
def names(wheel: Path) -> set[str]:
    return set(zipfile.ZipFile(wheel).namelist())


@pytest.mark.parametrize("readme", ["README.md", "runtime/README.md"])
def test_the_description_has_no_link_into_the_repository(readme: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(ROOT / "cmake"))
    from readme import description

    text = description(ROOT / readme)["long_description"]
    assert "](" in (ROOT / readme).read_text() and not re.search(r"\]\((?!https?:)", text)
    assert "docs/artefact.md" in text or "docs/index.md" in text


@pytest.mark.slow
def test_the_wheel_has_all_it_needs_and_no_more(names: set[str]):
    assert f"ngraph_mxnet/_core{sysconfig.get_config_var('EXT_SUFFIX')}" in names
    assert {"ngraph_mxnet/libngraph_kernels.so", "ngraph_mxnet/__init__.py", AUTOLOAD} <= names
    package = ROOT / "ngraph_mxnet"
    files = {str(p.relative_to(ROOT)) for p in (*package.rglob("*.py"), *package.rglob("devices/*.json"),
                                                *package.rglob("assets/*"),
                                                *(ROOT / "ngraph_mxnet_autoload").glob("*.py"))}
    assert files <= names
    extra = {n for n in names - files if ".dist-info/" not in n and not n.endswith(".so")}
    assert extra == {AUTOLOAD, "ngraph_mxnet/py.typed"}
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)


@pytest.mark.slow
def test_a_checkout_is_built_again_and_compiles_no_kernel_twice(source: Path, wheel: Path, tmp_path: Path):
    """The first build's CMake and ninja are gone; a module that is gone from the sources is not in the wheel."""

    def objects() -> dict[Path, int]:
        return {path: path.stat().st_mtime_ns for path in source.glob("build/cmake-*/*.o")}

    before = objects()
    (stale,) = source.glob("build/lib*/ngraph_mxnet")
    (stale / "removed.py").touch()
    again = build_wheel(source, tmp_path)
    assert len(before) > 40 and objects() == before
    assert set(zipfile.ZipFile(again).namelist()) == set(zipfile.ZipFile(wheel).namelist())


@pytest.mark.slow
def test_an_editable_install_activates(source: Path, wheel: Path, tmp_path: Path):
    before = {path: path.stat().st_mtime_ns for path in source.glob("build/cmake-*/*.o")}
    command(sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv")
    python = tmp_path / "venv" / "bin" / "python"
    command(sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-deps", "-e", source)
    assert before == {path: path.stat().st_mtime_ns for path in source.glob("build/cmake-*/*.o")}
    others = tmp_path / "others"  # MXNet and all else that is installed here, but not this package
    others.mkdir()
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if "ngraph" not in path.name:
            (others / path.name).symlink_to(path)
    code = "import sys; before = 'ngraph_mxnet' in sys.modules; import mxnet; " \
           "print(before, sys.modules['ngraph_mxnet'].__file__)"
    environment = {**os.environ, "MXNET_SUBGRAPH_BACKEND": "NGRAPH", "PYTHONPATH": str(others)}
    found = command(python, "-W", "error::RuntimeWarning", "-c", code, env=environment, cwd=tmp_path)
    assert found.split() == ["False", str(source / "ngraph_mxnet" / "__init__.py")]


@pytest.mark.slow
def test_the_metadata(wheel: Path, names: set[str]):
    (path,) = (n for n in names if n.endswith(".dist-info/METADATA"))
    metadata = zipfile.ZipFile(wheel).read(path).decode()
    assert wheel.name.startswith(f"ngraph_mxnet_backend-{__version__}-")
    for line in ("Name: ngraph-mxnet-backend", "License-Expression: Apache-2.0", "Requires-Dist: mxnet==1.9.1",
                 "Classifier: Typing :: Typed", "Description-Content-Type: text/markdown"):
        assert line in metadata.splitlines()
    scripts = zipfile.ZipFile(wheel).read(path.replace("METADATA", "entry_points.txt")).decode()
    assert "ngraph-mxnet = ngraph_mxnet.__main__:main" in scripts.splitlines()


@pytest.mark.slow
def test_the_libraries_need_only_the_system(wheel: Path, tmp_path: Path):
    if shutil.which("objdump") is None:
        pytest.skip("objdump is not installed")
    zipfile.ZipFile(wheel).extractall(tmp_path)
    for library in (tmp_path / "ngraph_mxnet").glob("*.so"):
        needed = set(re.findall(r"NEEDED\s+(\S+)", command("objdump", "-p", library)))
        assert needed <= {"libc.so.6", "libm.so.6", "libstdc++.so.6", "libgcc_s.so.1", "libdl.so.2",
                          "libpthread.so.0", "ld-linux-x86-64.so.2", "libngraph_kernels.so"}
        paths = re.findall(r"R(?:UN)?PATH\s+(\S+)", command("objdump", "-p", library))
        assert paths == (["$ORIGIN"] if "libngraph_kernels.so" in needed else [])  # it lies beside


@pytest.mark.slow
def test_install_and_uninstall(wheel: Path, tmp_path: Path):
    command(sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv")
    python = tmp_path / "venv" / "bin" / "python"
    site = Path(command(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())

    def files() -> set[Path]:
        return {path for path in (tmp_path / "venv").rglob("*") if not path.is_dir()}

    before = files()
    pip = [sys.executable, "-m", "pip", "--python", python]
    command(*pip, "install", "-q", "--no-deps", "--no-index", wheel)
    assert (site / AUTOLOAD).exists()
    loaded = "import sys; print('ngraph_mxnet_autoload' in sys.modules, 'ngraph_mxnet' in sys.modules)"
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    assert command(python, "-c", loaded, env=environment, cwd=tmp_path).split() == ["True", "False"]
    command(*pip, "uninstall", "-q", "-y", "ngraph-mxnet-backend")
    assert files() == before
