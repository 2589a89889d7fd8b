"""The state of the installation, and the variables of the environment on which a process that runs models depends.

What is installed, and whether all that the package needs is, is found out without an import of any of it.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

NEEDED = ("click", "llvmlite", "networkx", "numba", "numpy", "onnx", "packaging", "rich")
"""The dependencies that pyproject.toml names, but for MXNet, which only its own scripts need."""


def missing_part() -> str | None:
    """Return what keeps the package from running, and what to do about it; None if the package is whole. A checkout
    that is not built does not run."""
    package = Path(__file__).parents[1]
    lacking = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if lacking:
        problem = f"{', '.join(lacking)} can't be imported by {sys.executable}"
    elif importlib.util.find_spec("ngraph_mxnet._core") is None or not (package / "libngraph_kernels.so").exists():
        problem = f"{package} is not built"
    else:
        return None
    return (f"{problem}. In a checkout, `pip install -e .` builds it in place, in some minutes; after `pip install .` "
            "start Python in another folder, so that it finds the installed package.")


def has_mxnet() -> bool:
    """True if MXNet is installed, or imported. It is not imported for this."""
    return sys.modules.get("mxnet") is not None or importlib.util.find_spec("mxnet") is not None


def require_main_interpreter() -> None:
    """Raise ImportError in a subinterpreter, where the import of the C++ library would never end: pybind11 waits there
    for the lock that its own thread holds."""
    import ctypes

    def state(name: str) -> int | None:
        function = ctypes.pythonapi[name]
        function.restype = ctypes.c_void_p
        return function()

    if state("PyInterpreterState_Get") != state("PyInterpreterState_Main"):
        raise ImportError("ngraph_mxnet was imported in a subinterpreter; it runs in a process's main interpreter "
                          "alone, as NumPy does. Under mod_wsgi set WSGIApplicationGroup %{GLOBAL}.")


def version_of(distribution: str) -> str | None:
    """None if it is not installed."""
    from importlib import metadata  # takes longer than what starts most commands

    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def versions_of(distributions: Iterable[str]) -> dict[str, str]:
    """Return the versions of the distributions that are installed, by name."""
    return {name: found for name in distributions if (found := version_of(name)) is not None}


PREFIXES = ("NGRAPH_", "MXNET_", "OMP_", "GOMP_", "KMP_", "MKLDNN_", "DNNL_", "ONEDNN_", "OV_", "ORT_")
"""The prefixes of the variables' names. Other variables may hold secrets, and are neither recorded nor shown."""


def settings_in(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that are set, sorted by name."""
    return {name: value for name, value in sorted(environment.items()) if name.startswith(PREFIXES)}


def without_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """The others, for a process that is to have its own."""
    return {name: value for name, value in environment.items() if not name.startswith(PREFIXES)}
