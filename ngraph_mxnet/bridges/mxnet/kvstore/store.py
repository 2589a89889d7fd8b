"""The kvstore: sums of gradients over the processes of an MPI job, and the update in each of them."""

from __future__ import annotations

import atexit
import functools
import itertools
import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar

import mxnet as mx
import numpy as np
from mxnet import autograd
from mxnet import optimizer as opt
from mxnet.base import MXNetError
from mxnet.kvstore import KVStoreBase
from mxnet.ndarray import NDArray

from ngraph_mxnet import config
from ngraph_mxnet.bridges.mxnet.kvstore import atomic_saves, row_sparse
from ngraph_mxnet.bridges.mxnet.kvstore.places import place_once
from ngraph_mxnet.bridges.mxnet.kvstore.sums import Sums, over_devices
from ngraph_mxnet.bridges.mxnet.settled import settled
from ngraph_mxnet.distributed import broadcast_rows, sum_rows, world
from ngraph_mxnet.distributed.plan import summed_dtype
from ngraph_mxnet.distributed.rank_facts import RankFacts, Tensor
from ngraph_mxnet.errors import DistributedError
from ngraph_mxnet.package.files import write_file
from ngraph_mxnet.recent import Recent
from ngraph_mxnet.version import __version__

logger = logging.getLogger("ngraph_mxnet")

_Item = TypeVar("_Item")

NAME = "dist_sync_ngraph"
SETTINGS = ("NGRAPH_KVSTORE_BUCKET", "NGRAPH_KVSTORE_SHARED_MEMORY", "NGRAPH_KVSTORE_WIRE")
"""On which it depends what ranks say to each other."""


class NGraphKVStore(KVStoreBase):
    """`dist_sync` without servers: `push` is a sum over all ranks, and each rank updates its own weights, which stay
    the same in all of them.

    Keys are ints or texts, as MXNet's; arrays are dense or row_sparse, float16, float32 or float64. Of row_sparse ones
    only the rows that a rank has go to the others.

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
        self._known: set[Any] = set()
        """Keys that `init` or `broadcast` has had."""
        self._ignored: set[Any] = set()
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
            row_sparse.copy(self._of_rank_0(each, first), targets)  # by the engine: a layout may be oneDNN's
            self._known.add(each)

    def init(self, key: Any, value: Any) -> None:
        """The store keeps rank 0's `value`, for `push` and `pull`."""
        for each, (first, *_) in zip(_listed(key), _rows(key, value), strict=True):
            with autograd.pause():  # MXNet makes Trainers' stores ready in a forward pass, where there is none before
                self._kept[each] = first.copy()
            self.broadcast(each, first, self._kept[each])

    def pushpull(self, key: Any, value: Any, out: Any = None, priority: int = 0) -> None:
        """Sums `value` over all devices and ranks. With an optimizer the weights `out` are updated by it; else the sums
        are written to `out`, or to `value` without one. Lists of keys, of which all ranks give the same in the same
        order, are summed together: what a Trainer or a Module does in one step.

        Raises:
            MXNetError: the ranks can't go on, or with an optimizer a key was never initialised; the text says why.
        """
        keys, gradients = _listed(key), _rows(key, value)
        if self._updater is not None:
            for each in keys:
                self._require_known(each)
        targets = gradients if out is None else _rows(key, out)
        for each, row in zip(keys, gradients, strict=True):
            _check_storage(each, row)
        if not keys:
            return
        if self._world.size == 1:
            self._alone(keys, gradients, targets, out is None)
            return
        for each, row in zip(keys, gradients, strict=True):
            _check_dtype(each, row[0].dtype)
        for array in itertools.chain(*gradients):
            array.wait_to_read()  # the backward pass has the cores until then
        sparse, dense = _by_storage(gradients)
        rows = [row_sparse.rows_of(keys[number], over_devices(gradients[number])) for number in sparse]
        self._begin("pushpull", [_tensor(each, row[0]) for each, row in zip(keys, gradients, strict=True)])
        with _as_mxnet_errors():
            buckets = self._dense_sums(_those(keys, dense), _those(gradients, dense), isinstance(key, (list, tuple)))
            if sparse:
                totals = [row_sparse.array_of(total, gradients[number][0])
                          for number, total in zip(sparse, sum_rows(self._world, rows), strict=True)]
                self._use(_those(keys, sparse), totals, _those(targets, sparse))
            for places, results in buckets:
                numbers = _those(dense, places)
                self._use(_those(keys, numbers), results, _those(targets, numbers))

    def push(self, key: Any, value: Any, priority: int = 0) -> None:
        """The sum of `value` over all ranks updates what `init` has kept, or without an optimizer takes its place.

        Raises:
            MXNetError: as `pushpull`, or the store has no such key.
        """
        for each, row in zip(_listed(key), _rows(key, value), strict=True):
            kept = self.kept(each)
            if self._updater is None and kept.stype != row[0].stype:
                kept = self._kept[each] = kept.tostype(row[0].stype)
            self.pushpull(each, row, kept)

    def pull(self, key: Any, out: Any, priority: int = 0, ignore_sparse: bool = True) -> None:
        """Writes what the store has kept to `out`; to row_sparse arrays only with `ignore_sparse=False`, for
        `row_sparse_pull` gives those the rows that they need.

        Raises:
            MXNetError: the store has no such key.
        """
        for each, row in zip(_listed(key), _rows(key, out), strict=True):
            targets = [target for target in row if target.stype == "default" or not ignore_sparse]
            if len(targets) < len(row) and each not in self._ignored:
                self._ignored.add(each)
                logger.warning("%s is row_sparse, pull leaves it as it is: use row_sparse_pull, Module.prepare, or "
                               "ignore_sparse=False", each)
            row_sparse.copy(self.kept(each), targets)

    def row_sparse_pull(self, key: Any, out: Any = None, priority: int = 0, row_ids: Any = None) -> None:
        """Writes rows of what the store has kept to `out`, which is row_sparse and has no others from then on.

        Args:
            row_ids: the rows, of any shape and number type, in any order, each any number of times; one array, or one
                for each of `out`. Of a list of keys a list of them.

        Raises:
            MXNetError: the store has no such key, or a dense array or no such rows of it; or `out` is dense.
        """
        if out is None or row_ids is None:
            raise MXNetError(f"row_sparse_pull of {key} wants out and row_ids")
        for each, targets, ids in zip(_listed(key), _rows(key, out), _rows(key, row_ids), strict=True):
            if len(ids) not in (1, len(targets)):
                raise MXNetError(f"{len(targets)} arrays for {each} have {len(ids)} of row ids")
            for target in targets:
                if target.stype != row_sparse.STORAGE:
                    raise MXNetError(f"the array for rows of {each} is {target.stype}, expected a row_sparse one")
            found = [row_sparse.retained(each, self.kept(each), wanted) for wanted in ids]
            for target, rows in zip(targets, itertools.cycle(found)):
                row_sparse.copy(rows, [target])

    def kept(self, key: Any) -> NDArray:
        """What the store has kept of `key`: of row_sparse weights this is what is trained.

        Raises:
            MXNetError: there is none.
        """
        if key not in self._kept:
            self._require_known(key)
            raise MXNetError(f"{NAME} keeps no array of {key}: init comes first, broadcast keeps none")
        return self._kept[key]

    def _require_known(self, key: Any) -> None:
        """Raises MXNetError: nobody has initialised the key, as in MXNet's own stores."""
        if key not in self._known:
            raise MXNetError(f"{NAME}: the key {key} has not been initialised: init or broadcast comes first")

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

    def _of_rank_0(self, key: Any, array: NDArray) -> NDArray:
        """Rank 0's `array`."""
        if array.stype == row_sparse.STORAGE:
            rows = row_sparse.rows_of(key, array)
            self._begin("broadcast", [_tensor(key, array)])
            with _as_mxnet_errors():
                return row_sparse.array_of(broadcast_rows(self._world, rows), array)
        data = np.ascontiguousarray(settled(array))
        self._begin("broadcast", [_tensor(key, array)])
        with _as_mxnet_errors():
            self._world.broadcast(data)
        return mx.nd.array(data, dtype=data.dtype)

    def _dense_sums(self, keys: Sequence[Any], gradients: Sequence[Sequence[NDArray]],
                    together: bool) -> Iterable[tuple[Sequence[int], Sequence[NDArray]]]:
        """Begins, and gives numbers of keys and their sums over all devices and ranks as they come. Those that come
        together, in each step, are made by a thread of their own."""
        if not keys:
            return ()
        if not together:
            return [([0], [self._sum(gradients[0])])]
        sums = self._sums.get(tuple(keys))
        if sums is None:
            sums = self._sums[tuple(keys)] = Sums(self._world, gradients)
        return sums.sum(gradients)

    def _sum(self, row: Sequence[NDArray]) -> NDArray:
        """Of dense arrays that come alone: nothing is made ready for their next sum."""
        total = over_devices(row).asnumpy()
        data = total.astype(summed_dtype(total.dtype))
        self._world.sum(data)
        return mx.nd.array(data, dtype=total.dtype)

    def _use(self, keys: Sequence[Any], results: Sequence[NDArray], targets: Sequence[Sequence[NDArray]]) -> None:
        """Updates the targets by these sums, or writes them there."""
        if self._updater is None:
            for result, row in zip(results, targets, strict=True):
                row_sparse.copy(result, row)
            return
        alike = [result if result.dtype == row[0].dtype else result.astype(row[0].dtype)
                 for result, row in zip(results, targets, strict=True)]
        self._updater(list(keys), alike, [row[0] for row in targets])
        for row in targets:
            for other in row[1:]:
                row[0].copyto(other)

    def _alone(self, keys: Sequence[Any], gradients: Sequence[Sequence[NDArray]], targets: Sequence[Sequence[NDArray]],
               in_place: bool) -> None:
        if self._updater is None and in_place and all(len(row) == 1 for row in gradients):
            return
        for numbers in filter(None, _by_storage(gradients)):
            self._use(_those(keys, numbers), list(map(over_devices, _those(gradients, numbers))),
                      _those(targets, numbers))

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


def _tensor(key: Any, array: NDArray) -> Tensor:
    return Tensor(str(key), array.shape, np.dtype(array.dtype).name, array.stype)


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


def _by_storage(gradients: Sequence[Sequence[NDArray]]) -> tuple[list[int], list[int]]:
    """Numbers of row_sparse ones, and of dense ones, which so have a compiled update."""
    sparse = [number for number, row in enumerate(gradients) if row[0].stype == row_sparse.STORAGE]
    return sparse, sorted({*range(len(gradients))}.difference(sparse))


def _check_storage(key: Any, row: Sequence[NDArray]) -> None:
    """Raises MXNetError: of such arrays there are no sums."""
    found = sorted({array.stype for array in row})
    if found not in (["default"], [row_sparse.STORAGE]):
        raise MXNetError(f"the gradient of {key} is {' and '.join(found)}, {NAME} sums dense or row_sparse ones")


def _check_dtype(key: Any, dtype: Any) -> None:
    """Raises MXNetError: of such numbers there are no sums over processes."""
    try:
        summed_dtype(np.dtype(dtype))
    except TypeError as error:
        raise MXNetError(f"{key}: {error}") from None


def _those(rows: Sequence[_Item], numbers: Iterable[int]) -> list[_Item]:
    return [rows[number] for number in numbers]


def _listed(key: Any) -> list[Any]:
    return list(key) if isinstance(key, (list, tuple)) else [key]


def _rows(key: Any, value: Any) -> list[list[NDArray]]:
    """For each key its arrays."""
    rows = list(value) if isinstance(key, (list, tuple)) else [value]
    return [list(row) if isinstance(row, (list, tuple)) else [row] for row in rows]
