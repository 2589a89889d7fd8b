"""MXNet's own executors, for symbols that are not compiled."""

from __future__ import annotations

from collections.abc import Callable

from mxnet.executor import Executor

from ngraph_mxnet.bridges.mxnet.binding import compiled_bind, environment, fallbacks
from ngraph_mxnet.bridges.mxnet.binding.fallbacks import Refusal


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
