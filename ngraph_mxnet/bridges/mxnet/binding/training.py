"""Training steps of an executor, compiled, unless NGRAPH_TRAINING=0."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mxnet.executor import Executor
from mxnet.ndarray import NDArray

from ngraph_mxnet import config
from ngraph_mxnet.bridges.mxnet.binding import compiled_bind, fallbacks
from ngraph_mxnet.bridges.mxnet.binding.fallbacks import Refusal, reason_of
from ngraph_mxnet.bridges.mxnet.error_texts import brief
from ngraph_mxnet.bridges.mxnet.judging import partition_log, partitioner
from ngraph_mxnet.errors import UnsupportedError

if TYPE_CHECKING:
    from ngraph_mxnet.bridges.mxnet.training.parts import PartedStep
    from ngraph_mxnet.bridges.mxnet.training.step import TrainingStep


class Training:
    """Belongs to one executor. What it can't run, MXNet does, and the log says why."""

    def __init__(self) -> None:
        self.step: TrainingStep | PartedStep | None = None
        self._tried = False
        self.ran = False
        """True if the last forward pass ran the compiled step."""

    def wanted(self, executor: Executor) -> bool:
        """True if the next forward pass is to be tried with the compiled step. The step is compiled when it is first
        wanted."""
        if not config.get("NGRAPH_TRAINING"):
            return False
        if not self._tried:
            self._tried = True
            found = _step_of(executor)
            if isinstance(found, Refusal):
                fallbacks.log.add(found)
            else:
                self.step = found
        return self.step is not None

    def forward(self) -> list[NDArray] | None:
        """The outputs; None: nothing was done."""
        assert self.step is not None
        self.ran = self.step.forward()
        return self.step.outputs if self.ran else None

    def backward(self, executor: Executor, heads: Any, is_train: bool) -> bool:
        """Run the backward pass of the compiled step. Return False, and do nothing, if the last forward pass was not
        one of `forward`."""
        if not self.ran or self.step is None:
            return False
        self.step.backward(_listed(executor, heads), is_train)
        return True

    def forget(self) -> None:
        """Another forward has begun."""
        self.ran = False


def _listed(executor: Executor, heads: Any) -> list[NDArray]:
    """List the head gradients that `backward` is given, at most one for each output. The caller may give more or fewer.
    KeyError and TypeError are raised as by MXNet."""
    if heads is None:
        return []
    if isinstance(heads, NDArray):
        return [heads]
    given = [heads[name] for name in executor._symbol.list_outputs()] if isinstance(heads, dict) else heads
    for number, head in enumerate(given):
        if not isinstance(head, NDArray):
            raise TypeError(f"inputs must be NDArray: head gradient {number} is a {type(head).__name__}")
    if len(given) > len(executor.outputs):
        return list(given[:len(executor.outputs)])
    return list(given)


def _step_of(executor: Executor) -> TrainingStep | PartedStep | Refusal:
    """Compile the executor's training step as a whole, or else in parts. Return a Refusal if neither is possible or no
    gradient is wanted."""
    from ngraph_mxnet.bridges.mxnet.training.step import TrainingStep

    symbol = executor._symbol
    title = f"training of {compiled_bind.title(symbol)}"
    arrays = {**executor.arg_dict, **executor.aux_dict}
    names = symbol.list_arguments()
    requests = _requests(executor._grad_req, names)
    grads = dict(zip(names, executor.grad_arrays or [None] * len(names), strict=True))
    wanted = {name: grad for name, grad in grads.items() if grad is not None and requests[name] != "null"}
    if not wanted:
        return Refusal(title, "no gradient is wanted", quiet=True)
    added = [name for name in wanted if requests[name] == "add"]
    try:
        try:
            return TrainingStep(partitioner.json_of(symbol), arrays, wanted, added)
        except UnsupportedError as error:
            whole = brief(error)
        from ngraph_mxnet.bridges.mxnet.training.parts import PartedStep

        found = PartedStep(symbol, arrays, wanted, added)
        partition_log.add(found.partition)
        return found
    except UnsupportedError as error:
        return Refusal(title, f"{whole}; {brief(error)}")
    except Exception as error:
        return Refusal(title, reason_of(error))


def _requests(requests: Any, names: Sequence[str]) -> dict[str, str]:
    """Return the request for each argument's gradient, by the argument's name."""
    if isinstance(requests, str):
        return dict.fromkeys(names, requests)
    if isinstance(requests, dict):
        return {name: requests.get(name, "null") for name in names}
    return dict(zip(names, requests, strict=True))
