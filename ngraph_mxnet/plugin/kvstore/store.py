"""The kvstore of this package, its row_sparse arrays, and files of MXNet's that appear whole or not at all.

A process that ends while it writes a checkpoint leaves the one before. Cases:
* what libmxnet writes by name (`mx.nd.save`, `npx.save`, `Symbol.save`, and so `save_parameters`, `export`,
  `save_checkpoint`): it writes a file beside, which then takes the place;
* what Python writes (`Trainer.save_states`, `Module.save_optimizer_states`): the same;
* what is no file of a folder that can be written to: MXNet's own way. So are URIs, stdin and stdout, devices.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import itertools
import logging
import math
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import mxnet as mx
import numpy as np
from mxnet import autograd
from mxnet import optimizer as opt
from mxnet.base import _LIB, MXNetError, check_call
from mxnet.gluon import Trainer
from mxnet.kvstore import KVStoreBase
from mxnet.module import Module
from mxnet.ndarray import NDArray
from mxnet.ndarray.sparse import RowSparseNDArray

from ngraph_mxnet.base import config
from ngraph_mxnet.base.errors import DistributedError
from ngraph_mxnet.base.files import replacement, write_file
from ngraph_mxnet.base.forks import Recent
from ngraph_mxnet.base.version import __version__
from ngraph_mxnet.distributed import GradientSet, Rows, Source, World, broadcast_rows, sum_rows, world
from ngraph_mxnet.distributed.gradients import bucket_bytes, summed_dtype
from ngraph_mxnet.distributed.world import Placement, RankFacts, Tensor
from ngraph_mxnet.distributed.world import place as placed
from ngraph_mxnet.plugin.arrays import settled

_Save = Callable[..., Any]

_NATIVE = {"MXNDArraySave": 0, "MXSymbolSaveToFile": 1}
"""Functions of libmxnet, and which of their arguments is the file's name."""
_METHODS = ((Trainer, "save_states"), (Module, "save_optimizer_states"))
_stock: dict[tuple[Any, str], _Save] = {}
"""The functions that are replaced now, by owner and name."""


class _SaveError(Exception):
    """libmxnet has failed; it keeps the message."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


def make_saves_atomic() -> None:
    """From now on."""
    if _stock:
        return
    for name, place in _NATIVE.items():
        _replace(_LIB, name, functools.partial(_native, place))
    for kind, name in _METHODS:
        _replace(kind, name, _method)


def remove() -> None:
    """Until now."""
    for (owner, name), stock in _stock.items():
        setattr(owner, name, stock)
    _stock.clear()


def _replace(owner: Any, name: str, made: Callable[[_Save], _Save]) -> None:
    _stock[owner, name] = stock = getattr(owner, name)
    setattr(owner, name, made(stock))


def _native(place: int, stock: _Save) -> _Save:
    def save(*arguments: Any) -> int:
        path = _file(os.fsdecode(arguments[place].value))
        if path is None:
            return int(stock(*arguments))
        try:
            with _kept_mode(path) as temporary:
                name = ctypes.c_char_p(os.fsencode(temporary))
                status = int(stock(*arguments[:place], name, *arguments[place + 1:]))
                if status:
                    raise _SaveError(status)
        except _SaveError as error:
            return error.status
        return 0

    return save


def _method(stock: _Save) -> _Save:
    @functools.wraps(stock)
    def save(self: Any, fname: str) -> None:
        path = _file(fname)
        if path is None:
            return stock(self, fname)
        with _kept_mode(path) as temporary:
            stock(self, str(temporary))

    return save


@contextmanager
def _kept_mode(path: Path) -> Iterator[Path]:
    """`replacement`, with the permissions of the older file, which writing over it would keep."""
    with replacement(path) as temporary:
        yield temporary
        with suppress(FileNotFoundError):
            shutil.copymode(path, temporary)


def _file(name: str) -> Path | None:
    """The file that MXNet means, behind links; None where it can't be written to beside and renamed."""
    if "://" in name or name in ("stdin", "stdout"):
        return None
    path = Path(os.path.realpath(name))
    may_replace = path.is_file() or not path.exists()
    return path if may_replace and os.access(path.parent, os.W_OK | os.X_OK) else None


STORAGE = "row_sparse"
"""The storage type of row_sparse arrays, as MXNet names it."""


def rows_of(key: Any, array: RowSparseNDArray) -> Rows:
    """Raises MXNetError: the ids of its rows don't rise, or are beyond its shape. MXNet does not check that."""
    ids = array.indices.asnumpy()
    if (ids[1:] <= ids[:-1]).any():
        raise MXNetError(f"the row ids of {key} don't rise: expected each once, in order, found {ids.tolist()[:20]}")
    _check_range(key, ids, array)
    return Rows(ids, array.data.asnumpy().reshape(len(ids), math.prod(array.shape[1:])))


def array_of(rows: Rows, like: RowSparseNDArray) -> RowSparseNDArray:
    """With these rows, else `like` that array: its shape, device and dtype."""
    if not len(rows.ids):
        return mx.nd.sparse.zeros(STORAGE, like.shape, like.ctx, like.dtype)
    values = rows.values.reshape(-1, *like.shape[1:]).astype(like.dtype)
    return mx.nd.sparse.row_sparse_array((values, rows.ids), like.shape, like.ctx, like.dtype)


def retained(key: Any, array: NDArray, ids: NDArray) -> RowSparseNDArray:
    """The rows of `ids`, in any order, each any number of times; those that `array` does not hold are 0.

    Raises:
        MXNetError: `array` is dense, or has no such rows.
    """
    if array.stype != STORAGE:
        raise MXNetError(f"the store's {key} is {array.stype}, only of row_sparse arrays rows are pulled: pull it all")
    wanted = np.unique(ids.asnumpy()).astype(np.int64)
    _check_range(key, wanted, array)
    with autograd.pause():
        return mx.nd.sparse.retain(array, mx.nd.array(wanted, array.ctx, np.int64))


def copy(source: NDArray, targets: Sequence[NDArray]) -> None:
    """To arrays of either storage, also while a forward pass is recorded, in which Gluon pulls the rows it reads."""
    with autograd.pause():
        for target in targets:
            (source if source.stype == target.stype else source.tostype(target.stype)).copyto(target)


def _check_range(key: Any, ids: np.ndarray, array: NDArray) -> None:
    """Raise MXNetError if row ids, which rise, are beyond the array's rows."""
    if len(ids) and not 0 <= ids[0] <= ids[-1] < array.shape[0]:
        raise MXNetError(f"{key} has {array.shape[0]} rows, found the row ids {ids[0]} to {ids[-1]}")


logger = logging.getLogger("ngraph_mxnet")


@functools.cache
def place_once() -> Placement:
    """Before the first graph is compiled, if possible."""
    placement = placed()
    if placement.pinned:
        _LIB.MXSetNumOMPThreads(config.threads())
    logger.info("%s; a graph has %d threads", placement.text, config.threads())
    return placement


_PATIENCE = 3
"""Rounds in a row in which the script has written to gradients behind the backward pass: it always will."""


class Sums:
    """The sums of the same gradients in each step, over all ranks.

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
            make_saves_atomic()
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
        """True if the capability is `optimizer`, the only one of this store.

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
            copy(self._of_rank_0(each, first), targets)  # by the engine: a layout may be oneDNN's
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
        rows = [rows_of(keys[number], over_devices(gradients[number])) for number in sparse]
        self._begin("pushpull", [_tensor(each, row[0]) for each, row in zip(keys, gradients, strict=True)])
        with _as_mxnet_errors():
            buckets = self._dense_sums(_those(keys, dense), _those(gradients, dense), isinstance(key, (list, tuple)))
            if sparse:
                totals = [array_of(total, gradients[number][0])
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
            copy(self.kept(each), targets)

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
                if target.stype != STORAGE:
                    raise MXNetError(f"the array for rows of {each} is {target.stype}, expected a row_sparse one")
            found = [retained(each, self.kept(each), wanted) for wanted in ids]
            for target, rows in zip(targets, itertools.cycle(found)):
                copy(rows, [target])

    def kept(self, key: Any) -> NDArray:
        """Return the array that the store has kept of `key`. For row_sparse weights, training changes this array.

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
        """Write the optimizer states of this rank to a file. All ranks have the same states."""
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
        if array.stype == STORAGE:
            rows = rows_of(key, array)
            self._begin("broadcast", [_tensor(key, array)])
            with _as_mxnet_errors():
                return array_of(broadcast_rows(self._world, rows), array)
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
        """Sum dense arrays that come alone. Nothing is made ready for their next sum."""
        total = over_devices(row).asnumpy()
        data = total.astype(summed_dtype(total.dtype))
        self._world.sum(data)
        return mx.nd.array(data, dtype=total.dtype)

    def _use(self, keys: Sequence[Any], results: Sequence[NDArray], targets: Sequence[Sequence[NDArray]]) -> None:
        """Updates the targets by these sums, or writes them there."""
        if self._updater is None:
            for result, row in zip(results, targets, strict=True):
                copy(result, row)
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
        key = self._keys.get_or_make((operation, type(optimizer), *tensors),
                                     lambda: replace(facts(), rank=0).to_json().encode())
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
    """Return the optimizer's hyperparameters that are numbers. They may change with each step, in all ranks alike, and
    the weights change with them."""
    if optimizer is None:
        return {}
    numbers = {name: value for name, value in vars(optimizer).items() if isinstance(value, (bool, int, float))}
    return {**numbers, "learning_rate": optimizer.learning_rate}


def _by_storage(gradients: Sequence[Sequence[NDArray]]) -> tuple[list[int], list[int]]:
    """Numbers of row_sparse ones, and of dense ones, which so have a compiled update."""
    sparse = [number for number, row in enumerate(gradients) if row[0].stype == STORAGE]
    return sparse, sorted({*range(len(gradients))}.difference(sparse))


def _check_storage(key: Any, row: Sequence[NDArray]) -> None:
    """Raises MXNetError: of such arrays there are no sums."""
    found = sorted({array.stype for array in row})
    if found not in (["default"], [STORAGE]):
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
