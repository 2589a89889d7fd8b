"""Builds the C library with CMake and packs it beside the modules; everything static is in pyproject.toml."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

HERE = Path(__file__).resolve().parent
CHECKOUT = HERE.parent
LIBRARY = "libngraph_runtime.so"
PREBUILT = "NGRAPH_RUNTIME_PREBUILT"


def version():
    """That of ngraph_mxnet, which compiles what this package runs."""
    path = CHECKOUT / "ngraph_mxnet" / "version.py"
    if not path.exists():
        raise SystemExit(f"there is no {path}: ngraph-runtime is built from a checkout: `pip wheel ./runtime` there")
    return re.search(r'^__version__ = "(.+)"$', path.read_text(), re.MULTILINE)[1]


class CMakeBuild(build_ext):
    """Builds the target `ngraph_runtime` and copies the library into the package's folder."""

    def build_extension(self, ext):
        package = Path(self.get_ext_fullpath(ext.name)).resolve().parent
        package.mkdir(parents=True, exist_ok=True)
        prebuilt = os.environ.get(PREBUILT)
        self.copy_file(prebuilt or str(self._built()), str(package / LIBRARY))

    def _built(self):
        build = self._cmake_folder()
        # cmake and ninja from pip lie beside the interpreter, which need not be on PATH.
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
        environment = {**os.environ, "PATH": path}
        ninja = shutil.which("ninja", path=path)
        self._forget_other_tools(build, shutil.which("cmake", path=path), ninja)
        configure = [
            *("cmake", "-S", str(HERE), "-B", str(build), *(["-G", "Ninja"] if ninja else [])),
            f"-DPython_EXECUTABLE={sys.executable}",
            f"-DCMAKE_BUILD_TYPE={'Debug' if self.debug else 'Release'}",
        ]
        jobs = str(self.parallel or os.cpu_count() or 1)
        compile_it = ["cmake", "--build", str(build), "--target", "ngraph_runtime", "--parallel", jobs]
        subprocess.run(configure, check=True, env=environment)
        subprocess.run(compile_it, check=True, env=environment)
        found = sorted({library.resolve() for library in build.rglob(LIBRARY)})
        if len(found) != 1:
            raise SystemExit(f"expected one {LIBRARY} in {build}, found {len(found)}: {', '.join(map(str, found))}")
        return found[0]

    def _cmake_folder(self):
        """Outlives the build, also an editable one, whose `build_temp` does not: the kernels compile for minutes."""
        base = Path(self.get_finalized_command("build").build_base)
        folder = base.resolve() / f"cmake-{self.plat_name}-{'debug' if self.debug else 'release'}"
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    @staticmethod
    def _forget_other_tools(build, *tools):
        """CMake remembers its tools, and fails where they are gone, as those of pip's build environments always are."""
        compilers = (os.environ.get(name) for name in ("CC", "CXX"))
        found = "\n".join(map(str, (HERE, sys.executable, *tools, *compilers)))
        record = build / "tools.txt"
        if not record.exists() or record.read_text() != found:
            (build / "CMakeCache.txt").unlink(missing_ok=True)
            shutil.rmtree(build / "CMakeFiles", ignore_errors=True)
            record.write_text(found)

    def copy_extensions_to_source(self):
        """Called for in-place builds; there is no extension module, but the library."""
        package = self.get_finalized_command("build_py").get_package_dir("ngraph_runtime")
        self.copy_file(os.path.join(self.build_lib, "ngraph_runtime", LIBRARY), os.path.join(package, LIBRARY))

    def get_outputs(self):
        return [os.path.join(self.build_lib, "ngraph_runtime", LIBRARY)]


class Fresh(build_py):
    """A module that is gone from the sources must not come from an earlier build."""

    def run(self):
        if not self.editable_mode:
            shutil.rmtree(os.path.join(self.build_lib, "ngraph_runtime"), ignore_errors=True)
        super().run()


class AnyPython(bdist_wheel):
    """The library has nothing of Python: one wheel is for all versions."""

    def get_tag(self):
        return "py3", "none", super().get_tag()[2]


setup(
    version=version(),
    # An extension makes the wheel one of its platform.
    ext_modules=[Extension("ngraph_runtime._library", sources=[])],
    cmdclass={"build_ext": CMakeBuild, "build_py": Fresh, "bdist_wheel": AnyPython},
)
