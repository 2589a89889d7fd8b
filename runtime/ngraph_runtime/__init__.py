"""Runs models that `python -m ngraph_mxnet compile` has written, with NumPy alone.

    model = ngraph_runtime.load("model.ngraph")
    outputs = model(data=x)
"""

from __future__ import annotations

from ngraph_runtime.errors import InputError, LibraryError, ModelError, NGraphRuntimeError
from ngraph_runtime.model import Model, load
from ngraph_runtime.ports import Port, Range, ShapeSet

__all__ = [
    "InputError", "LibraryError", "Model", "ModelError", "NGraphRuntimeError", "Port", "Range", "ShapeSet",
    "__version__", "load",
]


def __getattr__(name: str) -> str:
    """`__version__`, when it is asked for: the look-up takes longer than all other imports of this package."""
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("ngraph-runtime")
    except PackageNotFoundError:  # in a checkout
        return "unknown"
