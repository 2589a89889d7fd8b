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
from collections.abc import Iterable, Mapping
from typing import Any

from mxnet.context import Context
from mxnet.executor import Executor
from mxnet.ndarray import NDArray
from mxnet.symbol import Symbol

# `executor` by its module: where that imports mxnet, whose end activates us, it is only half there yet.
from ngraph_mxnet.bridges.mxnet.binding import compiled_bind, environment, executor
from ngraph_mxnet.bridges.mxnet.binding.compiled_bind import Arrays, stock_bind, stock_simple_bind, title
from ngraph_mxnet.bridges.mxnet.binding.fallbacks import Refusal
from ngraph_mxnet.bridges.mxnet.binding.stock_executor import bind_as_it_is, bind_natively
from ngraph_mxnet.bridges.mxnet.judging import partitioner
from ngraph_mxnet.bridges.mxnet.symbols.sparse_storage import why_not_dense

_CACHED_OP = '"op": "_CachedOp"'


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
    def stock() -> Executor:
        return stock_bind(self, ctx, args, args_grad, grad_req, aux_states, group2ctx, shared_exec)

    if not environment.requested():
        return bind_as_it_is(stock)
    text = partitioner.json_of(self)
    reason = reason_for_native(self, text, ctx, group2ctx, (args, args_grad, aux_states), None)
    if reason is not None:
        return bind_natively(stock, Refusal(title(self), reason, quiet=True))
    if args_grad and wants_gradient(grad_req):
        return executor.NGraphExecutor.adopt(bind_natively(stock), is_compiled=False)
    found = compiled_bind.bind(self, text, ctx, args, aux_states, args_grad, grad_req, shared_exec)
    if isinstance(found, Executor):
        return executor.NGraphExecutor.adopt(found, is_compiled=True)
    return executor.NGraphExecutor.adopt(bind_natively(stock, found), is_compiled=False, refused=True)


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
        return bind_as_it_is(stock)
    text = partitioner.json_of(self)
    reason = reason_for_native(self, text, ctx, group2ctx, (), stype_dict)
    if reason is not None:
        return bind_natively(stock, Refusal(title(self), reason, quiet=True))
    if grad_req is None or wants_gradient(grad_req):
        return executor.NGraphExecutor.adopt(bind_natively(stock), is_compiled=False)
    found = compiled_bind.simple_bind(
        self,
        text,
        ctx,
        grad_req,
        kwargs,
        type_dict,
        stype_dict=stype_dict,
        shared_arg_names=shared_arg_names,
        shared_exec=shared_exec,
        shared_buffer=shared_buffer,
    )
    if isinstance(found, Executor):
        return executor.NGraphExecutor.adopt(found, is_compiled=True)
    return executor.NGraphExecutor.adopt(bind_natively(stock, found), is_compiled=False, refused=True)


def reason_for_native(
    symbol: Symbol,
    text: str,
    ctx: Context,
    group2ctx: Any,
    arrays: Iterable[Arrays],
    stypes: Mapping[str, str] | None,
) -> str | None:
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
    if isinstance(grad_req, str):
        return grad_req != "null"
    if isinstance(grad_req, Mapping):
        return any(value != "null" for value in grad_req.values())
    if isinstance(grad_req, (list, tuple)):
        return any(value != "null" for value in grad_req)
    return True
