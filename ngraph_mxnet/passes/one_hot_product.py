"""One-hot products: rows of zeros with a single one, times a matrix, are rows of that matrix.

Frameworks without gathers in their graphs write an embedding so: compare the numbers with 0, 1, 2, ..., convert to
floats, multiply.
"""

from __future__ import annotations

import numpy as np

from ngraph_mxnet.ir.graph import Node, Value, constant_of
from ngraph_mxnet.ir.types import i64
from ngraph_mxnet.passes.pattern import Answer, RewritePass, Rewriter


def embedding(node: Node, rw: Rewriter) -> Answer:
    """matmul(one_hot(numbers), weights) -> gather of weights between two rows of zeros, which numbers beyond get.

    The weights are taken to be finite, and known before the run, as they are copied.
    """
    hot, weights = node.inputs
    if hot.type.rank != 2 or weights.type.rank != 2 or node.attrs["transpose_a"]:
        return None
    numbers = _numbers(hot, rw)
    if numbers is None:
        return None
    if not rw.static(weights):
        return "the weights may differ with every run"
    if node.attrs["transpose_b"]:
        weights = rw.make("transpose", weights, order=(1, 0))
    border = rw.constant(np.zeros((1, weights.shape[1]), weights.type.element.numpy))
    table = rw.make("concat", border, weights, border, axis=0)
    wide = rw.make("convert", rw.reshape(numbers, (hot.shape[0],)), element=i64)
    return rw.make("gather", table, rw.make("add", wide, rw.constant(np.ones((), np.int64))), axis=0, mode="clip")


def _numbers(hot: Value, rw: Rewriter) -> Value | None:
    """The integers whose one-hot rows `hot` is: convert(equal(numbers, 0 ... K - 1)), reshaped along the way or not."""
    converted = rw.producer(hot, "convert", "reshape")
    while converted is not None and converted.op.name == "reshape":
        if converted.inputs[0].shape[-1:] != hot.shape[-1:]:
            return None
        converted = rw.producer(converted.inputs[0], "convert", "reshape")
    equal = rw.producer(converted.inputs[0], "equal") if converted is not None else None
    if equal is None or equal.output.shape[-1:] != hot.shape[-1:]:
        return None
    for numbers, line in (equal.inputs, equal.inputs[::-1]):
        places = constant_of(rw.resolve(line))
        if (places is not None and places.dtype.kind in "iu" and places.size == hot.shape[1]
                and np.array_equal(places.reshape(-1), np.arange(places.size)) and line.shape[-1] == places.size
                and numbers.shape == (*equal.output.shape[:-1], 1)):
            return numbers
    return None


def one_hot_product() -> RewritePass:
    """The pass."""
    return RewritePass("one_hot_product", {"matmul": [embedding]})
