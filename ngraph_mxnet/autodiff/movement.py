"""Adjoints of ops that move elements: what goes to a place comes back from there."""

from __future__ import annotations

from ngraph_mxnet.autodiff.adjoints import Gradients, Reverse, adjoint, no_derivative
from ngraph_mxnet.autodiff.expression import Expression

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
    """What a rim gives back to the elements that it repeats: all to the nearest, or to each its mirror image."""
    return rim.sum([axis], keep=True) if mode == "edge" else rim.reversed([axis])
