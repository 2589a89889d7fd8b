"""What the builds of both distributions, setup.py and runtime/setup.py, share. Runs on every Python from 3.8 on."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import sbom
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parents[1]
FROM_ENVIRONMENT = ("NGRAPH_KERNEL_FOLDER", "NGRAPH_GLIBC")
"""CMake's options that are variables, too: the folder of a build by another Python whose kernels are taken (none is
compiled then), and the oldest glibc that the libraries run with."""


class CMakeBuild(build_ext):
    """Runs CMake in a folder that outlives the build, `built` then. Subclasses copy from there what they pack."""

    built: Path | None = None

    def run_cmake(self, source: Path, *options: str, target: str = "all", tag: str = "") -> Path:
        """The folder in which `target` of `source/CMakeLists.txt` is built; another one for each `tag`."""
        # cmake and ninja from pip lie beside the interpreter, which need not be on PATH.
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
        environment = {**os.environ, "PATH": path}
        ninja = shutil.which("ninja", path=path)
        build = self._folder(tag)
        _forget_other_tools(build, source, shutil.which("cmake", path=path), ninja)
        configure = [
            *("cmake", "-S", str(source), "-B", str(build), *(["-G", "Ninja"] if ninja else [])),
            f"-DPython_EXECUTABLE={sys.executable}",
            f"-DCMAKE_BUILD_TYPE={'Debug' if self.debug else 'Release'}",
            *(f"-D{name}={os.environ.get(name, '')}" for name in FROM_ENVIRONMENT),
            *options,
        ]
        jobs = str(self.parallel or os.cpu_count() or 1)
        compile_it = ["cmake", "--build", str(build), "--target", target, "--parallel", jobs]
        subprocess.run(configure, check=True, env=environment)
        subprocess.run(compile_it, check=True, env=environment)
        self.built = build
        return build

    def _folder(self, tag: str) -> Path:
        """Outlives the build, also an editable one, whose `build_temp` does not: the kernels compile for minutes."""
        base = Path(self.get_finalized_command("build").build_base)
        words = ["cmake", self.plat_name, *([tag] if tag else []), "debug" if self.debug else "release"]
        folder = base.resolve() / "-".join(words)
        folder.mkdir(parents=True, exist_ok=True)
        return folder


class WheelWithSBOM(bdist_wheel):
    """Adds the bill of materials. A wheel around a library that was built before has none."""

    def write_wheelfile(self, wheelfile_base: str, *arguments: Any, **options: Any) -> None:
        super().write_wheelfile(wheelfile_base, *arguments, **options)
        if (build := self.get_finalized_command("build_ext").built) is not None:
            sbom.write(Path(wheelfile_base), self.distribution.get_name(), self.distribution.get_version(), build)


def _forget_other_tools(build: Path, source: Path, *tools: str | None) -> None:
    """CMake remembers its tools, and fails where they are gone, as those of pip's build environments always are.

    Then it is configured anew, in seconds. The kernels' objects lie outside of what it remembers, and ninja's log
    still says which of them are up to date.
    """
    compilers = (os.environ.get(name) for name in ("CC", "CXX"))
    found = "\n".join(map(str, (source, sys.executable, *tools, *compilers)))
    record = build / "tools.txt"
    if not record.exists() or record.read_text() != found:
        (build / "CMakeCache.txt").unlink(missing_ok=True)
        shutil.rmtree(build / "CMakeFiles", ignore_errors=True)
        record.write_text(found)


class FreshModules(build_py):
    """A module that is gone from the sources must not come from an earlier build."""

    def run(self) -> None:
        if not self.editable_mode:
            for package in {name.partition(".")[0] for name in self.packages}:
                shutil.rmtree(os.path.join(self.build_lib, package), ignore_errors=True)
        super().run()
