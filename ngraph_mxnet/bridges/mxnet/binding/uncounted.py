"""Writes to auxiliary states that MXNet's engine does not count.

An executor, and a cached op with `static_alloc` and `static_shape`, make their operators ready once, with the arrays
that each writes. Auxiliary states are not among these: a batch norm's backward pass writes its moving statistics, and
their versions stay. What we compiled from the old ones would run on. So MXNet's own backward passes touch them.
"""

from __future__ import annotations

from collections.abc import Iterable
from weakref import WeakSet

from mxnet.gluon import Parameter
from mxnet.gluon.block import HybridBlock
from mxnet.ndarray import NDArray

from ngraph_mxnet.bridges.mxnet.binding import environment
from ngraph_mxnet.bridges.mxnet.binding.side_tables import of_block

_states: WeakSet[Parameter] = WeakSet()
"""Auxiliary states of all blocks whose backward passes write uncounted: MXNet has run such a pass, or may yet run
one."""


def add_recorded(block: HybridBlock) -> None:
    """MXNet records a call of the block's own cached op."""
    kept, flags = of_block(block), dict(block._flags)
    if kept.recorded is not block._cached_op and flags.get("static_alloc") and flags.get("static_shape"):
        kept.recorded = block._cached_op
        arguments = dict(zip(block._cached_graph[1].list_inputs(), block._cached_op_args, strict=True))
        _states.update(arguments[name][1] for name in block._cached_graph[1].list_auxiliary_states())


def touch_recorded() -> None:
    """A backward pass over recorded calls was pushed."""
    if _states:
        touch(array for parameter in _states for array in parameter._data or ())


def touch(states: Iterable[NDArray]) -> None:
    """A backward pass that writes these was pushed: their versions rise behind it."""
    handles = list({array.handle.value: None for array in states})
    if not handles or environment.problem() is not None:
        return
    import ngraph_mxnet._core as core

    core.touch(handles)
