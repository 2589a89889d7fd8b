"""Binding the compiled graph: MXNet binds the partitioned symbol, and the executor shows the user's.

The partitioned symbol may have its inputs in another order, and other names of outputs. A graph that is one region C++
runs without MXNet's op around it: csrc/mxnet/direct.h.
"""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from mxnet.base import MXNetError
from mxnet.context import Context
from mxnet.executor import Executor
from mxnet.ndarray import NDArray
from mxnet.symbol import Symbol

from ngraph_mxnet.base import config
from ngraph_mxnet.base.forks import collector_paused
from ngraph_mxnet.plugin.arrays import brief
from ngraph_mxnet.plugin.binding import environment, interrupts, partitioner
from ngraph_mxnet.plugin.binding.fallbacks import Refusal, reason_of
from ngraph_mxnet.plugin.binding.partitioner import SUBGRAPH_OP, json_of


class Wiring(NamedTuple):
    """How the one op of a graph is connected."""

    inputs: list[str]
    """The names of the op's inputs, in order."""
    outputs: list[int]
    """Which of the op's outputs each of the graph's is: a permutation."""


def wiring(symbol: Symbol) -> Wiring | None:
    """None if the graph is more than one op of ours, or less, or does not show each of its outputs once."""
    graph = json.loads(json_of(symbol))
    nodes = graph["nodes"]
    operators = [index for index, node in enumerate(nodes) if node["op"] != "null"]
    if len(operators) != 1 or nodes[operators[0]]["op"] != SUBGRAPH_OP:
        return None
    heads = [(head[0], head[1]) for head in graph["heads"]]
    outputs = [output for node, output in heads if node == operators[0]]
    if len(outputs) != len(heads) or sorted(outputs) != list(range(len(heads))):
        return None
    return Wiring([nodes[edge[0]]["name"] for edge in nodes[operators[0]]["inputs"]], outputs)


def run_executor(executor: Executor, holder: Any) -> None:
    """Let C++ run this new executor, whose one op was made for `holder`, if that is possible."""
    found = wiring(executor._symbol) if config.get("NGRAPH_DIRECT") and holder.ops == 1 else None
    if found is None:
        return
    from ngraph_mxnet import _core

    arrays = {**executor.arg_dict, **executor.aux_dict}
    shown = dict(zip(found.outputs, executor.outputs, strict=True))
    _before_forks()
    _core.direct_executor(executor.handle.value, holder, [arrays[name].handle.value for name in found.inputs],
                          [shown[output].handle.value for output in range(len(shown))])


def run_cached_op(op: Any, symbol: Symbol, holder: Any) -> bool:
    """Let C++ run the graph's cached op, whose ops are made for `holder`, where it can; false if it never can."""
    found = wiring(symbol) if config.get("NGRAPH_DIRECT") else None
    if found is None:
        return False
    from ngraph_mxnet import _core

    places = {name: place for place, name in enumerate(symbol.list_inputs())}
    _before_forks()
    return bool(_core.direct_cached_op(op.handle.value, holder, [places[name] for name in found.inputs], found.outputs))


_registered = False


def _before_forks() -> None:
    """From now on the process does not fork while a call runs, which may need Python to keep prepared weights."""
    global _registered
    if not _registered:
        from ngraph_mxnet import _core

        os.register_at_fork(before=_core.finish_direct_calls)
        _registered = True


stock_bind = Symbol.bind
stock_simple_bind = Symbol.simple_bind

Arrays = Sequence[NDArray | None] | Mapping[str, NDArray] | None


@interrupts.delivering
@interrupts.told_apart
@collector_paused
def bind(symbol: Symbol, text: str, ctx: Context, args: Arrays, aux: Arrays, args_grad: Arrays = None,
         grad_req: Any = "null", shared_exec: Executor | None = None) -> Executor | Refusal:
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
def simple_bind(symbol: Symbol, text: str, ctx: Context, grad_req: Any, shapes: Mapping[str, Any],
                dtypes: Mapping[str, Any] | None, **rest: Any) -> Executor | Refusal:
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
        run_executor(executor, holder)
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
