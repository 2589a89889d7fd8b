"""MXNet's partitioner, driven so that a plain bind partitions: prime, bind, clear.

libmxnet's custom partitioner is one object per process. `optimize_for` asks the library which nodes it
supports and remembers their *names*; a bind partitions by the names of the last `optimize_for`. Hence
* prime: `optimize_for` on the symbol about to be bound, its result only tells whether a region was accepted;
* bind: MXNet's own, so that the order of arguments and the names of outputs stay the user's;
* clear: `optimize_for` on a one-variable symbol, else the next bind would partition nodes of another graph
  that share a name with this one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from mxnet import symbol as mx_symbol
from mxnet.base import MXNetError
from mxnet.context import Context
from mxnet.ndarray import NDArray
from mxnet.symbol import Symbol

from ngraph_mxnet.mxnet_bridge import callbacks, environment

SUBGRAPH_OP = "NGraphSubgraphOp"

stock_optimize_for = Symbol.optimize_for


def has_region(symbol: Symbol) -> bool:
    return f'"op": "{SUBGRAPH_OP}"' in symbol.tojson()


def clear_names() -> None:
    """Make the partitioner forget the supported nodes of the last graph."""
    stock_optimize_for(mx_symbol.Variable("ngraph_mxnet_nothing"), environment.BACKEND)


@contextmanager
def primed(
    symbol: Symbol, ctx: Context, args: Mapping[str, NDArray], aux: Mapping[str, NDArray]
) -> Iterator[bool]:
    """Within it a bind under `ngraph_backend` partitions `symbol`; the value: whether there is a region."""
    with environment.lock:
        try:
            # Asked of the log: MXNet's `tojson` leaks the text at every call.
            with callbacks.log.listening() as partitions:
                stock_optimize_for(symbol, environment.BACKEND, dict(args), dict(aux), ctx)
            yield any(partition.regions for partition in partitions)
        finally:
            clear_names()


def optimize_for(
    self: Symbol,
    backend: str,
    args: dict[str, NDArray] | None = None,
    aux: dict[str, NDArray] | None = None,
    ctx: Context | None = None,
    *rest: Any,
    **kwargs: Any,
) -> Symbol:
    """`Symbol.optimize_for`; for our backend in any case of letters, and leaving no names behind."""
    if not environment.names_backend(backend):
        return stock_optimize_for(self, backend, args, aux, ctx, *rest, **kwargs)
    if environment.problem() is not None:
        raise MXNetError(f"the backend {environment.BACKEND} is not usable: {environment.problem()}")
    with environment.lock:
        try:
            return stock_optimize_for(self, environment.BACKEND, args, aux, ctx, *rest, **kwargs)
        finally:
            clear_names()
