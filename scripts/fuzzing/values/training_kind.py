"""Training steps of MXNet symbols: executors and recorded blocks, with what is frozen, by us and by MXNet."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from typing import Any
from unittest import mock

import numpy as np

from fuzzing.values import test_helpers  # noqa: F401  (before what it makes importable)
from fuzzing.values.interpretation import OF_BF16, OF_FLOATS
from fuzzing.values.kinds import KINDS, Kind, NoJudgeError
from fuzzing.values.trials import Trial

# isort: split
import test_random_training as steps
from mxnet_helpers import backend, mx

Results = list[list[Any]]
_PRODUCTS = ("Convolution", "Deconvolution", "FullyConnected", "batch_dot", "dot")
"""Operators that read bf16 where it is asked for."""


class Step:
    """A symbol that trains: its arguments' requests, and the arrays of each step. Heads are called `head 0`, ..."""

    def __init__(self, trial: Trial) -> None:
        self.symbol = mx.sym.load_json(trial.model.decode())
        self.requests: Mapping[str, str] = trial.notes["requests"]
        self.wanted = [name for name in self.symbol.list_arguments() if self.requests[name] != "null"]
        self.calls = trial.calls
        self.shape = trial.calls[0]["data"].shape
        self.way = steps.WAYS[trial.notes["way"]]

    def arrays(self, number: int) -> tuple[dict[str, np.ndarray], list[np.ndarray], dict[str, np.ndarray]]:
        """The values of arguments and states, the heads, and what gradients hold before."""
        feeds = self.calls[number]
        heads = [feeds[f"head {place}"] for place in range(len(self.symbol.list_outputs()))]
        names = [*self.symbol.list_arguments(), *self.symbol.list_auxiliary_states()]
        return {name: feeds[name] for name in names}, heads, {name: feeds[f"before {name}"] for name in self.wanted}


def names_of(step: Step) -> list[str]:
    return [*(f"output {place}" for place in range(len(step.symbol.list_outputs()))),
            *(f"gradient of {name}" for name in step.wanted),
            *(f"state {name}" for name in step.symbol.list_auxiliary_states())]


def _whole(step: Step, name: str) -> Results:
    """Steps of the symbol as a whole, in the way that the trial names, with the backend `name`."""
    real = steps.backend
    with mock.patch.object(steps, "backend", lambda value: real(value if value is None else name)):
        made = step.way(step.symbol, step.shape, dict(step.requests))
        results = []
        for number in range(len(step.calls)):
            found = made.step(*step.arrays(number))
            results.append([np.array(found[each]) for each in names_of(step)])
    return results


_OF_LAYOUTS = "!IsMKLDNNData()"
"""What MXNet says, with us and without, when something is written to a gradient that its own operator has left in
MKL-DNN's layout: not in each process, for which layout it takes depends on what ran before."""


def _ours(trial: Trial) -> Results:
    with mock.patch.dict(os.environ, trial.setup.variables()):
        try:
            return _whole(Step(trial), "NGRAPH")
        except mx.base.MXNetError as error:
            if _OF_LAYOUTS in str(error):
                raise NoJudgeError(str(error)) from error
            raise


def _alone(step: Step, number: int, shifted: Callable[[str, np.ndarray], np.ndarray] = lambda name, array: array,
           rounded: Callable[[str, mx.nd.NDArray], mx.nd.NDArray] = lambda name, array: array) -> list[np.ndarray]:
    """A step of MXNet's operators, one by one. `shifted` is applied to what it begins with, `rounded` to results."""
    arrays, heads, before = step.arrays(number)
    arrays = {name: shifted(name, array) for name, array in arrays.items()}
    with backend(None):
        found = steps.one_by_one(step.symbol, arrays, heads, step.wanted, rounded)
    for name in step.wanted:
        if step.requests[name] == "add":
            found[f"gradient of {name}"] = found[f"gradient of {name}"] + before[name]
    return [found[name] for name in names_of(step)]


def _nudged(step: Step, number: int) -> list[np.ndarray]:
    """With data that are off by little more than a rounding."""
    rng = np.random.default_rng(number)
    return _alone(step, number, lambda name, array: _off(array, steps.NUDGE, rng) if name == "data" else array)


def _off(array: np.ndarray, amount: float, rng: np.random.Generator) -> np.ndarray:
    return array * (1 + amount * rng.choice([-1, 1], array.shape).astype(np.float32))


def _native(trial: Trial) -> Results:
    """Of MXNet's operators one by one, which MKL-DNN does not disturb; states of the symbol as a whole, for only there
    it is known which operators MXNet goes back through."""
    step = Step(trial)
    try:
        whole = _whole(step, "NONE")
        alone = [_alone(step, number) for number in range(len(step.calls))]
        moved = [_nudged(step, number) for number in range(len(step.calls))]
    except (mx.base.MXNetError, ValueError) as error:
        raise NoJudgeError(str(error)) from error
    for one, other in zip(alone, moved, strict=True):
        if not all(np.isfinite(each).all() for each in one):
            raise NoJudgeError("numbers that are not finite")
        if max(steps.distance(b, a) for a, b in zip(one, other, strict=True)) > steps.STEADY:
            raise NoJudgeError("MXNet's own results move with rounding")
    states = len(step.symbol.list_auxiliary_states())
    for one, both in zip(alone, whole, strict=True):
        count = len(one) - states
        if any(steps.distance(b, a) > steps.TOLERANCE for a, b in zip(one[:count], both[:count], strict=True)):
            raise NoJudgeError("MXNet differs from its operators: it leaves gradients of biases of frozen weights")
    return [[*one[:len(one) - states], *both[len(both) - states:]] for one, both in zip(alone, whole, strict=True)]


def _moved(trial: Trial, number: int) -> Results:
    """MXNet's operators one by one, with weights, data and results that are off by a rounding, and so gradients."""
    step, rng = Step(trial), np.random.default_rng(number)
    if not number:
        return [_alone(step, place) for place in range(len(step.calls))]
    narrow = _read_in_bf16(step) if trial.setup.options.get("precision") == "bf16" else frozenset()
    states = step.symbol.list_auxiliary_states()

    def shifted(name: str, array: np.ndarray) -> np.ndarray:
        return array if name in states else _off(array, OF_BF16 if name in narrow else OF_FLOATS[4], rng)

    def rounded(name: str, array: mx.nd.NDArray) -> mx.nd.NDArray:
        amount = OF_BF16 if name in narrow else OF_FLOATS[4]
        return array * mx.nd.array(1 + amount * rng.choice([-1, 1], array.shape))

    return [_alone(step, place, shifted, rounded) for place in range(len(step.calls))]


def _read_in_bf16(step: Step) -> frozenset[str]:
    """The nodes and arguments that products read, and products, whose gradients are read."""
    nodes = json.loads(step.symbol.tojson())["nodes"]
    products = [node for node in nodes if node["op"] in _PRODUCTS]
    return frozenset([node["name"] for node in products]
                     + [nodes[source]["name"] for node in products for source, *_ in node["inputs"]])


KINDS["training"] = Kind(_ours, None, _native, "MXNet", _moved)
