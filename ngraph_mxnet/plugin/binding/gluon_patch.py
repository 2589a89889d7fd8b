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

from ngraph_mxnet.base.errors import ConfigError
from ngraph_mxnet.base.forks import Recent, collector_paused
from ngraph_mxnet.plugin.binding import (
    backward_passes,
    compiled_bind,
    environment,
    fallbacks,
    gluon_blocks,
    gluon_training,
    interrupts,
    partitioner,
)
from ngraph_mxnet.plugin.binding.fallbacks import Refusal, reason_of
from ngraph_mxnet.plugin.binding.gluon_blocks import HeldCachedOp, blocks, of_block
from ngraph_mxnet.plugin.regions import DATA, PREFIX, check_options

stock_hybridize = HybridBlock.hybridize
stock_build_cache = HybridBlock._build_cache
stock_call_cached_op = HybridBlock._call_cached_op
stock_export = HybridBlock.export

#: A model fed with shapes that never repeat must not grow without bound.
MOST_FOUND = 256
#: So many sets of shapes are tried that MXNet can run and that end in an error of ours.
MOST_FAILURES = 8

Signature = tuple[Any, ...]


def install() -> None:
    HybridBlock.hybridize = hybridize
    HybridBlock._build_cache = _build_cache
    HybridBlock._call_cached_op = gluon_blocks.ours = interrupts.delivering(_call_cached_op)
    HybridBlock.export = export
    gluon_blocks.install_call()
    gluon_training.install_losses()


class _Known:
    """A parameter for MXNet's `_build_cache`, without a call of a `data` of the program's own."""

    def __init__(self, parameter: Parameter, is_plain: bool) -> None:
        self.name, self._stype, self._parameter = parameter.name, parameter._stype, parameter
        self._is_plain = is_plain

    def data(self) -> NDArray:
        return self._parameter.data() if self._is_plain else self._parameter._data[0]


class _Partitioning:
    """A block for MXNet's `_build_cache`, which partitions its graph and makes a cached op of it."""

    def __init__(self, block: HybridBlock) -> None:
        self._original_graph = self._cached_graph = block._cached_graph
        self.names = self._original_graph[1].list_inputs()
        # By the graph's names: `Block.load` renames neither `Parameter.name`, by which MXNet would look them up among
        # the arguments of an earlier cached op, nor those in a graph that it loads.
        arguments = zip(self.names, block._cached_op_args, strict=True)
        parameters = {name: found for name, (is_input, found) in arguments if not is_input}
        every = gluon_blocks.are_plain(parameters.values())
        self.parameters = {name: _Known(found, every or gluon_blocks.are_plain([found]))
                           for name, found in parameters.items()}
        self._cached_op_args: list[tuple[bool, Any]] = []
        self._cached_op: Any = None
        self._flags = block._flags
        self._backend = environment.BACKEND
        inputs = [variable.name for variable in block._cached_graph[0]]
        self._backend_opts = {**_options(block._backend, block._backend_opts), DATA: json.dumps(inputs)}

    def _get_graph(self, *args: Any) -> Any:
        return self._original_graph

    def collect_params(self) -> dict[str, _Known]:
        return self.parameters


class CompiledBody:
    """A partitioned graph and its cached op. Its parameters are the block's, which it must not know: see `SideTable`.

    Attributes:
        graph: the input variables, and the partitioned symbol.
        op: a `HeldCachedOp`.
        places: which of the block's `_cached_op_args` each input of the op is.
        made_for: the signature that the graph was partitioned for.
    """

    def __init__(self, partitioning: _Partitioning, made_for: Signature | None) -> None:
        self.graph: tuple[Any, Any] = partitioning._cached_graph
        places = {name: place for place, name in enumerate(partitioning.names)}
        self.places = [places[name] for name in self.graph[1].list_inputs()]
        self.op = held_op(partitioning._cached_op, self.graph[1], partitioning._cached_op_args, partitioning._flags)
        self.made_for = made_for


class OfBody:
    """A block with another cached op, for MXNet's `_call_cached_op` and `export`; the rest is as the block has it."""

    _callback: Any = None
    _monitor_all = False

    def __init__(self, block: HybridBlock, op: Any, graph: Any, arguments: list[tuple[bool, Any]]) -> None:
        self._cached_op, self._cached_graph, self._cached_op_args = op, graph, arguments
        self._in_format, self._out_format, self._flags = block._in_format, block._out_format, block._flags


def _with_body(block: HybridBlock, body: CompiledBody) -> OfBody:
    arguments = block._cached_op_args
    return OfBody(block, body.op, body.graph, [arguments[place] for place in body.places])


def built(block: HybridBlock, name: str, args: list[Any]) -> CompiledBody | Refusal:
    """Partition for these inputs of the block called `name`; or why nothing came of it."""
    made_for = _signature(args) if all(isinstance(arg, NDArray) for arg in args) else None
    try:
        partitioning = _Partitioning(block)
        reason = _reason_for_native(partitioning.parameters, args)
        if reason is not None:
            return Refusal(name, reason)
        with warnings.catch_warnings(), fallbacks.partition_log.listening() as heard:
            warnings.simplefilter("ignore")  # MXNet has told about unused inputs for the block itself
            stock_build_cache(partitioning, *args)
        if any(partition.regions for partition in heard):
            return CompiledBody(partitioning, made_for)
    except Exception as error:
        return Refusal(name, reason_of(error, "partitioning it"), failed=True)
    left = fallbacks.left_by_kind(heard)
    # Without unsupported operators nothing is amiss: it computes nothing, or what failed was told where it failed.
    return Refusal(name, f"no region is supported{left and ': ' + left}; see ngraph_mxnet.explain", quiet=not left)


def held_op(op: Any, symbol: Any, arguments: list[tuple[bool, Any]], flags: list[tuple[str, Any]]) -> HeldCachedOp:
    """The symbol's cached op as the holder of the parameters that it is called with."""
    places: dict[bool, list[int]] = {True: [], False: []}
    for place, (is_input, _) in enumerate(arguments):
        places[bool(is_input)].append(place)
    made_with = [("data_indices", places[True]), ("param_indices", places[False]), *flags]
    held = HeldCachedOp(op, places[False])
    held.is_direct = compiled_bind.run_cached_op(op, symbol, held.holder)
    if not held.is_direct:
        held.make_for_shapes(lambda: CachedOp(symbol, made_with), places[True])
    return held


class CompiledBodies:
    """The bodies of one block, valid as long as the block keeps the cached op they stand beside.

    A body serves all shapes of a *kind* of input (dtypes and ranks), because MXNet hands each call's shapes
    to the compiled regions; only where that fails a shape gets a body of its own. A kind is refused when it has no
    region. After an error only those shapes are, until `MOST_FAILURES` that MXNet could run have come.
    """

    def __init__(self, block: HybridBlock) -> None:
        self.cached_op = block._cached_op
        self.latest: CompiledBody | None = None
        self.found = Recent(MOST_FOUND)
        """By kind; by signature those bodies and refusals that are for one set of shapes alone."""
        self._failures = 0

    def find(self, block: HybridBlock, args: list[Any]) -> CompiledBody | Refusal:
        """The body to run for these inputs, made if need be; or why MXNet's own."""
        signature = _signature(args)
        kind = _kind(signature)
        found: CompiledBody | Refusal | None = self.found.get(signature) or self.found.get(kind)
        if found is not None:
            return found
        with environment.lock:
            found = self.found.get(kind)
            if found is None:
                found = self.build(block, args)
                if isinstance(found, Refusal) and found.failed and self._failures < MOST_FAILURES:
                    return found  # MXNet's own, which may well refuse these inputs; if not, `refuse` is next
                self.found.put(kind, found)
            return found

    def after_failure(
        self, block: HybridBlock, args: list[Any], failed: CompiledBody, error: Exception
    ) -> CompiledBody | Refusal:
        """The body to run for these inputs now that one has failed on them; or why MXNet's own, if it can run them."""
        with environment.lock:
            signature = _signature(args)
            if failed.made_for == signature:
                return Refusal(block.name, reason_of(error))
            found = self.build(block, args)
            self.found.put(signature, found)
            return found

    def refuse(self, args: list[Any], refusal: Refusal) -> None:
        """MXNet's own has run these inputs, and is to run their like."""
        signature = _signature(args)
        with environment.lock:
            if self.found.get(_kind(signature)) is not refusal:
                self._failures += self.found.get(signature) is None
                self.found.put(signature, refusal)

    def build(self, block: HybridBlock, args: list[Any]) -> CompiledBody | Refusal:
        found = built(block, block.name, args)
        if isinstance(found, CompiledBody):
            self.latest = found
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
            of_block(self).held = held_op(self._cached_op, self._cached_graph[1], self._cached_op_args, self._flags)
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
        return _as_built(self, args)
    if environment.problem() is not None:
        if explicit:
            raise MXNetError(f"the backend {environment.BACKEND} is not usable: {environment.problem()}")
        return _as_built(self, args)
    return (_first_called if self._cached_op is None else _called)(self, args)


def _called(self: HybridBlock, args: tuple[Any, ...]) -> Any:
    """A call that may be ours."""
    if self._cached_op is None:
        if type(self)._build_cache is _build_cache and "_build_cache" not in self.__dict__:
            _build_native(self, *args)
        else:
            self._build_cache(*args)
    if self._callback is None and gluon_training.wanted():
        return _trained(self, args)
    if self._callback is not None or autograd.is_recording() or autograd.is_training():
        return _as_built(self, args)
    flat = _flat(args)
    bodies = _bodies(self)
    found = bodies.find(self, flat)
    while isinstance(found, CompiledBody):
        try:
            result = stock_call_cached_op(_with_body(self, found), *args)
            gluon_blocks.remember_call(self, found.op, found.places, args)
            return result
        except Exception as error:
            found = bodies.after_failure(self, flat, found, error)
    result = _as_built(self, args)  # first, as it tells in its own words what is the caller's mistake
    bodies.refuse(flat, found)
    fallbacks.log.add(found)
    return result


_first_called = collector_paused(_called)


def _as_built(block: HybridBlock, args: tuple[Any, ...]) -> Any:
    """By the block's own cached op."""
    if block._cached_op is None:
        block._build_cache(*args)
    if autograd.is_recording():
        backward_passes.add_recorded(block)
    kept = blocks.get(block)
    held = None if kept is None else kept.held
    if held is None or not held.is_around(block._cached_op):
        return stock_call_cached_op(block, *args)
    body = OfBody(block, held, block._cached_graph, block._cached_op_args)
    body._callback, body._monitor_all = block._callback, block._monitor_all
    return stock_call_cached_op(body, *args)


def _trained(block: HybridBlock, args: tuple[Any, ...]) -> Any:
    """A recorded call in training mode."""
    kept = of_block(block)
    training = kept.training
    if training is None or training.cached_op is not block._cached_op:
        training = kept.training = gluon_training.GluonTraining(block)
    if _flatten(args, "input")[1] == block._in_format:
        result = training.call(block, _flat(args))
        if not isinstance(result, Refusal):
            return result
        native = _as_built(block, args)  # first, as it tells in its own words what is the caller's mistake
        fallbacks.log.add(result)
        return native
    return _as_built(block, args)


@functools.wraps(stock_export)
def export(self: HybridBlock, path: str, epoch: int = 0, remove_amp_cast: bool = True) -> Any:
    body = _bodies(self).latest if environment.names_backend(self._backend) else None
    return stock_export(self if body is None else _with_body(self, body), path, epoch, remove_amp_cast)


def _build_native(block: HybridBlock, *args: Any) -> None:
    """MXNet's own cached graph and op, as without a backend."""
    of_block(block).held = None
    with environment.lock:
        backend = block._backend
        block._backend = None
        try:
            stock_build_cache(block, *args)
        finally:
            block._backend = backend


def _bodies(block: HybridBlock) -> CompiledBodies:
    """The block's bodies; new ones when MXNet has rebuilt or dropped the cached op since."""
    kept = of_block(block)
    bodies: CompiledBodies | None = kept.bodies
    if bodies is None or bodies.cached_op is not block._cached_op:
        bodies = kept.bodies = CompiledBodies(block)
    return bodies


def _flat(args: tuple[Any, ...]) -> list[Any]:
    """The inputs that are there, in the order of the graph's data variables."""
    return [arg for arg in _flatten(args, "input")[0] if arg is not None]


def _signature(args: list[Any]) -> Signature:
    return tuple((type(arg), arg.dtype, arg.shape) for arg in args)


def _kind(signature: Signature) -> Signature:
    return tuple((of_type, dtype, len(shape)) for of_type, dtype, shape in signature)


def _reason_for_native(parameters: dict[str, _Known], args: list[Any]) -> str | None:
    """Why a call is not ours at all; None when it is."""
    for arg in args:
        if isinstance(arg, BaseSparseNDArray):
            return f"an input of shape {arg.shape} has storage type {arg.stype}"
        if isinstance(arg, NDArray) and arg.ctx.device_type != "cpu":
            return f"the device is {arg.ctx}, the backend runs on cpu"
    for name, parameter in parameters.items():
        if parameter._stype != "default":
            return f"the parameter {name} has storage type {parameter._stype}"
    return None
