"""MXNet's partitioner, and how it is spared.

libmxnet's custom partitioner is one object per process, and remembers the *names* of the nodes that the library said it
supports. A bind under the environment variable partitions by the names of the last `optimize_for`. So `optimize_for`
leaves no names behind, else the next bind would partition nodes of another graph that share a name with this one.

A bind gets the symbol partitioned already: what `optimize_for` made of it once, remembered in this process and on disk.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from mxnet import symbol as mx_symbol
from mxnet.base import MXNetError
from mxnet.context import Context, cpu
from mxnet.ndarray import NDArray
from mxnet.symbol import Symbol
from mxnet.util import is_np_shape

from ngraph_mxnet import config
from ngraph_mxnet.cache import cpu_features
from ngraph_mxnet.mxnet_bridge import callbacks, environment, kept_partitions

SUBGRAPH_OP = "NGraphSubgraphOp"

Types = Mapping[str, tuple[tuple[int, ...], Any]]
"""Shape and dtype by name."""

stock_optimize_for = Symbol.optimize_for


def json_of(symbol: Symbol) -> str:
    """The symbol's JSON. To leave out AMP's casts, as is the default, MXNet makes a copy, which it never frees."""
    return symbol.tojson(remove_amp_cast=False)


def has_region(symbol: Symbol) -> bool:
    return f'"op": "{SUBGRAPH_OP}"' in json_of(symbol)


def clear_names() -> None:
    """Make the partitioner forget the supported nodes of the last graph."""
    stock_optimize_for(mx_symbol.Variable("ngraph_mxnet_nothing"), environment.BACKEND)


def with_distinct_names(symbol: Symbol, text: str) -> tuple[Symbol, kept_partitions.UnnamedGraph]:
    """`symbol`, whose JSON is `text`, with a name for each operator; and its graph.

    Those of a Gluon block that is called twice share names, and MXNet's partitioner knows nodes by name.
    """
    graph = kept_partitions.UnnamedGraph(text)
    if not graph.repeats_names:
        return symbol, graph
    text = kept_partitions.with_distinct_names(text)
    return mx_symbol.load_json(text), kept_partitions.UnnamedGraph(text)


def partitioned(symbol: Symbol, text: str, types: Types) -> Symbol | None:
    """`symbol` with its regions as one op each; None if it has none. The order of its inputs may change.

    Args:
        symbol: an inference graph.
        text: its JSON.
        types: of all its arguments and auxiliary states.

    Raises:
        MXNetError: the types don't fit.
    """
    symbol, graph = with_distinct_names(symbol, text)
    names = [*symbol.list_arguments(), *symbol.list_auxiliary_states()]
    in_order = [(types[name][0], np.dtype(types[name][1]).name) for name in names]
    facts = repr((callbacks.chosen_backend({}), config.compile_settings(), cpu_features(), is_np_shape(), in_order))
    kept = kept_partitions.recall(graph, facts)
    if kept is not None:
        callbacks.tell(kept[0])
        return None if kept[1] is None else mx_symbol.load_json(kept[1])
    shapes = {name: shape for name, (shape, _) in types.items()}
    dtypes = {name: dtype for name, (_, dtype) in types.items()}
    with callbacks.log.listening() as heard:
        # Without arrays; MXNet infers types if the mappings of arrays are not empty.
        found = optimize_for(symbol, environment.BACKEND, {"": None}, {"": None}, cpu(), shape_dict=shapes,
                             type_dict=dtypes)
    regions = any(partition.regions for partition in heard)
    if heard and heard[0].complete:
        kept_partitions.keep(graph, facts, heard[0], json_of(found) if regions else None)
    return found if regions else None


def optimize_for(
    self: Symbol,
    backend: str,
    args: dict[str, NDArray] | None = None,
    aux: dict[str, NDArray] | None = None,
    ctx: Context | None = None,
    shape_dict: Mapping[str, Sequence[int]] | None = None,
    type_dict: Mapping[str, Any] | None = None,
    *rest: Any,
    **kwargs: Any,
) -> Symbol:
    """`Symbol.optimize_for`; for our backend in any case of letters, and leaving no names behind.

    Raises:
        ConfigError: an option for our backend is unknown, or its value not allowed.
    """
    if not environment.names_backend(backend):
        return stock_optimize_for(self, backend, args, aux, ctx, shape_dict, type_dict, *rest, **kwargs)
    if environment.problem() is not None:
        raise MXNetError(f"the backend {environment.BACKEND} is not usable: {environment.problem()}")
    callbacks.check_options(kwargs)
    wait_until_computed(args)
    wait_until_computed(aux)
    bools = {name: array for name, array in (args or {}).items() if array is not None and array.dtype == np.bool_}
    if args and bools:
        # MXNet's interface for extensions takes no bool arrays; their types are enough.
        args = {"": None, **{name: array for name, array in args.items() if name not in bools}}
        shape_dict = {**(shape_dict or {}), **{name: array.shape for name, array in bools.items()}}
        type_dict = {**(type_dict or {}), **dict.fromkeys(bools, np.bool_)}
    with environment.lock:
        try:
            return stock_optimize_for(self, environment.BACKEND, args, aux, ctx, shape_dict, type_dict, *rest,
                                      **kwargs)
        finally:
            clear_names()


def wait_until_computed(arrays: Mapping[str, NDArray | None] | None) -> None:
    """Until no thread of MXNet's computes one of them.

    MXNet's partitioner asks each array for its memory, and so allocates it if that has not been done. At the same
    moment the thread that computes the array may do so, too: then its values are written to memory that is lost.
    """
    for array in (arrays or {}).values():
        if array is not None:
            array.wait_to_read()
