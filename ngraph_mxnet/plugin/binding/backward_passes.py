"""MXNet's backward passes: what they ask of compiled calls, and what they write that MXNet's engine does not count.

Some ask more than a pass in training mode by all variables does:
* `autograd.grad(create_graph=True)` through what was compiled is an error, as through MXNet's own hybridized blocks:
  MXNet would take our part's gradient for a constant, and tell nobody.
* In predict mode (`train_mode=False`) batch norms take their moving statistics for constants. The program of that is
  compiled when it is first asked for.
* Such a pass, and one by chosen variables, is waited for where statistics might move or be read: MXNet's engine is not
  told of them (csrc/mxnet/tape.cc).

An executor, and a cached op with `static_alloc` and `static_shape`, make their operators ready once, with the arrays
that each writes. Auxiliary states are not among these: a batch norm's backward pass writes its moving statistics, and
their versions stay. What we compiled from the old ones would run on. So MXNet's own backward passes touch them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar
from weakref import WeakSet

import mxnet as mx
from mxnet import autograd
from mxnet.base import MXNetError
from mxnet.gluon import Parameter
from mxnet.gluon.block import HybridBlock
from mxnet.ndarray import NDArray

from ngraph_mxnet.plugin.binding import environment, fallbacks, partitioner
from ngraph_mxnet.plugin.binding.fallbacks import Refusal, made_or_refused
from ngraph_mxnet.plugin.binding.gluon_blocks import Kinds, of_block

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


stock_grad = autograd.grad
stock_backward = autograd.backward
stock_method = NDArray.backward

_NODE = '"op": "_CustomFunction"'
_Result = TypeVar("_Result")


def install() -> None:
    autograd.grad = grad
    autograd.backward = backward
    NDArray.backward = method


links: Kinds[Refusal | bool] = Kinds()
"""What came of the links that backward passes have met, by their keys."""


def _prepare(heads: Sequence[NDArray]) -> None:
    """Compile the gradients of the operators between compiled calls and these arrays, where they are not yet. Compile
    operators that are called often off the tape, too."""
    from ngraph_mxnet import _core

    for key, description in _core.missing_links([head.handle.value for head in heads]):
        if not description[-1]:
            _compile_operators(description, key)
            continue
        made = links.get_or_make(key, functools.partial(
            made_or_refused, "operators around compiled calls", functools.partial(_compile, key, description),
            quiet=True))
        if isinstance(made, Refusal):
            _core.add_link(key, None, [])
            fallbacks.log.add(made)


def _compile(key: bytes, description: Any) -> bool:
    from ngraph_mxnet import _core
    from ngraph_mxnet.plugin.training.links import compiled_link

    _core.add_link(key, *compiled_link(description))
    _compile_operators(description)
    return True


def _compile_operators(description: Any, key: bytes | None = None) -> None:
    """Compile the operators' results. `key`: of the only one, if it was called off the tape."""
    from ngraph_mxnet import _core
    from ngraph_mxnet.plugin.training.links import compiled_operator, operators_of

    for op, attributes, types, results in operators_of(description):
        own = key or _core.missing_operator(op, attributes, types)
        if own is not None:
            made = made_or_refused("operators around compiled calls", functools.partial(
                compiled_operator, op, attributes, types, results), quiet=True)
            _core.add_link(own, *((None, []) if isinstance(made, Refusal) else made))


def _gone_back(run: Callable[[], _Result], heads: Any, train_mode: bool, by_all: bool = True) -> _Result:
    """Run a backward pass and return its result. `by_all`: it is by all variables that have a gradient.

    Raises:
        UnsupportedError: predict mode's way can't be compiled.
    """
    if by_all:
        heads = heads if isinstance(heads, (list, tuple)) else [heads]
        if all(isinstance(head, NDArray) for head in heads):
            _prepare(heads)
    waits = not (train_mode and by_all) and _may_move()
    if waits and not train_mode:
        from ngraph_mxnet.plugin.training.steps import prepare_predicting

        prepare_predicting()
    result = run()
    if waits:
        mx.nd.waitall()
    touch_recorded()
    return result


def _may_move() -> bool:
    """True if a backward pass may meet calls that move statistics."""
    from ngraph_mxnet import _core

    return bool(_core.is_any_moving())


@functools.wraps(stock_backward)
def backward(heads: Any, head_grads: Any = None, retain_graph: bool = False, train_mode: bool = True) -> None:
    _gone_back(lambda: stock_backward(heads, head_grads, retain_graph, train_mode), heads, train_mode)


@functools.wraps(stock_method)
def method(self: NDArray, out_grad: Any = None, retain_graph: bool = False, train_mode: bool = True) -> None:
    _gone_back(lambda: stock_method(self, out_grad, retain_graph, train_mode), self, train_mode)


@functools.wraps(stock_grad)
def grad(heads: Any, variables: Any, head_grads: Any = None, retain_graph: Any = None, create_graph: bool = False,
         train_mode: bool = True) -> Any:
    """MXNet's.

    Raises:
        MXNetError: gradients of gradients are wanted of a compiled call.
    """
    from ngraph_mxnet import _core

    if create_graph and _core.is_any_recorded():
        for head in heads if isinstance(heads, (list, tuple)) else [heads]:
            if _NODE in partitioner.json_of(autograd.get_symbol(head)):
                raise MXNetError("a hybridized block that is compiled does not support higher order gradients, nor do "
                                 "MXNet's own; please do not use hybridize if you want create_graph=True")
    return _gone_back(lambda: stock_grad(heads, variables, head_grads, retain_graph, create_graph, train_mode),
                      heads, train_mode, by_all=False)
