"""`Symbol.bind` and `Symbol.simple_bind` under the environment variable.

Cases:
* the variable does not name our backend: MXNet's own method, untouched;
* no gradient is wanted: the executor's handle is the compiled graph; MXNet's own follows if training is run;
* gradients are wanted: the handle is MXNet's own; the compiled graph follows at the first inference;
* what we do not compile (see `reason_for_native`), or a partitioner or compiler that fails: MXNet's own, and
  the log says why.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from mxnet.base import MXNetError
from mxnet.context import Context
from mxnet.executor import Executor
from mxnet.ndarray import NDArray
from mxnet.symbol import Symbol

from ngraph_mxnet.mxnet_bridge import environment, partitioner

logger = logging.getLogger("ngraph_mxnet")

stock_bind = Symbol.bind
stock_simple_bind = Symbol.simple_bind

Arrays = Sequence[NDArray | None] | Mapping[str, NDArray] | None


def install() -> None:
    Symbol.bind = bind
    Symbol.simple_bind = simple_bind
    Symbol.optimize_for = functools.wraps(partitioner.stock_optimize_for)(partitioner.optimize_for)


@functools.wraps(stock_bind)
def bind(
    self: Symbol,
    ctx: Context,
    args: Arrays,
    args_grad: Arrays = None,
    grad_req: Any = "write",
    aux_states: Arrays = None,
    group2ctx: Any = None,
    shared_exec: Executor | None = None,
) -> Executor:
    from ngraph_mxnet.mxnet_bridge.executor import NGraphExecutor

    def stock() -> Executor:
        return stock_bind(self, ctx, args, args_grad, grad_req, aux_states, group2ctx, shared_exec)

    if not environment.requested():
        return stock()
    reason = reason_for_native(self, ctx, group2ctx, (args, args_grad, aux_states), None)
    if reason is not None:
        return bind_natively(stock, reason)
    if args_grad and wants_gradient(grad_req):
        return NGraphExecutor.adopt(bind_natively(stock), is_compiled=False)
    executor, reason = try_compiled(self, ctx, stock, args, aux_states)
    if executor is not None:
        return NGraphExecutor.adopt(executor, is_compiled=True)
    # An error of the user's (a missing array, say) is raised here again, by MXNet and in its words.
    return NGraphExecutor.adopt(bind_natively(stock, reason), is_compiled=False, refused=True)


@functools.wraps(stock_simple_bind)
def simple_bind(
    self: Symbol,
    ctx: Context,
    grad_req: Any = "write",
    type_dict: Mapping[str, Any] | None = None,
    stype_dict: Mapping[str, str] | None = None,
    group2ctx: Any = None,
    shared_arg_names: list[str] | None = None,
    shared_exec: Executor | None = None,
    shared_buffer: dict[str, NDArray] | None = None,
    **kwargs: Any,
) -> Executor:
    """MXNet allocates the arrays by a native bind; for inference the compiled graph is then bound over them.

    So every way to share arrays works as in MXNet, and the native executor is there if nothing compiles.
    """
    from ngraph_mxnet.mxnet_bridge.executor import NGraphExecutor

    def stock() -> Executor:
        return stock_simple_bind(
            self,
            ctx,
            grad_req,
            type_dict,
            stype_dict,
            group2ctx,
            shared_arg_names,
            shared_exec,
            shared_buffer,
            **kwargs,
        )

    if not environment.requested():
        return stock()
    reason = reason_for_native(self, ctx, group2ctx, (), stype_dict)
    if reason is not None:
        return bind_natively(stock, reason)
    native = bind_natively(stock)
    if grad_req is None or wants_gradient(grad_req):
        return NGraphExecutor.adopt(native, is_compiled=False)

    def over_its_arrays() -> Executor:
        return stock_bind(
            self,
            ctx,
            native.arg_arrays,
            native.grad_arrays,
            grad_req,
            native.aux_arrays,
            shared_exec=shared_exec,
        )

    executor, reason = try_compiled(self, ctx, over_its_arrays, native.arg_arrays, native.aux_arrays)
    if executor is not None:
        return NGraphExecutor.adopt(executor, is_compiled=True)
    logger.info("bound by MXNet itself: %s", reason)
    return NGraphExecutor.adopt(native, is_compiled=False, refused=True)


def bind_natively(stock: Callable[[], Executor], reason: str | None = None) -> Executor:
    """MXNet's own executor, with MXNet's default backend; a reason is for the log."""
    with environment.native_backend():
        executor = stock()
    if reason is not None:
        logger.info("bound by MXNet itself: %s", reason)
    return executor


def try_compiled(
    symbol: Symbol, ctx: Context, stock: Callable[[], Executor], args: Arrays, aux: Arrays
) -> tuple[Executor | None, str | None]:
    """Run the stock bind over these arrays so that it partitions; if nothing comes of it, None and why."""
    named_args = by_name(args, symbol.list_arguments())
    named_aux = by_name(aux, symbol.list_auxiliary_states())
    try:
        with partitioner.primed(symbol, ctx, named_args, named_aux) as found:
            if not found:
                return None, f"no region of {output_names(symbol)} is supported; see ngraph_mxnet.explain"
            with environment.ngraph_backend():
                return stock(), None
    except (MXNetError, ValueError, TypeError) as error:
        logger.warning("MXNet runs %s: compiling it failed: %s", output_names(symbol), error)
        return None, f"compiling {output_names(symbol)} failed"


def reason_for_native(
    symbol: Symbol, ctx: Context, group2ctx: Any, arrays: Iterable[Arrays], stypes: Mapping[str, str] | None
) -> str | None:
    """Why a bind is not ours at all; None when it is."""
    if environment.problem() is not None:
        return environment.problem()
    if not isinstance(ctx, Context) or ctx.device_type != "cpu":
        return f"the device is {ctx}, the backend runs on cpu"
    if group2ctx:
        return "group2ctx places parts of the graph on several devices"
    if any(stype != "default" for stype in (stypes or {}).values()):
        return f"sparse storage is asked for: {stypes}"
    for name, attributes in symbol.attr_dict().items():
        if attributes.get("__storage_type__", "0") not in ("0", "-1"):
            return f"the variable {name} has sparse storage"
    for group in arrays:
        for array in group.values() if isinstance(group, Mapping) else group or ():
            if isinstance(array, NDArray) and array.stype != "default":
                return f"an array of shape {array.shape} has storage type {array.stype}"
    names = symbol.list_arguments()
    if len(set(names)) != len(names):
        return f"several arguments share a name: {names}"
    return None


def wants_gradient(grad_req: Any) -> bool:
    """Whether a `grad_req` asks for any gradient; what is not understood does, so that MXNet judges it."""
    if isinstance(grad_req, str):
        return grad_req != "null"
    if isinstance(grad_req, Mapping):
        return any(value != "null" for value in grad_req.values())
    if isinstance(grad_req, (list, tuple)):
        return any(value != "null" for value in grad_req)
    return True


def by_name(arrays: Arrays, names: Sequence[str]) -> dict[str, NDArray]:
    """Arrays given by position or name, by name; what is missing or wrong the stock bind will report."""
    pairs = arrays.items() if isinstance(arrays, Mapping) else zip(names, arrays or (), strict=False)
    return {name: array for name, array in pairs if name in names and isinstance(array, NDArray)}


def output_names(symbol: Symbol) -> str:
    return ", ".join(symbol.list_outputs()[:3])
