"""Reductions."""

from __future__ import annotations

import math

import numpy as np

from ngraph_mxnet.bridges.onnx.rules.common import normal_axes, normal_axis
from ngraph_mxnet.bridges.onnx.rules.registry import Call, rule
from ngraph_mxnet.compositions.tensors import converted, flipped, scalar, size_as
from ngraph_mxnet.ir import Builder, Value
from ngraph_mxnet.ir.types import boolean, f32, i64, u8

_PLAIN = {"ReduceSum": "reduce_sum", "ReduceMean": "reduce_mean", "ReduceProd": "reduce_prod",
          "ReduceMax": "reduce_max", "ReduceMin": "reduce_min"}


@rule(*_PLAIN, "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare")
def reduce(b: Builder, call: Call) -> Value:
    """Over the given axes, else over all; `axes` is an input from opset 18 on (of ReduceSum from 13 on)."""
    x = call.input(0)
    axes = call.ints("axes", 1, 13 if call.op == "ReduceSum" else 18)
    keep = call.attrs.bool("keepdims", True)
    stays = call.attrs.bool("noop_with_empty_axes", False)
    if not axes:
        if stays:
            return _of_nothing(b, call.op, x)
        axes = range(x.type.rank)
    over = {"axes": normal_axes(axes, x.type.rank), "keep_dims": keep}
    empty = [i for i in over["axes"] if not x.shape[i]]  # type: ignore[attr-defined]
    if empty and call.op in ("ReduceMax", "ReduceMin"):
        return extreme(b, call.op, x, over["axes"], keep)  # type: ignore[arg-type]
    if call.op == "ReduceMean" and (empty or x.type.element.numpy.kind in "iu"):
        return mean_by_sum(b, x, over["axes"], keep)  # type: ignore[arg-type]
    if call.op in _PLAIN:
        if x.type.element == boolean:  # opset 20: as 0 and 1
            return b.convert(b.apply(_PLAIN[call.op], b.convert(x, element=u8), **over), element=boolean)
        return b.apply(_PLAIN[call.op], x, **over)
    if call.op == "ReduceL1":
        return b.reduce_sum(b.abs(x), **over)
    if call.op == "ReduceLogSum":
        return _in_floats(b, "log", b.reduce_sum(x, **over))
    if call.op == "ReduceLogSumExp":
        return _log_sum_exp(b, x, over["axes"], keep)  # type: ignore[arg-type]
    squares = b.reduce_sum(b.square(x), **over)
    return squares if call.op == "ReduceSumSquare" else _in_floats(b, "sqrt", squares)


def mean_by_sum(b: Builder, x: Value, axes: tuple[int, ...], keep: bool) -> Value:
    """Also of integers, whose mean is truncated, and of no elements, which is 0, as in ONNX Runtime: ONNX leaves it
    open."""
    total = b.reduce_sum(x, axes=axes, keep_dims=keep)
    count = math.prod(x.shape[axis] for axis in axes)
    return b.divide(total, size_as(b, count, total)) if count else total


def extreme(b: Builder, op: str, x: Value, axes: tuple[int, ...], keep: bool) -> Value:
    """The maximum or minimum of no elements: the least or the greatest number that the element type has."""
    dtype = x.type.element.numpy
    if dtype.kind == "f":
        edges = (-np.inf, np.inf)
    else:
        edges = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    shape = [1 if i in axes else size for i, size in enumerate(x.shape) if keep or i not in axes]
    return b.broadcast(b.constant(np.asarray(edges[op == "ReduceMin"]).astype(dtype)), shape=shape)


def _of_nothing(b: Builder, op: str, x: Value) -> Value:
    """A reduction over no axes: each element by itself."""
    if op in _PLAIN or op == "ReduceLogSumExp":
        return b.identity(x)
    if op == "ReduceLogSum":
        return _in_floats(b, "log", x)
    return b.square(x) if op == "ReduceSumSquare" else b.abs(x)


def _in_floats(b: Builder, op: str, x: Value) -> Value:
    """Of integers the truncated result in float32."""
    return b.apply(op, x) if x.type.element.is_float else converted(b, b.apply(op, b.convert(x, element=f32)), x)


def _log_sum_exp(b: Builder, x: Value, axes: tuple[int, ...], keep: bool) -> Value:
    """m + log(sum of e^(x - m)), m the greatest where that is finite."""
    if not x.type.element.is_float:
        return converted(b, _log_sum_exp(b, b.convert(x, element=f32), axes, keep), x)
    if all(x.shape[axis] for axis in axes):
        greatest = b.reduce_max(x, axes=axes, keep_dims=True)
    else:
        greatest = extreme(b, "ReduceMax", x, axes, True)
    finite = b.less(b.abs(greatest), scalar(b, math.inf, x))
    shift = b.select(finite, greatest, scalar(b, 0, x))
    total = b.reduce_sum(b.exp(b.subtract(x, shift)), axes=axes, keep_dims=True)
    result = b.add(b.log(total), shift)
    return result if keep else b.reshape(result, shape=[s for i, s in enumerate(x.shape) if i not in axes])


@rule("ArgMax", "ArgMin")
def arg_extreme(b: Builder, call: Call) -> Value:
    """i64; of equal elements the first, or with `select_last_index` the last."""
    x = call.input(0)
    axis, keep = normal_axis(call.attrs.int("axis", 0), x.type.rank), call.attrs.bool("keepdims", True)
    last = call.attrs.bool("select_last_index", False)
    at = b.apply(call.op.lower(), flipped(b, x, axis) if last else x, axis=axis, keep_dims=keep)
    at = at if at.type.element == i64 else b.convert(at, element=i64)
    return b.subtract(scalar(b, x.shape[axis] - 1, at), at) if last else at
