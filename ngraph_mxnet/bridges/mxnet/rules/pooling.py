"""Pooling."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from ngraph_mxnet.bridges.mxnet.rules.linear import CHANNELS_FIRST
from ngraph_mxnet.bridges.mxnet.rules.registry import per_axis, positive, rule
from ngraph_mxnet.bridges.mxnet.symbols.attrs import Attrs
from ngraph_mxnet.bridges.mxnet.symbols.symbol_json import SymbolNode
from ngraph_mxnet.compositions.layers import root_or_flat
from ngraph_mxnet.compositions.tensors import scalar
from ngraph_mxnet.errors import UnsupportedError
from ngraph_mxnet.ir import Builder, Value
from ngraph_mxnet.ops.pooling import pooled_sizes

Window = dict[str, Any]
Total = Callable[[Builder, str, Value], Value]

_CHANNELS_LAST = ("NWC", "NHWC", "NDHWC")
# The reductions that global pools are, by MXNet's pool types.
_GLOBAL = {"max": "reduce_max", "avg": "reduce_mean", "sum": "reduce_sum"}


@rule("Pooling", operands=1, ignored=["cudnn_off"])
def pooling(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """max, avg, sum and lp (p of 1 to 3) over one to three spatial axes; `valid` and `full`; global; any layout.

    Stay with MXNet: the convention `same`, for which it raises itself, and a `full` pool with a window that meets no
    data at all (MXNet gives the lowest float or 0 there).
    """
    return _in_layout(b, inputs[0], attrs, _total)


def trained_pooling(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """The same, with a window for a global maximum: its gradient is the first greatest element's, not all their."""
    return _in_layout(b, inputs[0], attrs, _window_over_all)


def _in_layout(b: Builder, x: Value, attrs: Attrs, total: Total) -> Value:
    layout = attrs.choice("layout", None, (*CHANNELS_FIRST, *_CHANNELS_LAST))
    if layout not in _CHANNELS_LAST:
        return _pooled(b, x, attrs, total)
    rank = len(x.shape)
    moved = b.transpose(x, order=(0, rank - 1, *range(1, rank - 1)))
    return b.transpose(_pooled(b, moved, attrs, total), order=(0, *range(2, rank), 1))


def _pooled(b: Builder, x: Value, attrs: Attrs, total: Total) -> Value:
    kind = attrs.choice("pool_type", "max", (*_GLOBAL, "lp"))
    power = attrs.int("p_value", 2)
    convention = attrs.choice("pooling_convention", "valid", ("valid", "full"))
    everywhere, include_pad = attrs.bool("global_pool", False), attrs.bool("count_include_pad", True)
    # Of a global pool these three mean nothing, and may be anything.
    kernel, stride, pad = (attrs.ints(name, ()) for name in ("kernel", "stride", "pad"))
    if kind == "lp" and power not in (1, 2, 3):
        raise UnsupportedError(f"p_value={power}, expected 1, 2 or 3")
    if everywhere:
        if kind == "lp":
            return _root(b, total(b, "sum", _power(b, x, power)), power)
        return total(b, kind, x)
    window = _window(kernel, stride, pad, len(x.shape) - 2, "floor" if convention == "valid" else "ceil")
    if kind == "max":
        return b.max_pool(x, **window)
    if kind == "avg":
        return b.avg_pool(x, **window, include_pad=include_pad)
    if kind == "sum":
        return _sum_pool(b, x, window)
    return _root(b, _sum_pool(b, _power(b, x, power), window), power)


def quantized_pooled(b: Builder, x: Value, attrs: Attrs) -> Value:
    """Pooling of whole numbers, max or avg and channels first, before rounding.

    As MKL-DNN does it: where padding counts, a mean is over the whole kernel, wherever the window ends.
    """
    attrs.choice("layout", None, CHANNELS_FIRST)
    kind = attrs.choice("pool_type", "max", ("max", "avg"))
    full = attrs.choice("pooling_convention", "valid", ("valid", "full")) == "full"
    padded = attrs.bool("count_include_pad", True) and not attrs.bool("global_pool", False)
    attrs.ignore("p_value")
    if kind == "max" or not padded or not full:
        return _pooled(b, x, attrs, _total)
    kernel, stride, pad = (attrs.ints(name, ()) for name in ("kernel", "stride", "pad"))
    window = _window(kernel, stride, pad, len(x.shape) - 2, "ceil")
    return b.avg_pool(_whole(b, x, window), kernel=kernel, strides=window["strides"])


def _total(b: Builder, kind: str, x: Value) -> Value:
    return b.apply(_GLOBAL[kind], x, axes=tuple(range(2, len(x.shape))), keep_dims=True)


def _window_over_all(b: Builder, kind: str, x: Value) -> Value:
    return b.max_pool(x, kernel=x.shape[2:]) if kind == "max" else _total(b, kind, x)


def _window(kernel: tuple[int, ...], stride: tuple[int, ...], pad: tuple[int, ...], spatial: int,
            rounding: str) -> Window:
    """The attributes of an IR pool."""
    if len(kernel) != spatial:
        raise UnsupportedError(f"kernel={kernel} for {spatial} spatial axes")
    pads = per_axis(pad, spatial, 0, "pad")
    return {"kernel": kernel, "pads_begin": pads, "pads_end": pads, "rounding": rounding,
            "strides": tuple(positive(step, "stride") for step in per_axis(stride, spatial, 1, "stride"))}


def _power(b: Builder, x: Value, power: int) -> Value:
    """x^power, and not |x|^power: MXNet takes no absolute value."""
    return x if power == 1 else b.square(x) if power == 2 else b.multiply(b.square(x), x)


def _root(b: Builder, x: Value, power: int) -> Value:
    return x if power == 1 else root_or_flat(b, "sqrt" if power == 2 else "cbrt", x)


def _sum_pool(b: Builder, x: Value, window: Window) -> Value:
    """The mean of each window, over the end filled up with zeros, times the window's size."""
    kernel = window["kernel"]
    mean = b.avg_pool(_whole(b, x, window), kernel=kernel, strides=window["strides"])
    return b.multiply(mean, scalar(b, prod(kernel), x))


def _whole(b: Builder, x: Value, window: Window) -> Value:
    """x with as many zeros around it as windows need."""
    counts = pooled_sizes(x.shape[2:], window)
    rows: Sequence[tuple[int, ...]] = list(zip(counts, window["strides"], window["kernel"], x.shape[2:],
                                               window["pads_begin"], strict=True))
    if any((count - 1) * step - begin >= size for count, step, _, size, begin in rows):
        raise UnsupportedError("a window meets no data at all")
    end = (0, 0, *(max((count - 1) * step + kernel - size - begin, 0) for count, step, kernel, size, begin in rows))
    return b.pad(x, pads_begin=(0, 0, *window["pads_begin"]), pads_end=end)


@rule("Pooling_v1", operands=1)
def pooling_v1(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """The pooling of 2016, over two axes: padding is zeros for the maximum too, and a mean is over the whole kernel."""
    (x,) = inputs
    kind = attrs.choice("pool_type", "max", _GLOBAL)
    convention = attrs.choice("pooling_convention", "valid", ("valid", "full"))
    kernel, stride, pad = (attrs.ints(name, ()) for name in ("kernel", "stride", "pad"))
    if len(x.shape) != 4:
        raise UnsupportedError(f"found {x.type}, expected rank 4")
    if attrs.bool("global_pool", False):
        return _total(b, kind, x)
    window = _window(kernel, stride, pad, 2, "floor" if convention == "valid" else "ceil")
    if kind == "max":
        pads = (0, 0, *window["pads_begin"])
        inner = {**window, "pads_begin": (0, 0), "pads_end": (0, 0)}
        return b.max_pool(b.pad(x, pads_begin=pads, pads_end=pads), **inner)
    total = _sum_pool(b, x, window)
    return b.divide(total, scalar(b, prod(kernel), x)) if kind == "avg" else total
