"""The short way from a block's `__call__` to its compiled graph.

Gluon goes through five functions of its own and ours, most of whose checks come out the same at every call: 25
microseconds, where a small net computes for 5. After a call that went past MXNet's op (see `direct`) the block
remembers what it was made with. The next call takes the short way as long as nothing of that has changed:
* no hooks, no symbols, no nested lists or None among the arguments, which are plain NDArrays, as many as then;
* the block is hybridized for the same backend, with the same cached op, and `forward` is Gluon's own;
* each parameter has the very array that it had;
* C++ runs the graph for arrays of these shapes and types, now: see csrc/direct.h.
Else it is Gluon's own call, which then remembers anew.
"""

from __future__ import annotations

import ctypes
from operator import attrgetter, is_, itemgetter
from typing import Any

from mxnet.gluon import Parameter
from mxnet.gluon.block import Block, HybridBlock, SymbolBlock, _regroup
from mxnet.ndarray import NDArray

from ngraph_mxnet.bridges.mxnet.binding import environment
from ngraph_mxnet.bridges.mxnet.binding.held_op import HeldCachedOp

stock_call = Block.__call__

#: Where a block keeps its `QuickCall`; not a Gluon attribute, so it is set past `Block.__setattr__`.
QUICK = "_ngraph_quick"

#: Where it keeps what has a method `call` as that has, for calls that are recorded: see `quick_training`.
TRAINED = "_ngraph_quick_training"

FORWARDS = (HybridBlock.forward, SymbolBlock.forward)

_lists_of, _first_of, _request_of = attrgetter("_data"), itemgetter(0), attrgetter("_grad_req")

_times_set = 0
"""How often a parameter was given arrays or another `grad_req`: to look at each at every call takes 25 microseconds."""


def install() -> None:
    HybridBlock.__call__ = call
    Parameter.__setattr__ = set_attribute


def set_attribute(self: Parameter, name: str, value: Any) -> None:
    global _times_set
    object.__setattr__(self, name, value)
    if name in ("_data", "_grad_req"):
        _times_set += 1


def call(self: HybridBlock, *args: Any) -> Any:
    """`Block.__call__`, by the short way where there is one."""
    for way in (TRAINED, QUICK):
        quick = self.__dict__.get(way)
        if quick is not None:
            result = quick.call(self, args)
            if result is not None:
                return result
    return stock_call(self, *args)


class Remembered:
    """What a block was called with, and has not changed since."""

    def __init__(self, block: HybridBlock, body: Any, count: int) -> None:
        """`body`: the block, or a `CompiledBody`; `count`: of the arguments."""
        self._times_set = _times_set
        self._block_op, self._backend = block._cached_op, block._backend
        self._count, self._format = count, body._out_format
        self._parameters = [found for is_input, found in body._cached_op_args if not is_input]
        self._lists = [parameter._data for parameter in self._parameters]
        self._arrays = [arrays[0] for arrays in self._lists]
        self._requests = [parameter._grad_req for parameter in self._parameters]

    def fits(self, block: HybridBlock, args: tuple[Any, ...]) -> bool:
        """Whether a call with these arguments is as that one."""
        if (len(args) != self._count or block._cached_op is not self._block_op or not block._active
                or block._callback is not None or block._backend != self._backend
                or block._forward_hooks or block._forward_pre_hooks):
            return False
        if self._backend is None and not environment.requested():
            return False
        if not self._has_parameters():
            return False
        return all(type(arg) is NDArray for arg in args)

    def _has_parameters(self) -> bool:
        """Whether each parameter has its array."""
        times = _times_set
        if self._times_set == times:
            return True
        if not (all(map(is_, map(_lists_of, self._parameters), self._lists))
                and all(map(is_, map(_first_of, self._lists), self._arrays))
                and all(map(is_, map(_request_of, self._parameters), self._requests))):
            return False
        self._times_set = times
        return True


class QuickCall(Remembered):
    """A call that was no training."""

    def __init__(self, block: HybridBlock, body: Any, count: int) -> None:
        """`body` is the `CompiledBody` that has just run for `count` arguments."""
        from ngraph_mxnet import _core

        super().__init__(block, body, count)
        self._op: HeldCachedOp = body._cached_op
        self._held = self._op.holding(self._arrays)
        self._call = _core.DirectCall(
            self._op.handle.value, [0 if is_input else found._data[0].handle.value
                                    for is_input, found in body._cached_op_args],
            [found if is_input else None for is_input, found in body._cached_op_args]).call

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
        return _regroup([NDArray(ctypes.c_void_p(handle)) for handle in handles], self._format)

    def made_for(self, block: HybridBlock, body: Any, count: int) -> bool:
        """Whether it is what would be made now."""
        return (self._block_op is block._cached_op and self._op is body._cached_op and self._count == count
                and self._backend == block._backend and self._has_parameters())


def remember(block: HybridBlock, body: Any, args: tuple[Any, ...]) -> None:
    """The block has been called, and `body` has run."""
    if not isinstance(body._cached_op, HeldCachedOp) or not body._cached_op.is_direct:
        return
    quick = block.__dict__.get(QUICK)
    if quick is not None and quick.made_for(block, body, len(args)):
        return  # these arguments were none for it; the next may be
    plain = all(type(arg) is NDArray for arg in args) and type(block).forward in FORWARDS
    whole = plain and all(is_input or (found._data is not None and len(found._data) == 1)
                          for is_input, found in body._cached_op_args)
    block.__dict__[QUICK] = QuickCall(block, body, len(args)) if whole else None
