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

    def sum(self, gradients: Sequence[Sequence[NDArray]]) -> Iterator[tuple[list[int], list[NDArray]]]:
        """Begins, and gives the numbers of keys and their sums as they come.

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
        return self._finished_buckets(before)

    def _finished_buckets(self, before: Sequence[NDArray]) -> Iterator[tuple[list[int], list[NDArray]]]:
        """`before` lives until the round has ended."""
        for number, bucket in enumerate(self._set.buckets):
            self._set.wait(number)
            numbers = [slot.gradient for slot in bucket.slots]
            yield numbers, [self._results[number] for number in numbers]
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
        """The sums as NDArrays, for each key."""
        self._results = [mx.nd.from_numpy(self._set.total(number), zero_copy=True).reshape(array.shape)
                        for number, array in enumerate(self._arrays)]

    def _wait_for_readers(self) -> None:
        for array in self._results:
            check_call(_LIB.MXNDArrayWaitToWrite(array.handle))

    def _alone(self, gradients: Sequence[Sequence[NDArray]]) -> list[NDArray]:
        """One array for each key: that of its only device, or the sum over all of them."""
        arrays = [over_devices(row, self._of_devices.get(number)) for number, row in enumerate(gradients)]
        self._of_devices = {number: arrays[number] for number, row in enumerate(gradients) if len(row) > 1}
        return arrays


def over_devices(row: Sequence[NDArray], out: NDArray | None = None) -> NDArray:
    """The sum of the gradients of a process's devices, dense or row_sparse, on the first of them; that of its only
    device as it is."""
    if len(row) == 1:
        return row[0]
    return mx.nd.add_n(*(each.as_in_context(row[0].ctx) for each in row), out=out)


def _source(array: NDArray) -> Source:
    from ngraph_mxnet import _core

    array.wait_to_read()
    address = ctypes.c_void_p()
    check_call(_LIB.MXNDArrayGetData(array.handle, ctypes.byref(address)))  # where it lies row-major from now on
    found = _core.watched_array(array.handle.value)
    dtype = np.dtype(array.dtype)
    data = (ctypes.c_uint8 * (array.size * dtype.itemsize)).from_address(address.value or 0)
    return Source(np.frombuffer(data, dtype), found[1] if found is not None else 0)
