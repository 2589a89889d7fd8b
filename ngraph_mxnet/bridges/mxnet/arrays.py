"""What takes MXNet's arrays, called with NumPy's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mxnet as mx
import numpy as np

from ngraph_mxnet.forks import ForkSafePool


def with_arrays(block: Callable[..., Any]) -> Callable[..., list[np.ndarray] | np.ndarray]:
    """Call a Gluon block with NumPy arrays and get such, from any thread.

    The block gets NDArrays on the CPU, of the same dtypes, and runs on one thread of its own: in each new thread MXNet
    needs milliseconds for its first call, and servers often have a new thread for each connection. Where this is made
    under `mx.npx.set_np()`, which holds for one thread alone, it gets arrays of `mx.np` and runs under it there, too.
    """
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
