"""Convolution over one to three spatial axes, matrix products with their epilogues, attention, and `scale_shift`.

A contraction is a sum of products. Its epilogue is what passes make of the ops behind it: a bias for each output
channel, a residual of the result's shape, a clamp to [lower, upper], which stands for the activation (relu is lower=0),
then a second result, which is the first one times a scale plus a shift, clamped to [lower2, upper2]. All of these are
optional. An f16 reference is computed in f32 throughout and cast back once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

import numpy as np

from ngraph_mxnet.ir.opdef import FORMER, Attrs, Rates, Shapes, Work, by_result, register_op
from ngraph_mxnet.ir.sizes import cached, greatest, least
from ngraph_mxnet.ir.types import Attribute, Bool, Float, Int, Ints, PerAxis, Shape, TensorType
from ngraph_mxnet.ops.common import (
    CLAMP,
    EXACT,
    FLOAT,
    NUMBER,
    Arrays,
    Types,
    along_axis,
    broadcast_shape,
    clamp_array,
    common_element,
    in_f32,
    require,
    require_clamp,
    require_domain,
    require_per_axis,
    require_rank,
    require_shape,
)
from ngraph_mxnet.ops.reduction import require_channel_vectors

_GEOMETRY: dict[str, Attribute] = {
    "strides": PerAxis(fill=1, skip=2),
    "dilations": PerAxis(fill=1, skip=2),
    "pads_begin": PerAxis(fill=0, skip=2),
    "pads_end": PerAxis(fill=0, skip=2),
    "groups": Int(1),
    "data_dilations": PerAxis(fill=1, skip=2),
}
CONVOLUTION_ATTRS: dict[str, Attribute] = {**_GEOMETRY, **EXACT}
EPILOGUE = ("bias", "residual", "scale", "shift")
SECOND_CLAMP: dict[str, Attribute] = {"lower2": Float(-math.inf), "upper2": Float(math.inf)}
_OPERATIONS = {"bias": 3, "factor": 1, "residual": 1, "scale": 3}
"""Of an epilogue for each element of the result, by operand: bias and scale bring their clamps."""
FORMER.update(dict.fromkeys(("convolution_bias", "convolution_bias_add", "convolution_bias_add_scale_shift"),
                            "convolution"), matmul_bias="matmul")


def epilogue_types(names: Sequence[str], result: TensorType, types: Types, attrs: Attrs, axis: int) -> list[TensorType]:
    """The types of a contraction's results. `names`: its epilogue; `result`: the sums' type; `axis`: of channels."""
    given = dict(zip(names, types[2:], strict=False))
    require_clamp(attrs)
    if given or (attrs["lower"], attrs["upper"]) != (-math.inf, math.inf):
        require(result.element.is_float, "operand 0", types[0], "f16, f32 or f64, which alone have an epilogue")
        require("bias" in given, "bounds", f"{attrs['lower']} and {attrs['upper']}", "none without a bias")
    for position, (name, type_) in enumerate(given.items(), 2):
        require_shape(type_, result.shape if name == "residual" else (result.shape[axis],), position=position)
    require(("scale" in given) is ("shift" in given), "operands", ", ".join(given), "scale and shift, or neither")
    if "scale" not in given:
        return [result]
    require_clamp(attrs, "lower2", "upper2")
    return [result, result]


def finished(names: Sequence[str], sums: np.ndarray, inputs: Arrays, attrs: Attrs, axis: int) -> list[np.ndarray]:
    """The reference of an epilogue. See `epilogue_types` for the arguments.

    With a factor, sums are of integers, exact in float64. They are rounded to float32 with their bias, and once more
    with factor and addend.
    """
    given = dict(zip(names, inputs[2:], strict=False))
    vectors = {name: along_axis(array, axis, sums.ndim) for name, array in given.items() if name != "residual"}
    total = sums + vectors["bias"] if given else sums
    if "factor" in given:
        factor, addend = (vectors[name].astype(np.float64) for name in ("factor", "addend"))
        total = (total.astype(np.float32).astype(np.float64) * factor + addend).astype(np.float32)
    if "residual" in given:
        total = total + given["residual"]
    total = clamp_array(total, attrs["lower"], attrs["upper"])
    if "scale" not in given:
        return [total]
    return [total, clamp_array(total * vectors["scale"] + vectors["shift"], attrs["lower2"], attrs["upper2"])]


def convolution_type(types: Types, attrs: Attrs) -> TensorType:
    """The type of the convolution of operands 0 and 1."""
    data, weights = types[:2]
    require_domain(types, NUMBER)
    common_element(types)
    require_rank(data, 3, 5)
    require_rank(weights, data.rank, data.rank, position=1)
    return data.with_shape(convolution_shape(data.shape, weights.shape, *(attrs[name] for name in _GEOMETRY)))


@cached(1024)  # passes make the same convolution with other operands over and over
def convolution_shape(data: Shape, weights: Shape, *values: Any) -> Shape:
    """The result's shape for operands of these shapes; `values` are in the order of `_GEOMETRY`."""
    attrs = dict(zip(_GEOMETRY, values, strict=True))
    spatial, groups = len(data) - 2, attrs["groups"]
    positive = ("strides", "dilations", "data_dilations")
    for name, lowest in (*((name, 1) for name in positive), ("pads_begin", 0), ("pads_end", 0)):
        require_per_axis(name, attrs[name], spatial, lowest)
    channels, outputs = data[1], weights[0]
    require(groups >= 1 and channels % groups == 0 and outputs % groups == 0, "groups", groups,
            f"a divisor of the channels {channels} and {outputs}")
    require(weights[1] == channels // groups, "channels of operand 1", weights[1], channels // groups)
    result = []
    for axis in range(spatial):
        size = dilated_size(data[2 + axis], attrs["data_dilations"][axis])
        kernel = weights[2 + axis]
        reach = attrs["dilations"][axis] * (kernel - 1) + 1
        padded = size + attrs["pads_begin"][axis] + attrs["pads_end"][axis]
        require(kernel >= 1 and reach <= padded, f"kernel on spatial axis {axis}", f"{kernel}, dilated {reach}",
                f"1 to the padded size {padded}")
        result.append((padded - reach) // attrs["strides"][axis] + 1)
    return (data[0], outputs, *result)


def dilated_size(size: int, dilation: int) -> int:
    """Places that `size` elements take with `dilation - 1` zeros between neighbours."""
    return size if dilation == 1 else greatest(size - 1, 0) * dilation + least(size, 1)


def _dilated(data: np.ndarray, dilations: Sequence[int]) -> np.ndarray:
    """`data` with zeros between neighbours on the spatial axes."""
    sizes = [dilated_size(size, step) for size, step in zip(data.shape[2:], dilations, strict=True)]
    wide = np.zeros((*data.shape[:2], *sizes), data.dtype)
    places: Any = (..., *(slice(None, None, step) for step in dilations))
    wide[places] = data
    return wide


def convolution_array(inputs: Arrays, attrs: Attrs) -> np.ndarray:
    """The reference of `convolution` on wide operands: a matrix product for each of the kernel's taps."""
    data, weights = inputs[:2]
    kernel, groups = weights.shape[2:], attrs["groups"]
    batch, outputs, channels = data.shape[0], weights.shape[0], data.shape[1] // groups
    sizes = convolution_shape(data.shape, weights.shape, *(attrs[name] for name in _GEOMETRY))[2:]
    grouped = weights.reshape(groups, outputs // groups, channels, *kernel)
    total = np.zeros((batch, groups, outputs // groups, prod(sizes)), data.dtype)
    for tap, met in _met(data, kernel, sizes, attrs):
        matrix: Any = (..., *tap)
        total += np.matmul(grouped[matrix], met.reshape(batch, groups, channels, total.shape[-1]))
    return total.reshape(batch, outputs, *sizes)


def _met(data: np.ndarray, kernel: Shape, sizes: Shape, attrs: Attrs) -> Iterator[tuple[Shape, np.ndarray]]:
    """Each tap of the kernel, and the data that it meets at the result's places: [N, C, *sizes]."""
    data = _dilated(data, attrs["data_dilations"])
    padded = np.pad(data, [(0, 0), (0, 0), *zip(attrs["pads_begin"], attrs["pads_end"], strict=True)])
    steps = list(zip(attrs["strides"], attrs["dilations"], sizes, strict=True))
    for tap in np.ndindex(*kernel):
        window: Any = (..., *(slice(t * d, t * d + (size - 1) * s + 1, s)
                              for t, (s, d, size) in zip(tap, steps, strict=True)))
        yield tap, padded[window]


def convolution_work(epilogue: Sequence[str] = ()) -> Work:
    """A multiply-add counts once; the operations of the epilogue follow for each element."""
    return lambda operands, results, attrs: {
        "simple": prod(results[0]) * (prod(operands[1][1:]) + _extra(epilogue, operands))}


def _extra(epilogue: Sequence[str], operands: Shapes) -> int:
    return sum(_OPERATIONS.get(name, 0) for name, _ in zip(epilogue, operands[2:], strict=False))


@register_op("convolution", operands=(2, 6), attrs={**CONVOLUTION_ATTRS, **CLAMP, **SECOND_CLAMP}, kind="convolution",
             work=convolution_work(EPILOGUE), epilogue=EPILOGUE)
def convolution(types, attrs):
    """T[N, C, *S], T[O, C/groups, *K] -> T[N, O, *R], one to three spatial axes.

    S' = data_dilations (S - 1) + 1 are the places of the data with zeros between its elements: with `data_dilations`
    a convolution is the transpose of one with such strides (a "deconvolution").
    R = floor((S' + pads_begin + pads_end - dilations (K - 1) - 1) / strides) + 1.
    out[n, o, r] = sum over c, k of data[n, c', r * strides + k * dilations - pads_begin] * weights[o, c, k],
    where data is 0 outside and c' is channel c of the group of o. This is the cross-correlation that MXNet
    and ONNX call convolution.

    The epilogue: clamp(out + bias[O] + residual T[N, O, *R]); with scale[O] and shift[O] a second result,
    clamp2(that * scale + shift), where clamp2 is to [lower2, upper2].
    """
    return epilogue_types(EPILOGUE, convolution_type(types, attrs), types, attrs, 1)


@convolution.reference
@in_f32
def _(inputs, attrs):
    return finished(EPILOGUE, convolution_array(inputs, attrs), inputs, attrs, 1)


def _weight_gradient_work(operands: Shapes, results: Shapes, attrs: Attrs) -> Rates:
    return {"simple": prod(operands[1]) * prod(results[0][1:])}


@register_op("convolution_weight_gradient", operands=2, attrs={**CONVOLUTION_ATTRS, "kernel": Ints()},
             work=_weight_gradient_work)
def convolution_weight_gradient(types, attrs):
    """data T[N, C, *S], head T[N, O, *R] -> T[O, C/groups, *K]: of a convolution's result, by its weights.

    K is `kernel`, the other attributes are the convolution's: out[o, c, k] is the sum over n, r of head[n, o, r] times
    the data that tap k meets at r.
    """
    data, head = types
    require_rank(data, 3, 5)
    require_per_axis("kernel", attrs["kernel"], data.rank - 2, 1)
    require_rank(head, data.rank, data.rank, position=1)
    groups = attrs["groups"]
    require(groups >= 1 and data.shape[1] % groups == 0, "groups", groups, f"a divisor of {data.shape[1]} channels")
    weights = data.with_shape((head.shape[1], data.shape[1] // groups, *attrs["kernel"]))
    require_shape(head, convolution_type([data, weights], attrs).shape, position=1)
    common_element(types)
    require_domain(types, FLOAT)
    return weights


@convolution_weight_gradient.reference
@in_f32
def _(inputs, attrs):
    data, head = inputs
    groups, kernel, (batch, outputs, *sizes) = attrs["groups"], attrs["kernel"], head.shape
    shape = batch, groups, -1, prod(sizes)
    result = np.zeros((groups, outputs // groups, data.shape[1] // groups, *kernel), data.dtype)
    if head.size and data.size:
        for tap, met in _met(data, kernel, tuple(sizes), attrs):
            matrix: Any = (..., *tap)
            result[matrix] = np.matmul(head.reshape(shape), met.reshape(shape).swapaxes(-1, -2)).sum(axis=0)
    return result.reshape(outputs, data.shape[1] // groups, *kernel)


MATMUL_ATTRS: dict[str, Attribute] = {"transpose_a": Bool(False), "transpose_b": Bool(False), **EXACT}


def matmul_type(types: Types, attrs: Attrs) -> TensorType:
    """The type of the product of operands 0 and 1."""
    a, b = types[:2]
    require_domain(types, NUMBER)
    common_element(types)
    require_rank(a, 2, position=0)
    require_rank(b, 2, position=1)
    rows, inner = _matrix(a.shape, attrs["transpose_a"])
    inner_b, columns = _matrix(b.shape, attrs["transpose_b"])
    require(inner == inner_b, "inner dimensions", f"{inner} and {inner_b}", "equal ones")
    return a.with_shape((*broadcast_shape([a.shape[:-2], b.shape[:-2]]), rows, columns))


def _matrix(shape: Shape, transposed: bool) -> Shape:
    return (shape[-1], shape[-2]) if transposed else shape[-2:]


def matmul_array(inputs: Arrays, attrs: Attrs) -> np.ndarray:
    """The reference of `matmul` on wide operands."""
    a, b = inputs[:2]
    a = a.swapaxes(-1, -2) if attrs["transpose_a"] else a
    b = b.swapaxes(-1, -2) if attrs["transpose_b"] else b
    return np.matmul(a, b)


def matmul_work(epilogue: Sequence[str] = ()) -> Work:
    """A multiply-add counts once; the operations of the epilogue follow for each element."""

    def work(operands: Shapes, results: Shapes, attrs: Attrs) -> Rates:
        inner = operands[0][-2 if attrs.get("transpose_a") else -1]
        return {"simple": prod(results[0]) * (inner + _extra(epilogue, operands))}

    return work


@register_op("matmul", operands=(2, 3), attrs={**MATMUL_ATTRS, **CLAMP}, kind="product", work=matmul_work(EPILOGUE),
             epilogue=EPILOGUE[:1])
def matmul(types, attrs):
    """T[..., M, K], T[..., K, N] -> T[..., M, N]; leading axes broadcast.

    `transpose_a` reads operand 0 as [..., K, M], `transpose_b` operand 1 as [..., N, K]. Integers wrap.
    The epilogue: clamp(product + bias[N]).
    """
    result = matmul_type(types, attrs)
    return epilogue_types(EPILOGUE, result, types, attrs, result.rank - 1)


@matmul.reference
@in_f32
def _(inputs, attrs):
    sums = matmul_array(inputs, attrs)
    return finished(EPILOGUE, sums, inputs, attrs, sums.ndim - 1)


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


@register_op("scale_shift", operands=3, attrs=CLAMP, work=by_result(simple=3), tolerant=True, by_channel=True)
def scale_shift(types, attrs):
    """T[N, C, ...], T[C], T[C] -> T[N, C, ...]: clamp(data * scale + shift), per channel on axis 1."""
    require_rank(types[0], 2)
    require_clamp(attrs)
    require_channel_vectors(types, 1)
    return types[0]


@scale_shift.reference
@in_f32
def _(inputs, attrs):
    data = inputs[0]
    scale, shift = (along_axis(v, 1, data.ndim) for v in inputs[1:])
    return clamp_array(data * scale + shift, attrs["lower"], attrs["upper"])
