"""The adjoint of attention: of the scores, the softmax and the mean that it stands for."""

from __future__ import annotations

from ngraph_mxnet.autodiff.adjoints import Gradients, Reverse, adjoint


@adjoint("attention")
def _(at: Reverse) -> Gradients:
    queries, keys, values, *masks = at.operands
    scale, chosen = at.attrs["scale"], bool(masks) and not masks[0].element.is_float
    scores = queries.matmul(keys, transpose_b=True) * scale
    if chosen:
        fill = scores.constant(at.attrs["fill"])
        scores = masks[0].apply("select", scores, fill)
    elif masks:
        scores = scores + masks[0]
    weights = scores.softmax(axis=-1)
    of_weights = at.head.matmul(values, transpose_b=True)
    kept = weights
    if chosen and at.attrs["zeroed"]:
        kept, of_weights = weights.where(masks[0]), of_weights.where(masks[0])
    weighted = of_weights * weights
    of_scores = weighted - weights * weighted.sum([-1], keep=True)
    of_products = (of_scores.where(masks[0]) if chosen else of_scores) * scale
    gradients = [of_products.matmul(keys), of_products.matmul(queries, transpose_a=True),
                 kept.matmul(at.head, transpose_a=True)]
    return [*gradients, *([None if chosen else of_scores] if masks else [])]
