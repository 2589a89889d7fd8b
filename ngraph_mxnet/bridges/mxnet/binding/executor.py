"""The executor that a bind under the environment variable returns: one set of arrays, up to two executors.

One runs the compiled graph of inference, the other MXNet's own. The one that the bind made is the *primary*; the *twin*
is bound over the same arrays when first needed. Compiled training steps need neither. Cases:
* forward(is_train=False): compiled; forward(is_train=True): compiled (`training`), or native with NGRAPH_TRAINING=0;
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
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from mxnet import autograd
from mxnet import ndarray as nd
from mxnet.base import MXNetError
from mxnet.executor import Executor
from mxnet.ndarray import NDArray
from mxnet.symbol import Symbol

from ngraph_mxnet.bridges.mxnet.binding import compiled_bind, environment, fallbacks, training, uncounted
from ngraph_mxnet.bridges.mxnet.binding.siblings import Siblings
from ngraph_mxnet.bridges.mxnet.binding.side_tables import Beside
from ngraph_mxnet.bridges.mxnet.binding.stock_executor import bind_natively
from ngraph_mxnet.bridges.mxnet.judging import partitioner
from ngraph_mxnet.bridges.mxnet.symbols.symbol_inputs import is_whole

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
    training: Beside[training.Training] = Beside()

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
        executor.training = training.Training()
        return executor

    @_replaceable
    def forward(self, is_train: bool = False, **kwargs: Any) -> list[NDArray]:
        self.training.forget()
        if is_train and self.monitor is None and self.training.wanted(self):
            self._set(kwargs)
            computed = self.training.forward()
            if computed is not None:
                self._native_is_stale = True
                self._publish(computed)
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

    def copy_params_from(
        self, arg_params: Mapping[str, NDArray], aux_params: Mapping[str, NDArray] | None = None,
        allow_extra_params: bool = False,
    ) -> None:
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
        if self.training.backward(self, out_grads, is_train):
            return
        twin = self._twin_for(is_train=True)
        if self._native_is_stale:
            _stock_forward(twin or self, is_train=False)
            self._native_is_stale = False
            if twin is not None:
                self._publish(twin.outputs)
        _stock_backward(twin or self, out_grads, is_train)
        uncounted.touch(self.aux_arrays)

    def set_monitor_callback(self, callback: Any, monitor_all: bool = False) -> None:
        if self.monitor is None:
            logger.info("MXNet itself runs this executor from now on: a monitor wants each operator's output")
        self.monitor = callback, monitor_all
        twin = self._twin_for(is_train=True)
        native: Any = super() if twin is None else twin
        native.set_monitor_callback(callback, monitor_all)

    def reshape(
        self, partial_shaping: bool = False, allow_up_sizing: bool = False, **kwargs: Any
    ) -> NGraphExecutor:
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

    def _reshape_compiled(
        self, partial_shaping: bool, allow_up_sizing: bool, wanted: dict[str, Any]
    ) -> NGraphExecutor:
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
