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

from collections.abc import Mapping, Sequence
from typing import Any

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
from ngraph_mxnet.frontends.mxnet.importer import A_SPARSE_GRADIENT, why_left
from ngraph_mxnet.frontends.mxnet.symbol_json import parse_symbol
from ngraph_mxnet.plugin.arrays import brief
from ngraph_mxnet.plugin.binding import environment, fallbacks, gluon_blocks
from ngraph_mxnet.plugin.binding.fallbacks import Refusal, made_or_refused, reason_of
from ngraph_mxnet.plugin.binding.gluon_blocks import DENSE, Kinds, of_block
from ngraph_mxnet.plugin.judging import partitioner


class PartedBlock:
    """The calls of a block with inputs of these shapes and types and these arrays of parameters.

    Args:
        trained: the names of parameters and inputs that gradients may be wanted of.
        left: parameters whose readers are MXNet's, with the reason.
        whole: why the block is not ours as a whole.

    Raises:
        UnsupportedError: no part of it is worth it; the text says why.
    """

    def __init__(self, block: HybridBlock, inputs: Mapping[str, NDArray], parameters: Mapping[str, NDArray],
                 trained: Sequence[str], left: Mapping[str, str], whole: str) -> None:
        from ngraph_mxnet.plugin.training.parts import PartedCalls, part

        symbol = block._cached_graph[1]
        if block._cached_op.is_np_sym:
            raise UnsupportedError(f"{whole}; a net of the NumPy interface is not trained in parts")
        types = {name: (array.shape, array.dtype) for name, array in {**inputs, **parameters}.items()}
        try:
            parted = part(symbol, types, trained, left)
        except UnsupportedError as error:
            raise UnsupportedError(f"{whole}; {error}") from None
        fallbacks.add_partition(parted.partition)
        self.calls = PartedCalls(parted, parameters)
        self.saved_bytes = sum(one.program.saved_bytes for one in parted.trained)

    def run(self, inputs: Mapping[str, NDArray], array_type: type[NDArray]) -> list[NDArray]:
        """The outputs, recorded, which are of `mx.nd`."""
        return self.calls.run(inputs)


def sparse_gradients(block: HybridBlock) -> dict[str, str]:
    """The parameters whose gradients are sparse, by the graph's names, and what is said of their readers."""
    names = block._cached_graph[1].list_inputs()
    return why_left(name for name, (is_input, found) in zip(names, block._cached_op_args, strict=True)
                    if not is_input and found._grad_stype != "default")


_INLINED = 2
"""Operators of a graph that MXNet's cached op runs as if it weren't hybridized, by default."""


class Calls:
    """Recorded calls with inputs of these shapes and types and these arrays of parameters.

    Raises:
        UnsupportedError: they can't be compiled; the text says why.
    """

    def __init__(self, text: str, inputs: Mapping[str, NDArray], parameters: Mapping[str, NDArray],
                 trained: Sequence[str]) -> None:
        """`text`: the symbol's JSON; `trained`: the names of parameters and inputs that gradients may be wanted of."""
        from ngraph_mxnet.plugin.training.program import TrainingProgram
        from ngraph_mxnet.plugin.training.steps import RecordedSteps, check_engine, types_of

        check_engine()  # before anything is compiled
        arrays = {**inputs, **parameters}
        program = TrainingProgram(text, types_of(arrays), trained, recorded=True)
        self.steps = RecordedSteps(program, list(inputs), parameters, trained)
        self.saved_bytes, self.was_compiled = program.saved_bytes, program.was_compiled

    def run(self, inputs: Mapping[str, NDArray], array_type: type[NDArray]) -> list[NDArray] | None:
        """The outputs, recorded, of this class; None: nothing was done. The inputs are in the order that they were in
        at first."""
        return self.steps.call([array.handle.value for array in inputs.values()], array_type=array_type)


class GluonTraining:
    """Belongs to one block, as long as that keeps its cached op."""

    def __init__(self, block: HybridBlock) -> None:
        self.cached_op = block._cached_op
        self._names = block._cached_graph[1].list_inputs()
        self._nothing = Refusal(_title(block), "it trains no parameters, and no input comes from a compiled call",
                                quiet=True)
        """The refusal of a block such as a loss where MXNet goes back through its inputs, too. It does less work than a
        node on the tape costs."""
        self._few = Refusal(_title(block), "MXNet runs so few operators one by one, and can differentiate them twice",
                            quiet=True)
        self._left = self._why_left(block)
        self.count = 0
        """Calls that were compiled."""
        self._rare = Refusal(_title(block), "its inputs have had many shapes: these are compiled when they come "
                                            "again", quiet=True)
        self.calls: Kinds[Calls | PartedBlock | Refusal] = Kinds(saved_bytes, was_compiled)

    def call(self, block: HybridBlock, args: list[Any]) -> Any:
        """Return the outputs of the block, or a Refusal: the reason why MXNet runs the call."""
        from ngraph_mxnet import _core

        follows = any(type(arg) in DENSE and _core.is_ours(arg.handle.value) for arg in args)
        if (reason := self._left[autograd.is_training()]) is not None and not (follows and reason is self._few):
            return reason
        if not all(type(arg) in DENSE and arg.ctx.device_type == "cpu" for arg in args):
            return Refusal(_title(block), "an input is no dense array in the CPU's memory", quiet=True)
        if not gluon_blocks.are_plain([found for is_input, found in block._cached_op_args if not is_input]):
            return Refusal(_title(block), "a parameter's `data` is the program's own", quiet=True)
        inputs: dict[str, NDArray] = {}
        parameters: dict[str, NDArray] = {}
        trained: list[str] = []
        for name, (is_input, found) in zip(self._names, block._cached_op_args, strict=True):
            if is_input:
                inputs[name] = args[found]
                continue
            if found._stype != "default":
                return Refusal(_title(block), f"the parameter {name} is sparse")
            if found._data is None or len(found._data) != 1:
                return Refusal(_title(block), f"the parameter {name} is not on one device", quiet=True)
            parameters[name] = found._data[0]
            if found.grad_req != "null":
                trained.append(name)
        if not trained and not follows:
            return self._nothing
        trained += [name for name, array in inputs.items() if on_tape(array)]
        key = (tuple((array.shape, array.dtype) for array in inputs.values()), tuple(trained),
               tuple(array.handle.value for array in parameters.values()))
        calls = self.calls.get_or_make(key, lambda: made_or_refused(
            _title(block), lambda: _made(block, inputs, parameters, trained)))
        if calls is None:
            return self._rare
        if isinstance(calls, Refusal):
            return calls
        try:
            outputs = calls.run(inputs, gluon_blocks.array_type_of(block))
        except Exception as error:
            refusal = Refusal(_title(block), reason_of(error, "running it"))
            if isinstance(error, UnsupportedError):
                self.calls.put(key, refusal)
            return refusal
        if outputs is None:
            return Refusal(_title(block), "too many calls wait for their backward pass, or the profiler is on")
        self.count += 1
        if isinstance(calls, Calls):
            gluon_blocks.remember_recorded(block, self, calls.steps, args)
        return _regroup(outputs, block._out_format)

    def _why_left(self, block: HybridBlock) -> dict[bool, Refusal | None]:
        """Why calls in predict mode, and those in training mode, are MXNet's; None: they are not."""
        from ngraph_mxnet.plugin.training.rules import why_modal

        nodes = parse_symbol(partitioner.json_of(block._cached_graph[1])).operators()
        flags = dict(block._flags)
        modal = next((why for node in nodes if (why := why_modal(node)) is not None), None)
        few = None
        if not flags.get("static_alloc") and len(nodes) <= flags.get("inline_limit", _INLINED):
            few = self._few
        if modal is None:
            return {False: few, True: few}
        return {False: Refusal(_title(block), f"in predict mode {modal}, and its gradient follows the mode of "
                                              "`backward`", quiet=True), True: few}


def _made(block: HybridBlock, inputs: dict[str, NDArray], parameters: dict[str, NDArray],
          trained: list[str]) -> Calls | PartedBlock:
    """Compile calls of the block as a whole, or else in parts.

    Raises:
        UnsupportedError: neither can be; the text says why.
    """
    sparse = sparse_gradients(block)
    if sparse:
        return PartedBlock(block, inputs, parameters, trained, sparse, A_SPARSE_GRADIENT)
    try:
        return Calls(partitioner.json_of(block._cached_graph[1]), inputs, parameters, trained)
    except UnsupportedError as error:
        return PartedBlock(block, inputs, parameters, trained, {}, brief(error))


def saved_bytes(made: Calls | PartedBlock | Refusal) -> int:
    """Return the bytes that a step saves for its backward pass."""
    return 0 if isinstance(made, Refusal) else made.saved_bytes


def was_compiled(made: Calls | PartedBlock | Refusal) -> bool:
    """True if making the calls took as long as compiling does."""
    return not isinstance(made, Calls) or made.was_compiled


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


def _title(block: HybridBlock) -> str:
    return f"training of {block.name}"


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

        self._mode_of, self._is_ours, self._is_known = _core.recording_mode, _core.is_ours, _core.is_known
        self._names = [name for name in vars(block) if name not in _COMMON]
        self._calls: Kinds[Calls | Refusal] = Kinds(saved_bytes, was_compiled)
        self.count = 0

    def call(self, block: losses.Loss, args: tuple[Any, ...]) -> NDArray | None:
        """Return the output of the loss, or None if MXNet runs the call."""
        if self._mode_of() is None or not all(type(arg) in DENSE for arg in args) or not self._is_wanted(block):
            return None
        known = tuple(self._is_known(arg.handle.value) for arg in args)
        if not any(self._is_ours(arg.handle.value) for arg in args) or any(
                not is_known and on_tape(arg) for is_known, arg in zip(known, args, strict=True)):
            return None
        try:
            key = (known, is_np_array(), *self._state_of(block), *[(arg.shape, arg.dtype) for arg in args])
            calls = self._calls.get_or_make(key, lambda: self._make(block, args, known))
        except TypeError:  # an attribute that has no hash
            return None
        if calls is None or isinstance(calls, Refusal):
            return None
        try:
            outputs = calls.steps.call([arg.handle.value for arg in args],
                                       array_type=mx.np.ndarray if is_np_array() else NDArray)
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
                    and kind._call_cached_op is gluon_blocks.ours
                    and all(vars(losses)[name] is function for name, function in _FUNCTIONS.items())
                    and (block._cached_op is not None or not block._active)
                    and block._callback is None and not block._forward_hooks and not block._forward_pre_hooks
                    and not block._reg_params
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
    return Calls(symbol.tojson(), dict(zip(names, args, strict=True)), {}, trained)


def _first_call(block: losses.Loss, args: tuple[Any, ...]) -> NDArray | None:
    """Return the output of a loss that is called for the first time, or None if MXNet runs the call."""
    kept = of_block(block)
    kept.loss = LossTraining(block)
    result: NDArray | None = kept.loss.call(block, args)
    return result


def install_losses() -> None:
    gluon_blocks.first_ways.update(dict.fromkeys(_KINDS, _first_call))
