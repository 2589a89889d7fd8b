"""Convolution and its transpose."""

from __future__ import annotations

from math import prod

from ngraph_mxnet.errors import UnsupportedError
from ngraph_mxnet.ir import Builder, Value
from ngraph_mxnet.mxnet_bridge.attrs import Attrs
from ngraph_mxnet.mxnet_bridge.rules.common import along_axis, bias_of, per_axis, positive
from ngraph_mxnet.mxnet_bridge.rules.registry import rule
from ngraph_mxnet.mxnet_bridge.symbol_json import SymbolNode

CHANNELS_FIRST = ("NCW", "NCHW", "NCDHW")

Ints = tuple[int, ...]


@rule("Convolution", "Convolution_v1", operands=(2, 3), parameters=[1, 2],
      ignored=["workspace", "cudnn_tune", "cudnn_off"])
def convolution(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """One to three spatial axes, channels first, with strides, dilation, symmetric padding, groups and bias.

    Channels last: MXNet itself raises on a CPU.
    """
    x, weight = inputs[:2]
    attrs.choice("layout", None, CHANNELS_FIRST)
    kernel = attrs.ints("kernel")
    count = len(kernel)
    filters, pads = attrs.int("num_filter"), per_axis(attrs.ints("pad", ()), count, 0, "pad")
    if weight.shape[2:] != kernel or weight.shape[:1] != (filters,):
        raise UnsupportedError(f"kernel={kernel}, num_filter={filters} do not fit the weight {weight.type}")
    out = b.convolution(
        x, weight, strides=per_axis(attrs.ints("stride", ()), count, 1, "stride"),
        dilations=per_axis(attrs.ints("dilate", ()), count, 1, "dilate"),
        pads_begin=pads, pads_end=pads, groups=attrs.int("num_group", 1),
    )
    return _with_bias(b, out, inputs, attrs.bool("no_bias", False))


def _with_bias(b: Builder, out: Value, inputs: list[Value], no_bias: bool) -> Value:
    bias = bias_of(inputs, no_bias)
    return out if bias is None else b.add(out, along_axis(b, bias, 1, len(out.shape)))


@rule("Deconvolution", operands=(2, 3), parameters=[1, 2], ignored=["workspace", "cudnn_tune", "cudnn_off"])
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
    return _with_bias(b, out, inputs, attrs.bool("no_bias", True))


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


def transposed_convolution(b: Builder, x: Value, weight: Value, *, groups: int, stride: Ints, dilate: Ints, pad: Ints,
                           adjust: Ints) -> Value:
    """A weight [C, O / groups, *K] over x [N, C, *S]: stride (S - 1) + dilate (K - 1) + 1 - 2 pad + adjust places.

    A convolution of the data with zeros between its elements and of the kernel turned round.
    """
    count, kernel = len(stride), weight.shape[2:]
    flipped = _turned(b, weight, groups)
    # What padding would have to remove is cut off behind.
    full = [step * (size - 1) for step, size in zip(dilate, kernel, strict=True)]
    begin = [reach - cut for reach, cut in zip(full, pad, strict=True)]
    end = [first + extra for first, extra in zip(begin, adjust, strict=True)]
    steps: Ints = stride
    if not _meets_kernel(kernel, stride, dilate) or count == 3:
        x, steps = _spread(b, x, stride), (1,) * count
    out = b.convolution(x, flipped, dilations=dilate, pads_begin=tuple(max(0, p) for p in begin),
                        pads_end=tuple(max(0, p) for p in end), groups=groups, data_dilations=steps)
    if min(*begin, *end) >= 0:
        return out
    first = (0, 0, *(max(0, -p) for p in begin))
    last = tuple(size - max(0, -p) for size, p in zip(out.shape, (0, 0, *end), strict=True))
    return b.slice(out, begin=first, end=last)


def _meets_kernel(kernel: Ints, stride: Ints, dilate: Ints) -> bool:
    """Whether each output meets an element of the data, so that the convolution can be cut into phases."""
    return all(len({tap * far % step for tap in range(size)}) == step
               for size, step, far in zip(kernel, stride, dilate, strict=True))


def _turned(b: Builder, weight: Value, groups: int) -> Value:
    """[C, O / groups, *K] as [O, C / groups, *K] with the kernel turned round."""
    channels, outputs, *kernel = weight.shape
    rank = len(weight.shape)
    grouped = b.reshape(weight, shape=(groups, channels // groups, outputs, *kernel))
    order = (0, 2, 1, *range(3, rank + 1))
    swapped = b.reshape(b.transpose(grouped, order=order), shape=(groups * outputs, channels // groups, *kernel))
    spatial = range(2, rank)
    return b.slice(swapped, begin=[weight.shape[i] - 1 if i in spatial else 0 for i in range(rank)],
                   end=[-1 if i in spatial else swapped.shape[i] for i in range(rank)],
                   strides=[-1 if i in spatial else 1 for i in range(rank)])


def _spread(b: Builder, x: Value, stride: Ints) -> Value:
    """x with zeros between its elements."""
    if prod(stride) == 1:
        return x
    sizes = x.shape[2:]
    apart = b.reshape(x, shape=(*x.shape[:2], *(d for size in sizes for d in (size, 1))))
    none = (0,) * (2 + 2 * len(sizes))
    wide = b.pad(apart, pads_begin=none, pads_end=(0, 0, *(d for step in stride for d in (0, step - 1))))
    whole = b.reshape(wide, shape=(*x.shape[:2], *(size * step for size, step in zip(sizes, stride, strict=True))))
    return b.slice(whole, begin=(0,) * len(x.shape),
                   end=(*x.shape[:2], *((size - 1) * step + 1 for size, step in zip(sizes, stride, strict=True))))
