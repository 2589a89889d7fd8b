"""The kvstore: sums of gradients over the processes of an MPI job, and the update in each of them."""

from __future__ import annotations

import atexit
import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
from mxnet import optimizer as opt
from mxnet.base import MXNetError
from mxnet.kvstore import KVStoreBase
from mxnet.ndarray import NDArray

from ngraph_mxnet.bridges.mxnet.kvstore.places import place_once
from ngraph_mxnet.bridges.mxnet.kvstore.sums import Sums
from ngraph_mxnet.distributed import world
from ngraph_mxnet.package.files import write_file

logger = logging.getLogger("ngraph_mxnet")

NAME = "dist_sync_ngraph"


class NGraphKVStore(KVStoreBase):
    """`dist_sync` without servers: `push` is a sum over all ranks, and each rank updates its own weights, which stay
    the same in all of them.

    Keys are ints or texts, as MXNet's; arrays are dense, float16, float32 or float64.

    Raises:
        DistributedError: there is no MPI.
    """

    def __init__(self) -> None:
        place_once()
        self._world = world()
        self._updater: opt.Updater | None = None
        self._sums: dict[tuple[Any, ...], Sums] = {}
        atexit.register(self._stop)

    @property
    def type(self) -> str:
        return NAME

    @property
    def rank(self) -> int:
        return self._world.rank

    @property
    def num_workers(self) -> int:
        return self._world.size

    @staticmethod
    def is_capable(capability: str) -> bool:
        """Of `optimizer` only.

        Raises:
            ValueError: MXNet asks for something that it does not know either.
        """
        if capability.lower() == KVStoreBase.OPTIMIZER:
            return True
        raise ValueError(f"unknown capability: {capability}")

    def broadcast(self, key: Any, value: Any, out: Any, priority: int = 0) -> None:
        """Rank 0's `value` is written to `out` in all ranks; lists of keys have lists of both."""
        keys, values, outs = _listed(key), _rows(key, value), _rows(key, out)
        for each, (first, *_), targets in zip(keys, values, outs, strict=True):
            data = np.ascontiguousarray(first.asnumpy())
            self._compare("broadcast", [(each, data.shape, data.dtype.name)])
            self._world.comm.Bcast(data.reshape(-1).view(np.uint8), root=0)
            for target in targets:
                target[:] = data

    def init(self, key: Any, value: Any) -> None:
        """As `broadcast` to `value` itself."""
        self.broadcast(key, value, value)

    def pushpull(self, key: Any, value: Any, out: Any = None, priority: int = 0) -> None:
        """Sums `value` over all devices and ranks. With an optimizer the weights `out` are updated by it; else the sums
        are written to `out`, or to `value` without one. Lists of keys, of which all ranks give the same in the same
        order, are summed together: what a Trainer or a Module does in one step.

        Raises:
            MXNetError: the ranks can't go on; the text says why.
        """
        keys, gradients = _listed(key), _rows(key, value)
        targets = gradients if out is None else _rows(key, out)
        for each, row in zip(keys, gradients, strict=True):
            _check_dense(each, row)
        if not keys:
            return
        if self._world.size == 1:
            self._alone(keys, gradients, targets, out is None)
            return
        sums = self._sums_of(keys, gradients)
        for numbers in sums.sum(gradients):
            results = [sums.results[number] for number in numbers]
            self._use([keys[number] for number in numbers], results, [targets[number] for number in numbers])

    def push(self, key: Any, value: Any, priority: int = 0) -> None:
        """Raises MXNetError: MXNet pushes, and then pulls, what is sparse only, which is not summed here."""
        for each, row in zip(_listed(key), _rows(key, value), strict=True):
            _check_dense(each, row)
        raise MXNetError(f"{NAME} sums and gives back in one call: use pushpull instead of push and pull")

    def set_optimizer(self, optimizer: opt.Optimizer) -> None:
        """From now on `pushpull` updates weights, in each rank by an updater of its own."""
        self._updater = opt.get_updater(optimizer)

    def set_gradient_compression(self, compression_params: dict[str, Any]) -> None:
        """Says that gradients are sent as they are."""
        logger.warning("%s does not compress gradients as %s: it sends all of their bits; NGRAPH_KVSTORE_WIRE=bf16 "
                       "halves what goes between hosts", NAME, compression_params)

    def save_optimizer_states(self, fname: str, dump_optimizer: bool = False) -> None:
        """Of this rank; they are the same in all."""
        write_file(fname, [self._own_updater().get_states(dump_optimizer)])

    def load_optimizer_states(self, fname: str) -> None:
        with open(fname, "rb") as file:
            self._own_updater().set_states(file.read())

    def _barrier(self) -> None:
        """Returns when all ranks have called it. Of MXNet's own stores it is named so, too."""
        self._compare("barrier", [])
        self._world.barrier()

    barrier = _barrier

    def _own_updater(self) -> opt.Updater:
        if self._updater is None:
            raise MXNetError(f"{NAME} has no optimizer: set_optimizer comes first")
        return self._updater

    def _use(self, keys: Sequence[Any], results: Sequence[NDArray], targets: Sequence[Sequence[NDArray]]) -> None:
        """Updates the targets by these sums, or writes them there."""
        if self._updater is None:
            for result, row in zip(results, targets, strict=True):
                for target in row:
                    result.copyto(target)
            return
        self._updater(list(keys), list(results), [row[0] for row in targets])
        for row in targets:
            for other in row[1:]:
                row[0].copyto(other)

    def _alone(self, keys: Sequence[Any], gradients: Sequence[Sequence[NDArray]], targets: Sequence[Sequence[NDArray]],
               in_place: bool) -> None:
        results = [row[0] if len(row) == 1 else sum(each.as_in_context(row[0].context) for each in row)
                   for row in gradients]
        if self._updater is not None or not in_place or any(len(row) > 1 for row in gradients):
            self._use(keys, results, targets)

    def _sums_of(self, keys: Sequence[Any], gradients: Sequence[Sequence[NDArray]]) -> Sums:
        found = self._sums.get(tuple(keys))
        if found is None:
            self._compare("pushpull", [(key, row[0].shape, np.dtype(row[0].dtype).name)
                                       for key, row in zip(keys, gradients, strict=True)])
            found = self._sums[tuple(keys)] = Sums(self._world, keys, gradients)
        return found

    def _compare(self, operation: str, arrays: Sequence[tuple[Any, ...]]) -> None:
        """Raises MXNetError unless all ranks do the same with the same arrays."""
        mine = (operation, [*arrays])
        for rank, theirs in enumerate(self._world.gather(mine)):
            if theirs != mine:
                raise MXNetError(f"{self._world.name} does {mine}, rank {rank} {theirs}: all ranks have to run the "
                                 "same script on the same model")

    def _stop(self) -> None:
        for sums in self._sums.values():
            sums.stop()


def _check_dense(key: Any, row: Sequence[NDArray]) -> None:
    for array in row:
        if array.stype != "default":
            raise MXNetError(f"the gradient of {key} is {array.stype}, {NAME} sums dense ones only: make the layer "
                             "with sparse_grad=False, or train with MXNet's own dist_sync")


def _listed(key: Any) -> list[Any]:
    return list(key) if isinstance(key, (list, tuple)) else [key]


def _rows(key: Any, value: Any) -> list[list[NDArray]]:
    """For each key its arrays."""
    rows = list(value) if isinstance(key, (list, tuple)) else [value]
    return [list(row) if isinstance(row, (list, tuple)) else [row] for row in rows]
