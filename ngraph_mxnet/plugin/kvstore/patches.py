"""Trainer and Module give the store all gradients of a step at once, where MXNet gives it one after the other."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from mxnet import model
from mxnet.gluon import Trainer, trainer
from mxnet.kvstore import KVStoreBase
from mxnet.module import module
from mxnet.ndarray import NDArray

from ngraph_mxnet.base import config
from ngraph_mxnet.plugin.kvstore import store
from ngraph_mxnet.plugin.kvstore.store import NAME, NGraphKVStore

OTHER_NAMES = ("dist_sync", "dist_device_sync", "dist_sync_device")
"""Names of MXNet's own stores. With NGRAPH_KVSTORE=1 these stores are ours."""

_stock_init = Trainer.__init__
_stock_allreduce = Trainer._allreduce_grads
_stock_rescale = Trainer._check_and_rescale_grad
_stock_update = model._update_params
_stock_update_on_store = model._update_params_on_kvstore
_stock_initialize = model._initialize_kvstore
_stock_create_sparse = model._create_sparse_kvstore


def install() -> None:
    """Any number of times."""
    names = [NAME, *(OTHER_NAMES if config.get("NGRAPH_KVSTORE") else ())]
    KVStoreBase.kv_registry.update(dict.fromkeys(names, NGraphKVStore))
    if config.get("NGRAPH_KVSTORE"):
        store.place_once()
    Trainer.__init__ = _init
    Trainer._allreduce_grads = _allreduce
    Trainer._check_and_rescale_grad = _rescale
    trainer._create_sparse_kvstore = _create_sparse
    module._update_params = _update
    module._update_params_on_kvstore = _update_on_store
    module._initialize_kvstore = _initialize


@functools.wraps(_stock_init)
def _init(self: Trainer, params: Any, optimizer: Any, optimizer_params: Any = None, kvstore: Any = "device",
          *args: Any, **kwargs: Any) -> None:
    """MXNet makes the store, and gives rank 0's weights to all, at the first step: then the net is compiled already,
    for threads that the process is not to have, and the first gradients are those of other weights.

    Sparse gradients it takes to subclasses of `KVStore` only, and what these can't do with them it refuses; here they
    are summed and used as dense ones are."""
    named = isinstance(kvstore, str) and KVStoreBase.kv_registry.get(kvstore.lower()) is NGraphKVStore
    if named:
        store.place_once()
    _stock_init(self, params, optimizer, optimizer_params, kvstore, *args, **kwargs)
    if not named and not isinstance(kvstore, NGraphKVStore):
        return
    self._contains_sparse_grad = False
    if all(param._data for param in self._params):
        self._init_kvstore()
        self._init_params()


@functools.wraps(_stock_create_sparse)
def _create_sparse(kvstore: Any) -> tuple[Any, bool]:
    """MXNet takes subclasses of `KVStore` only."""
    return (kvstore, True) if isinstance(kvstore, NGraphKVStore) else _stock_create_sparse(kvstore)


@functools.wraps(_stock_allreduce)
def _allreduce(self: Trainer) -> None:
    if not isinstance(self._kvstore, NGraphKVStore):
        _stock_allreduce(self)
        return
    rows = [(number, param) for number, param in enumerate(self._params) if param.grad_req != "null"]
    self._kvstore.pushpull([number for number, _ in rows], [param.list_grad() for _, param in rows],
                           [_trained(self._kvstore, number, param._data) for number, param in rows]
                           if self._update_on_kvstore else None)


@functools.wraps(_stock_rescale)
def _rescale(self: Trainer, scale: float) -> None:
    """MXNet's servers have a copy of the optimizer, which learns of no other batch size; here each rank has its own."""
    if isinstance(self._kvstore, NGraphKVStore):
        self._optimizer.rescale_grad = scale
    else:
        _stock_rescale(self, scale)


@functools.wraps(_stock_update)
def _update(param_arrays: Sequence[Any], grad_arrays: Sequence[Any], updater: Callable[..., Any], num_device: int,
            kvstore: Any = None, param_names: Sequence[str] | None = None) -> None:
    if isinstance(kvstore, NGraphKVStore):
        names, gradients, _ = _wanted(param_arrays, grad_arrays, param_names or ())
        kvstore.pushpull(names, gradients)
        kvstore = None
    _stock_update(param_arrays, grad_arrays, updater, num_device, kvstore, param_names)


@functools.wraps(_stock_update_on_store)
def _update_on_store(param_arrays: Sequence[Any], grad_arrays: Sequence[Any], kvstore: Any,
                     param_names: Sequence[str]) -> None:
    if isinstance(kvstore, NGraphKVStore):
        names, gradients, weights = _wanted(param_arrays, grad_arrays, param_names)
        kvstore.pushpull(names, gradients, [_trained(kvstore, *row) for row in zip(names, weights, strict=True)])
    else:
        _stock_update_on_store(param_arrays, grad_arrays, kvstore, param_names)


@functools.wraps(_stock_initialize)
def _initialize(kvstore: Any, param_arrays: Sequence[Any], arg_params: dict[str, NDArray], param_names: Sequence[str],
                update_on_kvstore: bool) -> None:
    """MXNet gives weights to other ranks only where the store updates them, and row_sparse ones when their rows are
    pulled, which is behind the first batch."""
    if not isinstance(kvstore, NGraphKVStore):
        _stock_initialize(kvstore, param_arrays, arg_params, param_names, update_on_kvstore)
        return
    _stock_initialize(kvstore, param_arrays, arg_params, param_names, True)
    for name, weights in zip(param_names, param_arrays, strict=True):
        if weights[0].stype != "default":
            kvstore.pull(name, weights, ignore_sparse=False)


def _trained(kvstore: NGraphKVStore, key: Any, weights: Sequence[NDArray]) -> Sequence[NDArray]:
    """Return the arrays that an update of these weights writes to. For row_sparse weights that is the store's array,
    which has all rows. The weights themselves have only the rows that they need."""
    return weights if weights[0].stype == "default" else [kvstore.kept(key)]


def _wanted(param_arrays: Sequence[Any], grad_arrays: Sequence[Any],
            names: Sequence[str]) -> tuple[list[str], list[Any], list[Any]]:
    """Names, gradients and weights of those that have gradients."""
    rows = [row for row in zip(names, grad_arrays, param_arrays, strict=True) if row[1][0] is not None]
    return [row[0] for row in rows], [row[1] for row in rows], [row[2] for row in rows]
