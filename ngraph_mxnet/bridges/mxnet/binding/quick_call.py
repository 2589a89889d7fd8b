"""The short way from a block's `__call__` to its compiled graph.

Gluon goes through five functions of its own and ours, most of whose checks come out the same at every call: 25
microseconds, where a small net computes for 5. After a call that went past MXNet's op (see `direct`) it is remembered
what the block was made with. The next call takes the short way as long as nothing of that has changed:
* Gluon would find the same functions, cached op, parameters and arrays, and no hooks: see `lookups`;
* the arguments are plain NDArrays, as many as then;
* the block is hybridized for our backend;
* C++ runs the graph for arrays of these shapes and types, now: see csrc/mxnet/direct.h.
Else it is Gluon's own call, which is then remembered anew.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from typing import Any

from mxnet.gluon.block import Block, HybridBlock, _regroup
from mxnet.ndarray import NDArray

from ngraph_mxnet.bridges.mxnet.binding import environment, lookups
from ngraph_mxnet.bridges.mxnet.binding.held_op import HeldCachedOp
from ngraph_mxnet.bridges.mxnet.binding.side_tables import blocks, of_block

stock_call = Block.__call__

Way = Callable[[Block, "tuple[Any, ...]"], Any]
"""From a block and a call's arguments to the outputs; None: it is no way for this call."""

first_ways: dict[type, Way] = {}
"""By the class, for blocks of which nothing is remembered."""

_kept = blocks.by_id


def install() -> None:
    Block.__call__ = call


@functools.wraps(stock_call)
def call(self: Block, *args: Any) -> Any:
    """`Block.__call__`, by the short way where there is one."""
    kept = _kept.get(id(self))
    if kept is not None:
        for way in (kept.trained, kept.quick, kept.loss):
            if way is not None and (result := way.call(self, args)) is not None:
                return result
    elif (first := first_ways.get(type(self))) is not None and (result := first(self, args)) is not None:
        return result
    return stock_call(self, *args)


class Remembered:
    """The state of a block at one call, to test if a later call is the same."""

    def __init__(self, block: HybridBlock, count: int) -> None:
        """`count`: of the arguments."""
        self.same = lookups.of_call(block, count).same
        """A predicate: True if a block and arguments are as in that call."""
        self._by_environment = block._backend is None
        self._count = count

    def fits(self, block: HybridBlock, args: tuple[Any, ...]) -> bool:
        """True if a call with these arguments is the same as the remembered call."""
        return self.same(block, args) and not (self._by_environment and not environment.requested())


class QuickCall(Remembered):
    """A call that was no training."""

    def __init__(self, block: HybridBlock, op: HeldCachedOp, places: Sequence[int], count: int) -> None:
        """`op` has just run for `count` arguments; `places`: which of the block's `_cached_op_args` its inputs are."""
        from ngraph_mxnet import _core

        super().__init__(block, count)
        self._op = op
        sources = [block._cached_op_args[place] for place in places]
        arrays = [None if is_input else found._data[0] for is_input, found in sources]
        self._held = op.holding([array for array in arrays if array is not None])
        self._call = _core.DirectCall(op.handle.value, [0 if array is None else array.handle.value for array in arrays],
                                      [found if is_input else None for is_input, found in sources]).call

    def call(self, block: HybridBlock, args: tuple[Any, ...]) -> Any:
        """The outputs as Gluon gives them; None: they are not to be had this way."""
        if not self.fits(block, args):
            return None
        if self._held is None or not self._op.begin(self._held):
            return None
        try:
            handles = self._call(*[arg.handle.value for arg in args])
        finally:
            self._op.end(self._held)
        if handles is None:
            return None
        return _regroup([NDArray(ctypes.c_void_p(handle)) for handle in handles], block._out_format)

    def made_for(self, block: HybridBlock, op: HeldCachedOp, args: tuple[Any, ...]) -> bool:
        """True if this object equals what would be made now."""
        return self._op is op and len(args) == self._count and self.same(block, args)


def remember(block: HybridBlock, op: Any, places: Sequence[int], args: tuple[Any, ...]) -> None:
    """The block has been called, and `op` has run; the rest is as in `QuickCall`."""
    if not isinstance(op, HeldCachedOp) or not op.is_direct:
        return
    kept = of_block(block)
    if kept.quick is not None and kept.quick.made_for(block, op, args):
        return  # these arguments were none for it; the next may be
    whole = all(type(arg) is NDArray for arg in args) and all(
        is_input or (found._data is not None and len(found._data) == 1) for is_input, found in block._cached_op_args)
    quick = QuickCall(block, op, places, len(args)) if whole else None
    kept.quick = quick if quick is not None and quick.same(block, args) else None
