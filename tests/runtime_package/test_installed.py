"""`cmake --install`: programs in C and C++ find the libraries by pkg-config and CMake, and what these need."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import ngraph_runtime
from ngraph_mxnet.base.version import __version__

SOURCE = Path(__file__).with_name("first_output.c")
MINOR = ".".join(__version__.split(".")[:2])
"""The version that programs ask for: others of it fit."""
OF_THE_SYSTEM = {"libc.so.6", "libm.so.6", "libgcc_s.so.1", "libpthread.so.0", "libgomp.so.1", "ld-linux-x86-64.so.2"}
C, CXX = ["cc", "-std=c99", "-Wall", "-Wextra", "-Werror"], ["c++", "-x", "c++", "-Wall", "-Wextra", "-Werror"]


def output(*command: object, **kwargs: object) -> str:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False, **kwargs)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def prefix(built_library: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    build = Path(built_library).parent
    if shutil.which("cmake") is None or not (build / "CMakeCache.txt").exists():
        pytest.skip("no CMake, or the library lies in no folder of a build")
    folder = tmp_path_factory.mktemp("installed") / "a prefix"
    output("cmake", "--install", build, "--prefix", folder)
    return folder


def pkg_config(prefix: Path, *options: str) -> list[str]:
    if shutil.which("pkg-config") is None:
        pytest.skip("pkg-config is not installed")
    (file,) = prefix.rglob("ngraph_runtime.pc")
    found = output("pkg-config", *options, "ngraph_runtime", env={**os.environ, "PKG_CONFIG_PATH": str(file.parent)})
    return [word.replace("\\ ", " ") for word in re.split(r"(?<!\\)\s+", found.strip())]


def needed(binary: Path) -> set[str]:
    return set(re.findall(r"\(NEEDED\).*\[(.+)\]", output("readelf", "-d", binary)))


def check(program: Path, model: Path, library: Path) -> None:
    """It computes what the library computes for Python, and exceptions end within it."""
    environment = {"LD_LIBRARY_PATH": str(library.parent), "PATH": ""}
    found = [float(word) for word in output(program, model, env=environment).split()]
    loaded = ngraph_runtime.load(model)
    x = np.arange(120, dtype=np.float32).reshape(loaded.inputs[0].shape)
    np.testing.assert_array_equal(np.float32(found), loaded(x)[0].ravel(), strict=True)
    done = subprocess.run([str(program), "nowhere.ngraph"], env=environment, stderr=subprocess.PIPE, text=True,
                          check=False)
    assert done.returncode == 1 and done.stderr == "nowhere.ngraph: No such file or directory\n"


def test_the_shared_library_needs_only_the_system(prefix: Path) -> None:
    (library,) = prefix.rglob("libngraph_runtime.so")
    assert needed(library) and needed(library) <= OF_THE_SYSTEM
    assert not re.search(r"R(UN)?PATH", output("readelf", "-d", library))
    exported = output("nm", "-D", "--defined-only", library).split("\n")[:-1]
    assert exported and all(line.split()[-1].startswith("ngraph_") for line in exported), exported


def test_the_static_library_has_no_names_but_ours(prefix: Path) -> None:
    (library,) = prefix.rglob("libngraph_runtime.a")
    names = [line.split()[-1] for line in output("nm", "-g", "--defined-only", library).splitlines() if " " in line]
    assert "ngraph_run" in names and all(name.startswith("ngraph_") for name in names)


@pytest.mark.parametrize("compiler", [C, CXX], ids=["c", "c++"])
@pytest.mark.parametrize("kind", ["shared", "archive", "wholly static"])
def test_pkg_config(prefix: Path, small_model: Path, real_library: str, tmp_path: Path, compiler: list[str],
                    kind: str) -> None:
    options = {"shared": pkg_config(prefix, "--cflags", "--libs"),
               "archive": [*pkg_config(prefix, "--cflags"), "-Wl,-as-needed", "-x", "none",
                           *pkg_config(prefix, "--variable=archive"), "-lm", "-pthread"],
               "wholly static": ["-static", *pkg_config(prefix, "--cflags", "--libs", "--static")]}[kind]
    program = tmp_path / "program"
    output(*compiler, "-o", program, SOURCE, *options)
    (library,) = prefix.rglob("libngraph_runtime.so")
    check(program, small_model, library)
    if kind == "wholly static":
        assert not needed(program)
    else:
        assert needed(program) <= OF_THE_SYSTEM | {"libngraph_runtime.so" if kind == "shared" else "libgcc_s.so.1"}


@pytest.mark.parametrize("language", ["C", "CXX"])
@pytest.mark.parametrize("target", ["shared", "static"])
def test_cmake(prefix: Path, small_model: Path, real_library: str, tmp_path: Path, language: str, target: str) -> None:
    source = tmp_path / ("program.c" if language == "C" else "program.cc")
    shutil.copy(SOURCE, source)
    (tmp_path / "CMakeLists.txt").write_text(
        f"cmake_minimum_required(VERSION 3.18)\nproject(program LANGUAGES {language})\n"
        f"find_package(ngraph_runtime {MINOR} REQUIRED)\n"
        f"add_executable(program {source.name})\ntarget_link_libraries(program PRIVATE ngraph_runtime::{target})\n")
    output("cmake", "-S", tmp_path, "-B", tmp_path / "build", f"-DCMAKE_PREFIX_PATH={prefix}")
    output("cmake", "--build", tmp_path / "build")
    (library,) = prefix.rglob("libngraph_runtime.so")
    program = tmp_path / "build" / "program"
    check(program, small_model, library)
    assert ("libngraph_runtime.so" in needed(program)) == (target == "shared")
