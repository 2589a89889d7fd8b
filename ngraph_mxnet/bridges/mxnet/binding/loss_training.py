"""Gluon's losses of what a recorded call of ours has given, compiled, unless NGRAPH_TRAINING=0.

Hybridized or not, a loss of `mxnet.gluon.loss` has neither parameters nor a state, so a call of it can be one node on
the tape, as a hybridized block's is; operator by operator it costs more than what a small net computes. What
`NDArray.reshape` has made in between counts as the call's. A loss of anything else is MXNet's: so is the node before
it, and one of ours would cost more than it saves. So are classes of the program's own, replaced methods, and hooks.
"""

from __future__ import annotations

from typing import Any

import mxnet as mx
from mxnet.gluon import loss as losses
from mxnet.gluon.block import HybridBlock
from mxnet.ndarray import NDArray
from mxnet.util import is_np_array, is_np_shape

from ngraph_mxnet import config
from ngraph_mxnet.bridges.mxnet.binding import environment, fallbacks, lookups, quick_call
from ngraph_mxnet.bridges.mxnet.binding.fallbacks import Refusal, made_or_refused, reason_of
from ngraph_mxnet.bridges.mxnet.binding.gluon_training import Calls, on_tape, saved_bytes, was_compiled
from ngraph_mxnet.bridges.mxnet.binding.kinds import Kinds
from ngraph_mxnet.bridges.mxnet.binding.side_tables import of_block
from ngraph_mxnet.errors import UnsupportedError

_KINDS: list[Any] = [kind for kind in vars(losses).values()
                     if isinstance(kind, type) and issubclass(kind, losses.Loss) and kind is not losses.Loss]
_HYBRIDS = {kind: kind.hybrid_forward for kind in _KINDS}
_FORWARD = HybridBlock.forward
_FUNCTIONS = {name: vars(losses)[name] for name in ("_apply_weighting", "_reshape_like")}
_METHODS = ("forward", "hybrid_forward", "_call_cached_op")
_COMMON = frozenset(vars(HybridBlock(prefix="")))
"""Attributes of any block."""


class LossTraining:
    """Belongs to one loss.

    Attributes:
        count: calls that were compiled.
    """

    def __init__(self, block: losses.Loss) -> None:
        from ngraph_mxnet import _core

        self._mode_of, self._is_ours = _core.recording_mode, _core.is_ours
        self._names = [name for name in vars(block) if name not in _COMMON]
        self._calls: Kinds[Calls | Refusal] = Kinds(saved_bytes, was_compiled)
        self.count = 0

    def call(self, block: losses.Loss, args: tuple[Any, ...]) -> NDArray | None:
        """Return the output of the loss, or None if MXNet runs the call."""
        if self._mode_of() is None or not all(type(arg) is NDArray for arg in args) or not self._is_wanted(block):
            return None
        ours = tuple(self._is_ours(arg.handle.value) for arg in args)
        if not any(ours) or any(on_tape(arg) != is_ours for arg, is_ours in zip(args, ours, strict=True)):
            return None
        try:
            key = (ours, *self._state_of(block), *[(arg.shape, arg.dtype) for arg in args])
            calls = self._calls.get_or_make(key, lambda: self._make(block, args, ours))
        except TypeError:  # an attribute that has no hash
            return None
        if calls is None or isinstance(calls, Refusal):
            return None
        try:
            outputs = calls.steps.call([arg.handle.value for arg in args])
        except Exception as error:
            fallbacks.log.add(Refusal(f"training of {block.name}", reason_of(error, "running it")))
            return None
        if outputs is None:
            return None
        self.count += 1
        return outputs[0]

    def _state_of(self, block: losses.Loss) -> list[Any]:
        """Return what the graph depends on: the loss's attributes. The graph of a hybridized loss is fixed when its
        cached op is made, so the cached op stands for the attributes."""
        state = block.__dict__
        return [block._cached_op] if block._active else [state[name] for name in self._names]

    def _is_wanted(self, block: losses.Loss) -> bool:
        kind, own = type(block), block.__dict__
        return bool(kind in _HYBRIDS and not any(name in own for name in _METHODS)
                    and kind.hybrid_forward is _HYBRIDS[kind] and kind.forward is _FORWARD
                    and kind._call_cached_op is lookups.ours
                    and all(vars(losses)[name] is function for name, function in _FUNCTIONS.items())
                    and (block._cached_op is not None or not block._active)
                    and block._callback is None and not block._forward_hooks and not block._forward_pre_hooks
                    and not block._reg_params and not is_np_array()
                    and (environment.names_backend(block._backend)
                         or (block._backend is None and environment.requested()))
                    and config.get("NGRAPH_TRAINING") and environment.problem() is None)

    def _make(self, block: losses.Loss, args: tuple[NDArray, ...], recorded: tuple[bool, ...]) -> Calls | Refusal:
        made = made_or_refused(f"training of {block.name}", lambda: _calls_of(block, args, recorded), quiet=True)
        if isinstance(made, Refusal):
            fallbacks.log.add(made)
        return made


def _calls_of(block: losses.Loss, args: tuple[NDArray, ...], recorded: tuple[bool, ...]) -> Calls:
    """Raises what MXNet raises of wrong arguments, too."""
    if is_np_array() or is_np_shape():
        raise UnsupportedError("the program uses MXNet's NumPy arrays or shapes")
    if block._active:
        variables, symbol = block._cached_graph
        names = [variable.name for variable in variables]
        if block._in_format != [0] * len(args) or block._out_format not in (0, [0]):
            raise UnsupportedError("its graph was made for nested lists, or for None")
    else:
        names = [f"data{place}" for place in range(len(args))]
        with mx.name.NameManager():
            symbol = block.hybrid_forward(mx.sym, *[mx.sym.var(name) for name in names])
    if sorted(symbol.list_inputs()) != names or len(symbol.list_outputs()) != 1:
        raise UnsupportedError("it does not read all that it is given")
    trained = [name for name, is_recorded in zip(names, recorded, strict=True) if is_recorded]
    return Calls(symbol.tojson(), dict(zip(names, args, strict=True)), {}, trained)


def _first_call(block: losses.Loss, args: tuple[Any, ...]) -> NDArray | None:
    """Return the output of a loss that is called for the first time, or None if MXNet runs the call."""
    kept = of_block(block)
    kept.loss = LossTraining(block)
    result: NDArray | None = kept.loss.call(block, args)
    return result


def install() -> None:
    quick_call.first_ways.update(dict.fromkeys(_KINDS, _first_call))
