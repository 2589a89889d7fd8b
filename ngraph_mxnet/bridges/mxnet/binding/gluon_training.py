"""Calls of hybridized blocks under `autograd.record`, compiled, unless NGRAPH_TRAINING=0.

A call runs the forward half of a training step and records one node, whose backward runs the other half. What a step
saves belongs to it until that node is gone, so each call that may still be gone back through has a step of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from mxnet import autograd
from mxnet.base import MXNetError
from mxnet.gluon.block import HybridBlock, _regroup
from mxnet.ndarray import NDArray

from ngraph_mxnet import config
from ngraph_mxnet.bridges.mxnet.binding import gluon_parts, lookups, quick_training
from ngraph_mxnet.bridges.mxnet.binding.fallbacks import Refusal, made_or_refused, reason_of
from ngraph_mxnet.bridges.mxnet.binding.gluon_parts import PartedBlock
from ngraph_mxnet.bridges.mxnet.binding.kinds import Kinds
from ngraph_mxnet.bridges.mxnet.error_texts import brief
from ngraph_mxnet.bridges.mxnet.judging import partitioner
from ngraph_mxnet.bridges.mxnet.symbols.sparse_storage import A_SPARSE_GRADIENT
from ngraph_mxnet.bridges.mxnet.symbols.symbol_json import parse_symbol
from ngraph_mxnet.errors import UnsupportedError

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
        from ngraph_mxnet.bridges.mxnet.training.program import TrainingProgram
        from ngraph_mxnet.bridges.mxnet.training.recorded import RecordedSteps, check_engine
        from ngraph_mxnet.bridges.mxnet.training.step import types_of

        check_engine()  # before anything is compiled
        arrays = {**inputs, **parameters}
        program = TrainingProgram(text, types_of(arrays), trained, recorded=True)
        self.steps = RecordedSteps(program, list(inputs), parameters, trained)
        self.saved_bytes, self.was_compiled = program.saved_bytes, program.was_compiled

    def run(self, inputs: Mapping[str, NDArray]) -> list[NDArray] | None:
        """The outputs, recorded; None: nothing was done. The inputs are in the order that they were in at first."""
        return self.steps.call([array.handle.value for array in inputs.values()])


class GluonTraining:
    """Belongs to one block, as long as that keeps its cached op."""

    def __init__(self, block: HybridBlock) -> None:
        self.cached_op = block._cached_op
        self._names = block._cached_graph[1].list_inputs()
        self._nothing = Refusal(_title(block), "it has no parameters to train", quiet=True)
        """The refusal of a block that trains no parameters, such as a loss. Such a block does less work than a node on
        the tape costs."""
        self._left = _why_left(block)
        self._has_parameters = any(not is_input for is_input, _ in block._cached_op_args)
        self.count = 0
        """Calls that were compiled."""
        self._rare = Refusal(_title(block), "its inputs have had many shapes: these are compiled when they come "
                                            "again", quiet=True)
        self.calls: Kinds[Calls | PartedBlock | Refusal] = Kinds(saved_bytes, was_compiled)

    def call(self, block: HybridBlock, args: list[Any]) -> Any:
        """Return the outputs of the block, or a Refusal: the reason why MXNet runs the call."""
        if not self._has_parameters:
            return self._nothing
        if self._left is not None and (reason := self._left[autograd.is_training()]) is not None:
            return reason
        if not all(type(arg) is NDArray and arg.ctx.device_type == "cpu" for arg in args):
            return Refusal(_title(block), "an input is no dense array in the CPU's memory", quiet=True)
        if not lookups.are_plain([found for is_input, found in block._cached_op_args if not is_input]):
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
        if not trained:
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
            outputs = calls.run(inputs)
        except Exception as error:
            refusal = Refusal(_title(block), reason_of(error, "running it"))
            if isinstance(error, UnsupportedError):
                self.calls.put(key, refusal)
            return refusal
        if outputs is None:
            return Refusal(_title(block), "too many calls wait for their backward pass, or the profiler is on")
        self.count += 1
        if isinstance(calls, Calls):
            quick_training.remember(block, self, calls.steps, args)
        return _regroup(outputs, block._out_format)


def _made(block: HybridBlock, inputs: dict[str, NDArray], parameters: dict[str, NDArray],
          trained: list[str]) -> Calls | PartedBlock:
    """Compile calls of the block as a whole, or else in parts.

    Raises:
        UnsupportedError: neither can be; the text says why.
    """
    sparse = gluon_parts.sparse_gradients(block)
    if sparse:
        return PartedBlock(block, inputs, parameters, trained, sparse, A_SPARSE_GRADIENT)
    try:
        return Calls(partitioner.json_of(block._cached_graph[1]), inputs, parameters, trained)
    except UnsupportedError as error:
        return PartedBlock(block, inputs, parameters, trained, {}, brief(error))


def _why_left(block: HybridBlock) -> dict[bool, Refusal | None] | None:
    """Why calls in predict mode, and those in training mode, are MXNet's; None: neither are."""
    from ngraph_mxnet.bridges.mxnet.training.rules import why_modal

    nodes = parse_symbol(partitioner.json_of(block._cached_graph[1])).operators()
    flags = dict(block._flags)
    if not flags.get("static_alloc") and len(nodes) <= flags.get("inline_limit", _INLINED):
        reason = Refusal(_title(block), "MXNet runs so few operators one by one, and can differentiate them twice",
                         quiet=True)
        return {False: reason, True: reason}
    modal = next((why for node in nodes if (why := why_modal(node)) is not None), None)
    if modal is None:
        return None
    return {False: Refusal(_title(block), f"in predict mode {modal}, and its gradient follows the mode of `backward`",
                           quiet=True), True: None}


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
