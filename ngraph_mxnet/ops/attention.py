"""Attention as one op, which a pass makes of its parts."""

from __future__ import annotations

import math
from math import prod

import numpy as np

from ngraph_mxnet.ir.opdef import Attrs, Rates, Shapes, register_op
from ngraph_mxnet.ir.types import Bool, Float
from ngraph_mxnet.ops.common import (
    FLOAT,
    broadcast_shape,
    common_element,
    in_f32,
    require,
    require_domain,
    require_rank,
    require_shape,
)


def _work(operands: Shapes, results: Shapes, attrs: Attrs) -> Rates:
    queries, keys, values = operands[:3]
    scores = prod(queries[:-1]) * keys[-2]
    return {"simple": scores * (queries[-1] + values[-1] + 5), "transcendental": scores}


def _counts(operands: Shapes, results: Shapes, attrs: Attrs) -> tuple[int, int]:
    queries, keys = operands[:2]
    scores = prod(queries[:-1]) * keys[-2]
    return scores * (queries[-1] + results[0][-1]), scores


@register_op("attention", operands=(3, 4), attrs={"scale": Float(1.0), "fill": Float(-math.inf), "zeroed": Bool(False)},
             work=_work, counts=_counts)
def attention(types, attrs):
    """queries T[..., M, D], keys T[..., N, D], values T[..., N, E], mask -> T[..., M, E]: softmax(scores) @ values.

    Scores are `scale` times queries by keys, [..., M, N]; the mask broadcasts to them. A mask of T is added to the
    scores. Where a mask of bool is false, the score is `fill`, and with `zeroed` the weight after the softmax is 0.
    """
    queries, keys, values = types[:3]
    require_domain(types[:3], FLOAT)
    element = common_element(types[:3])
    for position, type_ in enumerate(types[:3]):
        require_rank(type_, 2, position=position)
    require_shape(keys, (*queries.shape[:-2], keys.shape[-2], queries.shape[-1]), position=1)
    require_shape(values, (*queries.shape[:-2], keys.shape[-2], values.shape[-1]), position=2)
    if len(types) > 3:
        mask, scores = types[3], (*queries.shape[:-1], keys.shape[-2])
        require(mask.element.name == "bool" or mask.element == element, "operand 3", mask, f"bool or {element}")
        fits = broadcast_shape([mask.shape, scores]) == scores
        require(fits, "operand 3", mask, f"what broadcasts to {list(scores)}")
    return queries.with_shape((*queries.shape[:-1], values.shape[-1]))


def _weights(inputs, attrs):
    """Return the weights of the softmax, before any of them is cleared."""
    queries, keys, *masks = inputs
    scores = np.matmul(queries, keys.swapaxes(-1, -2)) * queries.dtype.type(attrs["scale"])
    chosen = bool(masks) and masks[0].dtype == np.bool_
    if chosen:
        scores = np.where(masks[0], scores, scores.dtype.type(attrs["fill"]))
    elif masks:
        scores = scores + masks[0]
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True)) if scores.size else scores
    return weights / weights.sum(axis=-1, keepdims=True)


@attention.reference
@in_f32
def _(inputs, attrs):
    queries, keys, values, *masks = inputs
    weights = _weights([queries, keys, *masks], attrs)
    if masks and masks[0].dtype == np.bool_ and attrs["zeroed"]:
        weights = np.where(masks[0], weights, weights.dtype.type(0))
    return np.matmul(weights, values)


def _gradient_work(operands: Shapes, results: Shapes, attrs: Attrs) -> Rates:
    queries, keys, values = operands[:3]
    scores = prod(queries[:-1]) * keys[-2]
    return {"simple": scores * (3 * queries[-1] + 2 * values[-1] + 9), "transcendental": scores}


@register_op("attention_gradient", operands=(4, 5),
             attrs={"scale": Float(1.0), "fill": Float(-math.inf), "zeroed": Bool(False)}, work=_gradient_work)
def attention_gradient(types, attrs):
    """queries, keys, values, head T[..., M, E], mask -> of attention by queries, keys and values.

    The other operands are attention's. Nothing goes back to scores where a mask of bool is false.
    """
    queries, keys, values, head, *masks = types
    require_shape(head, attention.infer([queries, keys, values, *masks], attrs)[0].shape, position=3)
    common_element([queries, head])
    return [queries, keys, values]


@attention_gradient.reference
@in_f32
def _(inputs, attrs):
    queries, keys, values, head, *masks = (array if array.dtype == np.bool_ else array.astype(np.float64)
                                           for array in inputs)
    weights = _weights([queries, keys, *masks], attrs)
    of_weights, kept = np.matmul(head, values.swapaxes(-1, -2)), weights
    chosen = bool(masks) and masks[0].dtype == np.bool_
    if chosen and attrs["zeroed"]:
        kept, of_weights = np.where(masks[0], weights, 0.0), np.where(masks[0], of_weights, 0.0)
    of_scores = weights * (of_weights - (of_weights * weights).sum(axis=-1, keepdims=True))
    of_products = (np.where(masks[0], of_scores, 0.0) if chosen else of_scores) * attrs["scale"]
    found = (np.matmul(of_products, keys), np.matmul(of_products.swapaxes(-1, -2), queries),
             np.matmul(kept.swapaxes(-1, -2), head))
    return [array.astype(inputs[0].dtype) for array in found]
