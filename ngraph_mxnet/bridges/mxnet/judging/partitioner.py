"""`Symbol.optimize_for` for our backend, and the symbol that a bind runs.

libmxnet's partitioner takes no part in it, see `partitioning`. It is registered all the same, for the name of the
backend: as far as libmxnet knows it supports no node.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from mxnet import symbol as mx_symbol
from mxnet.base import MXNetError
from mxnet.context import Context
from mxnet.ndarray import NDArray
from mxnet.symbol import Symbol
from mxnet.util import is_np_shape

from ngraph_mxnet.bridges.mxnet import options
from ngraph_mxnet.bridges.mxnet.binding import environment, interrupts
from ngraph_mxnet.bridges.mxnet.judging import cached_partitions, partition_log
from ngraph_mxnet.bridges.mxnet.judging.nameless import NamelessGraph
from ngraph_mxnet.bridges.mxnet.judging.partitioning import SUBGRAPH_OP, Types, partition, partitioned_text
from ngraph_mxnet.cache import cpu_features
from ngraph_mxnet.errors import UnsupportedError
from ngraph_mxnet.placement.verdicts.report import Partition
from ngraph_mxnet.recent import Recent
from ngraph_mxnet.registry import build_of
from ngraph_mxnet.runtime.backend import get_backend

stock_optimize_for = Symbol.optimize_for


def json_of(symbol: Symbol) -> str:
    """The symbol's JSON. To leave out AMP's casts, as is the default, MXNet makes a copy, which it never frees."""
    return symbol.tojson(remove_amp_cast=False)


def has_region(symbol: Symbol) -> bool:
    return f'"op": "{SUBGRAPH_OP}"' in json_of(symbol)


latest = Recent(16)
"""The latest partitionings, with the symbols that came of them; MXNet changes no symbol that it binds."""


def partitioned(symbol: Symbol, text: str, types: Types, given: Mapping[str, Any] | None = None) -> Symbol | None:
    """The symbol with its regions as one op each; None if it has none. The order of its inputs may change.

    Args:
        symbol: an inference graph.
        text: its JSON.
        types: of its arguments and auxiliary states.
        given: the options of `optimize_for`.

    Raises:
        MXNetError: the types contradict each other.
        ConfigError: there is no such backend.
    """
    own = options.own_options(given or {})
    own[options.BACKEND] = options.chosen_backend(own)
    data = own.pop(options.DATA, "[]")
    facts = repr((sorted(own.items()), build_of(own[options.BACKEND]), options.settings_of(own), cpu_features(),
                  is_np_shape()))
    key = text, facts, data, tuple((name, shape and tuple(shape), dtype and np.dtype(dtype).num)
                             for name, (shape, dtype) in types.items())
    found = latest.get(key)
    if found is None:
        try:
            found = _partitioned(symbol, NamelessGraph(text), types, own, frozenset(json.loads(data)), facts)
        except UnsupportedError as error:
            partition_log.add_failure("a whole graph", error)
            return None
        latest.put(key, found)
    partition_log.add(found[0])
    return found[1]


def _partitioned(symbol: Symbol, graph: NamelessGraph, types: Types, own: Mapping[str, str], data: frozenset[str],
                 facts: str) -> tuple[Partition, Symbol | None]:
    in_order = [(shape and tuple(shape), dtype and np.dtype(dtype).name, name in data)
                for name in (graph.names[place] for place in graph.variables)
                for shape, dtype in [types.get(name, (None, None))]]

    def make() -> cached_partitions.Made:
        found = partition(symbol, graph, types, get_backend(own[options.BACKEND]), data)
        return found.partition, partitioned_text(graph, found, own, data)

    record, found = cached_partitions.get_or_make(graph, f"{facts} {in_order}", make)
    return record, None if found is None else mx_symbol.load_json(found)


@interrupts.delivering
@interrupts.told_apart
def optimize_for(
    self: Symbol,
    backend: str,
    args: dict[str, NDArray] | None = None,
    aux: dict[str, NDArray] | None = None,
    ctx: Context | None = None,
    shape_dict: Mapping[str, Sequence[int]] | None = None,
    type_dict: Mapping[str, Any] | None = None,
    stype_dict: Mapping[str, str] | None = None,
    skip_infer: bool = False,
    **kwargs: Any,
) -> Symbol:
    """`Symbol.optimize_for`; for our backend in any case of letters.

    Raises:
        ConfigError: an option for our backend is unknown, or its value not allowed.
        MXNetError: the types contradict each other.
    """
    if not environment.names_backend(backend):
        return stock_optimize_for(self, backend, args, aux, ctx, shape_dict, type_dict, stype_dict, skip_infer,
                                  **kwargs)
    if environment.problem() is not None:
        raise MXNetError(f"the backend {environment.BACKEND} is not usable: {environment.problem()}")
    options.check_options(kwargs)
    types: dict[str, tuple[Sequence[int] | None, Any]] = {}
    if not skip_infer:
        shapes, dtypes = dict(shape_dict or {}), dict(type_dict or {})
        types = {name: (shapes.get(name), dtypes.get(name)) for name in {**shapes, **dtypes}}
        types |= {name: (array.shape, array.dtype) for name, array in {**(args or {}), **(aux or {})}.items()
                  if isinstance(array, NDArray)}
    try:
        found = partitioned(self, json_of(self), types, kwargs)
    except MXNetError:
        raise
    except Exception as error:
        partition_log.add_failure("a whole graph", error)
        found = None
    return copy.deepcopy(self if found is None else found)
