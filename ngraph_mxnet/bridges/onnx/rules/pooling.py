"""Pooling."""

from __future__ import annotations

from math import prod

import numpy as np

from ngraph_mxnet.bridges.onnx.rules.common import Ints, require_table, window
from ngraph_mxnet.bridges.onnx.rules.reduction import extreme, mean_by_sum
from ngraph_mxnet.bridges.onnx.rules.registry import Call, rule
from ngraph_mxnet.compositions.tensors import scalar
from ngraph_mxnet.errors import UnsupportedError
from ngraph_mxnet.ir import Builder, Value

_MOST_TAPS = 1 << 14
"""The most taps of a window that is walked tap by tap in the graph."""


def _require_taps(kernel: Ints) -> None:
    if prod(kernel) > _MOST_TAPS:
        raise UnsupportedError(f"kernel_shape={kernel} with dilations, indices, or as LpPool; supported: up to "
                               f"{_MOST_TAPS} elements")


def _spatial(x: Value) -> Ints:
    return tuple(range(2, x.type.rank))


@rule("GlobalAveragePool")
def global_average_pool(b: Builder, call: Call) -> Value:
    x = call.input(0)
    if any(size == 0 for size in x.shape[2:]):
        return mean_by_sum(b, x, _spatial(x), True)
    return b.reduce_mean(x, axes=_spatial(x), keep_dims=True)


@rule("GlobalMaxPool")
def global_max_pool(b: Builder, call: Call) -> Value:
    x = call.input(0)
    if any(size == 0 for size in x.shape[2:]):
        return extreme(b, "ReduceMax", x, _spatial(x), True)
    return b.reduce_max(x, axes=_spatial(x), keep_dims=True)


@rule("GlobalLpPool")
def global_lp_pool(b: Builder, call: Call) -> Value:
    x, power = call.input(0), call.attrs.int("p", 2)
    return _root(b, b.reduce_sum(_power(b, x, power), axes=_spatial(x), keep_dims=True), power)


def _power(b: Builder, x: Value, power: int) -> Value:
    return b.abs(x) if power == 1 else b.square(x) if power == 2 else b.power(b.abs(x), scalar(b, power, x))


def _root(b: Builder, x: Value, power: int) -> Value:
    return x if power == 1 else b.sqrt(x) if power == 2 else b.power(x, scalar(b, 1 / power, x))


@rule("MaxPool", "AveragePool", "LpPool")
def pool(b: Builder, call: Call) -> Value | list[Value]:
    """One to three spatial axes, any padding, `ceil_mode`, `count_include_pad`, dilations, `Indices`.

    With both of `ceil_mode` and `count_include_pad`, what lies beyond the padding does not count; QLinearAveragePool of
    `com.microsoft` counts it.
    """
    x = call.input(0)
    sizes = x.shape[2:]
    count = len(sizes)
    kernel = call.attrs.ints("kernel_shape")
    strides = call.attrs.ints("strides", (1,) * count)
    dilations = call.attrs.ints("dilations", (1,) * count)
    begins, ends = window(call, sizes, kernel, strides=strides, dilations=dilations)
    ceil = call.attrs.bool("ceil_mode")
    by_columns = call.attrs.bool("storage_order") if call.op == "MaxPool" else False
    if call.op == "MaxPool" and call.outputs > 1:
        return _with_places(b, x, kernel, strides, dilations, begins, ends, ceil=ceil, by_columns=by_columns)
    averages = call.op in ("AveragePool", "QLinearAveragePool")
    include = call.attrs.bool("count_include_pad") if averages else False
    if call.op == "LpPool":
        power = call.attrs.int("p", 2)
        x = _power(b, x, power)
    if prod(dilations) > 1 or call.op == "LpPool":
        outside = -np.inf if call.op == "MaxPool" else 0.0
        result = _by_taps(b, x, kernel, strides, dilations, begins, ends, ceil=ceil, outside=outside,
                          divided=averages, include=include)
        return _root(b, result, power) if call.op == "LpPool" else result
    attrs = {"kernel": kernel, "strides": strides, "pads_begin": begins,
             "pads_end": _ends(sizes, kernel, strides, begins, ends) if ceil else ends, "rounding": "floor"}
    if call.op == "MaxPool":
        return b.max_pool(x, **attrs)
    if include and ceil and call.op == "AveragePool":
        return _by_taps(b, x, kernel, strides, dilations, begins, ends, ceil=True, outside=0.0, divided=True,
                        include=True)
    return b.avg_pool(x, **attrs, include_pad=include)


def _counts(sizes: Ints, reach: Ints, strides: Ints, begins: Ints, ends: Ints, ceil: bool) -> list[int]:
    """Outputs on each axis; with `ceil` no window starts beyond the data and the padding before it."""
    result = []
    for size, span, stride, begin, end in zip(sizes, reach, strides, begins, ends, strict=True):
        room = size + begin + end - span
        count = (-(-room // stride) if ceil else room // stride) + 1
        result.append(count - 1 if ceil and (count - 1) * stride >= size + begin else count)
    return result


def _ends(sizes: Ints, kernel: Ints, strides: Ints, begins: Ints, ends: Ints) -> Ints:
    """Padding behind that makes room for the windows that `ceil_mode` adds."""
    counts = _counts(sizes, kernel, strides, begins, ends, True)
    rows = zip(counts, strides, kernel, sizes, begins, strict=True)
    return tuple(max((count - 1) * step + span - size - begin, 0) for count, step, span, size, begin in rows)


def _by_taps(b: Builder, x: Value, kernel: Ints, strides: Ints, dilations: Ints, begins: Ints, ends: Ints, *,
             ceil: bool, outside: float, divided: bool, include: bool) -> Value:
    """The sum of each window, tap by tap, or with `outside` of -inf the maximum; if `divided`, over its elements."""
    _require_taps(kernel)
    sizes = x.shape[2:]
    reach = tuple((size - 1) * step + 1 for size, step in zip(kernel, dilations, strict=True))
    counts = _counts(sizes, reach, strides, begins, ends, ceil)
    last = [(count - 1) * step + span for count, step, span in zip(counts, strides, reach, strict=True)]
    behind = [max(end - size - begin, 0) for end, size, begin in zip(last, sizes, begins, strict=True)]
    wide = b.pad(x, pads_begin=(0, 0, *begins), pads_end=(0, 0, *behind), value=outside)
    combine = "maximum" if outside else "add"
    require_table(wide.shape[2:], 4)
    total, divisor = None, np.zeros(counts, np.float32)
    valid = np.zeros([size + begin + more for size, begin, more in zip(sizes, begins, behind, strict=True)], np.float32)
    inside = tuple(slice(0, size + begin + end) if include else slice(begin, begin + size)
                   for size, begin, end in zip(sizes, begins, ends, strict=True))
    valid[inside] = 1
    for tap in np.ndindex(*kernel):
        first = [place * step for place, step in zip(tap, dilations, strict=True)]
        stop = [at + (count - 1) * step + 1 for at, count, step in zip(first, counts, strides, strict=True)]
        part = b.slice(wide, begin=(0, 0, *first), end=(*x.shape[:2], *stop), strides=(1, 1, *strides))
        divisor += valid[tuple(slice(at, end, step) for at, end, step in zip(first, stop, strides, strict=True))]
        total = part if total is None else b.apply(combine, total, part)
    assert total is not None
    return b.divide(total, b.constant(divisor, x.type.element)) if divided else total


def _with_places(b: Builder, x: Value, kernel: Ints, strides: Ints, dilations: Ints, begins: Ints, ends: Ints, *,
                 ceil: bool, by_columns: bool) -> list[Value]:
    """The greatest of each window, and its place in the whole tensor; of equal ones the first."""
    _require_taps(kernel)
    sizes = x.shape[2:]
    reach = tuple((size - 1) * step + 1 for size, step in zip(kernel, dilations, strict=True))
    counts = _counts(sizes, reach, strides, begins, ends, ceil)
    require_table(counts, 8)
    planes = np.arange(prod(x.shape[:2])).reshape(*x.shape[:2], *(1,) * len(sizes)) * prod(sizes)
    best: Value | None = None
    place: Value | None = None
    for tap in np.ndindex(*kernel):
        lines = [np.arange(count) * step + at * far - begin
                 for count, step, at, far, begin in zip(counts, strides, tap, dilations, begins, strict=True)]
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
            lowest = -np.inf if x.type.element.is_float else np.iinfo(x.type.element.numpy).min
            best = b.broadcast(scalar(b, lowest, x), shape=part.shape)
            place = b.broadcast(b.constant(-1, "i64"), shape=part.shape)
        # The first element of a window is taken even if it is not greater than `lowest`, where `best` starts.
        better = b.logical_or(b.greater(part, best), b.less(place, scalar(b, 0, place)))
        taken = b.logical_and(better, b.constant(inside))
        best, place = b.select(taken, part, best), b.select(taken, here, place)
    assert best is not None and place is not None
    return [best, place]
