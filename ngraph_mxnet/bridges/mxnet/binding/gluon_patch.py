"""Hybridized Gluon blocks: compiled for inference, MXNet's own for everything else.

A block keeps its cached graph and cached op as MXNet builds them without a backend: training uses them, and
`export` writes them. Beside them it gets *compiled bodies*, one per kind of input. Cases of a call:
* backend NGRAPH, by `hybridize(backend=...)` or `optimize_for`, in any case of letters; or no backend and the
  environment variable names ours: the compiled body, if autograd neither records nor is in training mode and
  no operator hook is set;
* a shape that the body's partition was not made for and that does not compile: a body made for that shape;
* no region is supported, or that fails too, whichever exception of ours it was: MXNet's own cached op, and the log says
  why, once for a block and reason.

Options of the backend that nobody knows are errors of `hybridize` and `optimize_for`.

`export` after an explicit backend writes the partitioned graph, as MXNet does for any backend.
"""

from __future__ import annotations

import functools
import inspect
import json
import warnings
from typing import Any

from mxnet import autograd
from mxnet.base import MXNetError
from mxnet.gluon import Parameter
from mxnet.gluon.block import HybridBlock, _flatten
from mxnet.ndarray import CachedOp, NDArray
from mxnet.ndarray.sparse import BaseSparseNDArray

from ngraph_mxnet.bridges.mxnet.binding import (
    direct,
    environment,
    fallbacks,
    gluon_training,
    interrupts,
    loss_training,
    quick_call,
)
from ngraph_mxnet.bridges.mxnet.binding.fallbacks import Refusal, brief
from ngraph_mxnet.bridges.mxnet.judging import partition_log, partitioner
from ngraph_mxnet.bridges.mxnet.options import DATA, PREFIX, check_options
from ngraph_mxnet.errors import ConfigError

stock_hybridize = HybridBlock.hybridize
stock_build_cache = HybridBlock._build_cache
stock_call_cached_op = HybridBlock._call_cached_op
stock_export = HybridBlock.export

#: Where a block keeps its bodies, and its training steps; not a Gluon attribute, so it is set past `Block.__setattr__`.
BODIES = "_ngraph_bodies"
TRAINING = "_ngraph_training"

#: A model fed with shapes that never repeat must not grow without bound.
MOST_SIGNATURES = 256

Signature = tuple[Any, ...]


def install() -> None:
    HybridBlock.hybridize = hybridize
    HybridBlock._build_cache = _build_cache
    HybridBlock._call_cached_op = interrupts.delivering(_call_cached_op)
    HybridBlock.export = export
    quick_call.install()
    loss_training.install()


class CompiledBody:
    """A partitioned graph and its cached op, with the attributes that MXNet's own block methods work on.

    So MXNet's `_build_cache`, `_call_cached_op` and `export` serve it as they serve a block.
    """

    def __init__(self, block: HybridBlock) -> None:
        self._original_graph = self._cached_graph = block._cached_graph
        # By the graph's names: `Block.load` renames neither `Parameter.name`, by which MXNet would look them up among
        # the arguments of an earlier cached op, nor those in a graph that it loads.
        arguments = zip(self._original_graph[1].list_inputs(), block._cached_op_args, strict=True)
        self._parameters = {name: found for name, (is_input, found) in arguments if not is_input}
        self._cached_op_args: list[tuple[bool, Any]] = []
        self._cached_op = None
        self._in_format, self._out_format = block._in_format, block._out_format
        self._flags = block._flags
        self._backend = environment.BACKEND
        inputs = [variable.name for variable in block._cached_graph[0]]
        self._backend_opts = {**_options(block._backend, block._backend_opts), DATA: json.dumps(inputs)}
        self._callback, self._monitor_all = None, False
        self.made_for: Signature | None = None

    def _get_graph(self, *args: Any) -> Any:
        return self._original_graph

    def collect_params(self) -> dict[str, Parameter]:
        return self._parameters

    def build(self, name: str, *args: Any) -> Refusal | None:
        """Partition for these inputs of the block called `name`; returns why nothing came of it."""
        reason = _reason_for_native(self._parameters, args)
        if reason is not None:
            return Refusal(name, reason)
        if all(isinstance(arg, NDArray) for arg in args):
            self.made_for = _signature(list(args))
        try:
            with warnings.catch_warnings(), partition_log.log.listening() as heard:
                warnings.simplefilter("ignore")  # MXNet has told about unused inputs for the block itself
                stock_build_cache(self, *args)
            if partitioner.has_region(self._cached_graph[1]):
                hold_parameters(self)
                return None
        except Exception as error:
            return Refusal(name, f"partitioning failed: {brief(error)}")
        left = partition_log.left_by_kind(heard)
        # Without unsupported operators nothing is amiss: it computes nothing, or what failed was told where it failed.
        return Refusal(name, f"no region is supported{left and ': ' + left}; see ngraph_mxnet.explain", quiet=not left)


def hold_parameters(block: HybridBlock | CompiledBody) -> None:
    """Make the new cached op hold the parameters that it is called with."""
    from ngraph_mxnet.bridges.mxnet.binding.held_op import HeldCachedOp

    op, symbol = block._cached_op, block._cached_graph[1]
    places: dict[bool, list[int]] = {True: [], False: []}
    for place, (is_input, _) in enumerate(block._cached_op_args):
        places[is_input].append(place)
    flags = [("data_indices", places[True]), ("param_indices", places[False]), *block._flags]
    held = HeldCachedOp(op, places[False])
    held.is_direct = direct.run_cached_op(op, symbol, held.holder)
    if not held.is_direct:
        held.make_for_shapes(lambda: CachedOp(symbol, flags), places[True])
    block._cached_op = held


class CompiledBodies:
    """The bodies of one block, valid as long as the block keeps the cached op they stand beside.

    A body serves all shapes of a *kind* of input (dtypes and ranks), because MXNet hands each call's shapes
    to the compiled regions; only where that fails a shape gets a body of its own.
    """

    def __init__(self, block: HybridBlock) -> None:
        self.cached_op = block._cached_op
        self.latest: CompiledBody | None = None
        self._by_signature: dict[Signature, CompiledBody | Refusal] = {}
        self._by_kind: dict[Signature, CompiledBody | Refusal] = {}

    def find(self, block: HybridBlock, args: list[Any]) -> CompiledBody | Refusal:
        """The body to run for these inputs, made if need be; or why MXNet's own."""
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

    def after_failure(
        self, block: HybridBlock, args: list[Any], failed: CompiledBody, error: Exception
    ) -> CompiledBody | Refusal:
        """The body to run for these inputs now that one has failed on them; or why MXNet's own, if it can run them."""
        with environment.lock:
            signature = _signature(args)
            if failed.made_for == signature:
                return Refusal(block.name, f"it does not compile: {brief(error)}")
            return self._remember(signature, self.build(block, args))

    def refuse(self, args: list[Any], refusal: Refusal) -> None:
        """MXNet's own has run these inputs, and is to run their like."""
        with environment.lock:
            self._remember(_signature(args), refusal)

    def build(self, block: HybridBlock, args: list[Any]) -> CompiledBody | Refusal:
        body = CompiledBody(block)
        refusal = body.build(block.name, *args)
        if refusal is not None:
            return refusal
        self.latest = body
        return body

    def _remember(self, signature: Signature, found: CompiledBody | Refusal) -> CompiledBody | Refusal:
        if len(self._by_signature) >= MOST_SIGNATURES:
            self._by_signature.clear()
        self._by_signature[signature] = found
        return found


def _options(backend: str | None, options: dict[str, Any]) -> dict[str, Any]:
    """The options of `hybridize` that are for us: all where it names our backend; where the environment variable chose
    it, those with our prefix, for the others may be somebody else's."""
    if environment.names_backend(backend):
        return options
    ours = backend is None and environment.requested()
    return {name: value for name, value in options.items() if ours and name.startswith(PREFIX)}


_hybridize_arguments = inspect.signature(stock_hybridize)


@functools.wraps(stock_hybridize)
def hybridize(self: HybridBlock, *args: Any, **kwargs: Any) -> None:
    """MXNet's, which also `optimize_for` calls, after it has set the block's options.

    Raises:
        ConfigError: an option for our backend is unknown, or its value not allowed.
    """
    given = _hybridize_arguments.bind(self, *args, **kwargs).arguments
    try:
        check_options(_options(given.get("backend"), given.get("kwargs") or self._backend_opts))
    except ConfigError:
        self._backend_opts = {}
        raise
    stock_hybridize(self, *args, **kwargs)


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
    flat, bodies = _flat(args), _bodies(self)
    found = (bodies.find if all(isinstance(arg, NDArray) for arg in flat) else bodies.build)(self, flat)
    if isinstance(found, Refusal):
        fallbacks.log.add(found)


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
    if self._callback is None and gluon_training.wanted():
        return _trained(self, args)
    if self._callback is not None or autograd.is_recording() or autograd.is_training():
        return stock_call_cached_op(self, *args)
    flat = _flat(args)
    bodies = _bodies(self)
    found = bodies.find(self, flat)
    while isinstance(found, CompiledBody):
        try:
            result = stock_call_cached_op(found, *args)
            quick_call.remember(self, found, args)
            return result
        except Exception as error:
            found = bodies.after_failure(self, flat, found, error)
    result = stock_call_cached_op(self, *args)  # first, as it tells in its own words what is the caller's mistake
    bodies.refuse(flat, found)
    fallbacks.log.add(found)
    return result


def _trained(block: HybridBlock, args: tuple[Any, ...]) -> Any:
    """A recorded call in training mode."""
    training = block.__dict__.get(TRAINING)
    if training is None or training.cached_op is not block._cached_op:
        training = block.__dict__[TRAINING] = gluon_training.GluonTraining(block)
    if _flatten(args, "input")[1] == block._in_format:
        result = training.call(block, _flat(args))
        if not isinstance(result, Refusal):
            return result
        fallbacks.log.add(result)
    return stock_call_cached_op(block, *args)


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


def _reason_for_native(parameters: dict[str, Parameter], args: tuple[Any, ...]) -> str | None:
    """Why a call is not ours at all; None when it is."""
    for arg in args:
        if isinstance(arg, BaseSparseNDArray):
            return f"an input of shape {arg.shape} has storage type {arg.stype}"
        if isinstance(arg, NDArray) and arg.context.device_type != "cpu":
            return f"the device is {arg.context}, the backend runs on cpu"
    for name, parameter in parameters.items():
        if parameter._stype != "default":
            return f"the parameter {name} has storage type {parameter._stype}"
    return None
