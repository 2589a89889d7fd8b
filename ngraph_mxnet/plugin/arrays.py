"""What libmxnet hands over: arrays from NumPy's and back, and texts of errors. It imports nothing of MXNet."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ngraph_mxnet.base.forks import ForkSafePool

if TYPE_CHECKING:
    import mxnet as mx


def with_arrays(block: Callable[..., Any]) -> Callable[..., list[np.ndarray] | np.ndarray]:
    """Call a Gluon block with NumPy arrays and get such, from any thread.

    The block gets NDArrays on the CPU, of the same dtypes, and runs on one thread of its own: in each new thread MXNet
    needs milliseconds for its first call, and servers often have a new thread for each connection. Where this is made
    under `mx.npx.set_np()`, which holds for one thread alone, it gets arrays of `mx.np` and runs under it there, too.
    """
    import mxnet as mx

    numpy_like = mx.util.is_np_array()
    empty = mx.np.empty if numpy_like else mx.nd.empty
    pool = ForkSafePool("ngraph-block", threads=1)

    def run(*arrays: np.ndarray) -> list[np.ndarray] | np.ndarray:
        given = []
        for array in arrays:
            given.append(empty(array.shape, dtype=array.dtype))
            given[-1]._sync_copyfrom(array)  # `mx.nd.array` takes three times as long for a small one
        found = block(*given)
        return [result.asnumpy() for result in found] if isinstance(found, (list, tuple)) else found.asnumpy()

    body = mx.util.use_np(run) if numpy_like else run
    return lambda *arrays: pool.submit(body, *arrays).result()


def settled(array: mx.nd.NDArray) -> np.ndarray:
    """A copy of its elements, as they are when all operators that were called have read them.

    In predict mode a convolution brings its weight into oneDNN's layout, in the weight's own memory, by an operator
    that it pushes when it runs. `asnumpy` waits for operators that are pushed already, and so can copy a weight while
    its elements move.
    """
    from mxnet.base import _LIB, check_call

    check_call(_LIB.MXNDArrayWaitToWrite(array.handle))
    return array.asnumpy()


OWN_ERROR = "NGraphSubgraphOp: "
"""The text that the plugin's errors begin with."""

_MOST_LENGTH = 500
_PLACE = re.compile(r"^MXNetError: |\[\d\d:\d\d:\d\d\] \S+: ")
_TRACE = ("Traceback", "File ", "[bt]", "Stack trace")


def brief(error: BaseException) -> str:
    """Return the text of an error, without the traces, the times and the list of arguments that MXNet writes around
    it."""
    text = str(error).rpartition(OWN_ERROR)[2].partition("\nAt:\n")[0]
    lines = [_PLACE.sub("", line.strip()) for line in text.splitlines()]
    said = next((line for line in lines if line and not line.startswith(_TRACE)), "")
    return (said or repr(error))[:_MOST_LENGTH]
