"""Reductions, pools and norms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from math import prod

import numpy as np

from ngraph_mxnet.base.errors import ModelError, UnsupportedError
from ngraph_mxnet.frontends.onnx.model import element_of
from ngraph_mxnet.frontends.onnx.rules.registry import (
    Call,
    Ints,
    Windows,
    axis_of,
    normal_axes,
    require_table,
    rule,
    windows,
)
from ngraph_mxnet.ir import Builder, Value
from ngraph_mxnet.ir.types import boolean, f32, i64, u8
from ngraph_mxnet.ops.compositions import affine, along_axis, converted, flipped, full, moments, reshaped, size_as

_PLAIN = {"ReduceSum": "reduce_sum", "ReduceMean": "reduce_mean", "ReduceProd": "reduce_prod",
          "ReduceMax": "reduce_max", "ReduceMin": "reduce_min"}


@rule(*_PLAIN, "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare")
def reduce(b: Builder, call: Call, x: Value) -> Value:
    """Over the given axes, else over all; `axes` is an input from opset 18 on (of ReduceSum from 13 on)."""
    axes = call.ints("axes", 1, 13 if call.op == "ReduceSum" else 18)
    keep = call.attrs.bool("keepdims", True)
    stays = call.attrs.bool("noop_with_empty_axes", False)
    if not axes:
        if stays:
            return _of_nothing(b, call.op, x)
        axes = range(x.rank)
    over = {"axes": normal_axes(axes, x.rank), "keep_dims": keep}
    empty = [i for i in over["axes"] if not x.shape[i]]  # type: ignore[attr-defined]
    if empty and call.op in ("ReduceMax", "ReduceMin"):
        return extreme(b, call.op, x, over["axes"], keep)  # type: ignore[arg-type]
    if call.op == "ReduceMean" and (empty or x.element.numpy.kind in "iu"):
        return mean_by_sum(b, x, over["axes"], keep)  # type: ignore[arg-type]
    if call.op in _PLAIN:
        if x.element == boolean:  # opset 20: as 0 and 1
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
    return total / size_as(b, count, total) if count else total


def extreme(b: Builder, op: str, x: Value, axes: tuple[int, ...], keep: bool) -> Value:
    """The maximum or minimum of no elements: the least or the greatest number that the element type has."""
    dtype = x.element.numpy
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
    """Apply the op. For integers, compute in float32 and truncate the result."""
    return b.apply(op, x) if x.element.is_float else converted(b, b.apply(op, b.convert(x, element=f32)), x)


def _log_sum_exp(b: Builder, x: Value, axes: tuple[int, ...], keep: bool) -> Value:
    """m + log(sum of e^(x - m)), m the greatest where that is finite."""
    if not x.element.is_float:
        return converted(b, _log_sum_exp(b, b.convert(x, element=f32), axes, keep), x)
    if all(x.shape[axis] for axis in axes):
        greatest = b.reduce_max(x, axes=axes, keep_dims=True)
    else:
        greatest = extreme(b, "ReduceMax", x, axes, True)
    finite = b.abs(greatest) < math.inf
    shift = b.select(finite, greatest, 0)
    total = b.reduce_sum(b.exp(x - shift), axes=axes, keep_dims=True)
    result = b.log(total) + shift
    return result if keep else b.reshape(result, shape=[s for i, s in enumerate(x.shape) if i not in axes])


@rule("ArgMax", "ArgMin")
def arg_extreme(b: Builder, call: Call, x: Value) -> Value:
    """i64; of equal elements the first, or with `select_last_index` the last."""
    axis, keep = axis_of(call, x, 0), call.attrs.bool("keepdims", True)
    last = call.attrs.bool("select_last_index", False)
    at = b.apply(call.op.lower(), flipped(b, x, axis) if last else x, axis=axis, keep_dims=keep)
    at = converted(b, at, i64)
    return x.shape[axis] - 1 - at if last else at


_MOST_TAPS = 1 << 14
"""The most taps of a window that is walked tap by tap in the graph."""


def _require_taps(kernel: Ints) -> None:
    if prod(kernel) > _MOST_TAPS:
        raise UnsupportedError(f"kernel_shape={kernel} with dilations, indices, or as LpPool; supported: up to "
                               f"{_MOST_TAPS} elements")


def _spatial(x: Value) -> Ints:
    return tuple(range(2, x.rank))


@rule("GlobalAveragePool")
def global_average_pool(b: Builder, call: Call, x: Value) -> Value:
    if any(size == 0 for size in x.shape[2:]):
        return mean_by_sum(b, x, _spatial(x), True)
    return b.reduce_mean(x, axes=_spatial(x), keep_dims=True)


@rule("GlobalMaxPool")
def global_max_pool(b: Builder, call: Call, x: Value) -> Value:
    if any(size == 0 for size in x.shape[2:]):
        return extreme(b, "ReduceMax", x, _spatial(x), True)
    return b.reduce_max(x, axes=_spatial(x), keep_dims=True)


@rule("GlobalLpPool")
def global_lp_pool(b: Builder, call: Call, x: Value) -> Value:
    power = call.attrs.int("p", 2)
    return _root(b, b.reduce_sum(_power(b, x, power), axes=_spatial(x), keep_dims=True), power)


def _power(b: Builder, x: Value, power: int) -> Value:
    return b.abs(x) if power == 1 else b.square(x) if power == 2 else b.abs(x) ** power


def _root(b: Builder, x: Value, power: int) -> Value:
    return x if power == 1 else b.sqrt(x) if power == 2 else x ** (1 / power)


@rule("MaxPool", "AveragePool", "LpPool")
def pool(b: Builder, call: Call) -> Value | list[Value]:
    """One to three spatial axes, any padding, `ceil_mode`, `count_include_pad`, dilations, `Indices`.

    With both of `ceil_mode` and `count_include_pad`, what lies beyond the padding does not count; QLinearAveragePool of
    `com.microsoft` counts it.
    """
    x = call.input(0)
    at = windows(call, x.shape[2:], call.attrs.ints("kernel_shape"))
    at = replace(at, ceil=call.attrs.bool("ceil_mode"))
    by_columns = call.attrs.bool("storage_order") if call.op == "MaxPool" else False
    if call.op == "MaxPool" and call.outputs > 1:
        return _with_places(b, x, at, by_columns=by_columns)
    averages = call.op in ("AveragePool", "QLinearAveragePool")
    include = call.attrs.bool("count_include_pad") if averages else False
    if call.op == "LpPool":
        power = call.attrs.int("p", 2)
        x = _power(b, x, power)
    if prod(at.dilations) > 1 or call.op == "LpPool" or (include and at.ceil and call.op == "AveragePool"):
        outside = -np.inf if call.op == "MaxPool" else 0.0
        result = _by_taps(b, x, at, outside=outside, divided=averages, include=include)
        return _root(b, result, power) if call.op == "LpPool" else result
    attrs = {"kernel": at.kernel, "strides": at.strides, "pads_begin": at.begins,
             "pads_end": at.behind if at.ceil else at.ends, "rounding": "floor"}
    return b.max_pool(x, **attrs) if call.op == "MaxPool" else b.avg_pool(x, **attrs, include_pad=include)


def _by_taps(b: Builder, x: Value, at: Windows, *, outside: float, divided: bool, include: bool) -> Value:
    """The sum of each window, tap by tap, or with `outside` of -inf the maximum; if `divided`, over its elements."""
    _require_taps(at.kernel)
    sizes, counts, begins, behind = at.sizes, at.counts, at.begins, at.behind
    wide = b.pad(x, pads_begin=(0, 0, *begins), pads_end=(0, 0, *behind), value=outside)
    combine = "maximum" if outside else "add"
    require_table(wide.shape[2:], 4)
    total, divisor = None, np.zeros(counts, np.float32)
    valid = np.zeros([size + begin + more for size, begin, more in zip(sizes, begins, behind, strict=True)], np.float32)
    inside = tuple(slice(0, size + begin + end) if include else slice(begin, begin + size)
                   for size, begin, end in zip(sizes, begins, at.ends, strict=True))
    valid[inside] = 1
    for tap in np.ndindex(*at.kernel):
        first = [place * step for place, step in zip(tap, at.dilations, strict=True)]
        stop = [place + (count - 1) * step + 1 for place, count, step in zip(first, counts, at.strides, strict=True)]
        part = b.slice(wide, begin=(0, 0, *first), end=(*x.shape[:2], *stop), strides=(1, 1, *at.strides))
        divisor += valid[tuple(map(slice, first, stop, at.strides))]
        total = part if total is None else b.apply(combine, total, part)
    assert total is not None
    return total / b.constant(divisor, x.element) if divided else total


def _with_places(b: Builder, x: Value, at: Windows, *, by_columns: bool) -> list[Value]:
    """The greatest of each window, and its place in the whole tensor; of equal ones the first."""
    _require_taps(at.kernel)
    sizes, counts = at.sizes, at.counts
    require_table(counts, 8)
    planes = np.arange(prod(x.shape[:2])).reshape(*x.shape[:2], *(1,) * len(sizes)) * prod(sizes)
    best: Value | None = None
    place: Value | None = None
    for tap in np.ndindex(*at.kernel):
        lines = [np.arange(count) * step + place * far - begin for count, step, place, far, begin in
                 zip(counts, at.strides, tap, at.dilations, at.begins, strict=True)]
        part, inside = x, np.ones(counts, bool)
        flat = np.zeros(counts, np.int64)
        steps = [prod(sizes[:i]) if by_columns else prod(sizes[i + 1 :]) for i in range(len(sizes))]
        for axis, (line, size, step) in enumerate(zip(lines, sizes, steps, strict=True)):
            along = [-1 if i == axis else 1 for i in range(len(sizes))]
            part = b.gather(part, b.constant(np.clip(line, 0, size - 1)), axis=axis + 2)
            inside &= ((line >= 0) & (line < size)).reshape(along)
            flat += line.reshape(along) * step
        here = b.broadcast(b.constant(planes + flat), shape=part.shape)
        if best is None or place is None:
            lowest = -np.inf if x.element.is_float else np.iinfo(x.element.numpy).min
            best = full(b, lowest, part)
            place = b.broadcast(b.constant(-1, "i64"), shape=part.shape)
        # The first element of a window is taken even if it is not greater than `lowest`, where `best` starts.
        better = (part > best) | (place < 0)
        taken = better & b.constant(inside)
        best, place = b.select(taken, part, best), b.select(taken, here, place)
    assert best is not None and place is not None
    return [best, place]


@rule("BatchNormalization")
def batch_normalization(b: Builder, call: Call) -> Value | list[Value]:
    """By the statistics that are inputs; with `training_mode` by the data's own, and the running ones are results."""
    x, *vectors = (call.input(i) for i in range(5))
    momentum = call.attrs.float("momentum", 0.9)
    if call.opset < 7:
        call.attrs.ignore("is_test", "consumed_inputs")
    if call.opset < 9 and not call.attrs.bool("spatial", True):
        raise UnsupportedError("spatial=0: statistics of each activation")
    scale = call.static_value(vectors[0])
    if scale is not None and (scale == 1).all():  # most frameworks write ones for no scale: a constant folds
        vectors[0] = b.constant(scale)
    if call.attrs.bool("training_mode"):
        return _with_own_statistics(b, x, vectors, momentum, call.attrs.float("epsilon", 1e-5))
    vectors = [converted(b, vector, x) for vector in vectors]
    return b.batch_norm(x, *vectors, epsilon=call.attrs.float("epsilon", 1e-5))


def _with_own_statistics(b: Builder, x: Value, vectors: list[Value], momentum: float, epsilon: float) -> list[Value]:
    axes = tuple(i for i in range(x.rank) if i != 1)
    mean = b.reduce_mean(x, axes=axes)
    centred = x - along_axis(b, mean, 1, x.rank)
    found = [mean, b.reduce_mean(b.square(centred), axes=axes)]
    out = b.batch_norm(x, *(converted(b, vector, x) for vector in (*vectors[:2], *found)), epsilon=epsilon)
    running = []
    for old, new in zip(vectors[2:], found, strict=True):
        new = converted(b, new, old)
        running.append(old * momentum + new * (1 - momentum))
    return [out, *running]


def standardized(b: Builder, x: Value, axes: Sequence[int], epsilon: float) -> tuple[Value, Value, Value]:
    """(x - mean) / sqrt(biased variance + epsilon) over `axes`, the mean, and 1 / that root."""
    mean, centred, variance = moments(b, x, axes)
    inverse = b.rsqrt(variance + epsilon)
    return centred * inverse, mean, inverse


@rule("InstanceNormalization")
def instance_normalization(b: Builder, call: Call) -> Value:
    x, gamma, beta = (call.input(i) for i in range(3))
    normal, _, _ = standardized(b, x, _spatial(x), call.attrs.float("epsilon", 1e-5))
    return affine(b, normal, gamma, beta)


@rule("LayerNormalization")
def layer_normalization(b: Builder, call: Call, x: Value, gamma: Value, beta: Value | None = None) -> list[Value]:
    """Over the axes from `axis` on; the mean and 1 / deviation where they are read."""
    axis, epsilon = axis_of(call, x, -1), call.attrs.float("epsilon", 1e-5)
    stash = element_of(call.attrs.int("stash_type", 1))
    size, shape = prod(x.shape[axis:]), x.shape
    wide = converted(b, x, stash)
    if gamma.size == size and (beta is None or beta.size == size) and call.outputs == 1:
        rows = reshaped(b, wide, (*shape[:axis], size))
        zeros = b.constant(np.zeros(size), wide.element)
        scale = converted(b, reshaped(b, gamma, (size,)), wide)
        shift = zeros if beta is None else converted(b, reshaped(b, beta, (size,)), wide)
        return [converted(b, reshaped(b, b.layer_norm(rows, scale, shift, epsilon=epsilon), shape), x)]
    normal, mean, inverse = standardized(b, wide, tuple(range(axis, x.rank)), epsilon)
    out = converted(b, normal, x) * gamma
    return [out if beta is None else out + beta, mean, inverse]


@rule("RMSNormalization", "SimplifiedLayerNormalization")  # the latter is what ONNX Runtime's exporters write
def rms_normalization(b: Builder, call: Call, x: Value, gamma: Value) -> Value:
    """x / sqrt(mean of squares + epsilon) over the axes from `axis` on, times a scale."""
    axis, epsilon = axis_of(call, x, -1), call.attrs.float("epsilon", 1e-5)
    stash = element_of(call.attrs.int("stash_type", 1))
    wide = converted(b, x, stash)
    return converted(b, over_root_mean_square(b, wide, axis, epsilon), x) * gamma


def over_root_mean_square(b: Builder, x: Value, axis: int, epsilon: float) -> Value:
    mean = b.reduce_mean(b.square(x), axes=tuple(range(axis, x.rank)), keep_dims=True)
    return x * b.rsqrt(mean + epsilon)


@rule("GroupNormalization")
def group_normalization(b: Builder, call: Call) -> Value:
    """Scale and bias are one number a group before opset 21, one a channel from there on."""
    x, gamma, beta = (call.input(i) for i in range(3))
    groups, epsilon = call.attrs.int("num_groups"), call.attrs.float("epsilon", 1e-5)
    call.attrs.ignore("stash_type")
    if groups < 1 or x.shape[1] % groups:
        raise ModelError(f"num_groups={groups} does not divide {x.shape[1]} channels")
    each = x.shape[1] // groups
    split = b.reshape(x, shape=(x.shape[0], groups, each, prod(x.shape[2:])))
    normal, _, _ = standardized(b, split, (2, 3), epsilon)
    shape = (1, groups, 1, 1) if gamma.size == groups != x.shape[1] or call.opset < 21 else (1, groups, each, 1)
    scaled = normal * b.reshape(gamma, shape=shape)
    return b.reshape(scaled + b.reshape(beta, shape=shape), shape=x.shape)


@rule("LRN")
def lrn(b: Builder, call: Call) -> Value:
    return b.lrn(call.input(0), size=call.attrs.int("size"), alpha=call.attrs.float("alpha", 1e-4),
                 beta=call.attrs.float("beta", 0.75), bias=call.attrs.float("bias", 1.0))


@rule("LpNormalization")
def lp_normalization(b: Builder, call: Call, x: Value) -> Value:
    """x / norm along `axis`; 0 where the norm is 0."""
    axis, power = axis_of(call, x, -1), call.attrs.int("p", 2)
    if power not in (1, 2):
        raise ModelError(f"p={power}, expected 1 or 2")
    terms = b.abs(x) if power == 1 else b.square(x)
    total = b.reduce_sum(terms, axes=(axis,), keep_dims=True)
    norm = total if power == 1 else b.sqrt(total)
    empty = b.equal(norm, 0)
    return b.select(empty, 0, x / b.select(empty, 1, norm))


@rule("MeanVarianceNormalization")
def mean_variance_normalization(b: Builder, call: Call, x: Value) -> Value:
    """(x - mean) / (deviation + 1e-9) over `axes`."""
    _, centred, variance = moments(b, x, normal_axes(call.attrs.ints("axes", (0, 2, 3)), x.rank))
    return centred / (b.sqrt(variance) + 1e-9)
