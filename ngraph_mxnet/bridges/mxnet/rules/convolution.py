"""Convolution and its transpose."""

from __future__ import annotations

from math import prod

from ngraph_mxnet.bridges.mxnet.rules.common import bias_of, per_axis, positive
from ngraph_mxnet.bridges.mxnet.rules.registry import rule
from ngraph_mxnet.bridges.mxnet.symbols.attrs import Attrs
from ngraph_mxnet.bridges.mxnet.symbols.symbol_json import SymbolNode
from ngraph_mxnet.compositions.tensors import along_axis
from ngraph_mxnet.compositions.transposed_convolution import transposed_convolution
from ngraph_mxnet.errors import UnsupportedError
from ngraph_mxnet.ir import Builder, Value

CHANNELS_FIRST = ("NCW", "NCHW", "NCDHW")

Ints = tuple[int, ...]


IGNORED = ("workspace", "cudnn_tune", "cudnn_off")


@rule("Convolution", "Convolution_v1", operands=(2, 3), parameters=[1, 2], ignored=IGNORED)
def convolution(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """One to three spatial axes, channels first, with strides, dilation, symmetric padding, groups and bias.

    Channels last: MXNet itself raises on a CPU.
    """
    out = convolved(b, inputs[0], inputs[1], attrs)
    return with_bias(b, out, bias_of(inputs, attrs.bool("no_bias", False)))


def convolved(b: Builder, x: Value, weight: Value, attrs: Attrs) -> Value:
    """The sums of products that the attributes of a Convolution ask for, without its bias."""
    attrs.choice("layout", None, CHANNELS_FIRST)
    kernel = attrs.ints("kernel")
    count = len(kernel)
    filters, pads = attrs.int("num_filter"), per_axis(attrs.ints("pad", ()), count, 0, "pad")
    if weight.shape[2:] != kernel or weight.shape[:1] != (filters,):
        raise UnsupportedError(f"kernel={kernel}, num_filter={filters} do not fit the weight {weight.type}")
    return b.convolution(
        x, weight, strides=per_axis(attrs.ints("stride", ()), count, 1, "stride"),
        dilations=per_axis(attrs.ints("dilate", ()), count, 1, "dilate"),
        pads_begin=pads, pads_end=pads, groups=attrs.int("num_group", 1),
    )


def with_bias(b: Builder, out: Value, bias: Value | None) -> Value:
    """One number for each channel added."""
    return out if bias is None else b.add(out, along_axis(b, bias, 1, len(out.shape)))


@rule("Deconvolution", operands=(2, 3), parameters=[1, 2], ignored=IGNORED)
def deconvolution(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """The transpose of a convolution over one to three spatial axes, with all parameters.

    Channels last: MXNet itself raises on a CPU.
    """
    x, weight = inputs[:2]
    attrs.choice("layout", None, CHANNELS_FIRST)
    kernel, groups = attrs.ints("kernel"), attrs.int("num_group", 1)
    count = len(kernel)
    if len(x.shape) != count + 2 or weight.shape[2:] != kernel or weight.shape[0] != x.shape[1]:
        raise UnsupportedError(f"kernel={kernel} does not fit the data {x.type} and the weight {weight.type}")
    if groups < 1 or x.shape[1] % groups or weight.shape[1] * groups != attrs.int("num_filter"):
        raise UnsupportedError(f"num_group={groups} and num_filter={attrs.int('num_filter')} do not fit the weight "
                               f"{weight.type}")
    stride = tuple(positive(step, "stride") for step in per_axis(attrs.ints("stride", ()), count, 1, "stride"))
    dilate = tuple(positive(step, "dilate") for step in per_axis(attrs.ints("dilate", ()), count, 1, "dilate"))
    if count == 3 and prod(dilate) > 1:
        raise UnsupportedError(f"dilate={dilate}: MXNet takes no dilation in three dimensions")
    reach = tuple(step * (size - 1) + 1 for step, size in zip(dilate, kernel, strict=True))
    pad, adjust = _padding(attrs, x.shape[2:], stride, reach)
    out = transposed_convolution(b, x, weight, groups=groups, stride=stride, dilate=dilate, pad=pad, adjust=adjust)
    return with_bias(b, out, bias_of(inputs, attrs.bool("no_bias", True)))


def _padding(attrs: Attrs, sizes: Ints, stride: Ints, reach: Ints) -> tuple[Ints, Ints]:
    """What is cut off at each side, and what is added at the end; `target_shape` decides both if it is set.

    (DeconvolutionParam::InferPad in MXNet's src/operator/nn/deconvolution-inl.h.)
    """
    target = attrs.ints("target_shape", ())
    pad, adjust = (per_axis(attrs.ints(name, ()), len(sizes), 0, name) for name in ("pad", "adj"))
    if not any(target):
        if any(extra >= step for extra, step in zip(adjust, stride, strict=True)):
            raise UnsupportedError(f"adj={adjust} is not below stride={stride}")
        return pad, adjust
    if len(target) != len(sizes):
        raise UnsupportedError(f"target_shape={target} for {len(sizes)} spatial axes")
    pads, extras = [], []
    for size, step, span, wanted in zip(sizes, stride, reach, target, strict=True):
        surplus = step * (size - 1) + span - wanted
        if surplus < 0:
            raise UnsupportedError(f"target_shape={target} is larger than what the data reaches")
        pads.append((surplus + 1) // 2)
        extras.append(surplus % 2)
    if tuple(pads) != pad:  # there MXNet's CPU kernel raises
        raise UnsupportedError(f"target_shape={target} asks for pad={tuple(pads)}, but pad={pad}")
    return pad, tuple(extras)
