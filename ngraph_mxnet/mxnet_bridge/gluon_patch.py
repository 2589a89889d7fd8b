"""Hybridized Gluon blocks: compiled for inference, MXNet's own for everything else.

A block keeps its cached graph and cached op as MXNet builds them without a backend: training uses them, and
`export` writes them. Beside them it gets *compiled bodies*, one per kind of input. Cases of a call:
* backend NGRAPH, by `hybridize(backend=...)` or `optimize_for`, in any case of letters; or no backend and the
  environment variable names ours: the compiled body, if autograd neither records nor is in training mode and
  no operator hook is set;
* a shape that the body's partition was not made for and that does not compile: a body made for that shape;
* no region is supported, or that fails too: MXNet's own cached op, and the log says why.

`export` after an explicit backend writes the partitioned graph, as MXNet does for any backend.
"""

from __future__ import annotations

import functools
import json
import logging
import warnings
from typing import Any

from mxnet import autograd
from mxnet.base import MXNetError
from mxnet.gluon.block import HybridBlock, _flatten
from mxnet.ndarray import NDArray
from mxnet.ndarray.sparse import BaseSparseNDArray

from ngraph_mxnet.mxnet_bridge import callbacks, environment, interrupts, partitioner

logger = logging.getLogger("ngraph_mxnet")

stock_build_cache = HybridBlock._build_cache
stock_call_cached_op = HybridBlock._call_cached_op
stock_export = HybridBlock.export

#: Where a block keeps its bodies; not a Gluon attribute, so it is set past `Block.__setattr__`.
BODIES = "_ngraph_bodies"

#: A model fed with shapes that never repeat must not grow without bound.
MOST_SIGNATURES = 256

Signature = tuple[Any, ...]


def install() -> None:
    HybridBlock._build_cache = _build_cache
    HybridBlock._call_cached_op = interrupts.delivering(_call_cached_op)
    HybridBlock.export = export


class CompiledBody:
    """A partitioned graph and its cached op, with the attributes that MXNet's own block methods work on.

    So MXNet's `_build_cache`, `_call_cached_op` and `export` serve it as they serve a block.
    """

    def __init__(self, block: HybridBlock) -> None:
        self._original_graph = self._cached_graph = block._cached_graph
        self._cached_op_args = block._cached_op_args
        self._cached_op = None
        self._in_format, self._out_format = block._in_format, block._out_format
        self._flags = block._flags
        self._backend = environment.BACKEND
        inputs = [variable.name for variable in block._cached_graph[0]]
        self._backend_opts = {**block._backend_opts, callbacks.DATA: json.dumps(inputs)}
        self._callback, self._monitor_all = None, False
        self.made_for: Signature | None = None

    def _get_graph(self, *args: Any) -> Any:
        return self._original_graph

    def build(self, *args: Any) -> str | None:
        """Partition for these inputs; returns why nothing came of it."""
        reason = _reason_for_native(self, args)
        if reason is not None:
            return reason
        if all(isinstance(arg, NDArray) for arg in args):
            self.made_for = _signature(list(args))
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # MXNet has told about unused inputs for the block itself
                stock_build_cache(self, *args)
        except (MXNetError, RuntimeError, ValueError) as error:
            return f"partitioning failed: {error}"
        if not partitioner.has_region(self._cached_graph[1]):
            return "no region is supported; see ngraph_mxnet.explain"
        hold_parameters(self)
        return None


def hold_parameters(block: HybridBlock | CompiledBody) -> None:
    """Make the new cached op hold the parameters that it is called with."""
    from ngraph_mxnet.mxnet_bridge.held_op import HeldCachedOp

    block._cached_op = HeldCachedOp(
        block._cached_op, [at for at, (is_input, _) in enumerate(block._cached_op_args) if not is_input])


class CompiledBodies:
    """The bodies of one block, valid as long as the block keeps the cached op they stand beside.

    A body serves all shapes of a *kind* of input (dtypes and ranks), because MXNet hands each call's shapes
    to the compiled regions; only where that fails a shape gets a body of its own.
    """

    def __init__(self, block: HybridBlock) -> None:
        self.cached_op = block._cached_op
        self.latest: CompiledBody | None = None
        self._by_signature: dict[Signature, CompiledBody | None] = {}
        self._by_kind: dict[Signature, CompiledBody | None] = {}

    def find(self, block: HybridBlock, args: list[Any]) -> CompiledBody | None:
        """The body to run for these inputs, made if need be; None: MXNet's own."""
        signature = _signature(args)
        try:
            return self._by_signature[signature]
        except KeyError:
            pass
        with environment.lock:
            kind = tuple((of_type, dtype, len(shape)) for of_type, dtype, shape in signature)
            if kind not in self._by_kind:
                self._by_kind[kind] = self.build(block, args)
            return self._remember(signature, self._by_kind[kind])

    def after_failure(self, block: HybridBlock, args: list[Any], failed: CompiledBody) -> CompiledBody | None:
        """The body to run for these inputs now that one has failed on them."""
        with environment.lock:
            signature = _signature(args)
            made_for_it = failed.made_for == signature
            return self._remember(signature, None if made_for_it else self.build(block, args))

    def build(self, block: HybridBlock, args: list[Any]) -> CompiledBody | None:
        body = CompiledBody(block)
        reason = body.build(*args)
        if reason is not None:
            logger.info("MXNet itself runs %s: %s", block.name, reason)
            return None
        self.latest = body
        return body

    def _remember(self, signature: Signature, body: CompiledBody | None) -> CompiledBody | None:
        if len(self._by_signature) >= MOST_SIGNATURES:
            self._by_signature.clear()
        self._by_signature[signature] = body
        return body


@functools.wraps(stock_build_cache)
def _build_cache(self: HybridBlock, *args: Any) -> None:
    """Reached from `optimize_for`, and from a first call that is not ours."""
    if not environment.names_backend(self._backend):
        stock_build_cache(self, *args)
        if environment.problem() is None and partitioner.has_region(self._cached_graph[1]):  # partitioned elsewhere
            hold_parameters(self)
        return
    if environment.problem() is not None:
        raise MXNetError(f"the backend {environment.BACKEND} is not usable: {environment.problem()}")
    _build_native(self, *args)
    flat = _flat(args)
    if all(isinstance(arg, NDArray) for arg in flat):
        _bodies(self).find(self, flat)
    else:
        _bodies(self).build(self, flat)


@functools.wraps(stock_call_cached_op)
def _call_cached_op(self: HybridBlock, *args: Any) -> Any:
    explicit = environment.names_backend(self._backend)
    if not (explicit or (self._backend is None and environment.requested())):
        return stock_call_cached_op(self, *args)
    if environment.problem() is not None:
        if explicit:
            raise MXNetError(f"the backend {environment.BACKEND} is not usable: {environment.problem()}")
        return stock_call_cached_op(self, *args)
    if self._cached_op is None:
        _build_native(self, *args)
    if self._callback is not None or autograd.is_recording() or autograd.is_training():
        return stock_call_cached_op(self, *args)
    flat = _flat(args)
    bodies = _bodies(self)
    body = bodies.find(self, flat)
    while body is not None:
        try:
            return stock_call_cached_op(body, *args)
        except MXNetError as error:
            logger.info("%s did not compile for %s: %s", self.name, [arg.shape for arg in flat], error)
            body = bodies.after_failure(self, flat, body)
    return stock_call_cached_op(self, *args)


@functools.wraps(stock_export)
def export(self: HybridBlock, path: str, epoch: int = 0, remove_amp_cast: bool = True) -> Any:
    body = _bodies(self).latest if environment.names_backend(self._backend) else None
    return stock_export(self if body is None else body, path, epoch, remove_amp_cast)


def _build_native(block: HybridBlock, *args: Any) -> None:
    """MXNet's own cached graph and op, as without a backend."""
    with environment.lock:
        backend = block._backend
        block._backend = None
        try:
            stock_build_cache(block, *args)
        finally:
            block._backend = backend


def _bodies(block: HybridBlock) -> CompiledBodies:
    """The block's bodies; new ones when MXNet has rebuilt or dropped the cached op since."""
    bodies = block.__dict__.get(BODIES)
    if bodies is None or bodies.cached_op is not block._cached_op:
        bodies = block.__dict__[BODIES] = CompiledBodies(block)
    return bodies


def _flat(args: tuple[Any, ...]) -> list[Any]:
    """The inputs that are there, in the order of the graph's data variables."""
    return [arg for arg in _flatten(args, "input")[0] if arg is not None]


def _signature(args: list[Any]) -> Signature:
    return tuple((type(arg), arg.dtype, arg.shape) for arg in args)


def _reason_for_native(body: CompiledBody, args: tuple[Any, ...]) -> str | None:
    """Why a call is not ours at all; None when it is."""
    for arg in args:
        if isinstance(arg, BaseSparseNDArray):
            return f"an input of shape {arg.shape} has storage type {arg.stype}"
        if isinstance(arg, NDArray) and arg.context.device_type != "cpu":
            return f"the device is {arg.context}, the backend runs on cpu"
    for is_input, parameter in body._cached_op_args:
        if not is_input and parameter._stype != "default":
            return f"the parameter {parameter.name} has storage type {parameter._stype}"
    return None
