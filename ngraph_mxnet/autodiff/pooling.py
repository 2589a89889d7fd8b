"""Adjoints of pools."""

from __future__ import annotations

import numpy as np

from ngraph_mxnet.autodiff.adjoints import Gradients, Reverse, adjoint
from ngraph_mxnet.autodiff.expression import Expression
from ngraph_mxnet.compositions.tensors import iota
from ngraph_mxnet.ir.sizes import greatest, is_symbolic
from ngraph_mxnet.ops.convolution import dilated_size
from ngraph_mxnet.ops.pooling import divisors


@adjoint("max_pool")
def _(at: Reverse) -> Gradients:
    (data,) = at.operands
    return [data.to_element(at.head.element).apply("max_pool_gradient", at.head, **at.attrs)]


@adjoint("avg_pool")
def _(at: Reverse) -> Gradients:
    """The head's shares, each spread over its window: a convolution of every channel by itself with ones."""
    (data,), kernel = at.operands, at.attrs["kernel"]
    share = at.head * _shares(at)
    channels, end = data.shape[1], []
    for axis, taps in enumerate(kernel):
        spread = dilated_size(share.shape[2 + axis], at.attrs["strides"][axis])
        # Places of the data, less what the windows reach from its first on; they may reach beyond its last.
        end.append(data.shape[2 + axis] + at.attrs["pads_begin"][axis] - spread)
        assert taps > at.attrs["pads_begin"][axis]
    ones = data.constant(np.ones((channels, 1, *kernel)))
    whole = share.apply("convolution", ones, groups=channels, data_dilations=at.attrs["strides"],
                        pads_begin=[taps - 1 - pad for taps, pad in zip(kernel, at.attrs["pads_begin"], strict=True)],
                        pads_end=[greatest(size, 0) for size in end])
    for axis, size in enumerate(data.shape[2:], 2):
        whole = whole.part(axis, 0, size)
    return [whole]


def _shares(at: Reverse) -> Expression:
    """1 over the `divisors`, which are computed where sizes are symbols."""
    sizes, attrs, head = at.operands[0].shape[2:], at.attrs, at.head
    if not any(map(is_symbolic, sizes)):
        return head.constant(1 / divisors(sizes, attrs))
    found = head.constant(1.0)
    for axis, size in enumerate(sizes):
        number = Expression(at.builder, iota(at.builder, head.shape[2 + axis], axis, len(sizes), head.element.name))
        start = number * attrs["strides"][axis] - attrs["pads_begin"][axis]
        stop = (start + attrs["kernel"][axis]).minimum(head.count(size + attrs["pads_end"][axis]))
        if not attrs["include_pad"]:
            start, stop = start.maximum(0.0), stop.minimum(head.count(size))
        found = found * (stop - start)
    return 1.0 / found
