"""Convolution and its transpose."""

from __future__ import annotations

from ngraph_mxnet.bridges.onnx.rules.common import Ints, window
from ngraph_mxnet.bridges.onnx.rules.registry import Call, rule
from ngraph_mxnet.compositions.tensors import along_axis
from ngraph_mxnet.compositions.transposed_convolution import transposed_convolution
from ngraph_mxnet.errors import ModelError, UnsupportedError
from ngraph_mxnet.ir import Builder, Value


def _window_attrs(call: Call, count: int, weight: Value) -> tuple[Ints, Ints, Ints]:
    """Kernel, strides and dilations."""
    kernel = call.attrs.ints("kernel_shape", tuple(weight.shape[2:]))
    if kernel != weight.shape[2:]:
        raise ModelError(f"kernel_shape={kernel} does not fit the weight {weight.type}")
    return kernel, call.attrs.ints("strides", (1,) * count), call.attrs.ints("dilations", (1,) * count)


def with_bias(b: Builder, out: Value, bias: Value | None) -> Value:
    return out if bias is None else b.add(out, along_axis(b, bias, 1, out.type.rank))


@rule("Conv")
def convolution(b: Builder, call: Call) -> Value:
    """One to three spatial axes."""
    x, weight = call.input(0), call.input(1)
    kernel, strides, dilations = _window_attrs(call, x.type.rank - 2, weight)
    begins, ends = window(call, x.shape[2:], kernel, strides=strides, dilations=dilations)
    out = b.convolution(x, weight, strides=strides, dilations=dilations, pads_begin=begins, pads_end=ends,
                        groups=call.attrs.int("group", 1))
    return with_bias(b, out, call.optional(2))


@rule("ConvTranspose")
def convolution_transpose(b: Builder, call: Call) -> Value:
    """One to three spatial axes; `output_shape` decides the padding where it is given."""
    x, weight = call.input(0), call.input(1)
    count, sizes = x.type.rank - 2, x.shape[2:]
    kernel, strides, dilations = _window_attrs(call, count, weight)
    groups = call.attrs.int("group", 1)
    extra = call.attrs.ints("output_padding", (0,) * count)
    wanted = call.attrs.ints("output_shape", None)
    mode = call.attrs.string("auto_pad", "NOTSET")
    whole = tuple(step * (size - 1) + far * (span - 1) + 1 + more for step, size, far, span, more in
                  zip(strides, sizes, dilations, kernel, extra, strict=True))
    if wanted is None and mode in ("SAME_UPPER", "SAME_LOWER"):
        wanted = tuple(size * step for size, step in zip(sizes, strides, strict=True))
    if wanted is not None:
        call.attrs.ignore("pads")
        wanted = wanted[-count:]
        if any(size > most for size, most in zip(wanted, whole, strict=True)):
            extra = tuple(more + max(size - most, 0) for more, size, most in zip(extra, wanted, whole, strict=True))
            whole = tuple(max(pair) for pair in zip(wanted, whole, strict=True))
        cut = [most - size for most, size in zip(whole, wanted, strict=True)]
        begins = tuple(c // 2 if mode == "SAME_UPPER" else c - c // 2 for c in cut)
        ends = tuple(c - begin for c, begin in zip(cut, begins, strict=True))
    else:
        begins, ends = window(call, sizes, kernel, strides=strides, dilations=dilations)
    if x.shape[1] != weight.shape[0] or groups < 1 or x.shape[1] % groups:
        raise ModelError(f"group={groups}: the weight {weight.type} does not fit the data {x.type}")
    if count > 3:
        raise UnsupportedError(f"{count} spatial axes; supported: 1 to 3")
    # `pad` cuts as much off the end as off the beginning: `adjust` corrects it where `ends` differ.
    adjust = tuple(more + begin - end for more, begin, end in zip(extra, begins, ends, strict=True))
    out = transposed_convolution(b, x, weight, groups=groups, stride=strides, dilate=dilations, pad=begins,
                                 adjust=adjust)
    return with_bias(b, out, call.optional(2))
