"""Drives CMake and ships the `.pth` file; everything static is in pyproject.toml."""

import os
import shutil
import sys
import tempfile
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.editable_wheel import editable_wheel
from wheel.wheelfile import WheelFile

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT / "cmake"))
from building import CMakeBuild, FreshModules, WheelWithSBOM  # noqa: E402
from readme import description  # noqa: E402

AUTOLOAD = "ngraph_mxnet_autoload.pth"
KERNELS = "libngraph_kernels.so"


class Libraries(CMakeBuild):
    """Builds `_core` and the kernel library, and copies them into the package's folder."""

    def build_extension(self, ext: Extension) -> None:
        library = Path(self.get_ext_fullpath(ext.name)).resolve()
        build = self.run_cmake(ROOT, tag=sys.implementation.cache_tag)
        library.parent.mkdir(parents=True, exist_ok=True)
        for name in (library.name, KERNELS):
            self.copy_file(str(build / "lib" / name), str(library.parent / name))

    def copy_extensions_to_source(self) -> None:
        """Called for in-place builds; knows of `_core` only."""
        super().copy_extensions_to_source()
        package = self.get_finalized_command("build_py").get_package_dir("ngraph_mxnet")
        self.copy_file(os.path.join(self.build_lib, "ngraph_mxnet", KERNELS), os.path.join(package, KERNELS))


class ModulesWithAutoload(FreshModules):
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
    **description(ROOT / "README.md"),
    ext_modules=[Extension("ngraph_mxnet._core", sources=[])],
    cmdclass={"bdist_wheel": WheelWithSBOM, "build_ext": Libraries, "build_py": ModulesWithAutoload,
              "editable_wheel": EditableWithAutoload},
)
