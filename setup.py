"""Drives CMake and ships the `.pth` file; everything static is in pyproject.toml."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
AUTOLOAD = "ngraph_mxnet_autoload.pth"
KERNELS = "libngraph_kernels.so"


class CMakeBuild(build_ext):
    """Builds `_core` and the kernel library into the package's folder."""

    def build_extension(self, ext: Extension) -> None:
        package = Path(self.get_ext_fullpath(ext.name)).resolve().parent
        build = Path(self.build_temp).resolve()
        build.mkdir(parents=True, exist_ok=True)
        # cmake and ninja from pip lie beside the interpreter, which need not be on PATH.
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
        environment = {**os.environ, "PATH": path}
        generator = ["-G", "Ninja"] if shutil.which("ninja", path=path) else []
        configure = [
            *("cmake", "-S", str(ROOT), "-B", str(build), *generator),
            f"-DPython_EXECUTABLE={sys.executable}",
            f"-DNGRAPH_OUTPUT_DIR={package}",
            f"-DCMAKE_BUILD_TYPE={'Debug' if self.debug else 'Release'}",
        ]
        jobs = str(self.parallel or os.cpu_count() or 1)
        subprocess.run(configure, check=True, env=environment)
        subprocess.run(["cmake", "--build", str(build), "--parallel", jobs], check=True, env=environment)

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
        super().run()
        if not self.editable_mode:
            self.copy_file(str(ROOT / AUTOLOAD), self._autoload())

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        outputs = list(super().get_outputs(include_bytecode))
        return outputs if self.editable_mode else [*outputs, self._autoload()]


setup(
    ext_modules=[Extension("ngraph_mxnet._core", sources=[])],
    cmdclass={"build_ext": CMakeBuild, "build_py": BuildWithAutoload},
)
