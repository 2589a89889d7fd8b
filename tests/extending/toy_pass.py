"""A toy pass: a product with a number goes into the toy op's divisor."""

from __future__ import annotations

import toy_op  # noqa: F401  (registers the op)

from ngraph_mxnet.ir.graph import Node
from ngraph_mxnet.passes.base import Answer, RewritePass, Rewriter, uniform


def into_divisor(node: Node, rw: Rewriter) -> Answer:
    """image_to_tensor(x) * c -> image_to_tensor(x) with `largest` / c, where c is a number other than 0."""
    for tensor, factor in (node.inputs, node.inputs[::-1]):
        inner, number = rw.producer(tensor, "image_to_tensor"), uniform(rw.resolve(factor))
        if inner is None or not number or tensor.type != node.output.type:
            continue
        if not rw.single(tensor):
            return "something else reads the tensor as it is"
        largest = inner.attrs["largest"] / number
        return rw.make("image_to_tensor", inner.inputs[0], origin=(inner, node), largest=largest)
    return None


def toy_pass() -> RewritePass:
    """The pass."""
    return RewritePass("toy_pass", {"multiply": [into_divisor]})
