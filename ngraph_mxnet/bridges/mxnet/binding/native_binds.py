"""Binds when the activation has failed: MXNet's own, whatever the environment names.

libmxnet alone would refuse every bind under `MXNET_SUBGRAPH_BACKEND=NGRAPH`, for it knows no such backend then. So this
module needs nothing of the package but `environment`, and nothing else but mxnet.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ngraph_mxnet.bridges.mxnet.binding import environment


def install(problem: str) -> None:
    """Let libmxnet bind as if the variable did not name our backend; `problem` says why."""
    from mxnet.executor import Executor
    from mxnet.symbol import Symbol

    environment.finish_activation(problem)
    for owner, name in ((Symbol, "bind"), (Symbol, "simple_bind"), (Executor, "reshape")):
        setattr(owner, name, _natively(getattr(owner, name)))


def _natively(stock: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(stock)
    def bind(*args: Any, **kwargs: Any) -> Any:
        if not environment.requested():
            return stock(*args, **kwargs)
        return environment.natively(lambda: stock(*args, **kwargs))

    return bind
