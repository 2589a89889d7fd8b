"""The interpreter with a bound on its operations, and the interpreter with operands that are off by a rounding."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

import numpy as np

from fuzzing.values.trials import Trial
from ngraph_mxnet.ir.opdef import Facts, OpDef
from ngraph_mxnet.ir.types import TensorType, element_type
from ngraph_mxnet.targets.interpreter import GraphValues

Run = Callable[[Trial], "list[list[Any]]"]
Moved = Callable[[Trial, int], "list[list[Any]]"]
"""The results of a run whose operands are off by a rounding, to sides drawn from a number; of number 0 they are not."""

MOST_OPERATIONS = 2e9
"""Of one trial, all its calls together: some seconds of the interpreter's."""
OF_FLOATS = {2: 2.0 ** -11, 4: 2.0 ** -22, 8: 2.0 ** -51}
"""How far a float may be off, relative to itself, by its bytes: half the last place of float16, which is computed in
float32; two places of the others, whose sums have another order."""
OF_BF16 = 2.0 ** -9
MOST_EXACT = 4096


class TooLargeError(Exception):
    """The interpreter would take more operations than a trial may."""


def _instead(evaluate: Callable[..., list[np.ndarray]]) -> AbstractContextManager[Any]:
    """Let the interpreter evaluate each node by `evaluate`; what is folded by the same references stays as it is."""
    run = GraphValues.run

    def running(self: GraphValues, *args: Any) -> list[np.ndarray]:
        with mock.patch.object(OpDef, "evaluate", evaluate):
            return run(self, *args)

    return mock.patch.object(GraphValues, "run", running)


@dataclass
class Seen:
    """Of a run of the interpreter: whether an element was unspecified, by the text of `convert`."""

    unspecified: bool = False


@contextmanager
def bounded() -> Iterator[Seen]:
    """Within, a node for which the interpreter has too few operations left raises TooLargeError."""
    plain, left, seen = OpDef.evaluate, MOST_OPERATIONS, Seen()

    def counting(op: OpDef, inputs: Any, attrs: Any) -> list[np.ndarray]:
        nonlocal left
        if op.name == "convert" and _has_no_integer(inputs[0], attrs["element"].numpy):
            seen.unspecified = True
        if op.work is not None:
            shapes = [array.shape for array in inputs], [each.shape for each in _results(op, inputs, attrs)]
            left -= sum(op.operations(*shapes, attrs).values())
            if left < 0:
                raise TooLargeError(op.name)
        return plain(op, inputs, attrs)

    with _instead(counting):
        yield seen


def _has_no_integer(array: np.ndarray, dtype: np.dtype) -> bool:
    """Whether a float is NaN, or beyond the integers of the type."""
    if array.dtype.kind != "f" or dtype.kind not in "iu":
        return False
    ends, whole = np.iinfo(dtype), np.trunc(array.astype(np.float64))
    return not ((whole >= float(ends.min)) & (whole < float(ends.max) + 1)).all()


def nudging(reference: Run) -> Moved:
    """`reference`, which interprets, with operands that are off by a rounding."""

    def moved(trial: Trial, number: int) -> list[list[Any]]:
        with _nudged(number, in_bf16=trial.setup.options.get("precision") == "bf16"):
            return reference(trial)

    return moved


@contextmanager
def _nudged(number: int, *, in_bf16: bool) -> Iterator[None]:
    plain, rng = OpDef.evaluate, np.random.default_rng(number)

    def evaluating(op: OpDef, inputs: Any, attrs: Any) -> list[np.ndarray]:
        if number and _rounds_off(op) and any(each.element.is_float for each in _results(op, inputs, attrs)):
            amounts = {**OF_FLOATS, 4: OF_BF16} if in_bf16 and _reads_bf16(op) else OF_FLOATS
            inputs = [_moved(array, amounts, rng) for array in inputs]
        return plain(op, inputs, attrs)

    with _instead(evaluating):
        yield


def _results(op: OpDef, inputs: Any, attrs: Any) -> list[TensorType]:
    return op.infer([TensorType(element_type(array.dtype), array.shape) for array in inputs], attrs)


def _moved(array: np.ndarray, amounts: dict[int, float], rng: np.random.Generator) -> np.ndarray:
    """Floats, moved to drawn sides; small whole numbers, as of places in an image, are exact however one computes."""
    if array.dtype.kind != "f":
        return array
    sides = rng.choice([-1.0, 1.0], array.shape) * amounts[array.dtype.itemsize]
    with np.errstate(all="ignore"):
        is_exact = (np.rint(array) == array) & (np.abs(array) < MOST_EXACT)
        return np.asarray(np.where(is_exact, array, array * (1 + sides))).astype(array.dtype)


def _rounds_off(op: Facts) -> bool:
    """Whether another order of its operations may give other floats: not of what selects, compares or cuts off, and
    not of `quantize`, whose result is integers: what it divides is off already, unless the call brings it."""
    return op.computes and op.kind not in ("comparison", "logical", "choice", "position") and not (
        op.selects or op.ordinal or op.rounds)


def _reads_bf16(op: OpDef) -> bool:
    """Whether the CPU may read its operands in bf16 (ngraph_mxnet/targets/cpu/planning/precision.py)."""
    return op.contraction or op.kind == "pool" or op.name == "scale_shift"
