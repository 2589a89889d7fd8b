"""Adjoints of ops that read images between their pixels.

Of a grid's places MXNet takes the derivative within the pixels that a place reads
(src/operator/bilinear_sampler.cc): to the right and below of a pixel's centre.
"""

from __future__ import annotations

import numpy as np

from ngraph_mxnet.autodiff.adjoints import Gradients, Reverse, adjoint
from ngraph_mxnet.autodiff.expression import Expression


@adjoint("resize", "adaptive_avg_pool")
def _(at: Reverse) -> Gradients:
    (data,) = at.operands
    return [at.head.apply(f"{at.node.op.name}_gradient", **{**at.attrs, "sizes": data.shape[2:]})]


@adjoint("resize_gradient", "adaptive_avg_pool_gradient")
def _(at: Reverse) -> Gradients:
    (head,) = at.operands
    return [at.head.apply(at.node.op.name.removesuffix("_gradient"), **{**at.attrs, "sizes": head.shape[2:]})]


@adjoint("bilinear_sample")
def _(at: Reverse) -> Gradients:
    """Of each of the four pixels that a place reads: its weight times the head to the pixel; the slope of its weight
    times the head and the pixel to the place."""
    data, grid = at.operands
    batch, _, height, width = data.shape
    places = at.head.shape[2:]
    if not data.size or not at.head.size:
        return data.full(0.0), grid.full(0.0)
    x, y = ((grid.part(1, axis, axis + 1).reshape((batch, *places)) + 1.0) * ((size - 1) / 2)
            for axis, size in ((0, width), (1, height)))
    left, top = x.floor(), y.floor()
    images = data.indices(np.arange(batch).reshape(1, batch, 1, 1)).to_shape((1, batch, *places))
    pixels, head = data.transpose((0, 2, 3, 1)), at.head.transpose((0, 2, 3, 1))
    by_pixels, by_x, by_y = pixels.full(0.0), x.full(0.0), x.full(0.0)
    for row, column in ((0, 0), (0, 1), (1, 0), (1, 1)):
        i, j = top + float(row), left + float(column)
        inside = (i >= 0.0) & (i < float(height)) & (j >= 0.0) & (j < float(width))
        along_y, along_x = 1.0 - (y - i).abs(), 1.0 - (x - j).abs()
        # Not of a place outside, which may be NaN, or no integer may hold it.
        lines = [index.where(inside).to_element(images.element).reshape((1, batch, *places)) for index in (i, j)]
        indices = images.apply("concat", *lines, axis=0)
        weight = (along_y * along_x).where(inside).reshape((batch, *places, 1))
        by_pixels = by_pixels.scatter_nd(indices, head * weight, reduction="add")
        value = (head * pixels.gather_nd(indices)).sum([3]).where(inside)
        by_x, by_y = by_x + _signed(value * along_y, column), by_y + _signed(value * along_x, row)
    of_places = [(slope * ((size - 1) / 2)).reshape((batch, 1, *places))
                 for slope, size in ((by_x, width), (by_y, height))]
    return by_pixels.transpose((0, 3, 1, 2)), of_places[0].apply("concat", of_places[1], axis=1)


def _signed(slope: Expression, further: int) -> Expression:
    """The weight of the further pixel grows, that of the nearer one falls."""
    return slope if further else -slope
