"""The kvstore: sums of gradients over the processes of an MPI job, and the update in each of them."""

from __future__ import annotations

import atexit
import functools
import itertools
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import mxnet as mx
import numpy as np
from mxnet import optimizer as opt
from mxnet.base import MXNetError
from mxnet.kvstore import KVStoreBase
from mxnet.ndarray import NDArray

from ngraph_mxnet import config
from ngraph_mxnet.bridges.mxnet.kvstore import atomic_saves
from ngraph_mxnet.bridges.mxnet.kvstore.places import place_once
from ngraph_mxnet.bridges.mxnet.kvstore.sums import Sums
from ngraph_mxnet.distributed import world
from ngraph_mxnet.distributed.plan import summed_dtype
from ngraph_mxnet.distributed.rank_facts import RankFacts, Tensor
from ngraph_mxnet.errors import DistributedError
from ngraph_mxnet.package.files import write_file
from ngraph_mxnet.recent import Recent
from ngraph_mxnet.version import __version__

logger = logging.getLogger("ngraph_mxnet")

NAME = "dist_sync_ngraph"
SETTINGS = ("NGRAPH_KVSTORE_BUCKET", "NGRAPH_KVSTORE_SHARED_MEMORY", "NGRAPH_KVSTORE_WIRE")
"""On which it depends what ranks say to each other."""


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
        if self._world.size > 1:
            atomic_saves.install()
        self._updater: opt.Updater | None = None
        self._sums: dict[tuple[Any, ...], Sums] = {}
        self._keys = Recent(256)
        self._kept: dict[Any, NDArray] = {}
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
            self._begin("broadcast", [Tensor(str(each), data.shape, data.dtype.name)])
            self._world.comm.Bcast(data.reshape(-1).view(np.uint8), root=0)
            received = mx.nd.array(data, dtype=data.dtype)
            for target in targets:
                received.copyto(target)  # by the engine: `target` may lie in a layout of oneDNN's

    def init(self, key: Any, value: Any) -> None:
        """The store keeps rank 0's `value`, for `push` and `pull`."""
        for each, (first, *_) in zip(_listed(key), _rows(key, value), strict=True):
            self._kept[each] = first.copy()
            self.broadcast(each, first, self._kept[each])

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
        if not isinstance(key, (list, tuple)):
            self._use(keys, [self._sum(key, gradients[0])], targets)
            return
        for array in itertools.chain(*gradients):
            array.wait_to_read()  # the backward pass has the cores until then
        self._begin("pushpull", [Tensor(str(each), row[0].shape, np.dtype(row[0].dtype).name)
                                 for each, row in zip(keys, gradients, strict=True)])
        sums = self._sums.get(tuple(keys))
        if sums is None:
            sums = self._sums[tuple(keys)] = Sums(self._world, gradients)
        with _as_mxnet_errors():
            for numbers in sums.sum(gradients):
                results = [sums.results[number] for number in numbers]
                self._use([keys[number] for number in numbers], results, [targets[number] for number in numbers])

    def push(self, key: Any, value: Any, priority: int = 0) -> None:
        """The sum of `value` over all ranks updates what `init` has kept, or without an optimizer takes its place.

        Raises:
            MXNetError: as `pushpull`, or the store has no such key.
        """
        for each, row in zip(_listed(key), _rows(key, value), strict=True):
            self.pushpull(each, row, self._kept_of(each))

    def pull(self, key: Any, out: Any, priority: int = 0, ignore_sparse: bool = True) -> None:
        """Writes what the store has kept to `out`."""
        for each, row in zip(_listed(key), _rows(key, out), strict=True):
            for target in row:
                self._kept_of(each).copyto(target)

    def row_sparse_pull(self, key: Any, *args: Any, **kwargs: Any) -> None:
        """Raises MXNetError: there are no sparse arrays."""
        raise MXNetError(f"{key} is row_sparse, {NAME} has dense arrays only: make the layer with sparse_grad=False, "
                         "or train with MXNet's own dist_sync")

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
        self._begin("barrier", [])

    barrier = _barrier

    def _own_updater(self) -> opt.Updater:
        if self._updater is None:
            raise MXNetError(f"{NAME} has no optimizer: set_optimizer comes first")
        return self._updater

    def _kept_of(self, key: Any) -> NDArray:
        if key not in self._kept:
            raise MXNetError(f"{NAME} has no {key}: init comes first")
        return self._kept[key]

    def _sum(self, key: Any, row: Sequence[NDArray]) -> NDArray:
        """Over all devices and ranks, of a key that comes alone: nothing is made ready for its next sum."""
        total = _over_devices(row).asnumpy()
        data = total.astype(_summed(key, total.dtype))
        self._begin("pushpull", [Tensor(str(key), total.shape, total.dtype.name)])
        with _as_mxnet_errors():
            self._world.sum(data)
        return mx.nd.array(data, dtype=total.dtype)

    def _use(self, keys: Sequence[Any], results: Sequence[NDArray], targets: Sequence[Sequence[NDArray]]) -> None:
        """Updates the targets by these sums, or writes them there."""
        if self._updater is None:
            for result, row in zip(results, targets, strict=True):
                for target in row:
                    result.copyto(target)
            return
        alike = [result if result.dtype == row[0].dtype else result.astype(row[0].dtype)
                 for result, row in zip(results, targets, strict=True)]
        self._updater(list(keys), alike, [row[0] for row in targets])
        for row in targets:
            for other in row[1:]:
                row[0].copyto(other)

    def _alone(self, keys: Sequence[Any], gradients: Sequence[Sequence[NDArray]], targets: Sequence[Sequence[NDArray]],
               in_place: bool) -> None:
        results = [_over_devices(row) for row in gradients]
        if self._updater is not None or not in_place or any(len(row) > 1 for row in gradients):
            self._use(keys, results, targets)

    def _begin(self, operation: str, tensors: Sequence[Tensor]) -> None:
        """All ranks have come to the same operation.

        Raises:
            MXNetError: they can't, or won't; the text says why.
        """
        optimizer = None if self._updater is None else self._updater.optimizer
        facts = functools.partial(RankFacts, self._world.rank, _versions(), _settings(), operation, tensors,
                                  type(optimizer).__name__)
        numbers = _hyperparameters(optimizer)
        known = (operation, type(optimizer), *tensors)
        key = self._keys.get(known)
        if key is None:
            key = replace(facts(), rank=0).to_json().encode()
            self._keys.put(known, key)
        with _as_mxnet_errors():
            self._world.begin(key, repr(numbers).encode(), facts=lambda: facts(numbers))

    def _stop(self) -> None:
        for sums in self._sums.values():
            sums.stop()


@contextmanager
def _as_mxnet_errors() -> Iterator[None]:
    try:
        yield
    except DistributedError as error:
        raise MXNetError(str(error)) from error


def _over_devices(row: Sequence[NDArray]) -> NDArray:
    return row[0] if len(row) == 1 else sum(each.as_in_context(row[0].context) for each in row)


def _summed(key: Any, dtype: np.dtype) -> np.dtype:
    try:
        return summed_dtype(dtype)
    except TypeError as error:
        raise MXNetError(f"{key}: {error}") from None


@functools.cache
def _versions() -> dict[str, str]:
    return {"ngraph_mxnet": __version__, "mxnet": mx.__version__}


def _settings() -> dict[str, str]:
    return {name: str(config.get(name)) for name in SETTINGS}


def _hyperparameters(optimizer: opt.Optimizer | None) -> dict[str, float]:
    """Those that are numbers. They may change with each step, and with them the weights, in all ranks alike."""
    if optimizer is None:
        return {}
    numbers = {name: value for name, value in vars(optimizer).items() if isinstance(value, (bool, int, float))}
    return {**numbers, "learning_rate": optimizer.learning_rate}


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
