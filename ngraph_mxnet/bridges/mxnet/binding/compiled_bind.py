"""Binding the compiled graph: MXNet binds the partitioned symbol, and the executor shows the user's.

The partitioned symbol may have its inputs in another order, and other names of outputs.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mxnet.base import MXNetError
from mxnet.context import Context
from mxnet.executor import Executor
from mxnet.ndarray import NDArray
from mxnet.symbol import Symbol

from ngraph_mxnet.bridges.mxnet.binding import direct, environment, interrupts
from ngraph_mxnet.bridges.mxnet.binding.fallbacks import Refusal, reason_of
from ngraph_mxnet.bridges.mxnet.error_texts import brief
from ngraph_mxnet.bridges.mxnet.judging import partitioner
from ngraph_mxnet.runtime.garbage import collector_paused

stock_bind = Symbol.bind
stock_simple_bind = Symbol.simple_bind

Arrays = Sequence[NDArray | None] | Mapping[str, NDArray] | None


@interrupts.delivering
@interrupts.told_apart
@collector_paused
def bind(
    symbol: Symbol,
    text: str,
    ctx: Context,
    args: Arrays,
    aux: Arrays,
    args_grad: Arrays = None,
    grad_req: Any = "null",
    shared_exec: Executor | None = None,
) -> Executor | Refusal:
    """An inference executor over these arrays; or why nothing comes of it.

    Args:
        text: the symbol's JSON.
        args_grad, grad_req: only shown; no gradient is wanted.
    """
    named_args = _by_name(args, symbol.list_arguments())
    named_aux = _by_name(aux, symbol.list_auxiliary_states())
    if named_args is None or named_aux is None:
        return Refusal(title(symbol), "arrays are missing", quiet=True)

    def types() -> partitioner.Types:
        return {name: (array.shape, array.dtype) for name, array in {**named_args, **named_aux}.items()}

    def bind_it(partitioned: Symbol) -> Executor:
        return stock_bind(partitioned, ctx, named_args, None, "null", named_aux, shared_exec=shared_exec)

    executor = _try(symbol, text, types, bind_it)
    if isinstance(executor, Executor):
        executor._grad_req = copy.deepcopy(grad_req)
        if args_grad is not None:
            names = symbol.list_arguments()
            executor.grad_arrays = symbol._get_ndarray_inputs("args_grad", args_grad, names, True)[1]
        else:
            executor.grad_arrays = None
    return executor


@interrupts.delivering
@interrupts.told_apart
@collector_paused
def simple_bind(
    symbol: Symbol, text: str, ctx: Context, grad_req: Any, shapes: Mapping[str, Any],
    dtypes: Mapping[str, Any] | None, **rest: Any,
) -> Executor | Refusal:
    """The same over new arrays. `shapes` and `dtypes` are the caller's, `rest` goes to MXNet as it is."""
    types: partitioner.Types = {}

    def infer() -> partitioner.Types:
        nonlocal types
        types = inferred_types(symbol, shapes, dtypes or {})
        return types

    def bind_it(partitioned: Symbol) -> Executor:
        all_shapes = {name: shape for name, (shape, _) in types.items()}
        all_dtypes = {name: dtype for name, (_, dtype) in types.items()}
        return stock_simple_bind(partitioned, ctx, "null", all_dtypes, **rest, **all_shapes)

    executor = _try(symbol, text, infer, bind_it)
    if isinstance(executor, Executor):
        executor._grad_req = copy.deepcopy(grad_req)
    return executor


def inferred_types(symbol: Symbol, shapes: Mapping[str, Any], dtypes: Mapping[str, Any]) -> partitioner.Types:
    """The types of all inputs, from those that a `simple_bind` is given; float32 where nothing tells the dtype.

    Raises:
        MXNetError: the shapes contradict each other.
    """
    names = [*symbol.list_arguments(), *symbol.list_auxiliary_states()]
    given = {name: shape for name, shape in shapes.items() if name in names and isinstance(shape, tuple)}
    arg_shapes, _, aux_shapes = symbol.infer_shape_partial(**given)
    told = {name: dtype for name, dtype in dtypes.items() if name in names}
    try:
        arg_types, _, aux_types = symbol.infer_type_partial(**told)
        found = [*arg_types, *aux_types]
    except MXNetError:  # some operators insist on types
        found = [told.get(name) for name in names]
    all_shapes = [*arg_shapes, *aux_shapes]
    return {name: (shape, dtype or "float32") for name, shape, dtype in zip(names, all_shapes, found, strict=True)}


def _try(
    symbol: Symbol, text: str, types: Callable[[], partitioner.Types], bind_it: Callable[[Symbol], Executor]
) -> Executor | Refusal:
    try:
        found = types()
    except (MXNetError, TypeError, ValueError) as error:
        return Refusal(title(symbol), f"the types can't be inferred: {brief(error)}", quiet=True)
    try:
        return environment.as_written(lambda: _partition_and_bind(symbol, text, found, bind_it))
    except Exception as error:
        return Refusal(title(symbol), reason_of(error))


def _partition_and_bind(
    symbol: Symbol, text: str, types: partitioner.Types, bind_it: Callable[[Symbol], Executor]
) -> Executor | Refusal:
    partitioned = partitioner.partitioned(symbol, text, types)
    if partitioned is None:
        return Refusal(title(symbol), "no region is supported; see ngraph_mxnet.explain", quiet=True)
    return _shown_as(held(lambda: bind_it(partitioned)), symbol)


def title(symbol: Symbol) -> str:
    """Return the name of a symbol in messages: the names of its first three outputs."""
    names: list[str] = symbol.list_outputs()
    return ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")


def held(bind_it: Callable[[], Executor]) -> Executor:
    """The executor that `bind_it` makes, as the holder of its arrays for the ops of ours in it."""
    from ngraph_mxnet import _core

    holder = _core.ArrayHolder()
    with holder:
        executor = bind_it()
    if holder.ops:
        holder.hold([array.handle.value for array in (*executor.arg_arrays, *executor.aux_arrays)])
        direct.run_executor(executor, holder)
    return executor


def _shown_as(executor: Executor, symbol: Symbol) -> Executor:
    """The executor of the partitioned symbol with the user's symbol and its order of arrays."""
    partitioned = executor._symbol
    args = dict(zip(partitioned.list_arguments(), executor.arg_arrays, strict=True))
    aux = dict(zip(partitioned.list_auxiliary_states(), executor.aux_arrays, strict=True))
    executor._symbol = copy.deepcopy(symbol)
    executor.arg_arrays = [args[name] for name in symbol.list_arguments()]
    executor.aux_arrays = [aux[name] for name in symbol.list_auxiliary_states()]
    return executor


def _by_name(arrays: Arrays, names: Sequence[str]) -> dict[str, NDArray] | None:
    """Arrays given by position or name, by name; None if they are not one for each name."""
    if not isinstance(arrays, Mapping):
        arrays = arrays or ()
        arrays = dict(zip(names, arrays, strict=True)) if len(arrays) == len(names) else {}
    found = {name: arrays.get(name) for name in names}
    return found if all(isinstance(array, NDArray) for array in found.values()) else None
