"""Adjoints of convolution: by data a convolution with turned weights, by weights an op of its own."""

from __future__ import annotations

from ngraph_mxnet.autodiff.adjoints import Gradients, Reverse, adjoint
from ngraph_mxnet.autodiff.expression import Expression
from ngraph_mxnet.ops.convolution import dilated_size


@adjoint("convolution")
def _(at: Reverse) -> Gradients:
    data, weights = at.operands
    attrs = at.attrs
    by_weights = data.apply("convolution_weight_gradient", at.head, **attrs, kernel=weights.shape[2:])
    return _by_data(data, weights, at), by_weights


def _by_data(data: Expression, weights: Expression, at: Reverse) -> Expression:
    """The convolution of the head gradient, spread by the strides, with the weights turned about.

    Data place i meets tap k of result r where i * data_dilation = r * stride + k * dilation - pad. So the result is
    read at i with strides of data_dilation, and padded by what the kernel reaches beyond `pad`.
    """
    attrs, groups, kernel = at.attrs, at.attrs["groups"], weights.shape[2:]
    outputs, channels = weights.shape[0] // groups, weights.shape[1]
    spatial = range(len(kernel))
    turned = weights.reshape((groups, outputs, channels, *kernel))
    turned = turned.transpose((0, 2, 1, *(3 + axis for axis in spatial)))
    turned = turned.reshape((groups * channels, outputs, *kernel)).reversed([2 + axis for axis in spatial])
    before, after, head = [], [], at.head
    for axis in spatial:
        reach, pad = attrs["dilations"][axis] * (kernel[axis] - 1), attrs["pads_begin"][axis]
        places = dilated_size(data.shape[2 + axis], attrs["data_dilations"][axis])
        spread = dilated_size(head.shape[2 + axis], attrs["strides"][axis])
        before.append(reach - pad)
        after.append(places + pad - spread)
    plain = all(step == 1 for step in (*attrs["dilations"], *attrs["data_dilations"]))
    # A negative pad cuts away results that no data meets: of the spread head, which may end between its elements.
    if min(before + after) < 0 or not plain:
        for axis in spatial:
            head = head.spread(2 + axis, attrs["strides"][axis])
            head = head.part(2 + axis, max(-before[axis], 0), head.shape[2 + axis] - max(-after[axis], 0))
        strides = (1,) * len(kernel)
    else:
        strides = attrs["strides"]
    return head.apply(
        "convolution", turned, strides=attrs["data_dilations"], dilations=attrs["dilations"], groups=groups,
        pads_begin=[max(pad, 0) for pad in before], pads_end=[max(pad, 0) for pad in after], data_dilations=strides)
