"""Reductions over axes."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np

from ngraph_mxnet.ir.opdef import ORDINAL, TOLERANT, Attrs, FactsOf, Reference, TypeRule, by_operand
from ngraph_mxnet.ir.types import Bool, Int, Ints, Shape, TensorType, i64
from ngraph_mxnet.ops.common import (
    FLOAT,
    NUMBER,
    Arrays,
    Types,
    declare,
    in_f32,
    normal_axes,
    normal_axis,
    require,
    require_domain,
)

Function = Callable[..., np.ndarray]


def _accumulate_in_f64(function: Function) -> Function:
    """f32 sums are defined by their exact value, as far as f64 gives it; integers wrap in their own type."""

    def reduce(x: np.ndarray, axis: tuple[int, ...], keepdims: bool) -> np.ndarray:
        accumulator = np.float64 if x.dtype.kind == "f" else x.dtype
        return function(x, axis=axis, keepdims=keepdims, dtype=accumulator)

    return reduce


# name: (domain, needs an element, facts, formula, function); T[S] -> T[S without axes]
REDUCTIONS: dict[str, tuple[str, bool, FactsOf, str, Function]] = {
    "reduce_sum": (NUMBER, False, {}, "sum over `axes`; 0 of none", _accumulate_in_f64(np.sum)),
    "reduce_mean": (FLOAT, True, TOLERANT, "mean over `axes`", _accumulate_in_f64(np.mean)),
    "reduce_prod": (NUMBER, False, {}, "product over `axes`; 1 of none", _accumulate_in_f64(np.prod)),
    "reduce_max": (NUMBER, True, ORDINAL, "greatest over `axes`; NaN if one is", np.max),
    "reduce_min": (NUMBER, True, ORDINAL, "least over `axes`; NaN if one is", np.min),
}

# name: (formula, function); T[S] -> i64[S without axis]
ARG_REDUCTIONS: dict[str, tuple[str, Function]] = {
    "argmax": ("index of the first greatest along `axis`; of the first NaN if there is one", np.argmax),
    "argmin": ("index of the first least along `axis`; of the first NaN if there is one", np.argmin),
}


def reduced_shape(shape: Shape, axes: tuple[int, ...], keep_dims: bool) -> Shape:
    """`shape` with `axes` (normal, distinct) left out, or 1 when they are kept."""
    if keep_dims:
        return tuple(1 if axis in axes else dim for axis, dim in enumerate(shape))
    return tuple(dim for axis, dim in enumerate(shape) if axis not in axes)


def _rule(domain: str, needs_element: bool) -> TypeRule:
    def rule(types: Types, attrs: Attrs) -> TensorType:
        require_domain(types, domain)
        axes = normal_axes(attrs["axes"], types[0].rank)
        if needs_element:
            require(
                prod(types[0].shape[a] for a in axes) > 0,
                "operand 0",
                types[0],
                f"elements along {list(axes)}",
            )
        return types[0].with_shape(reduced_shape(types[0].shape, axes, attrs["keep_dims"]))

    return rule


def _arg_rule(types: Types, attrs: Attrs) -> TensorType:
    require_domain(types, NUMBER)
    axis = normal_axis(attrs["axis"], types[0].rank)
    require(types[0].shape[axis] > 0, "operand 0", types[0], f"elements along {axis}")
    return TensorType(i64, reduced_shape(types[0].shape, (axis,), attrs["keep_dims"]))


def _reference(function: Function) -> Reference:
    @in_f32
    def reference(inputs: Arrays, attrs: Attrs) -> np.ndarray:
        (x,) = inputs
        axes = normal_axes(attrs["axes"], x.ndim)
        return np.asarray(function(x, axis=axes, keepdims=attrs["keep_dims"])).astype(x.dtype)

    return reference


def _arg_reference(function: Function) -> Reference:
    def reference(inputs: Arrays, attrs: Attrs) -> np.ndarray:
        return np.asarray(function(inputs[0], axis=attrs["axis"], keepdims=attrs["keep_dims"])).astype(
            np.int64
        )

    return reference


for _name, (_domain, _needs, _facts, _doc, _function) in REDUCTIONS.items():
    declare(_name, _doc, _rule(_domain, _needs), _reference(_function),
            attrs={"axes": Ints(), "keep_dims": Bool(False)}, kind="reduction", work=by_operand(simple=1), **_facts)

for _name, (_doc, _function) in ARG_REDUCTIONS.items():
    declare(_name, _doc, _arg_rule, _arg_reference(_function), attrs={"axis": Int(), "keep_dims": Bool(False)},
            kind="position", work=by_operand(simple=2), **ORDINAL)
