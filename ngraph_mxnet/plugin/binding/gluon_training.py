"""Calls of hybridized blocks and of losses under `autograd.record`, compiled, unless NGRAPH_TRAINING=0.

A call runs the forward half of a training step and records one node, whose backward runs the other half. What a step
saves belongs to it until that node is gone, so each call that may still be gone back through has a step of its own.
A block that can't be trained as a whole is trained in parts, MXNet's and ours by turns.

Hybridized or not, a loss of `mxnet.gluon.loss` has neither parameters nor a state, so a call of it can be one node on
the tape; operator by operator it costs more than what a small net computes. What `NDArray.reshape` has made in between
counts as the call's. A loss of anything else than what a recorded call of ours has given is MXNet's: so is the node
before it, and one of ours would cost more than it saves. So are classes of the program's own, replaced methods, and
hooks.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import mxnet as mx
import numpy as np
from mxnet import autograd
from mxnet.base import MXNetError
from mxnet.gluon import loss as losses
from mxnet.gluon.block import HybridBlock, _regroup
from mxnet.ndarray import NDArray
from mxnet.util import is_np_array, is_np_shape

from ngraph_mxnet.base import config
from ngraph_mxnet.base.errors import UnsupportedError
from ngraph_mxnet.frontends.mxnet.importer import why_left
from ngraph_mxnet.frontends.mxnet.symbol_json import parse_symbol
from ngraph_mxnet.plugin.binding import environment, fallbacks, gluon_blocks, partitioner
from ngraph_mxnet.plugin.binding.fallbacks import Refusal, made_or_refused, reason_of
from ngraph_mxnet.plugin.binding.gluon_blocks import DENSE, Kinds, of_block

if TYPE_CHECKING:
    from ngraph_mxnet.plugin.training.parts import PartedCalls
    from ngraph_mxnet.plugin.training.steps import Calls


def sparse_gradients(block: HybridBlock) -> dict[str, str]:
    """The parameters whose gradients are sparse, by the graph's names, and what is said of their readers."""
    names = block._cached_graph[1].list_inputs()
    return why_left(name for name, (is_input, found) in zip(names, block._cached_op_args, strict=True)
                    if not is_input and found._grad_stype != "default")


_INLINED = 2
"""Operators of a graph that MXNet's cached op runs as if it weren't hybridized, by default."""


class Recorded:
    """Recorded calls of one block or loss.

    Attributes:
        calls: by kind of call, or why MXNet runs calls of the kind.
        count: calls that were compiled.
    """

    def __init__(self, name: str) -> None:
        self._title = f"training of {name}"
        self.calls: Kinds[Calls | PartedCalls | Refusal] = Kinds()
        self.count = 0

    def _refused(self, reason: str, *, quiet: bool = True) -> Refusal:
        return Refusal(self._title, reason, quiet)

    def _run(self, kind: Hashable, make: Callable[[], Calls | PartedCalls], arrays: Sequence[NDArray],
             array_type: type[NDArray], *, quiet: bool = False) -> tuple[Calls | PartedCalls, list[NDArray]] | Refusal:
        """Run a call of this kind. Return the calls that it is one of, and its outputs; or why MXNet runs it.

        Args:
            make: called where calls of this kind are due to be compiled.
            quiet: that they can't be compiled is nothing amiss.

        Raises:
            TypeError: the kind has no hash.
        """
        calls = self.calls.get_or_make(kind, lambda: made_or_refused(self._title, make, quiet=quiet))
        if calls is None:
            return self._refused("its inputs have had many shapes: these are compiled when they come again")
        if isinstance(calls, Refusal):
            return calls
        try:
            outputs = calls.run(arrays, array_type)
        except Exception as error:
            refusal = self._refused(reason_of(error, "running it"), quiet=False)
            if isinstance(error, UnsupportedError):
                self.calls.put(kind, refusal)
            return refusal
        if outputs is None:
            return self._refused("too many calls wait for their backward pass, or the profiler is on", quiet=False)
        self.count += 1
        return calls, outputs


class GluonTraining(Recorded):
    """Belongs to one block, as long as that keeps its cached op."""

    def __init__(self, block: HybridBlock) -> None:
        from ngraph_mxnet.plugin.training.rules import why_modal

        super().__init__(block.name)
        self.cached_op = block._cached_op
        self._names = block._cached_graph[1].list_inputs()
        nodes = parse_symbol(partitioner.json_of(block._cached_graph[1])).operators()
        flags = dict(block._flags)
        self._is_few = not flags.get("static_alloc") and len(nodes) <= flags.get("inline_limit", _INLINED)
        self._modal = next((why for node in nodes if (why := why_modal(node)) is not None), None)

    def call(self, block: HybridBlock, args: list[Any]) -> Any:
        """Return the outputs of the block, or a Refusal: the reason why MXNet runs the call."""
        from ngraph_mxnet import _core

        follows = any(type(arg) in DENSE and _core.is_ours(arg.handle.value) for arg in args)
        if self._modal is not None and not autograd.is_training():
            return self._refused(f"in predict mode {self._modal}, and its gradient follows the mode of `backward`")
        if self._is_few and not follows:
            return self._refused("MXNet runs so few operators one by one, and can differentiate them twice")
        if not all(type(arg) in DENSE and arg.ctx.device_type == "cpu" for arg in args):
            return self._refused("an input is no dense array in the CPU's memory")
        if not gluon_blocks.are_plain([found for is_input, found in block._cached_op_args if not is_input]):
            return self._refused("a parameter's `data` is the program's own")
        inputs: dict[str, NDArray] = {}
        parameters: dict[str, NDArray] = {}
        trained: list[str] = []
        for name, (is_input, found) in zip(self._names, block._cached_op_args, strict=True):
            if is_input:
                inputs[name] = args[found]
                continue
            if found._stype != "default":
                return self._refused(f"the parameter {name} is sparse", quiet=False)
            if found._data is None or len(found._data) != 1:
                return self._refused(f"the parameter {name} is not on one device", quiet=found._data is None)
            parameters[name] = found._data[0]
            if found.grad_req != "null":
                trained.append(name)
        if not trained and not follows:
            # Such as a loss where MXNet goes back through its inputs, too: less work than a node on the tape costs.
            return self._refused("it trains no parameters, and no input comes from a compiled call")
        trained += [name for name, array in inputs.items() if on_tape(array)]
        kind = (tuple((array.shape, array.dtype) for array in inputs.values()), tuple(trained),
                tuple(array.handle.value for array in parameters.values()))
        found = self._run(kind, lambda: _made(block, inputs, parameters, trained), list(inputs.values()),
                          gluon_blocks.array_type_of(block))
        if isinstance(found, Refusal):
            return found
        calls, outputs = found
        if calls.checks:
            gluon_blocks.remember_recorded(block, self, calls, args)
        return _regroup(outputs, block._out_format)


def _made(block: HybridBlock, inputs: Mapping[str, NDArray], parameters: Mapping[str, NDArray],
          trained: Sequence[str]) -> Calls | PartedCalls:
    """Compile calls of the block with inputs of these shapes and types and these arrays of parameters.

    Args:
        trained: the names of parameters and inputs that gradients may be wanted of.

    Raises:
        UnsupportedError: they can't be compiled, as a whole or in parts; the text says why.
    """
    from ngraph_mxnet.plugin.training.parts import whole_or_parted
    from ngraph_mxnet.plugin.training.steps import check_engine, types_of

    check_engine()  # before anything is compiled
    return whole_or_parted(block._cached_graph[1], types_of({**inputs, **parameters}), trained,
                           lambda step: step.calls(list(inputs), parameters), sparse_gradients(block))


def wanted() -> bool:
    """True if a call made now is to be tried: it is recorded, and NGRAPH_TRAINING is on."""
    return bool(autograd.is_recording() and config.get("NGRAPH_TRAINING"))


def on_tape(array: NDArray) -> bool:
    """True if a gradient by the array may be wanted. Such an array has a gradient attached or was recorded, and is
    float32 or float16."""
    from ngraph_mxnet import _core

    if not _core.may_be_recorded(array.handle.value):
        return False
    if array.grad is None:
        try:
            autograd.get_symbol(array)
        except MXNetError:  # it comes from nothing that was recorded and not gone back through
            _core.forget_node(array.handle.value)
            return False
    return array.dtype in (np.float32, np.float16)


_KINDS: list[Any] = [kind for kind in vars(losses).values()
                     if isinstance(kind, type) and issubclass(kind, losses.Loss) and kind is not losses.Loss]
_HYBRIDS = {kind: kind.hybrid_forward for kind in _KINDS}
_FORWARD = HybridBlock.forward
_FUNCTIONS = {name: vars(losses)[name] for name in ("_apply_weighting", "_reshape_like")}
_METHODS = ("forward", "hybrid_forward", "_call_cached_op")
_COMMON = frozenset(vars(HybridBlock(prefix="")))
"""Attributes of any block."""


class LossTraining(Recorded):
    """Belongs to one loss."""

    def __init__(self, block: losses.Loss) -> None:
        from ngraph_mxnet import _core

        super().__init__(block.name)
        self._mode_of, self._is_ours, self._is_known = _core.recording_mode, _core.is_ours, _core.is_known
        self._names = [name for name in vars(block) if name not in _COMMON]

    def call(self, block: losses.Loss, args: tuple[Any, ...]) -> NDArray | None:
        """Return the output of the loss, or None if MXNet runs the call."""
        if self._mode_of() is None or not all(type(arg) in DENSE for arg in args) or not self._is_wanted(block):
            return None
        known = tuple(self._is_known(arg.handle.value) for arg in args)
        if not any(self._is_ours(arg.handle.value) for arg in args) or any(
                not is_known and on_tape(arg) for is_known, arg in zip(known, args, strict=True)):
            return None
        kind = (known, is_np_array(), *self._state_of(block), *[(arg.shape, arg.dtype) for arg in args])
        try:
            found = self._run(kind, lambda: _calls_of(block, args, known), args,
                              mx.np.ndarray if is_np_array() else NDArray, quiet=True)
        except TypeError:  # an attribute that has no hash
            return None
        if not isinstance(found, Refusal):
            return found[1][0]
        fallbacks.log.add(found)
        return None

    def _state_of(self, block: losses.Loss) -> list[Any]:
        """Return what the graph depends on: the loss's attributes. The graph of a hybridized loss is fixed when its
        cached op is made, so the cached op stands for the attributes."""
        state = block.__dict__
        return [block._cached_op] if block._active else [state[name] for name in self._names]

    def _is_wanted(self, block: losses.Loss) -> bool:
        kind, own = type(block), block.__dict__
        return bool(kind in _HYBRIDS and not any(name in own for name in _METHODS)
                    and kind.hybrid_forward is _HYBRIDS[kind] and kind.forward is _FORWARD
                    and kind._call_cached_op is gluon_blocks.ours
                    and all(vars(losses)[name] is function for name, function in _FUNCTIONS.items())
                    and (block._cached_op is not None or not block._active)
                    and block._callback is None and not block._forward_hooks and not block._forward_pre_hooks
                    and not block._reg_params
                    and (environment.names_backend(block._backend)
                         or (block._backend is None and environment.requested()))
                    and config.get("NGRAPH_TRAINING") and environment.problem() is None)


def _calls_of(block: losses.Loss, args: tuple[NDArray, ...], recorded: tuple[bool, ...]) -> Calls:
    """Raises what MXNet raises of wrong arguments, too."""
    from ngraph_mxnet.plugin.training.steps import Step, check_engine, types_of

    check_engine()
    if is_np_array() != is_np_shape():
        raise UnsupportedError("the program uses MXNet's NumPy arrays without its NumPy shapes, or the other way round")
    if block._active:
        variables, symbol = block._cached_graph
        names = [variable.name for variable in variables]
        if block._in_format != [0] * len(args) or block._out_format not in (0, [0]):
            raise UnsupportedError("its graph was made for nested lists, or for None")
    else:
        names = [f"data{place}" for place in range(len(args))]
        with mx.name.NameManager():
            variables = [mx.sym.var(name) for name in names]
            if is_np_array():
                variables = [variable.as_np_ndarray() for variable in variables]
            symbol = block.hybrid_forward(mx.sym, *variables)
    if sorted(symbol.list_inputs()) != names or len(symbol.list_outputs()) != 1:
        raise UnsupportedError("it does not read all that it is given")
    # In the order in which MXNet goes back through them.
    trained = [name for name in symbol.list_inputs() if recorded[names.index(name)]]
    return Step(symbol.tojson(), types_of(dict(zip(names, args, strict=True))), trained).calls(names, {})


def _first_call(block: losses.Loss, args: tuple[Any, ...]) -> NDArray | None:
    """Return the output of a loss that is called for the first time, or None if MXNet runs the call."""
    kept = of_block(block)
    kept.loss = LossTraining(block)
    result: NDArray | None = kept.loss.call(block, args)
    return result


def install_losses() -> None:
    gluon_blocks.first_ways.update(dict.fromkeys(_KINDS, _first_call))
