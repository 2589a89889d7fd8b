"""Updates that are summed into zeros: gradients of what was read by position, such as a loss of each row's label.

A tensor of zeros with a few sums in it is as large as what was read. It is not made where its sums along axes are
wanted, or where it is added to another tensor.
"""

from __future__ import annotations

import numpy as np

from ngraph_mxnet.ir.graph import Node, Value
from ngraph_mxnet.passes.pattern import Answer, RewritePass, Rewriter, uniform


def _scattered(value: Value, rw: Rewriter) -> Node | None:
    """The scatter_nd that sums updates into zeros, if one does."""
    node = rw.producer(value, "scatter_nd")
    if node is None or node.attrs["reduction"] != "add" or not value.type.element.is_float:
        return None
    base = rw.resolve(node.inputs[0])
    spread = rw.producer(base, "broadcast")
    number = uniform(rw.resolve(spread.inputs[0] if spread is not None else base))
    return node if number is not None and number == 0 else None


def total(node: Node, rw: Rewriter) -> Answer:
    """reduce_sum(scatter_nd(0, indices, updates)) -> scatter_nd(smaller 0, fewer indices, updates), where sums are
    along axes that the indices are of."""
    scatter = _scattered(node.inputs[0], rw)
    if scatter is None:
        return None
    zeros, indices, updates = scatter.inputs
    axes, indexed = {axis % zeros.type.rank for axis in node.attrs["axes"]}, indices.shape[0]
    kept = [axis for axis in range(indexed) if axis not in axes]
    if not axes or max(axes) >= indexed or not kept:
        return None
    shape = [size for axis, size in enumerate(zeros.shape) if axis not in axes]
    parts = [rw.make("slice", indices, begin=(axis, *[0] * (indices.type.rank - 1)), end=(axis + 1, *indices.shape[1:]))
             for axis in kept]
    lines = rw.make("concat", *parts, axis=0) if len(parts) > 1 else parts[0]
    sums = rw.make("scatter_nd", rw.make("broadcast", rw.constant(np.zeros((), zeros.type.element.numpy)), shape=shape),
                   lines, updates, reduction="add")
    return rw.reshape(sums, node.output.shape)


def added(node: Node, rw: Rewriter) -> Answer:
    """scatter_nd(0, indices, updates) + x -> scatter_nd(x, indices, updates)."""
    for one, other in (node.inputs, node.inputs[::-1]):
        scatter = _scattered(one, rw)
        if scatter is not None and rw.single(one) and other.type == node.output.type and one.type == other.type:
            return rw.make("scatter_nd", other, *scatter.inputs[1:], reduction="add")
    return None


def subtracted(node: Node, rw: Rewriter) -> Answer:
    """scatter_nd(0, indices, updates) - x -> scatter_nd(-x, indices, updates), and of a product the smaller factor is
    negated."""
    one, other = node.inputs
    scatter = _scattered(one, rw)
    if scatter is None or not rw.single(one) or other.type != node.output.type or one.type != other.type:
        return None
    product = rw.producer(other, "multiply")
    if product is not None and rw.single(other):
        large, small = sorted(product.inputs, key=lambda factor: -factor.type.size)
        negated = rw.make("multiply", large, rw.make("negative", small))
    else:
        negated = rw.make("negative", other)
    return rw.make("scatter_nd", negated, *scatter.inputs[1:], reduction="add")


def scattered() -> RewritePass:
    """The pass."""
    return RewritePass("scattered", {"reduce_sum": [total], "add": [added], "subtract": [subtracted]})
