"""Lookups of what Gluon finds in a hybridized block when it is called. They tell if a call may go a shorter way than
Gluon's.

Gluon's way from `Block.__call__` to a cached op looks up functions, attributes, hooks and arrays. A program may replace
each of them at any time: on the block, its class or a base class, in a parameter, in a list. What one call has found is
compared with what the next one would find, in C++ (csrc/mxnet/block_lookups.h). Here is what a class may be like.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from mxnet.gluon import Parameter
from mxnet.gluon import block as gluon
from mxnet.gluon.block import HybridBlock, SymbolBlock
from mxnet.ndarray import CachedOp, NDArray
from mxnet.util import _NumpyArrayScope, is_np_array

_NOWHERE = object()

_FORWARDS = (HybridBlock.forward, SymbolBlock.forward)
_PARAMETERS_METHODS = {name: vars(Parameter)[name] for name in ("data", "_check_and_get")}
_OP_METHODS = {"__call__": CachedOp.__call__}
_BLOCK_STATE = ("_active", "_backend", "_cached_op", "_cached_op_args", "_callback", "_forward_hooks",
                "_forward_pre_hooks", "_in_format", "_out_format")
_PARAMETER_STATE = ("_data", "_grad_req", "_stype")
_GLOBALS = ("_flatten", "_gather_type_ctx_info", "_mx_npx", "_regroup")


def _of_class(kind: type, name: str) -> Any:
    """Return what instances of the class get by this name if they have no such attribute of their own."""
    return next((vars(base)[name] for base in kind.__mro__ if name in vars(base)), _NOWHERE)


def _is_plain(kind: type, state: tuple[str, ...]) -> bool:
    """True if an instance's attributes of these names are those in its `__dict__`."""
    return (_of_class(kind, "__getattribute__") is object.__getattribute__
            and not any(hasattr(type(_of_class(kind, name)), "__set__") for name in state))


def accepts_block(kind: type) -> bool:
    """True if a call of a block of this class goes to our `_call_cached_op` by Gluon's own `forward`."""
    return (_of_class(kind, "forward") in _FORWARDS and _is_plain(kind, _BLOCK_STATE)
            and _of_class(kind, "_call_cached_op") is ours)


def accepts_parameter(kind: type) -> bool:
    """True if a parameter of this class gives its array as Gluon's own parameters do."""
    return (all(_of_class(kind, name) is method for name, method in _PARAMETERS_METHODS.items())
            and _is_plain(kind, _PARAMETER_STATE))


def are_plain(parameters: Collection[Parameter]) -> bool:
    """True if each parameter gives its array as Gluon's own parameters do."""
    return (all(map(accepts_parameter, {*map(type, parameters)}))
            and not any(name in vars(parameter) for parameter in parameters for name in _PARAMETERS_METHODS))


def accepts_op(kind: type) -> bool:
    return all(_of_class(kind, name) is method for name, method in _OP_METHODS.items())


ours: Any = None
"""The function that replaces `HybridBlock._call_cached_op`."""


def of_call(block: HybridBlock, arguments: int) -> Any:
    """A `_core.BlockLookups`: what a call with so many arguments finds now."""
    import ngraph_mxnet._core as _core

    return _core.BlockLookups(block, arguments, NDArray, accepts_block, accepts_parameter, accepts_op, vars(gluon),
                              _GLOBALS, _NumpyArrayScope._current, is_np_array)
