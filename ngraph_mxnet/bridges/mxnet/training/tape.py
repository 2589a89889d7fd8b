"""One node on MXNet's tape whose backward is a function in Python.

`mxnet.autograd.Function` stands on the same interface. Its own entry ends at the first gradient that nobody wants, and
never adds (python/mxnet/autograd.py in 1.9.1), so it is not used here.
"""

from __future__ import annotations

import ctypes
import itertools
import logging
from collections.abc import Callable, Sequence
from typing import Any

from mxnet.autograd import Function
from mxnet.base import _LIB, MXCallbackList, NDArrayHandle, c_handle_array, check_call
from mxnet.ndarray import NDArray

logger = logging.getLogger("ngraph_mxnet")

NOTHING, ADD = 0, 3
"""Requests of a gradient (OpReqType in MXNet's op_attr_types.h); the others write it."""

Backward = Callable[[list[NDArray], list[NDArray], list[int]], None]

_keys = itertools.count()
_held: dict[int, tuple[object, ...]] = {}
"""What MXNet's nodes call, by their number."""


def waiting() -> bool:
    """Whether MXNet has any of our nodes, to be gone back through."""
    return bool(_held)


def record(inputs: Sequence[NDArray], outputs: Sequence[NDArray], backward: Backward,
           forget: Callable[[], None]) -> None:
    """The outputs come from the inputs, for MXNet's autograd, which is recording.

    Args:
        inputs: what gradients may be wanted of.
        outputs: new arrays.
        backward: called, on a thread of MXNet's, with the gradients of the outputs, arrays for those of the inputs, and
            a request for each of these. What it raises is logged, and MXNet's error at the next wait names the node.
        forget: called when the node is gone: nobody can go back through it any more.
    """
    key = next(_keys)

    def go_back(heads: int, wanted: int, handles: Any, requests: Any, is_train: int, state: object) -> bool:
        try:
            arrays = [NDArray(ctypes.cast(handles[at], NDArrayHandle), writable=at >= heads)
                      for at in range(heads + wanted)]
            backward(arrays[:heads], arrays[heads:], [requests[at] for at in range(wanted)])
        except Exception:
            logger.exception("a compiled backward pass failed")
            return False
        return True

    def gone(state: object) -> bool:
        _held.pop(key, None)
        forget()
        return True

    calls = [ctypes.cast(call, ctypes.CFUNCTYPE(ctypes.c_int))
             for call in (Function._bwd_functype(go_back), Function._del_functype(gone))]
    entries = (ctypes.CFUNCTYPE(ctypes.c_int) * len(calls))(*calls)
    contexts = (ctypes.c_void_p * len(calls))()
    info = MXCallbackList(len(calls), entries, ctypes.cast(contexts, ctypes.POINTER(ctypes.c_void_p)))
    _held[key] = (info, entries, contexts, *calls)
    check_call(_LIB.MXCustomFunctionRecord(
        ctypes.c_int(len(inputs)), c_handle_array(inputs), ctypes.c_int(len(outputs)), c_handle_array(outputs),
        ctypes.byref(info)))
