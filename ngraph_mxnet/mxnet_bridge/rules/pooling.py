"""Pooling and nearest upsampling."""

from __future__ import annotations

from math import prod

from ngraph_mxnet.errors import UnsupportedError
from ngraph_mxnet.ir import Builder, Value
from ngraph_mxnet.mxnet_bridge.attrs import Attrs
from ngraph_mxnet.mxnet_bridge.rules.common import image_shape, per_axis, positive, scalar
from ngraph_mxnet.mxnet_bridge.rules.convolution import CHANNELS_FIRST
from ngraph_mxnet.mxnet_bridge.rules.registry import rule
from ngraph_mxnet.mxnet_bridge.symbol_json import SymbolNode
from ngraph_mxnet.ops.pooling import pooled_sizes

# MXNet's pool types over everything.
_GLOBAL = {"max": "reduce_max", "avg": "reduce_mean", "sum": "reduce_sum"}


@rule("Pooling", "Pooling_v1", operands=1, ignored=["cudnn_off", "p_value"])
def pooling(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """max, avg and sum over one to three spatial axes, channels first; `valid` and `full`; global.

    Stay with MXNet: lp pooling, the `same` convention, channels last, and a `full` pool with a window that
    meets no data at all (MXNet gives the lowest float or 0 there).
    """
    (x,) = inputs
    attrs.choice("layout", None, CHANNELS_FIRST)
    kind = attrs.choice("pool_type", "max", _GLOBAL)
    spatial = len(x.shape) - 2
    everywhere = attrs.bool("global_pool", False)
    # A global pool has a kernel, strides and padding that say nothing.
    kernel = attrs.ints("kernel", ())
    stride, pad = attrs.ints("stride", ()), attrs.ints("pad", ())
    convention = attrs.choice("pooling_convention", "valid", ("valid", "full", "same"))
    include_pad = attrs.bool("count_include_pad", True)
    if everywhere:
        return b.apply(_GLOBAL[kind], x, axes=tuple(range(2, 2 + spatial)), keep_dims=True)
    if convention == "same":
        raise UnsupportedError("pooling_convention=same is not supported; supported: valid, full")
    if len(kernel) != spatial:
        raise UnsupportedError(f"kernel={kernel} for {spatial} spatial axes")
    strides = tuple(positive(step, "stride") for step in per_axis(stride, spatial, 1, "stride"))
    window = {
        "kernel": kernel, "strides": strides,
        "pads_begin": per_axis(pad, spatial, 0, "pad"), "pads_end": per_axis(pad, spatial, 0, "pad"),
        "rounding": "floor" if convention == "valid" else "ceil",
    }
    if kind == "max":
        return b.max_pool(x, **window)
    if kind == "avg":
        return b.avg_pool(x, **window, include_pad=include_pad)
    return _sum_pool(b, x, window)


def _sum_pool(b: Builder, x: Value, window: dict) -> Value:
    """The mean over windows made whole by zeros, times their size."""
    begin = (0, 0, *window["pads_begin"])
    kernel, strides, counts = window["kernel"], window["strides"], pooled_sizes(x.shape[2:], window)
    rows = zip(counts, strides, kernel, x.shape[2:], window["pads_begin"], strict=True)
    end = (0, 0, *(max((n - 1) * s + k - size - p, 0) for n, s, k, size, p in rows))
    mean = b.avg_pool(b.pad(x, pads_begin=begin, pads_end=end), kernel=kernel, strides=strides)
    return b.multiply(mean, scalar(b, prod(kernel), x))


@rule("UpSampling", operands=(1, 2), ignored=["workspace", "num_filter", "multi_input_mode"])
def upsampling(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """Nearest, of one input; bilinear stays with MXNet."""
    attrs.choice("sample_type", "nearest", ("nearest",))
    if attrs.int("num_args", 1) != 1:
        raise UnsupportedError("more than one input")
    scale = positive(attrs.int("scale"), "scale")
    x = inputs[0]
    n, c, h, w = image_shape(x)
    wide = b.broadcast(b.reshape(x, shape=(n, c, h, 1, w, 1)), shape=(n, c, h, scale, w, scale))
    return b.reshape(wide, shape=(n, c, h * scale, w * scale))
