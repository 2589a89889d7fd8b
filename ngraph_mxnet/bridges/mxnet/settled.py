"""Reads arrays that MXNet's operators may still be reading."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from mxnet.ndarray import NDArray


def settled(array: NDArray) -> np.ndarray:
    """A copy of its elements, as they are when all operators that were called have read them.

    In predict mode a convolution brings its weight into oneDNN's layout, in the weight's own memory, by an operator
    that it pushes when it runs. `asnumpy` waits for operators that are pushed already, and so can copy a weight while
    its elements move.
    """
    from mxnet.base import _LIB, check_call

    check_call(_LIB.MXNDArrayWaitToWrite(array.handle))
    return array.asnumpy()
