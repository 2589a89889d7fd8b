"""Shows MXNet's modules, and nobody else, the names of older NumPy and Python that mxnet 1.9.1 still uses.

Cases:
* NumPy 1.24 to 1.26: the aliases of Python types (`np.bool`, `np.int`, ...) are gone;
* NumPy 2.x: also spelling variants of constants (`np.NaN`, `np.PINF`), renamed functions (`np.in1d`,
  `np.trapz`) and `np.compat`;
* since NumPy 1.20 the financial functions are gone: mxnet 1.9.1 guards some of them only, so a stub that
  says where they went stands in;
* Python 3.12 and later: `distutils.version` is gone.

MXNet uses some of these names when it is imported and others when its functions are called, so its modules keep them:
`import numpy` gives them a module with NumPy's names and, where NumPy has none, the older ones. NumPy itself stays as
it is, and so does what other modules import.
"""

from __future__ import annotations

import builtins
import functools
import importlib
import threading
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

PYTHON_TYPES = ("bool", "int", "float", "complex", "object", "str")
FINANCIAL = ("fv", "ipmt", "irr", "mirr", "nper", "npv", "pmt", "ppmt", "pv", "rate")

_lock = threading.Lock()
_imports = 0
_stock_import = builtins.__import__


@contextmanager
def names_for_mxnet() -> Iterator[None]:
    """Modules of mxnet whose code runs meanwhile, on any thread, import what this file is about."""
    global _imports, _stock_import
    with _lock:
        if not _imports and builtins.__import__ is not _import:
            _stock_import, builtins.__import__ = builtins.__import__, _import
        _imports += 1
    try:
        yield
    finally:
        with _lock:
            _imports -= 1
            if not _imports and builtins.__import__ is _import:
                builtins.__import__ = _stock_import


def _import(
    name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0
) -> types.ModuleType:
    importer = (globals or {}).get("__name__") or ""
    if level or importer.partition(".")[0] != "mxnet":
        return _stock_import(name, globals, locals, fromlist, level)
    try:
        module = _stock_import(name, globals, locals, fromlist, level)
    except ModuleNotFoundError:
        if name == "distutils.version":
            return _distutils()
        raise
    return older_numpy() if module.__name__ == "numpy" else module


@functools.cache
def older_numpy() -> types.ModuleType:
    """NumPy with the names that it had; NumPy itself where it still has all."""
    numpy = importlib.import_module("numpy")
    # Not hasattr: NumPy's module __getattr__ warns about each name it removed.
    missing = {name: value for name, value in _replacements(numpy).items()
               if name not in vars(numpy) and value is not None}
    if not missing:
        return numpy
    module = types.ModuleType("numpy", numpy.__doc__)
    vars(module).update(vars(numpy) | missing)
    vars(module)["__getattr__"] = functools.partial(getattr, numpy)
    return module


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
    return older_numpy().sort(array, axis=0)


def _removed_function(name: str) -> Callable[..., Any]:
    def removed(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"numpy.{name} was removed in NumPy 1.20; use numpy_financial.{name}")

    removed.__name__ = name
    return removed


@functools.cache
def _distutils() -> types.ModuleType:
    """`distutils.version` with the two classes that mxnet compares NumPy's version with."""

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

    version = types.ModuleType("distutils.version")
    vars(version).update(LooseVersion=LooseVersion, StrictVersion=LooseVersion)
    return version


def _leading_number(field: str) -> int:
    digits = field[: len(field) - len(field.lstrip("0123456789"))]
    return int(digits) if digits else 0
