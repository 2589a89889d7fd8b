"""Drives CMake and ships the `.pth` file; everything static is in pyproject.toml."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py
from setuptools.command.editable_wheel import editable_wheel
from wheel.wheelfile import WheelFile

ROOT = Path(__file__).resolve().parent
AUTOLOAD = "ngraph_mxnet_autoload.pth"
KERNELS = "libngraph_kernels.so"


class CMakeBuild(build_ext):
    """Builds `_core` and the kernel library, and copies them into the package's folder."""

    def build_extension(self, ext: Extension) -> None:
        library = Path(self.get_ext_fullpath(ext.name)).resolve()
        build = self._cmake_folder()
        # cmake and ninja from pip lie beside the interpreter, which need not be on PATH.
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
        environment = {**os.environ, "PATH": path}
        ninja = shutil.which("ninja", path=path)
        self._forget_other_tools(build, shutil.which("cmake", path=path), ninja)
        configure = [
            *("cmake", "-S", str(ROOT), "-B", str(build), *(["-G", "Ninja"] if ninja else [])),
            f"-DPython_EXECUTABLE={sys.executable}",
            f"-DNGRAPH_OUTPUT_DIR={build / 'lib'}",
            f"-DCMAKE_BUILD_TYPE={'Debug' if self.debug else 'Release'}",
        ]
        jobs = str(self.parallel or os.cpu_count() or 1)
        subprocess.run(configure, check=True, env=environment)
        subprocess.run(["cmake", "--build", str(build), "--parallel", jobs], check=True, env=environment)
        library.parent.mkdir(parents=True, exist_ok=True)
        for name in (library.name, KERNELS):
            self.copy_file(str(build / "lib" / name), str(library.parent / name))

    def _cmake_folder(self) -> Path:
        """Outlives the build, also an editable one, whose `build_temp` does not: the kernels compile for minutes."""
        base = Path(self.get_finalized_command("build").build_base)
        kind = "debug" if self.debug else "release"
        folder = base.resolve() / f"cmake-{self.plat_name}-{sys.implementation.cache_tag}-{kind}"
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    @staticmethod
    def _forget_other_tools(build: Path, *tools: str | None) -> None:
        """CMake remembers its tools, and fails where they are gone, as those of pip's build environments always are.

        Then it is configured anew, in seconds. The kernels' objects lie outside of what it remembers, and ninja's log
        still says which of them are up to date.
        """
        compilers = (os.environ.get(name) for name in ("CC", "CXX"))
        found = "\n".join(map(str, (ROOT, sys.executable, *tools, *compilers)))
        record = build / "tools.txt"
        if not record.exists() or record.read_text() != found:
            (build / "CMakeCache.txt").unlink(missing_ok=True)
            shutil.rmtree(build / "CMakeFiles", ignore_errors=True)
            record.write_text(found)

    def copy_extensions_to_source(self) -> None:
        """Called for in-place builds; knows of `_core` only."""
        super().copy_extensions_to_source()
        package = self.get_finalized_command("build_py").get_package_dir("ngraph_mxnet")
        self.copy_file(os.path.join(self.build_lib, "ngraph_mxnet", KERNELS), os.path.join(package, KERNELS))


class BuildWithAutoload(build_py):
    """Puts the `.pth` file, which site-packages reads at start-up, beside the package."""

    def _autoload(self) -> str:
        return os.path.join(self.build_lib, AUTOLOAD)

    def run(self) -> None:
        if not self.editable_mode:  # a module that is gone from the sources must not come from an earlier build
            shutil.rmtree(os.path.join(self.build_lib, "ngraph_mxnet"), ignore_errors=True)
        super().run()
        if not self.editable_mode:
            self.copy_file(str(ROOT / AUTOLOAD), self._autoload())

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        outputs = list(super().get_outputs(include_bytecode))
        return outputs if self.editable_mode else [*outputs, self._autoload()]


class EditableWithAutoload(editable_wheel):
    """Adds the `.pth` file to an editable wheel, which else holds nothing but the way to the sources."""

    def run(self) -> None:
        super().run()
        [path] = Path(self.dist_dir).glob("*.whl")
        with tempfile.TemporaryDirectory() as folder:
            with WheelFile(path) as wheel:
                wheel.extractall(folder)
            shutil.copy(ROOT / AUTOLOAD, folder)
            with WheelFile(path, "w") as wheel:
                wheel.write_files(folder)


setup(
    ext_modules=[Extension("ngraph_mxnet._core", sources=[])],
    cmdclass={"build_ext": CMakeBuild, "build_py": BuildWithAutoload, "editable_wheel": EditableWithAutoload},
)
