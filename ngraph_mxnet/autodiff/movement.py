"""Adjoints of reductions, products, and of what moves, picks or resizes elements. And the ops that have none.

Elementwise ops have their adjoints in their rows (`ops/elementwise.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np

from ngraph_mxnet.autodiff.reverse import (
    MADE_BY_PASSES,
    Adjoint,
    Expression,
    Gradients,
    Reverse,
    adjoint,
    no_derivative,
    refuse,
)
from ngraph_mxnet.ir.opdef import Function
from ngraph_mxnet.ops.common import normal_axes
from ngraph_mxnet.ops.elementwise import SCALARS
from ngraph_mxnet.ops.reduction import reduced_shape


def _of(gradients: Function) -> Adjoint:
    return lambda at: gradients(at.head, at.result, *at.operands, **at.attrs)


for _op in SCALARS.values():
    if _op.adjoint is not None:
        adjoint(_op.name)(_of(_op.adjoint))
    elif _op.rounds or _op.name == "sign":
        no_derivative("it is 0 wherever there is one", _op.name)
    elif _op.kind == "comparison" or "f" not in _op.domain:
        no_derivative("no operand or no result is a float", _op.name)
no_derivative("its operand is no float", "lookup")


@adjoint("dropout")
def _(at: Reverse) -> Gradients:
    return [at.head]


@adjoint("convert")
def _(at: Reverse) -> Gradients:
    return [at.head.to_element(at.operands[0].element) if at.head.element.is_float else None]


@adjoint("select")
def _(at: Reverse) -> Gradients:
    condition, *_ = at.operands
    return None, at.head.where(condition), at.head.where(condition.logical_not())


@adjoint("matmul")
def _(at: Reverse) -> Gradients:
    (a, b), head = at.operands, at.head
    turned_a, turned_b = at.attrs["transpose_a"], at.attrs["transpose_b"]
    if turned_a:
        of_a = b.matmul(head, transpose_a=turned_b, transpose_b=True)
    else:
        of_a = head.matmul(b, transpose_b=not turned_b)
    if b.rank == 2 < a.rank and not turned_a:  # one matrix for a batch: the sum over the batch is part of the product
        a, head = (x.reshape((prod(x.shape[:-1]), x.shape[-1])) for x in (a, head))
    if turned_b:
        of_b = head.matmul(a, transpose_a=True, transpose_b=turned_a)
    else:
        of_b = a.matmul(head, transpose_a=not turned_a)
    return of_a, of_b


no_derivative("its result is a position", "argmax", "argmin", "argsort")


def _kept(x: Expression, at: Reverse) -> Expression:
    """Something of the result's shape with the reduced axes as 1."""
    axes = normal_axes(at.attrs["axes"], at.operands[0].rank)
    return x.reshape(reduced_shape(at.operands[0].shape, axes, keep_dims=True))


@adjoint("reduce_sum")
def _(at: Reverse) -> Gradients:
    return [_kept(at.head, at).to_shape(at.operands[0].shape)]


@adjoint("reduce_mean")
def _(at: Reverse) -> Gradients:
    shape = at.operands[0].shape
    count = prod(shape[axis] for axis in normal_axes(at.attrs["axes"], len(shape)))
    return [_kept(at.head / at.head.count(count), at).to_shape(shape)]


@adjoint("reduce_prod")
def _(at: Reverse) -> Gradients:
    return [_kept(at.head, at) * (_kept(at.result, at) / at.operands[0])]  # the quotient is within the range


@adjoint("reduce_max", "reduce_min")
def _(at: Reverse) -> Gradients:
    (x,) = at.operands
    return [_kept(at.head, at).to_shape(x.shape).where(x.equals(_kept(at.result, at)))]


@adjoint("cumsum")
def _(at: Reverse) -> Gradients:
    axis = at.attrs["axis"] % at.result.rank
    return [at.head.reversed([axis]).cumsum(axis=axis).reversed([axis])]


no_derivative("it is drawn of integers", "random_mask", "random_uniform")
refuse(MADE_BY_PASSES, "scale_shift", "fused", "quantized_convolution", "quantized_matmul")
refuse("the nodes that stand for it have one: `inline_bodies` puts them in its place", "foreach", "while_loop", "cond")
refuse("no adjoint is written for it yet", "integer_convolution", "integer_matmul", "roi_align", "roi_max_pool",
       "gru_reset_first")
refuse("boxes are chosen by order; it has none in MXNet either", "box_nms")
refuse("it is a gradient itself: there are none of second order yet", "convolution_weight_gradient",
       "max_pool_gradient", "rnn_gradient", "lstm_cell_gradient", "gru_cell_gradient")
refuse("differentiation makes it of the op without training", "rnn_training", "lstm_cell_training", "gru_cell_training")


no_derivative("its bits are another number's", "bitcast")
no_derivative("it has no operand", "constant")


@adjoint("reshape")
def _(at: Reverse) -> Gradients:
    return [at.head.reshape(at.operands[0].shape)]


@adjoint("transpose")
def _(at: Reverse) -> Gradients:
    order = at.attrs["order"]
    return [at.head.transpose(sorted(range(len(order)), key=lambda axis: order[axis]))]


@adjoint("broadcast")
def _(at: Reverse) -> Gradients:
    return [at.head.summed_to(at.operands[0].shape)]


@adjoint("concat")
def _(at: Reverse) -> Gradients:
    axis, end, parts = at.attrs["axis"] % at.result.rank, 0, []
    for operand in at.operands:
        begin, end = end, end + operand.shape[axis]
        parts.append(at.head.part(axis, begin, end))
    return parts


@adjoint("slice")
def _(at: Reverse) -> Gradients:
    head, (operand,) = at.head, at.operands
    for axis, (begin, stride) in enumerate(zip(at.attrs["begin"], at.attrs["strides"], strict=True)):
        count = head.shape[axis]
        if count == 0:
            return [head.constant(0.0).to_shape(operand.shape)]
        if stride < 0:
            head, begin = head.reversed([axis]), begin + (count - 1) * stride
        head = head.spread(axis, abs(stride))
        head = head.padded(axis, begin, operand.shape[axis] - begin - head.shape[axis])
    return [head]


@adjoint("pad")
def _(at: Reverse) -> Gradients:
    head, (operand,), mode = at.head, at.operands, at.attrs["mode"]
    for axis, (before, after) in enumerate(zip(at.attrs["pads_begin"], at.attrs["pads_end"], strict=True)):
        size = operand.shape[axis]
        body, first, last = head.part(axis, before, before + size), None, None
        if mode != "constant" and before:
            first = _folded(head.part(axis, 0, before), axis, mode)
        if mode != "constant" and after:
            last = _folded(head.part(axis, before + size, before + size + after), axis, mode)
        inner = 0 if mode == "edge" else 1
        if first is not None:
            body = body + first.padded(axis, inner, size - inner - first.shape[axis])
        if last is not None:
            body = body + last.padded(axis, size - inner - last.shape[axis], inner)
        head = body
    return [head]


def _folded(rim: Expression, axis: int, mode: str) -> Expression:
    """Fold a rim's gradient onto the elements that the rim repeats: all to the nearest, or each to its mirror image."""
    return rim.sum([axis], keep=True) if mode == "edge" else rim.reversed([axis])


def _inside(indices: Expression, size: int, mode: str) -> Expression:
    """i64 in [0, size), as `gather` takes them."""
    wide = indices.convert(element="i64")
    if mode == "wrap":
        return wide.mod(float(size))
    if mode == "from_end":
        wide = wide + (wide < 0.0).convert(element="i64") * float(size)
    return wide.clamp(lower=0.0, upper=float(size - 1))


def _scattered(indices: Expression, updates: Expression, target: Expression) -> Expression:
    """Updates summed into zeros of the target's shape at coordinates [M, I]."""
    zeros = target.full(0.0)
    return zeros.apply("scatter_nd", indices, updates, reduction="add")


@adjoint("gather")
def _(at: Reverse) -> Gradients:
    data, indices = at.operands
    if not indices.size or not data.size:
        return data.full(0.0), None
    axis, count = at.attrs["axis"] % data.rank, indices.rank
    places = _inside(indices, data.shape[axis], at.attrs["mode"]).reshape((1, *indices.shape))
    first = [*range(axis, axis + count), *range(axis), *range(axis + count, at.head.rank)]
    front = [axis, *(own for own in range(data.rank) if own != axis)]
    sums = _scattered(places, at.head.transpose(first), data.transpose(front))
    return sums.transpose(sorted(range(data.rank), key=lambda own: front[own])), None


@adjoint("gather_elements")
def _(at: Reverse) -> Gradients:
    data, indices = at.operands
    if not indices.size or not data.size:
        return data.full(0.0), None
    axis = at.attrs["axis"] % data.rank
    places = [_inside(indices, data.shape[axis], at.attrs["mode"]) if own == axis else indices.places(own)
              for own in range(data.rank)]
    lines = [place.reshape((1, *indices.shape)) for place in places]
    return _scattered(lines[0].apply("concat", *lines[1:], axis=0), at.head, data), None


@adjoint("gather_nd")
def _(at: Reverse) -> Gradients:
    data, indices = at.operands
    return _scattered(indices, at.head, data), None


def _no_reduction(attrs: Mapping[str, Any]) -> str | None:
    reduction = attrs["reduction"]
    return None if reduction in ("none", "add") else f"it has no adjoint with the reduction {reduction}"


@adjoint("scatter_nd", refuses=_no_reduction)
def _(at: Reverse) -> Gradients:
    data, indices, updates = at.operands
    read = at.head.gather_nd(indices)
    if at.attrs["reduction"] == "add" or not updates.size:
        return at.head, None, read
    # Of updates of the same place the last one stays: each place gets the number of its last, and gives it back.
    count, rest = indices.shape[1:], data.shape[indices.shape[0]:]
    numbers = data.indices(np.arange(prod(count)).reshape(count))
    lines = data.indices(np.zeros(data.shape[:indices.shape[0]]))
    stays = lines.apply("scatter_nd", indices, numbers).gather_nd(indices).equals(numbers)
    kept = read.where(stays.reshape((*count, *(1 for _ in rest))))
    return at.head.apply("scatter_nd", indices, updates.full(0.0)), None, kept


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
    """Return the gradients of the data and the grid, summed over the four pixels that a place reads. The pixel gets its
    weight times the head. The place gets the slope of the weight times the head and the pixel."""
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
