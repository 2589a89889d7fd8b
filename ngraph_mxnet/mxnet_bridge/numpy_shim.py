"""Gives current NumPy and Python the names that mxnet 1.9.1 still uses.

Cases:
* NumPy 1.24 to 1.26: the aliases of Python types (`np.bool`, `np.int`, ...) are gone;
* NumPy 2.x: also spelling variants of constants (`np.NaN`, `np.PINF`), renamed functions (`np.in1d`,
  `np.trapz`) and `np.compat`;
* since NumPy 1.20 the financial functions are gone: mxnet 1.9.1 guards some of them only, so a stub that
  says where they went stands in;
* Python 3.12 and later: `distutils.version` is gone.

A name that exists is left alone, so on an older NumPy nothing happens. `install` may run any number of times.
"""

from __future__ import annotations

import builtins
import sys
import types
from collections.abc import Callable
from typing import Any

PYTHON_TYPES = ("bool", "int", "float", "complex", "object", "str")
FINANCIAL = ("fv", "ipmt", "irr", "mirr", "nper", "npv", "pmt", "ppmt", "pv", "rate")


def install() -> None:
    import numpy

    for name, value in _replacements(numpy).items():
        # Not hasattr: NumPy's module __getattr__ warns about each name it removed.
        if name not in vars(numpy) and value is not None:
            setattr(numpy, name, value)
    if sys.version_info >= (3, 12) and not _importable("distutils.version"):
        _install_distutils_version()


def _replacements(numpy: types.ModuleType) -> dict[str, Any]:
    names: dict[str, Any] = {name: getattr(builtins, name) for name in PYTHON_TYPES}
    names.update((name, _removed_function(name)) for name in FINANCIAL)
    names.update(
        PZERO=0.0,
        NZERO=-0.0,
        PINF=numpy.inf,
        NINF=-numpy.inf,
        Inf=numpy.inf,
        Infinity=numpy.inf,
        infty=numpy.inf,
        NAN=numpy.nan,
        NaN=numpy.nan,
        alltrue=numpy.all,
        sometrue=numpy.any,
        product=numpy.prod,
        round_=numpy.round,
        in1d=numpy.isin,
        msort=_msort,
        trapz=getattr(numpy, "trapezoid", None),
        compat=types.SimpleNamespace(basestring=str),
    )
    return names


def _msort(array: Any) -> Any:
    import numpy

    return numpy.sort(array, axis=0)


def _removed_function(name: str) -> Callable[..., Any]:
    def removed(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"numpy.{name} was removed in NumPy 1.20; use numpy_financial.{name}")

    removed.__name__ = name
    return removed


def _importable(name: str) -> bool:
    try:
        __import__(name)
    except ImportError:
        return False
    return True


def _install_distutils_version() -> None:
    """The two version classes that mxnet compares NumPy's version with."""

    class LooseVersion:
        def __init__(self, text: str) -> None:
            self.vstring = text
            # Leading digits of each field only: "0rc1" counts as 0, as mxnet compares releases.
            self.version = [_leading_number(field) for field in text.split(".")]

        def _numbers(self, other: Any) -> list[int]:
            return other.version if isinstance(other, LooseVersion) else LooseVersion(str(other)).version

        def __eq__(self, other: object) -> bool:
            return self.version == self._numbers(other)

        def __lt__(self, other: Any) -> bool:
            return self.version < self._numbers(other)

        def __le__(self, other: Any) -> bool:
            return self.version <= self._numbers(other)

        def __gt__(self, other: Any) -> bool:
            return self.version > self._numbers(other)

        def __ge__(self, other: Any) -> bool:
            return self.version >= self._numbers(other)

        def __hash__(self) -> int:
            return hash(tuple(self.version))

        def __str__(self) -> str:
            return self.vstring

    package = types.ModuleType("distutils")
    package.__path__ = []
    version = types.ModuleType("distutils.version")
    version.LooseVersion = LooseVersion  # type: ignore[attr-defined]
    version.StrictVersion = LooseVersion  # type: ignore[attr-defined]
    package.version = version  # type: ignore[attr-defined]
    sys.modules.setdefault("distutils", package)
    sys.modules["distutils.version"] = version


def _leading_number(field: str) -> int:
    digits = field[: len(field) - len(field.lstrip("0123456789"))]
    return int(digits) if digits else 0
