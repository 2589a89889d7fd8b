"""Builds the C library with CMake and packs it beside the modules; everything static is in pyproject.toml."""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.sdist import sdist

HERE = Path(__file__).resolve().parent
# What the library is made of: a source distribution holds it beside this file, a checkout one folder up.
ROOT = HERE if (HERE / "csrc").is_dir() else HERE.parent
if not (ROOT / "csrc").is_dir():
    raise SystemExit(f"there is no {ROOT / 'csrc'}: ngraph-runtime is built from a checkout or from its source "
                     "distribution")
sys.path.insert(0, str(ROOT / "cmake"))
from building import CMakeBuild, FreshModules, WheelWithSBOM  # noqa: E402
from readme import description  # noqa: E402

LIBRARY = "libngraph_runtime.so"
PREBUILT = "NGRAPH_RUNTIME_PREBUILT"


def version() -> str:
    """That of ngraph_mxnet, which compiles what this package runs."""
    text = (ROOT / "ngraph_mxnet" / "base" / "version.py").read_text()
    found = re.search(r'^__version__ = "(.+)"$', text, re.MULTILINE)
    assert found is not None, text
    return found[1]


class Library(CMakeBuild):
    """Builds the target `ngraph_runtime` and copies the library into the package's folder."""

    def build_extension(self, ext: Extension) -> None:
        package = Path(self.get_ext_fullpath(ext.name)).resolve().parent
        package.mkdir(parents=True, exist_ok=True)
        prebuilt = os.environ.get(PREBUILT)
        self.copy_file(prebuilt or str(self._built()), str(package / LIBRARY))

    def _built(self) -> Path:
        if sys.version_info < (3, 10):
            raise SystemExit("ngraph-runtime's kernels are compiled by Python 3.10 or newer. Make the wheel with such "
                             "a one (pip wheel); this Python installs and runs it.")
        build = self.run_cmake(HERE, target="ngraph_runtime")
        found = sorted({library.resolve() for library in build.rglob(LIBRARY)})
        if len(found) != 1:
            raise SystemExit(f"expected one {LIBRARY} in {build}, found {len(found)}: {', '.join(map(str, found))}")
        return found[0]

    def copy_extensions_to_source(self) -> None:
        """Called for in-place builds; there is no extension module, but the library."""
        package = self.get_finalized_command("build_py").get_package_dir("ngraph_runtime")
        self.copy_file(os.path.join(self.build_lib, "ngraph_runtime", LIBRARY), os.path.join(package, LIBRARY))

    def get_outputs(self) -> list[str]:
        return [os.path.join(self.build_lib, "ngraph_runtime", LIBRARY)]


class AnyPython(WheelWithSBOM):
    """The library has nothing of Python: one wheel is for all versions."""

    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", super().get_tag()[2]


class WithTheLibrarysSources(sdist):
    """Adds what the library and its kernels are made of."""

    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        super().make_release_tree(base_dir, files)
        for folder, pattern in (("csrc", "*"), ("cmake", "*"), ("ngraph_mxnet", "*.py")):
            for path in sorted((ROOT / folder).rglob(pattern)):
                if path.is_file() and path.suffix != ".pyc":
                    copy = Path(base_dir, path.relative_to(ROOT))
                    copy.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy(path, copy)


setup(
    **description(HERE / "README.md"),
    version=version(),
    # An extension makes the wheel one of its platform.
    ext_modules=[Extension("ngraph_runtime._library", sources=[])],
    cmdclass={"build_ext": Library, "build_py": FreshModules, "bdist_wheel": AnyPython,
              "sdist": WithTheLibrarysSources},
)
