"""Gradients that lie in NDArrays, and their sums over all processes."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence

import mxnet as mx
import numpy as np
from mxnet.base import _LIB, check_call
from mxnet.ndarray import NDArray

from ngraph_mxnet import config
from ngraph_mxnet.distributed import GradientSet, Source, World
from ngraph_mxnet.distributed.plan import bucket_bytes

_PATIENCE = 3
"""Rounds in a row in which the script has written to gradients behind the backward pass: it always will."""


class Sums:
    """Of the same gradients in each step, of all ranks.

    Args:
        world: the job.
        gradients: for each key its gradients, one for each of this process's devices.

    Raises:
        TypeError: a gradient can't be summed.
        DistributedError: the processes have no memory in common.
    """

    def __init__(self, world: World, gradients: Sequence[Sequence[NDArray]]) -> None:
        self.world = world
        self._of_devices: dict[int, NDArray] = {}
        self._arrays = self._alone(gradients)
        self._set = GradientSet(world, [_source(array) for array in self._arrays],
                                full_bytes=bucket_bytes(), wire=config.get("NGRAPH_KVSTORE_WIRE"),
                                before_writing=self._wait_for_readers,
                                watches=config.get("NGRAPH_KVSTORE_OVERLAP"))
        self._spoilt = 0
        self._make_results()

    @property
    def gradients(self) -> GradientSet:
        return self._set

    def sum(self, gradients: Sequence[Sequence[NDArray]]) -> Iterator[list[int]]:
        """Gives the numbers of keys whose `results` are there, until all are.

        Raises:
            DistributedError: they never will be.
        """
        arrays = self._alone(gradients)
        for array in arrays:
            array.wait_to_read()  # those of several devices are added up
        before = self._arrays  # the thread may read them until the round's end
        if any(array is not known for array, known in zip(arrays, before, strict=True)):
            self._arrays = arrays
            self._set.move([_source(array) for array in arrays])
        self._set.finish()
        for number, bucket in enumerate(self._set.buckets):
            self._set.wait(number)
            yield [slot.gradient for slot in bucket.slots]
        self._set.close()
        del before
        self._spoilt = self._spoilt + 1 if self._set.spoilt else 0
        if self._spoilt >= _PATIENCE:
            self._set.watches = False
        if self._set.rounds == 2 and (order := self.world.comm.bcast(self._set.order)) is not None:
            self._set.replan(order)
            self._make_results()

    def stop(self) -> None:
        self._set.stop()

    def _make_results(self) -> None:
        """`results`: the sums as NDArrays, for each key."""
        self.results = [mx.nd.from_numpy(self._set.total(number), zero_copy=True).reshape(array.shape)
                        for number, array in enumerate(self._arrays)]

    def _wait_for_readers(self) -> None:
        for array in self.results:
            check_call(_LIB.MXNDArrayWaitToWrite(array.handle))

    def _alone(self, gradients: Sequence[Sequence[NDArray]]) -> list[NDArray]:
        """One array for each key: that of its only device, or the sum over all of them."""
        return [row[0] if len(row) == 1 else self._sum_of(number, row) for number, row in enumerate(gradients)]

    def _sum_of(self, number: int, row: Sequence[NDArray]) -> NDArray:
        context = row[0].context
        if number not in self._of_devices:
            self._of_devices[number] = mx.nd.zeros(row[0].shape, context, row[0].dtype)
        mx.nd.add_n(*(each.as_in_context(context) for each in row), out=self._of_devices[number])
        return self._of_devices[number]


def _source(array: NDArray) -> Source:
    from ngraph_mxnet import _core

    array.wait_to_read()
    address = ctypes.c_void_p()
    check_call(_LIB.MXNDArrayGetData(array.handle, ctypes.byref(address)))  # where it lies row-major from now on
    found = _core.watched_array(array.handle.value)
    dtype = np.dtype(array.dtype)
    data = (ctypes.c_uint8 * (array.size * dtype.itemsize)).from_address(address.value or 0)
    return Source(np.frombuffer(data, dtype), found[1] if found is not None else 0)
