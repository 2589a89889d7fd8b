"""Detectors by stages: where boxes differ, whether rounding chose them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from matrix.compare import error
from matrix.graph import in_stages
from matrix.weights import bind

if TYPE_CHECKING:
    from mxnet.symbol import Symbol

    from matrix.model import Model

#: Relative, of each element at random: about two and a half times float32's rounding.
PERTURBATION = 3e-7


def outputs(executor: Any) -> list[np.ndarray]:
    """Those of a forward pass; random numbers are alike each time."""
    import mxnet as mx

    mx.random.seed(5)
    return [array.asnumpy() for array in executor.forward(is_train=False)]


def stages(symbol: Symbol, model: Model, native: Any, run: Callable[[Symbol], list[np.ndarray]]) -> dict[str, float]:
    """Errors where MXNet gets another's data for each stage of the graph between ordering operators.

    `stage_error`: the largest of what ordering operators read; `stage_boxes`: that of the boxes, from the same scores.
    `native_change`: the same of MXNet alone, when the data changes by PERTURBATION: hundreds of layers of random
    weights magnify rounding.

    Args:
        native: an executor, which has the weights.
        run: gives the other's outputs of the graph that it gets, the symbol with more outputs.
    """
    whole, staged, names = in_stages(symbol)
    found = run(whole)
    count = len(names)
    given = {**model.inputs, **dict(zip(names, found[:count], strict=True))}
    expected = outputs(bind(staged, replace(model, inputs=given), "NONE", native))
    nudged = outputs(bind(staged, replace(model, inputs=perturbed(given)), "NONE", native))
    return {"stage_error": error(found[:count], expected[:count], "values"),
            "stage_boxes": error(found[count:], expected[count:], "boxes"),
            "native_change": error(nudged[:count], expected[:count], "values")}


def perturbed(inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The inputs, off by PERTURBATION but for whole numbers, which may be classes and places."""
    random = np.random.default_rng(0)

    def changed(array: np.ndarray) -> np.ndarray:
        off = array * (1 + PERTURBATION * random.standard_normal(array.shape))
        return np.where(array == np.rint(array), array, off).astype(array.dtype)

    return {name: changed(array) for name, array in inputs.items()}
