"""`Symbol.bind` and `Symbol.simple_bind` under the environment variable, and the executor that they return.

Cases of a bind:
* the variable does not name our backend: MXNet's own method, untouched;
* no gradient is wanted: the executor's handle is the compiled graph; MXNet's own follows if training is run;
* gradients are wanted: the handle is MXNet's own; the compiled graph follows at the first inference;
* what we do not compile (see `reason_for_native`), or a partitioner or compiler that fails: MXNet's own, and
  the log says why.

The executor has one set of arrays and up to two executors. One runs the compiled graph of inference, the other MXNet's
own. The one that the bind made is the *primary*; the *twin* is bound over the same arrays when first needed. Compiled
training steps need neither. Cases:
* forward(is_train=False): compiled; forward(is_train=True): compiled (`Training`), or native with NGRAPH_TRAINING=0;
* backward() after a training forward: what ran that, in either mode, profiled or not; after an inference forward: the
  native one runs that forward again first, for it holds the intermediate results;
* a monitor is set: always native, because the monitor wants to see every operator's output;
* no region can be compiled: always native.

`outputs` are always the primary's arrays, as in MXNet where they stay the same from forward to forward: what
the twin computes is copied there.
"""

from __future__ import annotations

import functools
import logging
import math
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from mxnet import autograd
from mxnet import ndarray as nd
from mxnet.base import MXNetError
from mxnet.context import Context
from mxnet.executor import Executor
from mxnet.ndarray import NDArray
from mxnet.symbol import Symbol

from ngraph_mxnet.base import config
from ngraph_mxnet.frontends.mxnet.importer import why_not_dense
from ngraph_mxnet.plugin.binding import backward_passes, compiled_bind, environment, fallbacks, partitioner

# `executor` by its module: where that imports mxnet, whose end activates us, it is only half there yet.
from ngraph_mxnet.plugin.binding.compiled_bind import Arrays, stock_bind, stock_simple_bind, title
from ngraph_mxnet.plugin.binding.fallbacks import Refusal, made_or_refused
from ngraph_mxnet.plugin.binding.gluon_blocks import Beside
from ngraph_mxnet.plugin.inference import is_whole

if TYPE_CHECKING:
    from ngraph_mxnet.plugin.training.parts import BoundParts
    from ngraph_mxnet.plugin.training.steps import Bound


Shapes = dict[str, tuple[int, ...]]


class Siblings:
    """The executors, each for shapes of its own, that `reshape` has made of one another, as one of them keeps them.

    MXNet makes a new one at every `reshape`, and keeps none. Where shapes take turns, as in a Module whose batches
    differ, that means to bind again and again: it takes a millisecond, and of an executor with an extension's op in it
    MXNet never frees all memory (docs/limits.md). So some are kept, as many as `NGRAPH_SHAPES` says, and come back. No
    two keep each other:
    * `executor = executor.reshape(...)`, again and again: the new one keeps the one it was made of, and what that kept;
    * `base.reshape(...)`, again and again, as a Module does: that one keeps those that were made of it.
    The first time nobody knows which it will be; it is taken for the first until the executor is reshaped once more.
    """

    def __init__(self) -> None:
        self._kept: list[tuple[Shapes, Any]] = []
        """With the shapes of their arrays, the latest last."""
        self._keeper: Callable[[], Any | None] | None = None
        """Whoever keeps the executor itself, since that was reshaped to it."""
        self._is_base = False

    def find(self, executor: Any, given: Shapes, partial_shaping: bool,
             allow_up_sizing: bool) -> Any | None:
        """The one of `executor`'s that its `reshape` with these arguments may return.

        It has these shapes, and shares with `executor` all arrays whose shape is the same. None if there is none, or if
        MXNet would refuse to reshape so.
        """
        for shapes, kept in reversed(self._kept):
            if any(shapes.get(name) != shape for name, shape in given.items()) or kept.monitor != executor.monitor:
                continue
            pairs = zip(kept.arg_arrays + kept.aux_arrays, executor.arg_arrays + executor.aux_arrays, strict=True)
            if all(ours is theirs or (ours.shape != theirs.shape and (partial_shaping or name in given)
                                      and (allow_up_sizing or ours.size <= theirs.size))
                   for name, (ours, theirs) in zip(shapes, pairs, strict=True)):
                return kept
        return None

    def reshaped(self, executor: Any, to: Any) -> None:
        """`executor`, whose siblings these are, was reshaped to another one, which is new or one of those."""
        keeper = self._keeper() if self._keeper is not None else None
        if keeper is not None:
            self._is_base, self._keeper = True, None
            keeper.siblings._drop(executor)
            self._keep(keeper)
        if self._is_base:
            self._keep(to)
            return
        self._drop(to)
        to.siblings._kept, self._kept = self._kept, []
        to.siblings._keep(executor)
        to.siblings._keeper, self._keeper = None, weakref.ref(to)

    def _keep(self, executor: Any) -> None:
        self._drop(executor)
        shapes = {name: array.shape for name, array in {**executor.arg_dict, **executor.aux_dict}.items()}
        self._kept = [*self._kept, (shapes, executor)][-config.get("NGRAPH_SHAPES"):]

    def _drop(self, executor: Any) -> None:
        self._kept = [entry for entry in self._kept if entry[1] is not executor]


def bind_as_it_is(stock: Callable[[], Executor]) -> Executor:
    """MXNet's own executor; of a graph that is partitioned already it may run ops of ours."""
    return stock() if environment.problem() is not None else compiled_bind.held(stock)


def bind_natively(stock: Callable[[], Executor], refusal: Refusal | None = None) -> Executor:
    """MXNet's own executor, with MXNet's default backend; then it is told why.

    An error of the user's (a missing array, say), which may be behind the refusal, is raised first, in MXNet's words.
    """
    executor = environment.natively(lambda: bind_as_it_is(stock))
    if refusal is not None:
        fallbacks.log.add(refusal)
    return executor


class Training:
    """Belongs to one executor. What it can't run, MXNet does, and the log says why."""

    def __init__(self) -> None:
        self.step: Bound | BoundParts | None = None
        self._tried = False
        self.ran = False
        """True if the last forward pass ran the compiled step."""

    def wanted(self, executor: Executor) -> bool:
        """True if the next forward pass is to be tried with the compiled step. The step is compiled when it is first
        wanted."""
        if not config.get("NGRAPH_TRAINING"):
            return False
        if not self._tried:
            self._tried = True
            found = _step_of(executor)
            if isinstance(found, Refusal):
                fallbacks.log.add(found)
            else:
                self.step = found
        return self.step is not None


def _listed(executor: Executor, heads: Any) -> list[NDArray]:
    """List the head gradients that `backward` is given, at most one for each output. The caller may give more or fewer.
    KeyError and TypeError are raised as by MXNet."""
    if heads is None:
        return []
    if isinstance(heads, NDArray):
        return [heads]
    given = [heads[name] for name in executor._symbol.list_outputs()] if isinstance(heads, dict) else heads
    for number, head in enumerate(given):
        if not isinstance(head, NDArray):
            raise TypeError(f"inputs must be NDArray: head gradient {number} is a {type(head).__name__}")
    return list(given[:len(executor.outputs)])


def _step_of(executor: Executor) -> Bound | BoundParts | Refusal:
    """Compile the executor's training step as a whole, or else in parts. Return a Refusal if neither is possible or no
    gradient is wanted."""
    from ngraph_mxnet.plugin.training.parts import whole_or_parted
    from ngraph_mxnet.plugin.training.steps import types_of

    symbol = executor._symbol
    title = f"training of {compiled_bind.title(symbol)}"
    arrays = {**executor.arg_dict, **executor.aux_dict}
    names = symbol.list_arguments()
    requests = _requests(executor._grad_req, names)
    grads = dict(zip(names, executor.grad_arrays or [None] * len(names), strict=True))
    wanted = {name: grad for name, grad in grads.items() if grad is not None and requests[name] != "null"}
    if not wanted:
        return Refusal(title, "no gradient is wanted", quiet=True)
    added = [name for name in wanted if requests[name] == "add"]
    return made_or_refused(title, lambda: whole_or_parted(
        symbol, types_of(arrays), list(wanted), lambda step: step.bound(arrays, wanted, added), recorded=False))


def _requests(requests: Any, names: Sequence[str]) -> dict[str, str]:
    """Return the request for each argument's gradient, by the argument's name."""
    if isinstance(requests, str):
        return dict.fromkeys(names, requests)
    if isinstance(requests, dict):
        return {name: requests.get(name, "null") for name in names}
    return dict(zip(names, requests, strict=True))


logger = logging.getLogger("ngraph_mxnet")


_stock_forward, _stock_backward = Executor.forward, Executor.backward


def _replaceable(own: Callable[..., Any]) -> Callable[..., Any]:
    """A method that counts what the program puts in its place on MXNet's class, where a function stands that whoever
    replaces it may go on to."""
    name = own.__name__
    stock = getattr(Executor, name)

    @functools.wraps(stock)
    def going_on(self: Executor, *args: Any, **kwargs: Any) -> Any:
        return (own if isinstance(self, NGraphExecutor) else stock)(self, *args, **kwargs)

    @functools.wraps(own)
    def looked_up(self: NGraphExecutor, *args: Any, **kwargs: Any) -> Any:
        found = getattr(Executor, name)
        return (own if found is going_on else found)(self, *args, **kwargs)

    setattr(Executor, name, going_on)
    return looked_up


class NGraphExecutor(Executor):
    """See the module's text."""

    outputs: list[NDArray]
    is_compiled: Beside[bool] = Beside()
    _refused: Beside[bool] = Beside()
    _twin: Beside[Executor | None] = Beside()
    monitor: Beside[tuple[Any, bool] | None] = Beside()
    _native_is_stale: Beside[bool] = Beside()
    siblings: Beside[Siblings] = Beside()
    training: Beside[Training] = Beside()

    @classmethod
    def adopt(cls, executor: Executor, is_compiled: bool, refused: bool = False) -> NGraphExecutor:
        """Give an executor that MXNet made, and that nobody else holds yet, the methods of this class.

        `is_compiled` tells what the executor's handle is, `refused` that compiling it was tried in vain.
        """
        executor.__class__ = cls
        executor.is_compiled = is_compiled
        executor._refused = refused
        executor._twin = None
        executor.monitor = None
        executor._native_is_stale = False
        executor.siblings = Siblings()
        executor.training = Training()
        return executor

    @_replaceable
    def forward(self, is_train: bool = False, **kwargs: Any) -> list[NDArray]:
        training = self.training
        training.ran = False
        if is_train and self.monitor is None and training.wanted(self):
            self._set(kwargs)
            assert training.step is not None
            training.ran = training.step.forward()
            if training.ran:
                self._native_is_stale = True
                self._publish(training.step.outputs)
                return self.outputs
            kwargs = {}
        twin = self._twin_for(is_train)
        self._native_is_stale = self.is_compiled == (twin is None)
        # The twin is bound over the same arrays.
        kwargs = {name: array for name, array in kwargs.items() if not _set_quickly(self.arg_dict.get(name), array)}
        outputs: list[NDArray] = _stock_forward(twin or self, is_train, **kwargs)
        if twin is None:
            return outputs
        self._publish(outputs)
        return self.outputs

    def copy_params_from(self, arg_params: Mapping[str, NDArray], aux_params: Mapping[str, NDArray] | None = None,
                         allow_extra_params: bool = False) -> None:
        """MXNet's, which converts all to the bound types by one more copy, also where there is nothing to convert."""

        def left(given: Mapping[str, NDArray], own: Mapping[str, NDArray]) -> dict[str, NDArray]:
            return {name: array for name, array in given.items() if not _set_quickly(own.get(name), array)}

        states = aux_params if aux_params is None else left(aux_params, self.aux_dict)
        super().copy_params_from(left(arg_params, self.arg_dict), states, allow_extra_params)

    def _set(self, given: Mapping[str, Any]) -> None:
        """MXNet's way with what `forward` is given: its errors come from there."""
        known = self.arg_dict
        for name, array in given.items():
            if not isinstance(array, (NDArray, np.ndarray)):
                raise ValueError("only accept keyword argument of NDArrays and numpy.ndarray")
            if name not in known:
                raise TypeError(f"Unknown argument {name}")
            if known[name].shape != array.shape:
                raise ValueError(f"Shape not match! Argument {name}, need: {known[name].shape}, "
                                 f"received: {array.shape}")
            if not _set_quickly(known[name], array):
                known[name][:] = array

    @_replaceable
    def backward(self, out_grads: Any = None, is_train: bool = True) -> None:
        if self.training.ran and self.training.step is not None:
            self.training.step.backward(_listed(self, out_grads), is_train)
            return
        twin = self._twin_for(is_train=True)
        if self._native_is_stale:
            _stock_forward(twin or self, is_train=False)
            self._native_is_stale = False
            if twin is not None:
                self._publish(twin.outputs)
        _stock_backward(twin or self, out_grads, is_train)
        backward_passes.touch(self.aux_arrays)

    def set_monitor_callback(self, callback: Any, monitor_all: bool = False) -> None:
        if self.monitor is None:
            logger.info("MXNet itself runs this executor from now on: a monitor wants each operator's output")
        self.monitor = callback, monitor_all
        twin = self._twin_for(is_train=True)
        native: Any = super() if twin is None else twin
        native.set_monitor_callback(callback, monitor_all)

    def reshape(self, partial_shaping: bool = False, allow_up_sizing: bool = False, **kwargs: Any) -> NGraphExecutor:
        if self.is_compiled:
            reshaped = self._reshape_compiled(partial_shaping, allow_up_sizing, kwargs)
            self.siblings.reshaped(self, reshaped)
        else:
            stock = super().reshape
            executor = environment.natively(lambda: stock(partial_shaping, allow_up_sizing, **kwargs))
            reshaped = NGraphExecutor.adopt(executor, is_compiled=False)
        if self.monitor is not None:
            reshaped.set_monitor_callback(*self.monitor)
        return reshaped

    def debug_str(self) -> str:
        """The plan of what inference runs; the primary's until inference was run, as `Module.bind` asks for it."""
        twin = self._twin if self._runs_twin(is_train=False) else None
        return super().debug_str() if twin is None else twin.debug_str()

    def get_optimized_symbol(self) -> Symbol:
        """The graph of what `debug_str` tells the plan of."""
        twin = self._twin if self._runs_twin(is_train=False) else None
        return super().get_optimized_symbol() if twin is None else twin.get_optimized_symbol()

    def _runs_twin(self, is_train: bool) -> bool:
        """True if the twin is the executor to run, whether the twin is bound or not."""
        wants_compiled = not (is_train or self._refused or self.monitor is not None)
        return wants_compiled != self.is_compiled

    def _twin_for(self, is_train: bool) -> Executor | None:
        """The twin, bound if need be, when it is the one to run; None when the primary is."""
        if not self._runs_twin(is_train):
            return None
        with environment.lock:
            if self._twin is None:
                self._twin = self._bind_native_twin() if self.is_compiled else self._bind_compiled_twin()
                self._refused = self._twin is None
        return self._twin

    def _bind_native_twin(self) -> Executor:
        return environment.as_written(lambda: compiled_bind.stock_bind(
            self._symbol, self._ctx, self.arg_arrays, self.grad_arrays, self._grad_req, self.aux_arrays))

    def _bind_compiled_twin(self) -> Executor | None:
        text = partitioner.json_of(self._symbol)
        found = compiled_bind.bind(self._symbol, text, self._ctx, self.arg_arrays, self.aux_arrays)
        if isinstance(found, Executor):
            return found
        fallbacks.log.add(found)
        return None

    def _publish(self, computed: list[NDArray]) -> None:
        """Copy the twin's outputs to the primary's arrays; where their kind differs, show the twin's.

        Shapes differ if MXNet learns an output's shape only by computing it.
        """
        shown = self.outputs
        if all(_same_kind(source, target) for source, target in zip(computed, shown, strict=True)):
            with autograd.pause():
                for source, target in zip(computed, shown, strict=True):
                    if source.size:
                        source.copyto(target)
        else:
            self.outputs = list(computed)
            self._output_dict = None

    def _reshape_compiled(self, partial_shaping: bool, allow_up_sizing: bool, wanted: dict[str, Any]) -> NGraphExecutor:
        """MXNet's `reshape`, for a graph whose regions must be chosen anew for the new shapes.

        Arrays whose shape stays are shared, smaller ones are views of ours, larger ones are new.
        """
        given = {name: shape for name, shape in wanted.items() if isinstance(shape, tuple) and name in self.arg_dict}
        known = self.siblings.find(self, given, partial_shaping, allow_up_sizing)
        if known is not None:
            return known
        names = self._symbol.list_arguments()
        arg_shapes, _, aux_shapes = self._symbol.infer_shape_partial(**given)
        if not all(map(is_whole, [*arg_shapes, *aux_shapes])):
            raise MXNetError(f"cannot infer all shapes from {given}; give the shapes of more arguments")
        grads = self.grad_arrays or [None] * len(names)
        aux_names = self._symbol.list_auxiliary_states()
        free = {*names, *aux_names} if partial_shaping else set(given)

        def resized(name: str, array: NDArray | None, shape: tuple[int, ...]) -> NDArray | None:
            if array is None or array.shape == shape:
                return array
            if name not in free:
                raise MXNetError(
                    f"the shape of {name} would change from {array.shape} to {shape}, but only "
                    f"the shapes of {sorted(given)} are given; if that is intended, pass "
                    "partial_shaping=True"
                )
            return _resized(name, array, shape, allow_up_sizing)

        args = [resized(*item) for item in zip(names, self.arg_arrays, arg_shapes, strict=True)]
        grads = [resized(*item) for item in zip(names, grads, arg_shapes, strict=True)]
        aux = [resized(*item) for item in zip(aux_names, self.aux_arrays, aux_shapes, strict=True)]

        symbol, ctx, grad_req = self._symbol, self._ctx, self._grad_req

        def stock() -> Executor:
            return compiled_bind.stock_bind(symbol, ctx, args, grads, grad_req, aux, shared_exec=self)

        found = compiled_bind.bind(
            symbol, partitioner.json_of(symbol), ctx, args, aux, grads, grad_req, shared_exec=self
        )
        if isinstance(found, Executor):
            return NGraphExecutor.adopt(found, is_compiled=True)
        executor = bind_natively(stock, found)
        return NGraphExecutor.adopt(executor, is_compiled=False, refused=True)


def _set_quickly(target: NDArray | None, source: Any) -> bool:
    """Do what MXNet does for `target[:] = source`, or nothing and return False.

    Between arrays that are alike it is one copy, on this thread if none of them is awaited. MXNet's way to it costs
    0.2 ms, a tenth of a small net's time.
    """
    if target is None or type(source) is not type(target) or source.handle is target.handle:
        return False
    if environment.problem() is None:
        from ngraph_mxnet import _core

        if _core.copy_now(source.handle.value, target.handle.value):
            return True
    if not source.size:
        return False
    if not _same_kind(source, target) or source.ctx != target.ctx or autograd.is_recording():
        return False
    source.copyto(target)
    return True


def _same_kind(a: NDArray, b: NDArray) -> bool:
    return _known_shape(a) == _known_shape(b) and a.dtype == b.dtype and a.stype == b.stype == "default"


def _known_shape(array: NDArray) -> tuple[int, ...] | None:
    """None of an output that MXNet has not computed yet and whose shape it does not infer."""
    try:
        shape: tuple[int, ...] = array.shape
        return shape
    except MXNetError:
        return None


def _resized(name: str, array: NDArray, shape: tuple[int, ...], allow_up_sizing: bool) -> NDArray:
    size = math.prod(shape)
    if size > array.size:
        if not allow_up_sizing:
            raise MXNetError(
                f"the new shape {shape} of {name} is larger than {array.shape}; bind with the "
                "larger shape first, or pass allow_up_sizing=True"
            )
        return nd.zeros(shape, ctx=array.ctx, dtype=array.dtype)
    with autograd.pause():
        return array.reshape((-1,))[:size].reshape(shape)


_CACHED_OP = '"op": "_CachedOp"'


def install_binds() -> None:
    Symbol.bind = bind
    Symbol.simple_bind = simple_bind
    Symbol.optimize_for = functools.wraps(partitioner.stock_optimize_for)(partitioner.optimize_for)


@functools.wraps(stock_bind)
def bind(self: Symbol, ctx: Context, args: Arrays, args_grad: Arrays = None, grad_req: Any = "write",
         aux_states: Arrays = None, group2ctx: Any = None, shared_exec: Executor | None = None) -> Executor:
    def stock() -> Executor:
        return stock_bind(self, ctx, args, args_grad, grad_req, aux_states, group2ctx, shared_exec)

    return _bound(
        self, ctx, group2ctx, (args, args_grad, aux_states), None, bool(args_grad) and wants_gradient(grad_req), stock,
        lambda text: compiled_bind.bind(self, text, ctx, args, aux_states, args_grad, grad_req, shared_exec))


@functools.wraps(stock_simple_bind)
def simple_bind(self: Symbol, ctx: Context, grad_req: Any = "write", type_dict: Mapping[str, Any] | None = None,
                stype_dict: Mapping[str, str] | None = None, group2ctx: Any = None,
                shared_arg_names: list[str] | None = None, shared_exec: Executor | None = None,
                shared_buffer: dict[str, NDArray] | None = None, **kwargs: Any) -> Executor:
    def stock() -> Executor:
        return stock_simple_bind(self, ctx, grad_req, type_dict, stype_dict, group2ctx, shared_arg_names, shared_exec,
                                 shared_buffer, **kwargs)

    return _bound(self, ctx, group2ctx, (), stype_dict, grad_req is None or wants_gradient(grad_req), stock,
                  lambda text: compiled_bind.simple_bind(
                      self, text, ctx, grad_req, kwargs, type_dict, stype_dict=stype_dict,
                      shared_arg_names=shared_arg_names, shared_exec=shared_exec, shared_buffer=shared_buffer))


def _bound(symbol: Symbol, ctx: Context, group2ctx: Any, arrays: Iterable[Arrays], stypes: Mapping[str, str] | None,
           with_gradient: bool, stock: Callable[[], Executor],
           compiled: Callable[[str], Executor | Refusal]) -> Executor:
    """The executor of a bind: as `stock` binds, or as `compiled` does of the symbol's JSON."""
    if not environment.requested():
        return bind_as_it_is(stock)
    text = partitioner.json_of(symbol)
    reason = reason_for_native(symbol, text, ctx, group2ctx, arrays, stypes)
    if reason is not None:
        return bind_natively(stock, Refusal(title(symbol), reason, quiet=True))
    if with_gradient:
        return NGraphExecutor.adopt(bind_natively(stock), is_compiled=False)
    found = compiled(text)
    if isinstance(found, Executor):
        return NGraphExecutor.adopt(found, is_compiled=True)
    return NGraphExecutor.adopt(bind_natively(stock, found), is_compiled=False, refused=True)


def reason_for_native(symbol: Symbol, text: str, ctx: Context, group2ctx: Any, arrays: Iterable[Arrays],
                      stypes: Mapping[str, str] | None) -> str | None:
    """Why a bind is not ours at all; None when it is. `text` is the symbol's JSON."""
    if environment.problem() is not None:
        return environment.problem()
    if not isinstance(ctx, Context) or ctx.device_type != "cpu":
        return f"the device is {ctx}, the backend runs on cpu"
    if group2ctx:
        return "group2ctx places parts of the graph on several devices"
    if any(stype != "default" for stype in (stypes or {}).values()):
        return f"sparse storage is asked for: {stypes}"
    if (sparse := why_not_dense(text)) is not None:
        return sparse
    if _CACHED_OP in text:
        return "a node _CachedOp holds a graph that the symbol's JSON lacks, so that what is remembered can't be loaded"
    for group in arrays:
        for array in group.values() if isinstance(group, Mapping) else group or ():
            if isinstance(array, NDArray) and array.stype != "default":
                return f"an array of shape {array.shape} has storage type {array.stype}"
    names = symbol.list_arguments()
    if len(set(names)) != len(names):
        return f"several arguments share a name: {names}"
    return None


def wants_gradient(grad_req: Any) -> bool:
    """True if a `grad_req` asks for any gradient. A `grad_req` of an unknown type counts as asking, so that MXNet
    judges it."""
    if isinstance(grad_req, Mapping):
        grad_req = list(grad_req.values())
    if isinstance(grad_req, str):
        return grad_req != "null"
    if isinstance(grad_req, (list, tuple)):
        return any(value != "null" for value in grad_req)
    return True
