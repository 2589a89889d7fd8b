"""What the installed MXNet tells of its operators: the parameters of each, with their types, values and defaults."""

from __future__ import annotations

import ctypes
import re
from dataclasses import dataclass
from functools import cache

import ngraph_mxnet  # noqa: F401  (makes mxnet importable on current NumPy)

# isort: split
from mxnet.base import _LIB, check_call, py_str

_TENSORS = ("NDArray", "Symbol", "tuple of <NDArray")


@dataclass(frozen=True)
class Parameter:
    """`kind`: as the registry words it, up to the first comma. `choices`: of an enumeration, all of its values."""

    name: str
    kind: str
    choices: tuple[str, ...]
    default: str | None

    @property
    def is_tensor(self) -> bool:
        return self.kind.startswith(_TENSORS)


@dataclass(frozen=True)
class Operator:
    """`handle`: MXNet's. `counted`: the parameter that takes the number of inputs, or nothing."""

    handle: int
    counted: str
    parameters: tuple[Parameter, ...]


@cache
def operator(op: str) -> Operator:
    """The operator under any of its names, in whichever Python module it is.

    Raises:
        LookupError: MXNet has none of that name.
    """
    handle, texts, count = ctypes.c_void_p(), [ctypes.c_char_p() for _ in range(4)], ctypes.c_uint()
    lists = [ctypes.POINTER(ctypes.c_char_p)() for _ in range(3)]
    if _LIB.NNGetOpHandle(op.encode(), ctypes.byref(handle)) != 0:
        raise LookupError(f"MXNet has no operator {op}")
    own, description, counted, returns = texts
    check_call(_LIB.MXSymbolGetAtomicSymbolInfo(
        handle, ctypes.byref(own), ctypes.byref(description), ctypes.byref(count), *map(ctypes.byref, lists),
        ctypes.byref(counted), ctypes.byref(returns)))
    names, types = ([py_str(values[i]) for i in range(count.value)] for values in lists[:2])
    assert handle.value is not None
    return Operator(handle.value, (counted.value or b"").decode(), tuple(map(_parameter, names, types)))


def _parameter(name: str, text: str) -> Parameter:
    choices = re.match(r"\{(.*)\}", text)
    default = re.search(r"default=(.*)$", text)
    return Parameter(name, text.split(",")[0] if choices is None else "enumeration",
                     () if choices is None else tuple(value.strip(" '") for value in choices[1].split(",")),
                     None if default is None else default[1].strip("'"))
