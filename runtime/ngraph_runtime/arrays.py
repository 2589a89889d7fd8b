"""Callers' values as arrays that the library reads or writes as they are."""

from __future__ import annotations

import ctypes
from typing import Any, Sequence

import numpy as np

from ngraph_runtime.errors import InputError
from ngraph_runtime.ports import Port, shown

_BYTE: Any = ctypes.c_char


def address(array: np.ndarray[Any, Any]) -> int:
    """Where a dense array's elements begin."""
    try:
        return ctypes.addressof(_BYTE.from_buffer(array))  # a third of the time of what works always
    except (TypeError, ValueError):  # it is read-only, or has no elements
        found: int = array.__array_interface__["data"][0]
        return found


def as_input(value: Any, port: Port) -> np.ndarray[Any, Any]:
    """A dense, aligned array of the port's type: the value's own memory if that is possible.

    Numbers and lists, which have no type of their own, are converted within their kind.
    """
    array = value if type(value) is np.ndarray else _array(value, port)
    if array.dtype != port.dtype:
        untyped = isinstance(value, (bool, int, float, list, tuple))
        if not (untyped and np.can_cast(array.dtype, port.dtype, "same_kind")):
            raise InputError(f"input {port.name}: found {_described(array)}, expected {port.dtype}{_bits(port)}")
        array = array.astype(port.dtype)
    flags = array.flags
    return array if flags.c_contiguous and flags.aligned else np.require(array, requirements=["C", "A"])


def _array(value: Any, port: Port) -> np.ndarray[Any, Any]:
    try:
        if hasattr(value, "__dlpack__") and hasattr(np, "from_dlpack") and not isinstance(value, np.ndarray):
            return np.from_dlpack(value)
        return np.asarray(value)
    except Exception as error:  # each library refuses in its own way: a tensor elsewhere, or of a type unknown to NumPy
        raise InputError(f"input {port.name}: found a {type(value).__name__} that NumPy can't read, expected an array "
                         f"of {port.dtype}{_bits(port)}: {error}") from error


def _bits(port: Port) -> str:
    return ", the bits of bf16" if port.element == "bf16" else ""


def _described(array: np.ndarray[Any, Any]) -> str:
    dtype = array.dtype if array.dtype.isnative else f"{array.dtype}, of the other byte order,"
    return f"{dtype} {shown(array.shape)}"


def check_outputs(arrays: Sequence[Any], ports: Sequence[Port], shapes: Sequence[tuple[int, ...]],
                  inputs: Sequence[np.ndarray[Any, Any]]) -> None:
    """Whether the library may write to these arrays, when it reads from those of `inputs`, all dense."""
    for i, (array, port, shape) in enumerate(zip(arrays, ports, shapes)):
        if not (isinstance(array, np.ndarray) and array.dtype == port.dtype and array.shape == shape
                and array.flags.carray):
            raise InputError(f"out for {port.name}: found {_unfit(array)}, expected a NumPy array of {port.dtype} "
                             f"{shown(shape)} that is C-contiguous, aligned and writeable")
        for other in (*inputs, *arrays[:i]):
            if np.may_share_memory(array, other):
                raise InputError(f"out for {port.name}: shares memory with an input or another output")


def _unfit(array: Any) -> str:
    if not isinstance(array, np.ndarray):
        return f"a {type(array).__name__}"
    flags = array.flags
    return _described(array) + "".join(
        f", not {word}" for word, holds in (("C-contiguous", flags.c_contiguous), ("aligned", flags.aligned),
                                            ("writeable", flags.writeable)) if not holds)
