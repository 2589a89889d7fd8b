"""The adjoint of attention."""

from __future__ import annotations

from ngraph_mxnet.autodiff.adjoints import Gradients, Reverse, adjoint, refuse

refuse("it is a gradient itself: there are none of second order yet", "attention_gradient")


@adjoint("attention")
def _(at: Reverse) -> Gradients:
    queries, keys, values, *masks = at.operands
    if masks and masks[0].element.is_float:
        return _with_added_mask(at)
    found = queries.nodes("attention_gradient", keys, values, at.head, *masks, **at.attrs)
    return [*found, *(None for _ in masks)]


def _with_added_mask(at: Reverse) -> Gradients:
    """Of the scores, the softmax and the mean that it stands for: the mask's gradient is the scores'."""
    queries, keys, values, mask = at.operands
    weights = (queries.matmul(keys, transpose_b=True) * at.attrs["scale"] + mask).softmax(axis=-1)
    weighted = at.head.matmul(values, transpose_b=True) * weights
    of_scores = weighted - weights * weighted.sum([-1], keep=True)
    of_products = of_scores * at.attrs["scale"]
    return [of_products.matmul(keys), of_products.matmul(queries, transpose_a=True),
            weights.matmul(at.head, transpose_a=True), of_scores]
