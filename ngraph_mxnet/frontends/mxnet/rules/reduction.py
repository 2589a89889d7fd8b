"""Reductions. A reduction over all axes without `keepdims` has shape (1,): MXNet has no rank 0 here."""

from __future__ import annotations

import math
from math import prod
from typing import Any

import numpy as np

from ngraph_mxnet.base.errors import UnsupportedError
from ngraph_mxnet.frontends.mxnet.attrs import Attrs
from ngraph_mxnet.frontends.mxnet.rules.registry import (
    ANY,
    FLOATS,
    LOGIC,
    NUMBERS,
    Lowering,
    add_rule,
    at_least_1d,
    normal_axes,
    normal_axis,
    rule,
)
from ngraph_mxnet.ir import Builder, Value
from ngraph_mxnet.ir.types import ElementType, boolean, f16, f32, f64, i64
from ngraph_mxnet.ops.compositions import converted, euclidean_norm, power_norm, truth

# The IR's ops by MXNet's names.
REDUCTIONS: dict[tuple[str, ...], str] = {
    ("sum", "sum_axis"): "reduce_sum", ("mean",): "reduce_mean", ("prod",): "reduce_prod",
    ("max", "max_axis"): "reduce_max", ("min", "min_axis"): "reduce_min",
}


def _axes(attrs: Attrs, rank: int) -> tuple[int, ...]:
    """`axis` unset or empty: all axes, whatever `exclude` says, which otherwise means the axes not named."""
    given = normal_axes(attrs.ints("axis", ()), rank)
    exclude = attrs.bool("exclude", False)
    if not given:
        return tuple(range(rank))
    return tuple(axis for axis in range(rank) if axis not in given) if exclude else given


def over_axes(b: Builder, op: str, x: Value, axes: tuple[int, ...], keep: bool) -> Value:
    """A reduction of any number type: the mean of integers is their sum, divided and cut off."""
    if op == "reduce_mean" and not x.element.is_float:
        count = prod(tuple(x.shape[axis] for axis in axes))
        if count > np.iinfo(x.element.numpy).max:
            raise UnsupportedError(f"the mean of {count} elements, a number that {x.element} does not have")
        return b.reduce_sum(x, axes=axes, keep_dims=keep) / count
    return b.apply(op, x, axes=axes, keep_dims=keep)


def _reduction(op: str, *, skip_nan: float | None = None) -> Lowering:
    def lower(b: Builder, attrs: Attrs, x: Value) -> Value:
        axes = _axes(attrs, x.rank)
        if skip_nan is not None and x.element.is_float:
            x = b.select(b.equal(x, x), x, skip_nan)
        return at_least_1d(b, over_axes(b, op, x, axes, attrs.bool("keepdims", False)))

    return lower


for _names, _op in REDUCTIONS.items():
    add_rule(_reduction(_op), *_names, operands=1, types=NUMBERS)
add_rule(_reduction("reduce_sum", skip_nan=0.0), "nansum", operands=1, types=NUMBERS)
add_rule(_reduction("reduce_prod", skip_nan=1.0), "nanprod", operands=1, types=NUMBERS)


@rule("moments", operands=1, types=FLOATS)
def moments(b: Builder, attrs: Attrs, x: Value) -> list[Value]:
    """Mean and biased variance over `axes`."""
    axes, keep = normal_axes(attrs.ints("axes"), x.rank), attrs.bool("keepdims", False)
    mean = b.reduce_mean(x, axes=axes, keep_dims=True)
    variance = b.reduce_mean(b.square(x - mean), axes=axes, keep_dims=keep)
    return [at_least_1d(b, b.reshape(mean, shape=variance.shape)), at_least_1d(b, variance)]


@rule("all_finite", "multi_all_finite", operands=(1, ANY), types=FLOATS, typed_by=ANY,
      ignored=["init_output", "num_arrays"])
def all_finite(b: Builder, attrs: Attrs, *inputs: Value) -> Value:
    """1 when no element of the inputs is NaN or infinite, else 0, as float32."""
    whole: Value | None = None
    for x in inputs:
        # x - x is 0, or NaN when x is not finite.
        finite = converted(b, b.equal(x - x, 0), x)
        least = b.reduce_min(finite, axes=tuple(range(x.rank)))
        least = b.convert(least, element=f32)
        whole = least if whole is None else b.minimum(whole, least)
    assert whole is not None
    return b.reshape(whole, shape=(1,))


@rule("multi_sum_sq", types=FLOATS, typed_by=ANY, ignored=["num_arrays"])
def multi_sum_squares(b: Builder, attrs: Attrs, *inputs: Value) -> Value:
    """The sum of squares of each input, as float32."""
    sums = [b.reduce_sum(b.square(x), axes=tuple(range(x.rank))) for x in inputs]
    return b.concat(*(b.reshape(b.convert(total, element=f32), shape=(1,)) for total in sums), axis=0)


@rule("norm", operands=1, types=FLOATS, result="out_dtype")
def norm(b: Builder, attrs: Attrs, x: Value) -> Value:
    """The 1- and 2-norm over any axes (matrix norms, which two axes mean elsewhere, MXNet does not have).

    A float64 norm of anything narrower stays with MXNet, where MXNET_SAFE_ACCUMULATION says what it adds up in.
    """
    if attrs.element("out_dtype", None) is f64 and x.element is not f64:
        raise UnsupportedError(f"out_dtype=float64 of {x.element}: MXNET_SAFE_ACCUMULATION says how it adds up")
    order = attrs.choice("ord", "2", ("1", "2"))
    axes, keep = _axes(attrs, x.rank), attrs.bool("keepdims", False)
    if order == "2":
        return at_least_1d(b, euclidean_norm(b, x, axes, keep=keep))
    return at_least_1d(b, b.reduce_sum(b.abs(x), axes=axes, keep_dims=keep))


def _position(op: str, x: Value, b: Builder, attrs: Attrs) -> Value:
    """i64; without an axis, of the flat tensor."""
    axis, keep = attrs.int("axis", None), attrs.bool("keepdims", False)
    if axis is not None:
        return b.apply(op, x, axis=normal_axis(axis, x.rank), keep_dims=keep)
    flat = b.apply(op, b.reshape(x, shape=(x.size,)), axis=0)
    return b.reshape(flat, shape=(1,) * x.rank) if keep else flat


def _positions(op: str) -> None:
    """Register the operator of a position: under MXNet's NumPy semantics, and the older one, of the operand's type."""
    add_rule(lambda b, attrs, x: converted(b, at_least_1d(b, _position(op, x, b, attrs)), x), op, operands=1,
             types=NUMBERS)
    add_rule(lambda b, attrs, x: _position(op, x, b, attrs), f"_npi_{op}", operands=1, types=NUMBERS)


_positions("argmax")
_positions("argmin")


@rule("argmax_channel", operands=1, types=NUMBERS)
def argmax_channel(b: Builder, attrs: Attrs, x: Value) -> Value:
    """argmax over axis 1."""
    return converted(b, b.argmax(x, axis=1), x)


@rule("L2Normalization", operands=1, types=FLOATS)
def l2_normalization(b: Builder, attrs: Attrs, x: Value) -> Value:
    """x / sqrt(sum of squares + eps): over all axes but 0 (instance), 1 (channel), the others (spatial)."""
    rank = x.rank
    mode = attrs.choice("mode", "instance", ("instance", "channel", "spatial"))
    axes = {"instance": range(1, rank), "channel": (1,), "spatial": range(2, rank)}[mode]
    total = b.reduce_sum(b.square(x), axes=tuple(axes), keep_dims=True)
    return x / b.sqrt(total + attrs.float("eps", 1e-10))


def _over(attrs: Attrs, x: Value) -> dict[str, Any]:
    """The attributes of a reduction: `axis`, None for all axes, and `keepdims`."""
    given = attrs.ints("axis", None)
    return {"axes": tuple(range(x.rank)) if given is None else normal_axes(given, x.rank),
            "keep_dims": attrs.bool("keepdims", False)}


def _no_initial(attrs: Attrs) -> None:
    if attrs.has("initial"):
        raise UnsupportedError("initial, which MXNet itself refuses")
    attrs.ignore("initial")


def _total(op: str) -> Lowering:
    def lower(b: Builder, attrs: Attrs, x: Value) -> Value:
        """Computed in `dtype`, else bool in int64. If `dtype` names integers, floats are converted when added up."""
        _no_initial(attrs)
        own = x.element
        element = _in_f32(attrs.element("dtype", i64 if own is boolean else own))
        if element.is_float or not own.is_float:
            x = converted(b, x, element)
        return b.apply(op, x, **_over(attrs, x))

    return lower


def _extreme(op: str) -> Lowering:
    def lower(b: Builder, attrs: Attrs, x: Value) -> Value:
        _no_initial(attrs)
        return b.apply(op, x, **_over(attrs, x))

    return lower


def _truth_of(op: str) -> Lowering:
    def lower(b: Builder, attrs: Attrs, x: Value) -> Value:
        return b.convert(b.apply(op, b.convert(truth(b, x), element="u8"), **_over(attrs, x)), element=boolean)

    return lower


add_rule(_total("reduce_sum"), "_np_sum", operands=1, types=LOGIC, result="dtype")
add_rule(_total("reduce_prod"), "_np_prod", operands=1, types=LOGIC, result="dtype")
add_rule(_extreme("reduce_max"), "_np_max", operands=1, types=NUMBERS)
add_rule(_extreme("reduce_min"), "_np_min", operands=1, types=NUMBERS)
add_rule(_truth_of("reduce_max"), "_np_any", operands=1, types=LOGIC)
add_rule(_truth_of("reduce_min"), "_np_all", operands=1, types=LOGIC)


@rule("_npi_mean", operands=1, types=LOGIC, result="dtype")
def mean(b: Builder, attrs: Attrs, data: Value) -> Value:
    """Computed in `dtype`, else integers and bool in float32."""
    _no_initial(attrs)
    x = _as_float(b, data, attrs)
    return b.reduce_mean(x, **_over(attrs, x))


def _as_float(b: Builder, x: Value, attrs: Attrs) -> Value:
    """x in the floating-point type that `dtype` names, else its own or float32; unchanged where `dtype` names
    integers."""
    own = x.element
    element = attrs.element("dtype", own if own.is_float else f32)
    if not element.is_float:
        if not own.is_float:
            raise UnsupportedError(f"of {own} in {element}, which MXNet divides in {element}")
        return x
    return converted(b, x, _in_f32(element))


def _in_f32(element: ElementType) -> ElementType:
    """Float16 is computed in float32."""
    return f32 if element is f16 else element


def _spread(*, root: bool) -> Lowering:
    def lower(b: Builder, attrs: Attrs, data: Value, *_: Value) -> Value:
        """The divisor is the count less `ddof`. Integers without `dtype` stay with MXNet, which rounds in each step."""
        if not (data.element.is_float or attrs.has("dtype")):
            raise UnsupportedError(f"of {data.element} without dtype")
        x = _as_float(b, data, attrs)
        over = _over(attrs, x)
        centred = x - b.reduce_mean(x, axes=over["axes"], keep_dims=True)
        divisor = prod(x.shape[axis] for axis in over["axes"]) - attrs.int("ddof", 0)
        variance = b.reduce_sum(b.square(centred), **over) / divisor
        return b.sqrt(variance) if root else variance

    return lower


add_rule(_spread(root=False), "_npi_var", operands=1, types=NUMBERS, result="dtype")
add_rule(_spread(root=True), "_npi_std", operands=1, types=NUMBERS, result="dtype")


@rule("_npi_average", operands=(1, 2))
def average(b: Builder, attrs: Attrs, x: Value, weights: Value | None = None) -> list[Value]:
    """Weighted along `axis`, or by weights of the data's shape; the sum of weights too, if it is asked for."""
    axes, weighted = _over(attrs, x)["axes"], attrs.bool("weighted", True)
    returned = attrs.bool("returned", False)
    if returned:
        raise UnsupportedError("returned=True: the sum of weights has a type of its own in MXNet")
    if not weighted or weights is None:
        return [b.reduce_mean(x, axes=axes)]
    if weights.shape != x.shape:
        if len(axes) != 1 or weights.shape != (x.shape[axes[0]],):
            raise UnsupportedError(f"weights {weights.type} of {x.type} along {axes}")
        shape = [size if axis in axes else 1 for axis, size in enumerate(x.shape)]
        weights = b.broadcast(b.reshape(weights, shape=shape), shape=x.shape)
    # Shares first: products with small weights would be 0, and what goes back to the weights one-sided.
    shares = weights / b.reduce_sum(weights, axes=axes, keep_dims=True)
    return [b.reduce_sum(x * shares, axes=axes)]


@rule("_npi_norm", operands=1, types=FLOATS)
def numpy_norm(b: Builder, attrs: Attrs, x: Value) -> Value:
    """Frobenius's norm (flag 1, and -2 over all axes). Of one axis any order but 0 and the infinities; of two axes,
    which make matrices, the orders 1 and -1: the greatest or least sum over the first of them."""
    kind, order = attrs.int("flag", -1), attrs.float("ord", 2.0)
    axes, keep = _over(attrs, x).values()
    if kind not in (-2, -1, 1):
        raise UnsupportedError(f"flag={kind}: norms by singular values are MXNet's")
    if kind != -1 or (order == 2 and len(axes) == 1):
        return euclidean_norm(b, x, axes, keep=keep)
    if order == 0 or math.isinf(order) or len(axes) != 1:
        if abs(order) != 1 or len(axes) != 2:
            raise UnsupportedError(f"ord={order} over {len(axes)} axes")
        first = normal_axis((attrs.ints("axis", None) or (0, 1))[0], x.rank)
        sums = b.reduce_sum(b.abs(x), axes=(first,), keep_dims=True)
        return b.apply("reduce_max" if order == 1 else "reduce_min", sums, axes=axes, keep_dims=keep)
    if order == 1:
        return b.reduce_sum(b.abs(x), axes=axes, keep_dims=keep)
    return power_norm(b, x, order, axes, keep=keep)


